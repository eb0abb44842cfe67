"""``%nki help`` and ``nki-nb help``: the reference, a rule by its id, or what a search finds, as text and HTML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nki_sim import reference
from nki_sim.errors import GEN_TARGET, Rule
from nki_sim.reference import Entry

from nki_nb.markup import escape

_ENFORCED = {
    "error": "raises",
    "runtime": "raises while the kernel runs",
    "ub": "reported (undefined behaviour on hardware); raises under --strict",
    "warn": "reported; raises under --strict",
}
_LEFT = "text-align:left;vertical-align:top"


class Help:
    """Something to read, in the notebook and in a terminal."""

    rules: tuple[Rule, ...] = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class EntryHelp(Help):
    """A page of the reference."""

    entry: Entry

    @property
    def rules(self) -> tuple[Rule, ...]:  # type: ignore[override]
        return self.entry.rules

    def __str__(self) -> str:
        return self.entry.text()

    def _repr_html_(self) -> str:
        entry = self.entry
        words = "".join(f"<p>{_code(part)}</p>" for part in entry.words.split("\n\n"))
        parts = [f"<p><b><code>{escape(entry.name)}</code></b><code>{escape(entry.signature)}</code></p>", words]
        if entry.arguments:
            parts += [_head("Arguments"), _pre(entry.arguments)]
        if entry.operands:
            parts += [
                _head("Operands"),
                _table([[f"<code>{escape(n)}</code>", escape(a), escape(w)] for n, a, w in entry.operands]),
            ]
        facts = [[escape(label), _code(text)] for label, text in (("engine", entry.engine), ("cost", entry.cost)) if text]
        parts += [_table(facts)] if facts else []
        if entry.example:
            parts += [_head("Example"), _pre(entry.example)]
        if entry.rules:
            rows = [[_rule_link(r), f"{_code(r.words)}{escape(reference.qualified(r))}"] for r in entry.rules]
            parts.append(f"<details open><summary>{len(rows)} limits</summary>{_table(rows)}</details>")
        parts.append(f"<p>{_linked(entry.page)}</p>" if entry.page else "")
        return "".join(parts)


@dataclass(frozen=True, repr=False)
class RuleHelp(Help):
    """One or more rules."""

    title: str
    rules: tuple[Rule, ...]

    def __str__(self) -> str:
        out = [self.title]
        for rule in self.rules:
            out += ["", rule.id, *(f"  {label:<6}  {words}" for label, words in _fields(rule))]
        return "\n".join(out)

    def _repr_html_(self) -> str:
        parts = [f"<b>{escape(self.title)}</b>"]
        for rule in self.rules:
            rows = [[f'<span style="opacity:.65">{label}</span>', _linked(words)] for label, words in _fields(rule)]
            parts.append(f"<p><code>{escape(rule.id)}</code></p>{_table(rows)}")
        return "".join(parts)


@dataclass(frozen=True, repr=False)
class Hits(Help):
    """What a search found, the best first."""

    text: str
    entries: tuple[Entry, ...]
    rules: tuple[Rule, ...]

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self._lines()), default=0)
        return "\n".join([f"about {self.text!r}:", *(f"  {name:<{width}}  {words}" for name, words in self._lines())])

    def _repr_html_(self) -> str:
        rows = [[f"<code>{escape(name)}</code>", _code(words)] for name, words in self._lines()]
        return f"<p>about <code>{escape(self.text)}</code>; <code>%nki help NAME</code> shows one</p>{_table(rows)}"

    def _lines(self) -> list[tuple[str, str]]:
        return [*((e.name, e.summary) for e in self.entries), *((r.id, r.words) for r in self.rules)]


def look_up(name: str) -> Help:
    """The page or rule ``name``, the rules that start with it, or what a search for it finds.

    Raises:
        LookupError: there is nothing about it.
    """
    name = name.strip()
    if not name:
        raise LookupError("help about what? for example %nki help nc_matmul, %nki help transpose, %nki help nc_matmul.k_equal")
    known = reference.rules()
    entry = reference.find(name)
    if entry is not None:
        return EntryHelp(entry)
    if name in known:
        return RuleHelp("rule", known[name])
    below = tuple(rule for rule_id, rules in known.items() if rule_id.startswith(f"{name}.") for rule in rules)
    if below:
        return RuleHelp(f"rules of {name}", below)
    hits = Hits(name, tuple(reference.search(name)), tuple(reference.search_rules(name)))
    if not hits.entries and not hits.rules:
        raise LookupError(f"nothing about {name!r}; for example %nki help nc_matmul, or a word: %nki help transpose")
    return hits


def names() -> list[str]:
    """Every name that has a page, and every rule: what completion offers."""
    short = [name.partition(".")[2] for name in reference.entries() if name.startswith(("nisa.", "nl.", "ncc."))]
    return [*dict.fromkeys(short), *reference.entries(), *reference.rules()]


# -- HTML ----------------------------------------------------------------------------------------------------------------


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


def _head(words: str) -> str:
    return f'<p style="margin-bottom:0"><b>{words}</b></p>'


def _pre(text: str) -> str:
    return f'<pre style="white-space:pre-wrap">{_code(text)}</pre>'


def _table(rows: list[list[str]]) -> str:
    """A table of cells that are HTML already."""
    lines = "".join(
        f'<tr style="background:none">{"".join(f"<td style={chr(34)}{_LEFT}{chr(34)}>{cell}</td>" for cell in row)}</tr>'
        for row in rows
    )
    return f"<table><tbody>{lines}</tbody></table>"


def _rule_link(rule: Rule) -> str:
    shown = f"<code>{escape(rule.id)}</code>"
    return f'<a href="{escape(rule.page)}">{shown}</a>' if rule.page.startswith("https://") else shown


def _code(text: str) -> str:
    """Text whose parts between double backquotes are code."""
    parts = escape(text).split("``")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _linked(words: str) -> str:
    shown = escape(words)
    return f'<a href="{shown}">{shown}</a>' if words.startswith("https://") else shown
