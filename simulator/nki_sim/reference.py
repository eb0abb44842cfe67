"""The reference: what each instruction, function and view takes and what limits it, read from the code that enforces it.

An instruction's page comes from its class: operands and their spaces, engine, cost, and every rule that it is checked
against. A function's or a view's rules are those declared with its page of the documentation as their source.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import nki_sim
from nki_sim import kernel, lang, ops
from nki_sim.errors import ALL_GENS, GEN_TARGET, Rule, isa_page, page
from nki_sim.isa import INSTRUCTIONS, Instruction
from nki_sim.isa.docstring import own_words
from nki_sim.isa.enums import engine
from nki_sim.isa.registers import load_scalar, register_alloc
from nki_sim.scalars import NkiScalar, VirtualRegister
from nki_sim.tensor import NkiTensor

_SECTION = re.compile(r"^(Args|Returns|Raises|Example|Attributes):\s*(.*)$")


@dataclass(frozen=True)
class Entry:
    """One page of the reference.

    Attributes:
        name: ``nisa.nc_matmul``, ``nl.load``, ``NkiTensor.permute``.
        signature: its parameters with their defaults.
        words: what it does. arguments: what each parameter takes. example: lines of a kernel.
        operands: per operand of an instruction its name, access and spaces.
        engine, cost: of an instruction: which engine runs it, and its cycles there for N elements per partition.
        rules: every limit, the instruction's own before those of all instructions.
        page: the documentation.
    """

    name: str
    signature: str
    words: str
    arguments: str = ""
    example: str = ""
    operands: tuple[tuple[str, str, str], ...] = ()
    engine: str = ""
    cost: str = ""
    rules: tuple[Rule, ...] = ()
    page: str = ""

    @property
    def short(self) -> str:
        """The name without its module."""
        return self.name.rpartition(".")[2]

    @property
    def summary(self) -> str:
        """The first sentence, on one line."""
        return " ".join(self.words.split("\n\n")[0].split())

    def text(self) -> str:
        """The page as plain text."""
        out = [f"{self.name}{self.signature}", "", self.words]
        for title, body in (("Arguments", self.arguments), ("Operands", self._operand_lines()), ("Engine", self.engine),
                            ("Cost", self.cost), ("Example", self.example), ("Limits", self._limit_lines())):  # fmt: skip
            if body:
                out += ["", title, *(f"  {line}".rstrip() for line in body.splitlines())]
        if self.page:
            out += ["", self.page]
        return "\n".join(out)

    def _operand_lines(self) -> str:
        width = max((len(name) for name, _, _ in self.operands), default=0)
        return "\n".join(f"{name:<{width}}  {access:<6}  {where}" for name, access, where in self.operands)

    def _limit_lines(self) -> str:
        lines = []
        for rule in self.rules:
            lines.append(f"{rule.id}: {rule.words}{qualified(rule)}")
            if rule.page != self.page:
                lines.append(f"    {rule.page}")
        return "\n".join(lines)


def qualified(rule: Rule) -> str:
    """Where a rule does not hold everywhere or does not raise: `` [trn2, trn3; reported]``."""
    parts = []
    if rule.gens != ALL_GENS:
        parts.append(", ".join(GEN_TARGET[g] for g in rule.gens))
    if rule.enforce in ("ub", "warn"):
        parts.append("reported")
    elif rule.enforce == "runtime":
        parts.append("at run time")
    return f" [{'; '.join(parts)}]" if parts else ""


# -- rules --------------------------------------------------------------------------------------------------------------


NEED_TORCH = ("nki_sim.torch", "nki_sim.api.torch_neuronx")


@lru_cache(maxsize=1)
def rules() -> dict[str, tuple[Rule, ...]]:
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
    for module in modules():
        yield from _of_module(module)


def modules() -> list[str]:
    """The simulator's modules, but for those that load PyTorch; they declare no rules."""
    found: list[str] = []
    where = [(list(nki_sim.__path__), "nki_sim.")]
    while where:
        path, prefix = where.pop()
        for info in pkgutil.iter_modules(path, prefix):
            if info.name in NEED_TORCH:
                continue
            found.append(info.name)
            if info.ispkg:
                where.append((list(importlib.import_module(info.name).__path__), f"{info.name}."))
    return sorted(found)


def _of_module(name: str) -> Iterator[Rule]:
    for value in vars(importlib.import_module(name)).values():
        yield from (rule for rule in (value.values() if type(value) is dict else (value,)) if isinstance(rule, Rule))


def rules_of(cls: type[Instruction]) -> tuple[Rule, ...]:
    """Every rule of an instruction: those checked before it runs, and those found while it runs."""
    every = list(cls.rules())
    modules = [level.__module__ for level in cls.__mro__ if level.__module__.startswith("nki_sim.isa.")]
    if "reduce_cmd" in cls.param_names:
        modules.append("nki_sim.isa.accumulator")
    for module in (*modules, "nki_sim.isa.indirection", "nki_sim.machine"):
        every += _of_module(module)
    return tuple(sorted(dict.fromkeys(every), key=lambda r: not r.id.startswith(f"{cls.__name__}.")))


