"""Accesses of two cores between which there are only barriers for other tensors: a race, unless dependencies order them.

A barrier keeps apart what was done to its own tensor. It orders other accesses where those hang together with it: core 0 writes
a, computes b from it, and comes to the barrier for b; core 1 reads b after the barrier, and writes to a what it computes of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nki_sim.errors import Diagnosis

if TYPE_CHECKING:
    from nki_sim.cores.machine import CoreMachine
    from nki_sim.cores.team import Team
    from nki_sim.timing import Dependencies


@dataclass
class Suspect:
    """Accesses of one line that may race with those of another one: pairs of steps, the later one's core and its words."""

    machine: CoreMachine
    diagnosis: Diagnosis
    pairs: list[tuple[int, int]] = field(default_factory=list)


def report(team: Team, suspects: Iterable[Suspect]) -> None:
    """Report those that no dependency orders."""
    suspects = list(suspects)
    if not suspects:
        return
    from nki_sim.timing import dependencies  # only who suspects needs the whole graph

    found = dependencies(team.program, team.core, team.dependencies, team.ordered)
    ordered = _ordered(team, found, {pair for suspect in suspects for pair in suspect.pairs})
    for suspect in suspects:
        if not ordered.issuperset(suspect.pairs):
            suspect.machine.found(suspect.diagnosis)


def _ordered(team: Team, found: Dependencies, pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Of pairs of steps those whose later one waits for the earlier one, directly or over others.

    What cores do to one tensor is a dependency only where they meet: elsewhere it is what may race.
    """
    program = team.program
    plans = program.plan_numbers().tolist()
    cores = [plan.core for plan in program.plans]
    bits = {earlier: 1 << i for i, earlier in enumerate(sorted({earlier for earlier, _ in pairs}))}
    after: list[int] = [0] * len(program)
    """Per step, which of the earlier ones it waits for, as bits."""
    for step in found.order:
        mine, known = plans[step], bits.get(step, 0)
        for other in found.of(step):
            its = plans[other]
            if cores[mine] == cores[its] or mine in team.meetings or its in team.meetings:
                known |= after[other]
        after[step] = known
    return {(earlier, later) for earlier, later in pairs if after[later] & bits[earlier]}
