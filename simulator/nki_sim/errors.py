"""Diagnoses: what was broken, where, the rule in words, the limit, the value, why the hardware has it, how to fix it.

Errors are the product. A :class:`Rule` is declared once, beside the check, on the class of the instruction it limits;
a check that fails returns a :class:`Broken`; :func:`violation` turns both into the exception to raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from nki_sim.source import Site, call_chain

Enforce = Literal["error", "runtime", "ub", "warn"]
ALL_GENS = (2, 3, 4)
GEN_TARGET = {2: "trn1", 3: "trn2", 4: "trn3"}


@dataclass(frozen=True)
class Rule:
    """One documented limit.

    Attributes:
        id: the rule's identifier, ``instruction.what``.
        words: the rule in words, with its numbers.
        why: one sentence, why the hardware has it.
        fix: how to get out of it.
        page: the documentation page.
        gens: NeuronCore generations in which it is in force.
        enforce: ``error`` raises; ``ub`` and ``warn`` report, and raise under ``strict``.
    """

    id: str
    words: str
    why: str = ""
    fix: str = ""
    page: str = ""
    gens: tuple[int, ...] = ALL_GENS
    enforce: Enforce = "error"


@dataclass(frozen=True)
class Broken:
    """What a failed check found: the headline in a few words, the operand, and words that fit better than the rule's."""

    what: str
    operand: str = ""
    fix: str = ""
    error: type[Exception] | None = None
    """The exception to raise where the documentation names another than NkiValidationError."""


@dataclass
class Diagnosis:
    """A rule broken at a place; renders as text here, as HTML in the notebook."""

    headline: str
    target: str
    rule: Rule | None = None
    instruction: str = ""
    operand: str = ""
    operand_words: str = ""
    fix: str = ""
    sites: tuple[Site, ...] = ()
    notes: tuple[str, ...] = ()
    step: int | None = None
    """The program step it is about; the number of steps so far when the instruction was refused."""

    @property
    def site(self) -> Site | None:
        return self.sites[0] if self.sites else None

    @property
    def line(self) -> int | None:
        """Line number in the user's source, from 1."""
        return self.site.line if self.site else None

    def fields(self) -> Iterator[tuple[str, str]]:
        """The labelled lines under the excerpt, in order."""
        rule = self.rule
        yield from (("note", note) for note in self.notes)
        if rule is None:
            if self.fix:
                yield "fix", self.fix
            return
        if rule.words:
            gens = "" if rule.gens == ALL_GENS else " (" + ", ".join(GEN_TARGET[g] for g in rule.gens) + ")"
            yield "limit", rule.words + gens
        if rule.why:
            yield "why", rule.why
        if self.fix or rule.fix:
            yield "fix", self.fix or rule.fix
        yield "rule", rule.id
        if rule.page:
            yield "page", rule.page

    def text(self) -> str:
        """The diagnosis as plain text, the same on every machine."""
        subject = f"{self.instruction}: " if self.instruction else ""
        target = f" ({self.target})" if self.target else ""
        out = [f"{subject}{self.headline}{target}"]
        if self.site is not None:
            out += ["", f"  {self.site.place}"]
            excerpt = self.site.excerpt(argument=self.operand or None)
            out += excerpt
            if self.operand_words:
                out.append(f"  {self.operand}: {self.operand_words}")
            out += [f"  called from {outer.place}" for outer in self.sites[1:4]]
        elif self.operand_words:
            out += ["", f"  {self.operand}: {self.operand_words}"]
        out += [f"  {label:<6}  {words}" for label, words in self.fields()]
        return "\n".join(out)

    def as_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data, for ``--json``."""
        rule = self.rule
        return {
            "instruction": self.instruction,
            "operand": self.operand,
            "operand_is": self.operand_words,
            "message": self.headline,
            "target": self.target,
            "rule": rule.id if rule else "",
            "limit": rule.words if rule else "",
            "why": rule.why if rule else "",
            "fix": self.fix or (rule.fix if rule else ""),
            "page": rule.page if rule else "",
            "notes": list(self.notes),
            "place": self.site.place if self.site else "",
            "line": self.line,
            "step": self.step,
        }


class NkiError(Exception):
    """Base of the errors that carry a diagnosis."""

    def __init__(self, diagnosis: Diagnosis | str):
        super().__init__(diagnosis if isinstance(diagnosis, str) else diagnosis.text())
        self.diagnosis = diagnosis if isinstance(diagnosis, Diagnosis) else Diagnosis(diagnosis, "")
        self.run: Any = None
        """The run up to the failure (:class:`nki_sim.kernel.Run`), where one was under way."""

    def __repr__(self) -> str:  # PyTorch's compiler shows it inside an error of its own
        return f"{type(self).__name__}: {self}"


class NkiValidationError(NkiError):
    """Raised when hardware constraints are violated."""


class NkiCapacityError(NkiValidationError):
    """SBUF or PSUM does not hold what is alive at one time."""


class NkiAssertionError(NkiValidationError, AssertionError):
    """A violated limit for which the documentation names ``AssertionError``."""


class NkiTypeError(NkiValidationError, TypeError):
    """A violated limit for which the documentation, or Python's habit, names ``TypeError``."""