# -- pages --------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """Every page by its name."""
    from nki_sim import collectives  # not for the page of one instruction

    made = [of_instruction(name) for name in INSTRUCTIONS]
    made += [_of_function(f"nisa.{name}", function, isa_page(name)) for name, function in _ISA_FUNCTIONS.items()]
    for name, value in lang.PUBLIC.items():
        if inspect.isroutine(value) or inspect.isclass(value):
            made.append(_of_function(f"nl.{name}", value, page(f"api/generated/nki.language.{name}.html")))
    for name, value in collectives.PUBLIC.items():
        made.append(_of_function(f"ncc.{name}", value, page(f"api/generated/nki.collectives.{name}.html")))
    made += [
        _of_function("nki.jit", kernel.jit, page("api/generated/nki.jit.html")),
        _of_function("NkiTensor", NkiTensor, _TENSOR),
    ]
    made.append(_of_function("nl.tile_size", type(lang.PUBLIC["tile_size"]), page("api/nki.language.tile_size.html")))
    for name, value in vars(NkiTensor).items():
        if inspect.isroutine(value) and not name.startswith("_") and name not in _INTERNAL:
            made.append(_of_function(f"NkiTensor.{name}", value, _TENSOR))
    return {entry.name: entry for entry in made}


_INTERNAL = ("fresh", "unbind")
"""Of a tensor's methods those that the simulator calls."""
_ISA_FUNCTIONS = {"register_alloc": register_alloc, "VirtualRegister": VirtualRegister, "NkiScalar": NkiScalar}
_CALLED = {"scalar_load": load_scalar}
"""Instructions that a function of another signature issues."""
_TENSOR = page("api/generated/nki.language.NkiTensor.html")
_BINARY = "|".join(name for name, op in ops.TABLE.items() if op.arity == 2)
_BITS = "|".join(name for name, op in ops.TABLE.items() if op.is_bitvec)
_ALSO = (
    (
        r"nki\.jit",
        r"kernel\.(?!operand_type|operator|enum)|lang\.(unsupported|dict|no_reorder|dynamic_front)|simulator|sched|dtype\.sup|torch\.|jax\.",
    ),
    (
        r"nl\.(ndarray|full|zeros|ones|zeros_like|empty_like|alloc_\w+)",
        r"dtype\.|tensor\.shape|hw\.(sbuf|psum|hbm|partition_dim)|memory\.",
    ),
    (r"nki\.jit", r"dataflow\."),
    (r"NkiTensor", r"tensor\.|lang\.isa_dst"),
    (r"NkiTensor\.ap", r"ap\."),
    (r"nl\.(fori_loop|while_loop)", r"lang\.(loop_body|no_reorder|dynamic_var|nested)|estimate\."),
    (r"nl\.(fori_loop)", r"lang\.fori_loop"),
    (r"nl\.(while_loop)", r"lang\.while_loop"),
    (r"nl\.no_reorder", r"lang\.no_reorder"),
    (r"nl\.tile_size", r"nl\.tile_size"),
    (rf"nl\.({_BINARY})", r"nl\.(binary_no|compare_one)|kernel\.operand_type"),
    (rf"nl\.({_BITS}|invert)", r"nl\.bitwise_int"),
    (
        r"ncc\.(?!Replica|rank_id).*",
        r"coll\.(ranks|answered|same_call|lists|shapes|in_place|priority|executor|v_runtime)|run_ranks",
    ),
    (r"ncc\.all_(gather|to_all)_v.*", r"coll\.v_"),
    (r"ncc\.all_gather_v_.*", r"coll\.all_gather_v"),
    (r"ncc\.all_to_all_v_.*", r"coll\.all_to_all_v"),
    (r"ncc\.collective_permute", r"coll\.permute\.ring"),
    (r"ncc\.collective_permute_implicit_reduce", r"coll\.permute_implicit\."),
    (r"nki\.jit", r"kernel\.lnc|memory\.(race|written)"),
    (r"nisa\.VirtualRegister", r"register\.|lang\.dynamic_var"),
    (r"nisa\.NkiScalar", r"scalar\."),
)
"""Pages, and rules that belong on them beside those that name the page as their source."""


@cache
def of_instruction(name: str) -> Entry:
    """The page of an instruction."""
    cls = INSTRUCTIONS[name]
    called = _CALLED.get(cls.__name__, cls)
    sections, parameters = _sections(own_words(called)), inspect.signature(called).parameters
    choice = ", or what engine= says" if "engine" in cls.param_names else ""
    return Entry(
        name=f"nisa.{cls.__name__}",
        signature=_signature(called),
        words=sections[""],
        arguments=sections.get("Args", ""),
        example=sections.get("Example", ""),
        operands=tuple(_operand(cls, operand) for operand in cls.specs if operand in parameters),
        engine="the DMA engines" if cls.runs_on is engine.dma else f"{cls.runs_on.name}{choice}",
        cost=_cost(cls),
        rules=rules_of(cls),
        page=isa_page(cls.__name__),
    )


