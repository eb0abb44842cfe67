"""Every rule the simulator knows, looked up by its id: what ``%nki help`` shows."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import nki_sim
from nki_sim.errors import GEN_TARGET, Rule
from nki_sim.isa import INSTRUCTIONS

from nki_nb.markup import escape

_ENFORCED = {
    "error": "raises",
    "runtime": "raises while the kernel runs",
    "ub": "reported (undefined behaviour on hardware); raises under --strict",
    "warn": "reported; raises under --strict",
}


@lru_cache(maxsize=1)
def catalogue() -> dict[str, tuple[Rule, ...]]:
    """Rules by id, sorted; an id that several places check has one entry for each wording."""
    found: dict[str, list[Rule]] = {}
    for rule in _declared():
        same = found.setdefault(rule.id, [])
        if rule not in same:
            same.append(rule)
    return {name: tuple(found[name]) for name in sorted(found)}


def _declared() -> Iterator[Rule]:
    for cls in INSTRUCTIONS.values():
        yield from cls.rules()
    for module in sorted(m.name for m in pkgutil.walk_packages(nki_sim.__path__, "nki_sim.")):
        yield from (value for value in vars(importlib.import_module(module)).values() if isinstance(value, Rule))


@dataclass(frozen=True)
class Page:
    """One or more rules, as text and HTML."""

    title: str
    rules: tuple[Rule, ...]

    def __str__(self) -> str:
        out = [self.title]
        for rule in self.rules:
            out += ["", rule.id, *(f"  {label:<6}  {words}" for label, words in _fields(rule))]
        return "\n".join(out)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        parts = []
        for rule in self.rules:
            rows = "".join(
                f'<tr style="background:none"><td style="text-align:left;opacity:.65">{label}</td>'
                f'<td style="text-align:left">{_linked(words)}</td></tr>'
                for label, words in _fields(rule)
            )
            parts.append(f"<p><code>{escape(rule.id)}</code></p><table><tbody>{rows}</tbody></table>")
        return f"<b>{escape(self.title)}</b>{''.join(parts)}"


def _fields(rule: Rule) -> Iterator[tuple[str, str]]:
    labelled = (
        ("limit", rule.words),
        ("why", rule.why),
        ("fix", rule.fix),
        ("on", ", ".join(GEN_TARGET[g] for g in rule.gens)),
        ("effect", _ENFORCED[rule.enforce]),
        ("page", rule.page),
    )
    return ((label, words) for label, words in labelled if words)


def _linked(words: str) -> str:
    shown = escape(words)
    return f'<a href="{shown}">{shown}</a>' if words.startswith("https://") else shown


def page(name: str) -> Page:
    """The rule ``name``, or all rules of the instruction ``name``.

    Raises:
        LookupError: no rule has that id; the message names near ones.
    """
    known = catalogue()
    if name in known:
        return Page("rule", known[name])
    below = [rule for rule_id, rules in known.items() if rule_id.startswith(f"{name}.") for rule in rules]
    if name and below:
        return Page(f"rules of {name}", tuple(below))
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"for example %nki help {next(iter(known))}"
    raise LookupError(f"no rule {name!r}; {hint}" if name else f"which rule? {hint}")
