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
from nki_sim.program import Order, Program

if TYPE_CHECKING:
    from nki_sim.spilling import Spills
    from nki_sim.timing.relisting import Relisting

FIT_VARIABLE = "NKI_SIM_FIT"
"""How tiles have to fit where nobody says it: of kernels that are called by themselves, under PyTorch, in tests."""
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
        asked = f'fit="compiler" (--fit compiler, or {FIT_VARIABLE}=compiler)'
        note = f"they fit {way.words}; {asked} {way.taken}, as a device's compiler may"
        raise NkiCapacityError(replace(error.diagnosis, notes=(*error.diagnosis.notes, note))) from None
    what = f"{error.diagnosis.headline.partition(':')[0]} as written; the tiles fit {way.words}"
    machines[0].found(replace(error.diagnosis, headline=what, rule=way.rule, notes=()))
    return way.place()


def _way(machines: Sequence[Machine]) -> _Way | None:
    """Another order, which costs nothing, or else spills, of SBUF only, with another order where PSUM needs one.

    Neither where a loop at run time does its rounds one after the other, nor where ``depends_on`` names later steps.
    """
    from nki_sim.spilling import spills  # for who needs it, as the model of time
    from nki_sim.timing import dependencies, names_later
    from nki_sim.timing.relisting import relist

    machine, program = machines[0], machines[0].program
    if machine.loops or names_later(machine.dependencies):
        return None
    known = dependencies(program, machine.core, machine.dependencies, machine.ordered, room=False)
    order = relist(program, machine.core, known)
    if order is not None:
        return _Way(_moved(program, order), "takes such an order", RELISTED, partial(_rewritten, machines, order, None))
    steps: Sequence[int] = range(len(program))
    words = ""
    if not _banks_fit(machines):
        order = relist(program, machine.core, known, (MemoryRegion.psum,))
        if order is None:
            return None
        steps, words = order.order.tolist(), f"{_moved(program, order)}, and "
    found = spills(program, machine.core, steps)
    if found is None:
        return None
    return _Way(words + _said(program, found), "spills", SPILLED, partial(_rewritten, machines, order, found))


def _banks_fit(machines: Sequence[Machine]) -> bool:
    """Whether the tiles in PSUM fit as the kernel is written."""
    for each in machines:
        banks = [a for a in each.memory.own() if a.region is MemoryRegion.psum]
        try:
            place(sorted(banks, key=attrgetter("born", "id")), each.core, pinned=False)
        except NkiCapacityError:
            return False
    return True


def _rewritten(machines: Sequence[Machine], order: Relisting | None, found: Spills | None) -> list[Placed]:
    """List the program in another order, make what is spilled steps of it, and place the tiles of each core."""
    from nki_sim.rewriting import reorder
    from nki_sim.spilling import insert

    if order is not None:
        reorder(machines[0], order.order.tolist())
    if found is not None:
        insert(machines[0], found)
    return [place(sorted(each.memory.own(), key=attrgetter("born", "id")), each.core) for each in machines]


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


def _moved(program: Program, found: Relisting) -> str:
    """Which instruction is taken earlier, and before which one."""
    earlier, later = (f"{program[step].instruction} (line {program[step].line})" for step in found.moved)
    return f"with {earlier} before {later}"


def _said(program: Program, found: Spills) -> str:
    """How much is spilled, and of which tile most."""
    from nki_sim.timing.profile import format_size

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
    return f"with {format_size(saved)} spilled to HBM and {format_size(sum(size.values()) - saved)} read back{where}"
