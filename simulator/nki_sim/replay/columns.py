"""A recorded program as columns: the uses of tensors, in program order, and what steps have as operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.program import SCALAR, Ints, Plan
from nki_sim.replay.accesses import Access, Walk, Way, is_pinned, row_major, way_of

Bools = npt.NDArray[np.bool_]


class Place(NamedTuple):
    """An operand place of a plan, of a tensor that is read or written."""

    plan: Plan
    operand: int
    writes: bool

    @property
    def walk(self) -> Walk:
        slot = self.plan.slots[self.operand]
        return Walk(slot.shape, slot.strides, slot.dtype)


class Columns:
    """The record of a finished run, and what lies where.

    Attributes:
        numbers: per step, its plan's.
        flat: of all operands, allocation and offset one after the other.
        places: of all plans; ``walks``: the different ones.
        step, place, at, writes: per use, of which step it is, at which of ``places``, where in ``flat``, and whether it writes.
        tensor, offset, walk: per use, of which allocation, from which element on, and by which of ``walks``; ``moved``: whether
            that is not what was recorded, but where the same values are.
        use: per operand of the record, in ``flat`` one after the other, which use it is; -1 for no tensor.
        used: per allocation, how many uses it has in the record; ``written``: how many that write; ``layout``: a number, the
            same for allocations of one shape and data type in one memory.
    """

    def __init__(self, machine: Machine):
        self.machine, program = machine, machine.program
        self.plans, self.allocations = program.plans, program.allocations
        self.numbers, self._first, self.flat = (np.array(table, np.int64) for table in program.tables)
        touched = [sorted((*plan.reads, *plan.writes)) for plan in self.plans]
        by_plan = zip(self.plans, touched, strict=True)
        self.places = [Place(plan, i, i in plan.writes) for plan, operands in by_plan for i in operands]
        self.walks: list[Walk] = []
        self._number_of: dict[Walk, int] = {}
        walks = np.array([self.number_of(place.walk) for place in self.places], np.int64)
        step, place, at = program.operands_at(touched)
        used = self.flat[at] >= 0
        self.step, self.at, self.place = step[used], at[used], place[used]
        self.tensor, self.offset, self.walk = self.flat[self.at], self.flat[self.at + 1], walks[self.place]
        self.moved = np.zeros(len(self.at), np.bool_)
        self.use = np.full(len(self.flat) // 2, -1)
        self.use[self.at // 2] = np.arange(len(self.at))
        self.writes = np.array([place.writes for place in self.places], np.bool_)[self.place]
        self.used = np.bincount(self.tensor, minlength=len(self.allocations))
        self.written = np.bincount(self.tensor[self.writes], minlength=len(self.allocations))
        layouts = _numbered([(t.region, t.core, t.shape, t.dtype.name, t.address) for t in self.allocations])
        self.layout = np.array(layouts, np.int64)
        first = dict(zip(reversed(layouts), reversed(self.allocations), strict=True))
        self._first_of = [first[layout] for layout in range(len(first))]
        self._ways: dict[int, Way] = {}

    # -- tensors -------------------------------------------------------------------------------------------------------

    def per_layout(self, holds: Callable[[Allocation], bool]) -> Bools:
        """Per allocation whether something holds of all that lie in memory as it does."""
        return np.array([holds(first) for first in self._first_of], np.bool_)[self.layout]

    @cached_property
    def tiles(self) -> Bools:
        """Per allocation, whether it is on chip and no explicit address places it."""
        return self.per_layout(lambda tensor: tensor.region.on_chip and not is_pinned(self.machine, tensor))

    @cached_property
    def inputs(self) -> Bools:
        """Per allocation, whether it is the caller's."""
        return np.array([tensor.role == "input" for tensor in self.allocations], np.bool_)

    @cached_property
    def by_tensor(self) -> tuple[Ints, Ints]:
        """The uses of one tensor after the other, as recorded, and where those of each end."""
        return np.argsort(self.flat[self.at], kind="stable"), np.cumsum(self.used)

    @cached_property
    def nth(self) -> Ints:
        """Per use, how many its tensor has before it."""
        order, ends = self.by_tensor
        found = np.empty(len(order), np.int64)
        found[order] = np.arange(len(order)) - np.repeat(ends - self.used, self.used)
        return found

    # -- walks ---------------------------------------------------------------------------------------------------------

    def number_of(self, walk: Walk) -> int:
        """The number of a walk among all."""
        found = self._number_of.setdefault(walk, len(self.walks))
        if found == len(self.walks):
            self.walks.append(walk)
        return found

    def per_walk(self, holds: Callable[[Walk], bool]) -> Bools:
        """Per use whether something holds of its walk."""
        return np.array([holds(walk) for walk in self.walks], np.bool_)[self.walk]

    def is_whole(self, uses: Ints) -> Bools:
        """Of each of some uses, whether it is all of its tensor, in its order."""
        kinds, alike = np.unique(self._kinds(self.tensor[uses], self.walk[uses]), return_inverse=True)
        whole: Bools = np.array([walk == _whole(tensor) for walk, tensor in map(self._of_kind, kinds.tolist())], np.bool_)
        found: Bools = whole[alike]
        return found

    def move(self, uses: Ints, tensors: Ints, offsets: Ints, walks: Ints) -> None:
        """Let uses be elsewhere, where the same values are."""
        self.tensor[uses], self.offset[uses], self.walk[uses], self.moved[uses] = tensors, offsets, walks, True

    # -- operands ------------------------------------------------------------------------------------------------------

    def operands(self, kept: Bools) -> list[list[Any]]:
        """Of each of the kept steps the operands: accesses, constants, or nothing."""
        found: list[Any] = [None] * len(self.use)
        uses = np.flatnonzero(kept[self.step])
        made = self.accesses(self.tensor[uses], self.offset[uses], self.walk[uses])
        for at, access in zip((self.at[uses] // 2).tolist(), made, strict=True):
            found[at] = access
        scalars, constants = np.flatnonzero(self.flat[::2] == SCALAR), self.machine.program.constants
        for at, which in zip(scalars.tolist(), self.flat[2 * scalars + 1].tolist(), strict=True):
            found[at] = constants[which]
        begins, ends = self._first[:-1][kept] // 2, self._first[1:][kept] // 2
        return [found[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

    def accesses(self, tensors: Ints, offsets: Ints, walks: Ints) -> list[Access]:
        """Accesses to tensors, by walks, from elements on; those that are alike are made at once."""
        numbers, firsts = tensors.tolist(), offsets.tolist()
        alike: dict[int, list[int]] = {}
        for i, kind in enumerate(self._kinds(tensors, walks).tolist()):
            alike.setdefault(kind, []).append(i)
        found: list[Any] = [None] * len(numbers)
        for kind, places in alike.items():
            way = self._way(kind)
            for i, made in zip(places, way([numbers[i] for i in places], [firsts[i] for i in places]), strict=True):
                found[i] = made
        return found

    def _kinds(self, tensors: Ints, walks: Ints) -> Ints:
        """A number for each tensor and walk, the same for one walk in tensors that lie in memory alike."""
        return walks * len(self._first_of) + self.layout[tensors]

    def _of_kind(self, kind: int) -> tuple[Walk, Allocation]:
        """The walk of such a number, and one of the tensors."""
        walk, layout = divmod(kind, len(self._first_of))
        return self.walks[walk], self._first_of[layout]

    def _way(self, kind: int) -> Way:
        """Operands of one kind are made in one way."""
        made = self._ways.get(kind)
        if made is None:
            walk, tensor = self._of_kind(kind)
            made = self._ways[kind] = way_of(self.machine, tensor, walk)
        return made


def _whole(tensor: Allocation) -> Walk:
    return Walk(tensor.shape, row_major(tensor.shape, 1), tensor.dtype.name)


def _numbered(keys: Iterable[Any]) -> list[int]:
    """A number for each key, the same for equal ones."""
    known: dict[Any, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]
