"""Data races on HBM that logical cores share: a write and another access to the same element that nothing orders.

Each core's clock is the step it is at. A core knows of another core's accesses up to where both last met, and of what that one
knew then: a vector clock. Accesses of which it does not know are not ordered with its own. A barrier is a meeting for one
tensor only; what was done to others before it may be ordered by dependencies (:mod:`nki_sim.cores.order`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Rule, page
from nki_sim.memory import Allocation, Pattern, Storage
from nki_sim.program import Slot
from nki_sim.regions import Box, Boxes, box_of, volume
from nki_sim.tensor import NkiTensor, OutOfRangeError, resolve, span

RACE = Rule(
    "memory.race",
    "a core writes shared HBM that another core reads or writes only when a barrier or an exchange lies between",
    why="the cores run at their own speed: which of the two comes first is not known",
    fix="call nisa.core_barrier(data=<tensor>, cores=(0, 1)) on both cores between them, or let each core keep to its own part",
    page=page("api/generated/nki.isa.core_barrier.html"),
    gens=(3, 4),
    enforce="ub",
)


TWICE = Rule(
    "memory.written_twice",
    "each core writes its own part of shared HBM",
    why="both cores write the same values: the result is right, but the work is done twice",
    fix="divide the work by nl.program_id and nl.num_programs, or run the kernel on one core",
    page=page("get-started/about/lnc.html"),
    gens=(3, 4),
    enforce="warn",
)


@dataclass
class _Touch:
    """One access to a tensor."""

    core: int
    step: int
    box: Box
    pattern: Pattern
    """Where an index picked rows, what of the first one."""
    rows: frozenset[int] | None = None
    """The rows that an index picked, where one did."""
    row: int = 0
    """Elements of a row."""
    same: list[tuple[int, Box]] = field(default_factory=list)
    """Cores that wrote the same values themselves, and where."""

    @property
    def key(self) -> Any:
        """What it touches."""
        return self.pattern, self.rows, self.row

    def wrote_for(self, other: _Touch) -> bool:
        """Whether the core of a read wrote all that it reads itself, with the values of this write."""
        return any(core == other.core and box.contains(other.box) for core, box in self.same)


@dataclass(frozen=True)
class Race:
    """An access that another core's conflicts with.

    Attributes:
        place: of the operand in its plan.
        step: the other access.
        whole: whether that one touched all that this one does.
        between: a barrier for another tensor that lies between the two, in words; the dependencies may order them.
        touches: what the other access and this one touch.
    """

    place: int
    step: int
    whole: bool
    between: str
    touches: tuple[_Touch, _Touch]

    def agree(self) -> None:
        """Both wrote the same values: whichever of the two comes first, either core reads these where it wrote itself."""
        theirs, ours = self.touches
        if _fills(ours):
            theirs.same.append((ours.core, ours.box))
            ours.same.append((theirs.core, ours.box))


@dataclass
class _Log:
    """The accesses of one core to one tensor that others may not know of."""

    core: int
    reads: Boxes = field(default_factory=Boxes)
    writes: Boxes = field(default_factory=Boxes)
    touches: dict[int, list[_Touch]] = field(default_factory=dict)
    seen: set[Any] = field(default_factory=set)
    plain_reads: dict[Pattern, tuple[int, Allocation, Slot]] = field(default_factory=dict)
    """Reads that are not sorted by boxes yet: of a tensor that nobody has written since the cores last met."""

    def sort(self) -> None:
        """Sort all reads by their boxes."""
        for pattern, (step, allocation, slot) in self.plain_reads.items():
            self.add(_Touch(self.core, step, box_of(allocation, slot, pattern[0]), pattern), False)
        self.plain_reads.clear()

    def add(self, touch: _Touch, writes: bool) -> None:
        key = (touch.key, writes)
        if key in self.seen:
            return
        self.seen.add(key)
        (self.writes if writes else self.reads).add(touch.box, touch.step)
        self.touches.setdefault(touch.step, []).append(touch)


@dataclass
class _Logs:
    """Those of all cores."""

    of: list[_Log]
    written: bool = False
    """Whether one of them has written the tensor."""

    def write(self) -> None:
        """Somebody writes it, or has: what is read may conflict with that."""
        if not self.written:
            self.written = True
            for log in self.of:
                log.sort()


class Races:
    """Who touched what, for the cores of one rank."""

    def __init__(self, cores: int):
        self._known = [[0] * cores for _ in range(cores)]
        self._logs: dict[int, _Logs] = {}
        self._barrier, self._since = "", 0
        """The last barrier in words, and its step."""
        self._kept: list[Storage] = []  # their numbers stay theirs as long as they are here

    def met(self, members: list[int], step: int) -> None:
        """Some cores came together before ``step``."""
        joint = [max(known) for known in zip(*(self._known[m] for m in members), strict=True)]
        for member in members:
            joint[member] = step
        for member in members:
            self._known[member] = list(joint)
        if len(members) == len(self._known):
            self.clear()

    def passed(self, data: Storage | None, step: int, barrier: str) -> None:
        """All cores came together before ``step``, for accesses to ``data`` only.

        Args:
            data: ``None``, where they named different tensors.
            barrier: in words.
        """
        self._barrier, self._since = barrier, step
        self._logs.pop(id(data), None)
        for logs in self._logs.values():
            for log in logs.of:
                log.sort()
                log.seen.clear()  # what is done again now is no longer behind the barrier

    def clear(self) -> None:
        """Forget all accesses."""
        self._logs.clear()
        self._kept.clear()

    def access(self, core: int, step: int, tile: NkiTensor, slot: Slot, writes: bool, place: int) -> list[Race]:
        """Note an access; one of another core's that nothing orders with it, or else those that only a barrier for another
        tensor lies between."""
        storage = tile.storage
        logs = self._logs.get(id(storage))
        if logs is None:
            logs = self._logs[id(storage)] = _Logs([_Log(number) for number in range(len(self._known))])
            self._kept.append(storage)
        if writes:
            logs.write()
        elif not logs.written and tile.dynamic is None:
            logs.of[core].plain_reads.setdefault(tile.pattern, (step, storage.allocation, slot))
            return []
        touch = _touch(core, step, tile, slot)
        if touch is None:
            return []
        found: list[Race] = []
        for log in logs.of:
            if log.core != core:
                found += self._conflicts(log, touch, writes, self._known[core][log.core], place)
        logs.of[core].add(touch, writes)
        return next(([race] for race in found if not race.between), found)

    def _conflicts(self, log: _Log, touch: _Touch, writes: bool, known: int, place: int) -> Iterator[Race]:
        near: dict[int, int] = {}
        log.writes.find(touch.box, near, 1)
        if writes:
            log.reads.find(touch.box, near, 0)
        for step in sorted(near):
            for other in log.touches[step] if step >= known else ():
                if other.box.overlaps(touch.box) and _share(other, touch) and (writes or not other.wrote_for(touch)):
                    whole = _fills(other) and other.box.contains(touch.box)
                    yield Race(place, step, whole, self._barrier if step < self._since else "", (other, touch))
                    break


def _touch(core: int, step: int, tile: NkiTensor, slot: Slot) -> _Touch | None:
    """What an access touches now; nothing where a runtime index is outside."""
    pattern = tile.pattern
    dynamic = tile.dynamic
    if dynamic is not None and dynamic.kind == "scalar":
        try:
            pattern = (tile.offset + resolve(dynamic, tile), *pattern[1:])
        except OutOfRangeError:
            return None
    box = box_of(tile.storage.allocation, slot, pattern[0])
    if not slot.gathers or dynamic is None:
        return _Touch(core, step, box, pattern)
    offset, shape, strides, itemsize = pattern
    skipped, offset = divmod(offset, dynamic.stride)
    index = np.asarray(dynamic.index.array).reshape(-1)[: shape[0]]
    rows = frozenset(int(i) + skipped for i in index if 0 <= i < dynamic.size)  # what is outside is not transferred
    if not rows:
        return None
    return _Touch(core, step, box, (offset, (1, *shape[1:]), strides, itemsize), rows, dynamic.stride)


def elements(pattern: Pattern) -> Array:
    """The numbers of the elements that a pattern touches."""
    offset, shape, strides, _ = pattern
    found: Array = np.array([offset], np.int64)
    for size, stride in zip(shape, strides, strict=True):
        found = (found[:, None] + np.arange(size if stride else 1) * stride).reshape(-1)
    return found


def _fills(touch: _Touch) -> bool:
    """Whether it touches every element of its box."""
    _, shape, strides, _ = touch.pattern
    distinct = 1
    for size, stride in zip(shape, strides, strict=True):
        distinct *= size if stride else 1
    return touch.rows is None and distinct == volume(touch.box)


def _share(a: _Touch, b: _Touch) -> bool:
    """Whether two accesses whose boxes meet have an element in common."""
    if _fills(a) and _fills(b):
        return True
    if (a.rows is not None or b.rows is not None) and a.pattern[3] == b.pattern[3]:
        row = a.row or b.row
        mine, theirs = _by_rows(a, row), _by_rows(b, row)
        if mine is not None and theirs is not None:
            (rows, one), (others, other) = mine, theirs
            few, many = (rows, others) if len(rows) < len(others) else (others, rows)
            return any(r in many for r in few) and _patterns_meet(one, other)
    first, second = _all_elements(a, b), _all_elements(b, a)
    if not len(first) or not len(second):
        return False
    wide_a, wide_b = a.pattern[3], b.pattern[3]
    if wide_a != wide_b:  # one of them sees the bytes as another dtype
        first = (first[:, None] * wide_a + np.arange(wide_a)).reshape(-1)
        second = (second[:, None] * wide_b + np.arange(wide_b)).reshape(-1)
    return _meet(first, second)


def _by_rows(touch: _Touch, row: int) -> tuple[frozenset[int] | range, Pattern] | None:
    """Which rows of ``row`` elements it touches, and what of each; nothing where it does not touch the same of all."""
    offset, (count, *shape), (step, *strides), itemsize = touch.pattern
    rows: frozenset[int] | range | None = touch.rows
    if rows is None:
        first, offset = divmod(offset, row)
        step, rest = divmod(step if count > 1 else row, row)
        if rest or step < 1:
            return None
        rows = range(first, first + step * count, step)
    elif touch.row != row:
        return None
    if offset < 0 or any(s < 0 for s in strides) or offset + span(shape, strides) >= row:
        return None
    return rows, (offset, tuple(shape), tuple(strides), itemsize)


@lru_cache(maxsize=4096)
def _patterns_meet(a: Pattern, b: Pattern) -> bool:
    """Whether two patterns of elements of one size have an element in common."""
    return _meet(elements(a), elements(b))


def _all_elements(touch: _Touch, other: _Touch) -> Array:
    """The elements, of rows those that may meet the other's."""
    one = elements(touch.pattern)
    if touch.rows is None:
        return one
    starts = np.array(sorted(touch.rows), np.int64) * touch.row
    if other.rows is None and other.pattern[3] == touch.pattern[3]:
        low, (_, shape, strides, _) = other.pattern[0], other.pattern
        starts = starts[(starts + one[-1] >= low) & (starts + one[0] <= low + span(shape, strides))]
    found: Array = (starts[:, None] + one).reshape(-1)
    return found


def _meet(first: Array, second: Array) -> bool:
    """Whether two lists of element numbers have one in common."""
    low, high = max(first.min(), second.min()), min(first.max(), second.max())
    if low > high:
        return False
    there = np.zeros(high - low + 1, np.bool_)
    there[first[(first >= low) & (first <= high)] - low] = True
    return bool(there[second[(second >= low) & (second <= high)] - low].any())
