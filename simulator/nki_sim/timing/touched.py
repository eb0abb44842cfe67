"""Who touched what: every access of a program to a tensor that something writes, as a struct of arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nki_sim.claims import Claims, Patch
from nki_sim.memory import Allocation, MemoryRegion, claimed
from nki_sim.program import Ints, Plan, Program, Slot

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
    return tuple((i, plan.slots[i], i in changing) for i in (*plan.reads, *changing))


def touched(program: Program, shared: Collection[int]) -> Touched:
    """All accesses to what some step writes, under the tensor's name or that of one that shares its bytes: nobody waits for
    reads of anything else.

    Args:
        shared: numbers of the tensors that share bytes with others.
    """
    of_plans = [accesses(plan) for plan in program.plans]
    table = [access for of_plan in of_plans for access in of_plan]
    numbers: dict[tuple[object, ...], int] = {}
    slots: list[Slot] = []
    slot_of = []
    for _, slot, _ in table:
        key = (slot.shape, slot.strides, slot.itemsize, slot.gathers)
        if key not in numbers:
            numbers[key] = len(slots)
            slots.append(slot)
        slot_of.append(numbers[key])
    step, entry, at = program.operands_at([[place for place, _, _ in of_plan] for of_plan in of_plans])
    operands = np.array(program.tables[2], np.int64)
    allocation = operands[at]
    kept = allocation >= 0
    changing = program.has_at([plan.writes for plan in program.plans])
    changing[list(shared)] = True
    kept[kept] = changing[allocation[kept]]
    shapes: dict[tuple[int, ...], int] = {}
    shape_of = np.array([shapes.setdefault(a.shape, len(shapes)) for a in program.allocations], np.int64)
    shape_at = np.array([-1 if slot.gathers else shapes.get(slot.shape, -1) for slot in slots], np.int64)
    step, allocation, offset, entry = step[kept], allocation[kept], operands[at[kept] + 1], entry[kept]
    slot_index, writes = np.array(slot_of, np.int64)[entry], np.array([writes for _, _, writes in table], bool)[entry]
    whole = (offset == 0) & (shape_at[slot_index] == shape_of[allocation])
    return Touched(step, allocation, offset, slot_index, slots, writes, whole)


def patches(allocations: list[Allocation]) -> dict[int, Patch]:
    """Per explicit placement that shares bytes with another one, by number, its patch."""
    claims: defaultdict[tuple[int, MemoryRegion], Claims] = defaultdict(Claims)
    found = {a.id: claims[a.core, a.region].add(claimed(a)).patch for a in allocations if a.address is not None}
    return {number: patch for number, patch in found.items() if patch.shared}