def _operand(cls: type[Instruction], name: str) -> tuple[str, str, str]:
    spec = cls.specs[name]
    return name, spec.access, cls.space_rule(name).words.removeprefix(f"{name} is ").removeprefix("in ")


def _cost(cls: type[Instruction]) -> str:
    if cls.runs_on is engine.dma:
        return "its bytes and descriptors: see the report's dma line"
    words = next((vars(level)["cycles"].__doc__ for level in cls.__mro__ if "cycles" in vars(level)), "") or ""
    return inspect.cleandoc(words)


def _of_function(name: str, value: Any, source: str) -> Entry:
    sections = _sections(value.__doc__)
    short = name.rpartition(".")[2]
    own = [r for same in rules().values() for r in same if r.page == source or r.id == name]
    if source == _TENSOR and name != "NkiTensor":
        own = [r for r in own if re.search(rf"\b{short}\b", f"{r.id} {r.words}".replace("_", " ").replace(".", " "))]
    also = [rule for pages, ids in _ALSO if re.fullmatch(pages, name) for rule in _matching(ids)]
    own += [rule for rule in also if rule not in own]
    return Entry(name, _signature(value), sections[""], sections.get("Args", ""), sections.get("Example", ""),
                 rules=tuple(dict.fromkeys(own)), page=source)  # fmt: skip


def _matching(ids: str) -> list[Rule]:
    return [rule for same in rules().values() for rule in same if re.match(ids, rule.id)]


def _signature(value: Any) -> str:
    try:
        given = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    shown = []
    for parameter in given.parameters.values():
        if parameter.name == "self":
            continue
        default = parameter.default
        plain = parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        words = str(plain)
        if default is not inspect.Parameter.empty:
            words += f"={default}" if hasattr(default, "name") else f"={default!r}"
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        shown.append(words)
    return f"({', '.join(shown)})"


def _sections(text: str | None) -> dict[str, str]:
    """A docstring's parts; what comes before the first heading is under the empty name."""
    found: dict[str, list[str]] = {"": []}
    current = ""
    for line in inspect.cleandoc(text or "").splitlines():
        heading = _SECTION.match(line)
        if heading:
            current = heading[1]
            found[current] = [heading[2]] if heading[2] else []
        else:
            found[current].append(line)
    return {
        name: textwrap.dedent("\n".join(lines)).strip() if name else "\n".join(lines).strip() for name, lines in found.items()
    }


# -- search ----------------------------------------------------------------------------------------------------------------


def find(name: str) -> Entry | None:
    """The page with this name, with or without its module."""
    every = entries()
    name = name.strip().removeprefix("nki.isa.").removeprefix("nki.language.").removeprefix("nki.collectives.").rstrip("()")
    if name in every:
        return every[name]
    short = name.rpartition(".")[2]
    prefixes = ("nisa", "nl", "ncc", "NkiTensor") if short == name else ()
    return next((every[f"{p}.{name}"] for p in prefixes if f"{p}.{name}" in every), None)


def search(text: str, most: int = 12) -> list[Entry]:
    """Pages about a word or two, the best first: names that hold it, then descriptions, then names alike."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    if not words:
        return []
    scored = [(score, -i, entry) for i, entry in enumerate(entries().values()) if (score := _score(entry, words)) > 0]
    return [entry for _, _, entry in sorted(scored, key=lambda s: s[:2], reverse=True)[:most]]


def search_rules(text: str, most: int = 8) -> list[Rule]:
    """Rules whose id or words hold all of the words; else those with ids alike."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    flat = [same[0] for same in rules().values()]
    held = [r for r in flat if words and all(w in f"{r.id} {r.words}".lower() for w in words)]
    near = difflib.get_close_matches(text, [r.id for r in flat], n=3, cutoff=0.5)
    return (held or [rules()[name][0] for name in near])[:most]


def _score(entry: Entry, words: Iterable[str]) -> float:
    name, summary, rest = entry.short.lower(), entry.summary.lower(), f"{entry.words} {entry.arguments}".lower()
    total = 0.0
    for word in words:
        parts = name.split("_")
        if word == name:
            found = 8.0
        elif word in parts:
            found = 6.0 + len(word) / len(name)
        elif word in name:
            found = 5.0 + len(word) / len(name)
        elif re.search(rf"\b{re.escape(word)}", summary):
            found = 3.0
        elif re.search(rf"\b{re.escape(word)}", rest):
            found = 2.0
        else:
            alike = max(difflib.SequenceMatcher(None, word, part).ratio() for part in (name, *parts))
            found = alike if alike >= 0.75 else 0.0
        if not found:
            return 0.0
        total += found
    return total


def docstring(name: str) -> str:
    """What ``help()`` and ``?`` show of an instruction: its page without the signature, which they know."""
    return of_instruction(name).text().partition("\n")[2].strip()
