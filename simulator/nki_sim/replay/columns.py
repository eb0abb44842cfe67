"""A recorded program as columns: the uses of tensors, in program order, and the operands that all steps of a plan have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.program import SCALAR, Ints, Plan, Slot
from nki_sim.replay.accesses import Access, Way, is_pinned, way_of


class Place(NamedTuple):
    """An operand place of a plan, of a tensor that is read or written."""

    plan: Plan
    operand: int
    slot: Slot
    writes: bool


class Columns:
    """The record of a finished run, and what lies where.

    Attributes:
        numbers: per step, its plan's.
        flat: of all operands, allocation and offset one after the other.
        places: of all plans; ``kind``: of each a number, the same for slots of one shape, strides and data type.
        step, place, at, tensor, offset, writes: per use, of which step it is, at which of ``places``, where in ``flat``, of
            which allocation, from which element on, and whether it writes.
        used: per allocation, how many uses it has; ``written``: how many that write; ``layout``: a number, the same for
            allocations of one shape and data type in one memory.
    """

    def __init__(self, machine: Machine):
        self.machine, program = machine, machine.program
        self.plans, self.allocations = program.plans, program.allocations
        self.numbers, self._first, self.flat = (np.array(table, np.int64) for table in program.tables)
        touched = [sorted((*plan.reads, *plan.writes)) for plan in self.plans]
        by_plan = zip(self.plans, touched, strict=True)
        self.places = [Place(plan, i, plan.slots[i], i in plan.writes) for plan, operands in by_plan for i in operands]
        self.kind = np.array(_numbered([(p.slot.shape, p.slot.strides, p.slot.dtype) for p in self.places]), np.int64)
        step, place, at = program.operands_at(touched)
        used = self.flat[at] >= 0
        self.step, self.at, self.place = step[used], at[used], place[used]
        self.tensor, self.offset = self.flat[self.at], self.flat[self.at + 1]
        self.writes = np.array([place.writes for place in self.places], np.bool_)[self.place]
        self.used = np.bincount(self.tensor, minlength=len(self.allocations))
        self.written = np.bincount(self.tensor[self.writes], minlength=len(self.allocations))
        self._layouts = _numbered([(t.region, t.core, t.shape, t.dtype.name, t.address) for t in self.allocations])
        self.layout = np.array(self._layouts, np.int64)
        self._first_of = [self.allocations[i] for i in np.unique(self.layout, return_index=True)[1].tolist()]
        self._ways: dict[Any, Way] = {}

    def per_layout(self, holds: Callable[[Allocation], bool]) -> npt.NDArray[np.bool_]:
        """Per allocation whether something holds of all that lie in memory as it does."""
        return np.array([holds(first) for first in self._first_of], np.bool_)[self.layout]

    @cached_property
    def tiles(self) -> npt.NDArray[np.bool_]:
        """Per allocation, whether it is on chip and no explicit address places it."""
        return self.per_layout(lambda tensor: tensor.region.on_chip and not is_pinned(self.machine, tensor))

    def of_plans(self, kept: Ints) -> Iterator[tuple[Plan, Ints, Ints]]:
        """Those of the ``kept`` steps that have the same plan, and where in ``flat`` their operands begin, plan by plan."""
        numbers = self.numbers[kept]
        by_plan = kept[np.argsort(numbers, kind="stable")]
        ends = np.cumsum(np.bincount(numbers, minlength=len(self.plans))).tolist()
        for plan, begin, end in zip(self.plans, [0, *ends], ends, strict=False):
            if begin < end:
                mine = by_plan[begin:end]
                yield plan, mine, self._first[mine]

    def access(self, slot: Slot, tensor: int, offset: int) -> Access:
        """Where one operand lies."""
        return self._way(slot, tensor)([tensor], [offset])[0]

    def operands(self, slot: Slot, at: Ints) -> list[Any]:
        """What the record has at places of ``flat``, all of one slot: accesses, constants or nothing."""
        tensors, offsets = self.flat[at].tolist(), self.flat[at + 1].tolist()
        if tensors[0] < 0:
            constants = self.machine.program.constants
            return [constants[i] if kind == SCALAR else None for kind, i in zip(tensors, offsets, strict=True)]
        layouts = [self._layouts[number] for number in tensors]
        if layouts.count(layouts[0]) == len(layouts):
            return self._way(slot, tensors[0])(tensors, offsets)
        alike: dict[int, list[int]] = {}
        for i, layout in enumerate(layouts):
            alike.setdefault(layout, []).append(i)
        found: list[Any] = [None] * len(tensors)
        for places in alike.values():
            way = self._way(slot, tensors[places[0]])
            for i, made in zip(places, way([tensors[i] for i in places], [offsets[i] for i in places]), strict=True):
                found[i] = made
        return found

    def _way(self, slot: Slot, number: int) -> Way:
        """Operands of one shape, in tensors that lie in memory alike, are made in one way."""
        alike = slot.shape, slot.strides, slot.dtype, self._layouts[number]
        made = self._ways.get(alike)
        if made is None:
            made = self._ways[alike] = way_of(self.machine, self.allocations[number], slot)
        return made


def _numbered(keys: Iterable[Any]) -> list[int]:
    """A number for each key, the same for equal ones."""
    known: dict[Any, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]
