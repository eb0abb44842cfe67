"""Who touched what: every access of a program to a tensor that something writes, as a struct of arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nki_sim.memory import Allocation, overlaps
from nki_sim.program import Plan, Program, Slot

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Touched:
    """One entry per access, in program order; of one step the reads come before the writes.

    Attributes:
        step, allocation, offset: which step touches which allocation, from which element on.
        slot: index into ``slots``, the access pattern.
        writes: whether it is written.
        whole: whether it is all of the allocation.
    """

    step: Ints
    allocation: Ints
    offset: Ints
    slot: Ints
    slots: list[Slot]
    writes: Flags
    whole: Flags

    def only(self, chosen: Flags) -> Touched:
        """Some of them."""
        return Touched(self.step[chosen], self.allocation[chosen], self.offset[chosen], self.slot[chosen], self.slots,
                       self.writes[chosen], self.whole[chosen])  # fmt: skip

    def __len__(self) -> int:
        return len(self.step)


def accesses(plan: Plan) -> tuple[tuple[int, Slot, bool], ...]:
    """Per operand of a plan: its place, its slot, and whether it is written; reads first."""
    changing = (*plan.writes, *plan.orders)
    return tuple((2 * i, plan.slots[i], i in changing) for i in (*plan.reads, *changing))


def touched(program: Program) -> Touched:
    """All accesses to what some step writes; nobody waits for reads of anything else."""
    plan_of, first, operands = (np.array(table, np.int64) for table in program.tables)
    table = [(number, *access) for number, plan in enumerate(program.plans) for access in accesses(plan)]
    numbers: dict[tuple[object, ...], int] = {}
    slots: list[Slot] = []
    slot_of = []
    for _, _, slot, _ in table:
        key = (slot.shape, slot.strides, slot.itemsize, slot.gathers)
        if key not in numbers:
            numbers[key] = len(slots)
            slots.append(slot)
        slot_of.append(numbers[key])
    of_plan = np.bincount([number for number, *_ in table], minlength=len(program.plans)).astype(np.int64)
    step, within = spread(of_plan[plan_of])
    entry = (np.cumsum(of_plan) - of_plan)[plan_of][step] + within
    place, slot_at = np.array([access[1] for access in table], np.int64), np.array(slot_of, np.int64)
    at = first[step] + place[entry]
    allocation = operands[at]
    writes = np.array([access[3] for access in table], bool)[entry]
    kept = allocation >= 0
    kept[kept] = _ever_written(program, plan_of, first, operands)[allocation[kept]]
    shapes: dict[tuple[int, ...], int] = {}
    shape_of = np.array([shapes.setdefault(a.shape, len(shapes)) for a in program.allocations], np.int64)
    shape_at = np.array([-1 if slot.gathers else shapes.get(slot.shape, -1) for slot in slots], np.int64)
    step, allocation, slot_index, offset = step[kept], allocation[kept], slot_at[entry[kept]], operands[at[kept] + 1]
    whole = (offset == 0) & (shape_at[slot_index] == shape_of[allocation])
    return Touched(step, allocation, offset, slot_index, slots, writes[kept], whole)


def spread(counts: Ints) -> tuple[Ints, Ints]:
    """Each index as often as it counts, and which time it is: ``[2, 0, 1]`` gives ``[0, 0, 2]`` and ``[0, 1, 0]``."""
    index = np.repeat(np.arange(len(counts)), counts)
    return index, np.arange(len(index)) - (np.cumsum(counts) - counts)[index]


def _ever_written(program: Program, plan_of: Ints, first: Ints, operands: Ints) -> Flags:
    """Per allocation whether any step writes it."""
    written = np.zeros(len(program.allocations) + 2, bool)
    of_plan = np.array([len(plan.writes) for plan in program.plans], np.int64)
    step, within = spread(of_plan[plan_of])
    place = np.array([2 * i for plan in program.plans for i in plan.writes], np.int64)
    entry = (np.cumsum(of_plan) - of_plan)[plan_of][step] + within
    written[operands[first[step] + place[entry]]] = True  # what is no tensor counts as one of the two too many
    return written[:-2]


def aliases(allocations: list[Allocation]) -> dict[int, tuple[int, ...]]:
    """Explicit placements that share bytes with each other."""
    pinned = [a for a in allocations if a.address is not None]
    shared: dict[int, tuple[int, ...]] = {}
    for a in pinned:
        others = tuple(b.id for b in pinned if b is not a and (b.core, b.region) == (a.core, a.region) and overlaps(a, b))
        if others:
            shared[a.id] = others
    return shared
