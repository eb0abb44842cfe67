"""What a machine has to say: errors at the user's line, and findings, each once per place."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from nki_sim.errors import (
    Broken,
    Diagnosis,
    NkiAssertionError,
    NkiError,
    NkiTypeError,
    NkiValidationError,
    NkiWarning,
    Report,
    Rule,
    violation,
)
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import Instruction
from nki_sim.pending import Waiting
from nki_sim.program import Program
from nki_sim.source import Site, call_chain
from nki_sim.tensor import OutOfRangeError


class Disturbed(Exception):  # noqa: N818 - nothing went wrong: what is done again has something new to say
    """A body that is done again has a finding, or an error, that the recorded run did not have."""


class Reporting:
    """One that reports what instructions do wrong, or what may be wrong with them.

    Attributes:
        core: the generation.
        strict: findings are errors.
        program: its record, by which steps have lines.
        report: what was found.
    """

    def __init__(self, core: NeuronCore, strict: bool):
        self.core = core
        self.strict = strict
        self.program = Program()
        self.report = Report()
        self._again: int | None = None
        """The call site of the instruction that a loop repeats."""
        self._late: Waiting | None = None
        """The instruction that waited, and runs now."""
        self._muted = False
        self._disturbed = False

    def diagnose(self, ins: Instruction, rule: Rule, broken: Broken, notes: tuple[str, ...] = ()) -> Diagnosis:
        """The diagnosis of a rule that this instruction breaks, at the user's line."""
        words = ins.operand_words(broken.operand) if broken.operand else ""
        return violation(
            rule,
            broken,
            target=self.core.target,
            instruction=type(ins).__name__,
            operand_words=words,
            notes=notes,
            sites=self._sites(),
            step=self._late.step if self._late else ins.step if ins.step >= 0 else len(self.program),
        )

    def _site_again(self) -> tuple[Site, ...]:
        """The line of an instruction that a loop repeats, which is not on the stack."""
        found = None if self._again is None else self.program.sites[self._again]
        return () if found is None else (found,)

    def _sites(self) -> tuple[Site, ...]:
        """Where what is reported now was called."""
        if self._late is None:
            return (*self._site_again(), *call_chain(3))
        found = self.program.site_at(self._late.step)
        return tuple(self._late.sites) or (() if found is None else (found,))

    def error(self, ins: Instruction, rule: Rule, broken: Broken) -> NkiError:
        """The exception for a broken rule; the caller raises it. What the instruction would have used was alive until then."""
        for _, tile in ins.tiles():
            allocation = tile.storage.allocation
            allocation.last = max(allocation.last, len(self.program) - 1)
        diagnosis = self.diagnose(ins, rule, broken)
        return _exception(broken.error)(diagnosis)

    def broken(self, ins: Instruction, rule: Rule, broken: Broken) -> None:
        """Raise for an error rule, report for a soft one."""
        if rule.enforce in ("error", "runtime"):
            raise self.error(ins, rule, broken)
        self.finding(ins, rule, broken)

    def finding(self, ins: Instruction, rule: Rule, broken: Broken, notes: tuple[str, ...] = ()) -> None:
        """Report something the simulator lets through; under ``strict`` it is an error."""
        if self._disturbed:
            raise Disturbed
        if not self._muted:
            self.found(self.diagnose(ins, rule, broken, notes))

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Run bodies again without reporting what the first run reported."""
        before, self._muted = self._muted, True
        try:
            yield
        finally:
            self._muted = before

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Run bodies again; whatever one has to report ends it.

        Raises:
            Disturbed: it must be said at the line that it is about: run the kernel itself.
        """
        self._disturbed = True
        try:
            yield
        except (NkiError, OutOfRangeError) as error:
            raise Disturbed from error
        finally:
            self._disturbed = False

    def found(self, diagnosis: Diagnosis) -> None:
        """Keep a finding and warn about it once per place; under ``strict`` raise it."""
        if self._muted:
            return
        if self.strict:
            raise NkiValidationError(diagnosis)
        if not self.report.add(diagnosis):
            return
        site = diagnosis.site
        warnings.warn_explicit(
            NkiWarning(diagnosis),
            NkiWarning,
            site.filename if site else "<nki_sim>",
            site.line if site else 1,
            registry={},
        )


def _exception(wanted: type[Exception] | None) -> type[NkiError]:
    if wanted is None:
        return NkiValidationError
    if issubclass(wanted, NkiError):
        return wanted
    return {TypeError: NkiTypeError, AssertionError: NkiAssertionError}.get(wanted, NkiValidationError)


__all__ = ["Disturbed", "Reporting"]
