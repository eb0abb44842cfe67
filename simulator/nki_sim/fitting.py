"""Where the tiles of a finished run lie: as the kernel is written, or in another order that a device's compiler may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from nki_sim.errors import Diagnosis, NkiCapacityError, Rule, page
from nki_sim.hw import NeuronCore
from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.placement import MemoryMap, place
from nki_sim.program import Order, Program

if TYPE_CHECKING:
    from nki_sim.timing.relisting import Relisting

RELISTED = Rule(
    "memory.relisted",
    "the tiles alive at one time fit in the order in which the kernel is written",
    why="a device's compiler may run instructions in another order, in which they fit; which one it takes is its own choice",
    fix="use each tile up before the next one is made",
    page=page("get-started/about/memory-hierarchy-overview.html"),
    enforce="warn",
)


def place_all(machines: Sequence[Machine], fit: Order) -> list[MemoryMap]:
    """Place the tiles of each core of a run.

    Args:
        fit: ``program``: tiles fit as the kernel is written; ``compiler``: in some order that its dependencies allow.

    Raises:
        NkiCapacityError: the tiles alive at one time are larger than the memory.
    """
    try:
        placed = [_as_written(each.memory.own(), each.core, each.program) for each in machines]
    except NkiCapacityError as error:
        found = _relisting(machines[0])
        if found is None:
            raise
        words = _moved(machines[0].program, found)
        if fit == "program":
            note = f'they fit {words}; fit="compiler" (--fit compiler) takes such an order, as a device\'s compiler may'
            raise NkiCapacityError(replace(error.diagnosis, notes=(*error.diagnosis.notes, note))) from None
        what = f"{error.diagnosis.headline.partition(':')[0]} as written; the tiles fit {words}"
        machines[0].found(replace(error.diagnosis, headline=what, rule=RELISTED, notes=()))
        placed = _relisted(machines, found)
    for each, (_, findings) in zip(machines, placed, strict=True):
        for finding in findings:
            each.found(finding)
    return [memory for memory, _ in placed]


def _as_written(allocations: Sequence[Allocation], core: NeuronCore, program: Program) -> tuple[MemoryMap, list[Diagnosis]]:
    """Place tiles that are alive from their allocation to their last use; where they do not fit so, from their first use."""
    try:
        return place(allocations, core)
    except NkiCapacityError:
        firsts = program.first_uses()
        for tile in allocations:
            if tile.last >= tile.born:
                tile.born = max(tile.born, min(int(firsts[tile.id]), tile.last))
        return place(sorted(allocations, key=attrgetter("born", "id")), core, pinned=False)


def _relisting(machine: Machine) -> Relisting | None:
    """Another order in which the tiles of all cores fit. A loop at run time is run round by round in any order."""
    if machine.loops:
        return None
    from nki_sim.timing import dependencies  # the model of time: for who needs another order
    from nki_sim.timing.relisting import relist

    explicit = [(consumer, producers) for consumer, producers, _ in machine.dependencies]
    if any(producer >= consumer for consumer, producers in explicit for producer in producers):
        return None
    known = dependencies(machine.program, machine.core, explicit, machine.ordered, room=False)
    return relist(machine.program, machine.core, known)


def _moved(program: Program, found: Relisting) -> str:
    """Which instruction is taken earlier, and before which one."""
    earlier, later = (f"{program[step].instruction} (line {program[step].line})" for step in found.moved)
    return f"with {earlier} before {later}"


def _relisted(machines: Sequence[Machine], found: Relisting) -> list[tuple[MemoryMap, list[Diagnosis]]]:
    """Place the tiles of each core as they are alive in another order."""
    program = machines[0].program
    program.relisted = found.order
    lives = program.lives()
    placed = []
    for each in machines:
        own = [lives[a.id] for a in each.memory.own()]
        memory, findings = place(sorted(own, key=attrgetter("born", "id")), each.core)
        for occupancy in (memory.sbuf, memory.psum):
            for tile in occupancy.tiles:
                program.allocations[tile.id].placed = tile.placed
            occupancy.tiles = [program.allocations[tile.id] for tile in occupancy.tiles]
            occupancy.peak_tiles = [program.allocations[tile.id] for tile in occupancy.peak_tiles]
            if occupancy.peak_step >= 0:
                occupancy.peak_step = int(found.order[occupancy.peak_step])
        placed.append((memory, findings))
    return placed
