"""Where the tiles of a finished run lie: as the kernel is written, or as a device's compiler may have them.

It may take instructions in another order, in which the tiles fit; where there is none, it writes tiles to HBM meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from nki_sim.errors import Diagnosis, NkiCapacityError, Rule, page
from nki_sim.hw import NeuronCore
from nki_sim.machine import Machine
from nki_sim.memory import Allocation, MemoryRegion
from nki_sim.placement import MemoryMap, place
from nki_sim.program import Ints, Order, Program

if TYPE_CHECKING:
    from nki_sim.spilling import Spills
    from nki_sim.timing.relisting import Relisting

RELISTED = Rule(
    "memory.relisted",
    "the tiles alive at one time fit in the order in which the kernel is written",
    why="a device's compiler may run instructions in another order, in which they fit; which one it takes is its own choice",
    fix="use each tile up before the next one is made",
    page=page("get-started/about/memory-hierarchy-overview.html"),
    enforce="warn",
)
SPILLED = Rule(
    "memory.spilled",
    "the tiles alive at one time fit in memory, without being written to HBM meanwhile",
    why="a device's compiler spills what does not fit and reads it again, which takes bandwidth and waits",
    fix="use smaller tiles, or use each tile up before the next one is made",
    page=page("get-started/about/memory-hierarchy-overview.html"),
    enforce="warn",
)

Placed = tuple[MemoryMap, list[Diagnosis]]


def place_all(machines: Sequence[Machine], fit: Order) -> list[MemoryMap]:
    """Place the tiles of each core of a run.

    Args:
        fit: ``program``: tiles fit as the kernel is written; ``compiler``: in some order that its dependencies allow, or, in
            SBUF, with some of them in HBM meanwhile.

    Raises:
        NkiCapacityError: the tiles alive at one time are larger than the memory.
    """
    try:
        placed = [_as_written(each.memory.own(), each.core, each.program) for each in machines]
    except NkiCapacityError as error:
        placed = _fitted(machines, error, fit)
    for each, (_, findings) in zip(machines, placed, strict=True):
        for finding in findings:
            each.found(finding)
    return [memory for memory, _ in placed]


@dataclass(frozen=True)
class _Way:
    """How tiles fit that do not as the kernel is written: in words, what takes them there, what is reported, and the doing."""

    words: str
    taken: str
    rule: Rule
    place: Callable[[], list[Placed]]


def _fitted(machines: Sequence[Machine], error: NkiCapacityError, fit: Order) -> list[Placed]:
    """Place tiles that do not fit as the kernel is written.

    Raises:
        NkiCapacityError: they do not fit in any known way, or are not asked to.
    """
    way = _way(machines)
    if way is None:
        raise error
    if fit == "program":
        note = f'they fit {way.words}; fit="compiler" (--fit compiler) {way.taken}, as a device\'s compiler may'
        raise NkiCapacityError(replace(error.diagnosis, notes=(*error.diagnosis.notes, note))) from None
    what = f"{error.diagnosis.headline.partition(':')[0]} as written; the tiles fit {way.words}"
    machines[0].found(replace(error.diagnosis, headline=what, rule=way.rule, notes=()))
    return way.place()


def _way(machines: Sequence[Machine]) -> _Way | None:
    """Another order, or else spills: an order costs nothing.

    Neither where a loop at run time does its rounds one after the other, nor where ``depends_on`` names later steps.
    """
    from nki_sim.timing import names_later  # the model of time: for who needs it

    machine, program = machines[0], machines[0].program
    if machine.loops or names_later(machine.dependencies):
        return None
    order = _relisting(machine)
    if order is not None:
        return _Way(_moved(program, order), "takes such an order", RELISTED, partial(_relisted, machines, order))
    found = _spills(machines)
    return None if found is None else _Way(_said(program, found), "spills", SPILLED, partial(_spilled, machines, found))


def _as_written(allocations: Sequence[Allocation], core: NeuronCore, program: Program) -> Placed:
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
    """Another order in which the tiles of all cores fit."""
    from nki_sim.timing import dependencies  # the model of time: for who needs another order
    from nki_sim.timing.relisting import relist

    known = dependencies(machine.program, machine.core, machine.dependencies, machine.ordered, room=False)
    return relist(machine.program, machine.core, known)


def _moved(program: Program, found: Relisting) -> str:
    """Which instruction is taken earlier, and before which one."""
    earlier, later = (f"{program[step].instruction} (line {program[step].line})" for step in found.moved)
    return f"with {earlier} before {later}"


def _relisted(machines: Sequence[Machine], found: Relisting) -> list[Placed]:
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


def _spills(machines: Sequence[Machine]) -> Spills | None:
    """What a compiler adds so that the tiles fit, in SBUF only."""
    for each in machines:
        banks = [a for a in each.memory.own() if a.region is MemoryRegion.psum]
        try:
            place(sorted(banks, key=attrgetter("born", "id")), each.core, pinned=False)
        except NkiCapacityError:
            return None
    from nki_sim.spilling import spills  # for who needs it

    return spills(machines[0].program, machines[0].core)


def _said(program: Program, found: Spills) -> str:
    """How much is spilled, and of which tile most."""
    if not found.transfers:
        return "where a tile has no place while nobody needs what it holds"
    size: dict[int, int] = {}
    saved = 0
    for transfer in found.transfers:
        tile = program.allocations[transfer.tile]
        moved = tile.row_bytes * tile.partitions
        size[tile.id] = size.get(tile.id, 0) + moved
        saved += moved if transfer.saves else 0
    most = program.allocations[max(size, key=lambda number: size[number])]
    where = f", most of it {most.label} of line {most.line}" if most.line else ""
    return f"with {_bytes(saved)} spilled to HBM and {_bytes(sum(size.values()) - saved)} read back{where}"


def _bytes(size: int) -> str:
    return f"{size / 2**20:.4g} MiB" if size >= 2**20 else f"{size / 1024:.4g} KiB"


def _spilled(machines: Sequence[Machine], found: Spills) -> list[Placed]:
    """Make what is spilled steps of the program, and place the tiles of each core."""
    from nki_sim.spilling import insert

    machine = machines[0]
    machine.catch_up()  # what has not run yet knows itself by its number
    renumber(machine, insert(machine.program, found))
    return [place(sorted(each.memory.own(), key=attrgetter("born", "id")), each.core) for each in machines]


def renumber(machine: Machine, place_of: Ints) -> None:
    """Have what is known of steps say their new numbers."""
    new = place_of.tolist()
    machine.dependencies[:] = [(new[step], tuple(new[p] for p in others), kind) for step, others, kind in machine.dependencies]
    machine.ordered[:] = [(new[first], new[end]) for first, end in machine.ordered]
    findings = machine.report.findings
    findings[:] = [one if one.step is None else replace(one, step=new[min(one.step, len(new) - 1)]) for one in findings]
