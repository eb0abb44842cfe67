"""Why nobody can go on: who waits where and for what, and what those did who do not come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nki_sim.errors import Broken, NkiError, NkiValidationError, Rule, violation
from nki_sim.isa.meeting import Meeting
from nki_sim.source import Site

if TYPE_CHECKING:
    from nki_sim.cores.team import Team

MOST_NOTES = 8
"""Of other cores, in one diagnosis."""


@dataclass(frozen=True)
class Arrival:
    """A core that waits, for what, and where in its code."""

    ins: Meeting
    members: tuple[int, ...]
    sites: tuple[Site, ...]

    @property
    def line(self) -> str:
        return f"line {self.sites[0].line}" if self.sites else "an unknown line"

    def is_alike(self, other: Arrival | None) -> bool:
        """Whether another one waits for the same."""
        return other is not None and self.is_of_kind(other) and self.ins.key() == other.ins.key()

    def is_of_kind(self, other: Arrival | None) -> bool:
        """Whether another one waits in the same instruction."""
        return other is not None and type(self.ins) is type(other.ins)


def explained(team: Team, waiting: Mapping[int, Arrival]) -> NkiError:
    """The error for a team of which some wait, and nobody is left to come."""
    worker, first = min(waiting.items())
    crossed = first.ins.crossed
    if crossed is not None and all(first.is_of_kind(waiting.get(other)) for other in first.members):
        return _error(team, crossed, first, *_crossed(team, first, waiting))
    missing = [team.name(other) for other in first.members if not first.is_alike(waiting.get(other))]
    named = " and ".join(missing[:MOST_NOTES]) + (" and others" if len(missing) > MOST_NOTES else "")
    come = "which does not come" if len(missing) == 1 else "which do not come"
    notes = [_whereabouts(team, other, waiting.get(other)) for other in first.members if other != worker]
    what = f"{team.name(worker)} waits at {first.line} for {named}, {come}"
    return _error(team, first.ins.unanswered, first, what, notes)


def _crossed(team: Team, first: Arrival, waiting: Mapping[int, Arrival]) -> tuple[str, list[str]]:
    """Members that have come to the same instruction, and wait on different keys."""
    come = [(team.name(worker), waiting[worker]) for worker in first.members]
    what = ", ".join(f"{name} waits on {its.ins.waits_on()} at {its.line}" for name, its in come)
    return what, [f"{name}: {its.ins.called()} at {its.sites[0].place}" for name, its in come if its.sites]


def _error(team: Team, rule: Rule, first: Arrival, what: str, notes: list[str]) -> NkiError:
    return NkiValidationError(
        violation(rule, Broken(f"{what}: a deadlock"), target=team.core.target, instruction=type(first.ins).__name__,
                  notes=tuple(notes[:MOST_NOTES]), sites=first.sites, step=len(team.program))
    )  # fmt: skip


def _whereabouts(team: Team, worker: int, arrival: Arrival | None) -> str:
    name, program = team.name(worker), team.program
    if arrival is not None:
        return f"{name} waits at {arrival.line} for {arrival.ins.called()}"
    last = next((s for s in range(len(program) - 1, -1, -1) if program.plan_at(s).core == worker), None)
    if last is None:
        return f"{name} ended without any instruction"
    step = program[last]
    return f"{name} ended; its last instruction is {step.instruction} at line {step.line}"