class NkiValueError(NkiValidationError, ValueError):
    """A violated limit for which the documentation names ``ValueError``."""


class NkiIndexError(NkiValidationError, IndexError):
    """An index or slice outside its tensor."""


class NkiNameError(NkiError, AttributeError):
    """A name that the API does not have, with what to write instead."""


class NkiImportError(NkiError, ImportError):
    """As :class:`NkiNameError`, for ``from nki… import name``: Python would put its own words in the place of ours."""


class NkiWarning(UserWarning):
    """Something the simulator lets through that hardware may not: undefined behaviour, soft rules, portability."""

    def __init__(self, diagnosis: Diagnosis):
        super().__init__(diagnosis.text())
        self.diagnosis = diagnosis

    @property
    def line(self) -> int | None:
        return self.diagnosis.line


class NkiDeprecationWarning(DeprecationWarning):
    """Something of the public API that will go.

    Attributes:
        headline: what it is about. fix: what to write instead.
    """

    def __init__(self, headline: str, fix: str):
        super().__init__(f"{headline}: {fix}")
        self.headline, self.fix = headline, fix


Check = Callable[..., "Broken | None"]
F = TypeVar("F", bound=Callable[..., Any])

_DOCS = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/"


def isa_page(name: str) -> str:
    """The documentation page of one instruction."""
    return page(f"api/generated/nki.isa.{name}.html")


def page(path: str, below: str = "nki/") -> str:
    """A documentation page below ``nki/``, or below another part of the documentation."""
    return f"{_DOCS}{below}{path}"


@dataclass(frozen=True)
class Checked:
    """A rule and the function that checks it; found on an instruction's class."""

    rule: Rule
    check: Check


def rule(
    id: str,
    words: str,
    *,
    why: str = "",
    fix: str = "",
    page: str = "",
    gens: tuple[int, ...] = ALL_GENS,
    enforce: Enforce = "error",
) -> Callable[[F], F]:
    """Declare that the decorated method checks this rule; the method returns a :class:`Broken` or ``None``."""
    declared = Rule(id, words, why, fix, page, gens, enforce)

    def attach(function: F) -> F:
        rules: list[Rule] = getattr(function, "rules", [])
        function.rules = [declared, *rules]  # type: ignore[attr-defined]
        return function

    return attach


@dataclass
class Report:
    """What one run has to say besides its outputs: each finding once per place, in order."""

    findings: list[Diagnosis] = field(default_factory=list)
    counts: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def add(self, diagnosis: Diagnosis) -> bool:
        """Keep a finding; False when the same one was found at the same place before."""
        key = (diagnosis.rule.id if diagnosis.rule else diagnosis.headline, diagnosis.line)
        self.counts[key] = self.counts.get(key, 0) + 1
        if self.counts[key] > 1:
            return False
        self.findings.append(diagnosis)
        return True


def violation(
    rule: Rule,
    broken: Broken,
    *,
    target: str,
    instruction: str = "",
    operand_words: str = "",
    notes: tuple[str, ...] = (),
    sites: tuple[Site, ...] | None = None,
    step: int | None = None,
) -> Diagnosis:
    """The diagnosis of a broken rule at the user's current line."""
    return Diagnosis(
        headline=broken.what,
        target=target,
        rule=rule,
        instruction=instruction,
        operand=broken.operand,
        operand_words=operand_words,
        fix=broken.fix,
        sites=tuple(call_chain(2)) if sites is None else sites,
        notes=notes,
        step=step,
    )


def fail(
    rule: Rule,
    what: str,
    *,
    target: str,
    subject: str = "",
    fix: str = "",
    error: type[NkiError] = NkiValidationError,
    operand: str = "",
) -> NkiError:
    """The exception for a rule broken outside an instruction (a view, an allocation, a call); the caller raises it."""
    broken = Broken(what, operand=operand, fix=fix)
    return error(violation(rule, broken, target=target, instruction=subject, sites=tuple(call_chain(2))))
