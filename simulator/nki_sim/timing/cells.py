"""Dependencies by cells: an allocation is cut into the largest pieces that every access takes whole or not at all.

Then who must wait for whom is decided cell by cell: a read waits for the last write, a write for the last write and the
reads since. That is done for all cells at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nki_sim.memory import Allocation
from nki_sim.program import Ints, spread
from nki_sim.regions import Box, box_of, whole
from nki_sim.timing.touched import Touched

ORDER, ANTI, OUTPUT, TRUE = 0, 1, 2, 3
"""``nl.no_reorder``; write after read; write after write; read after write, or ``depends_on``."""

MOST = 1 << 18
"""Pieces of the grid that the boxes of one allocation cut it into."""
PER_ACCESS = 16
"""Cells per access, on average, beyond which cells are not worth it."""


class Edges(NamedTuple):
    """``consumer[i]`` waits for ``producer[i]``, for a reason."""

    consumer: Ints
    producer: Ints
    kind: Ints


@dataclass(frozen=True)
class _Cut:
    """The cells of boxes, ``sizes[i]`` of box ``i``, one box after the other; there are ``count``."""

    sizes: Ints
    cells: Ints
    count: int


_ALL = _Cut(np.ones(1, np.int64), np.zeros(1, np.int64), 1)


class Cells:
    """The accesses to cells, sorted by cell; of one cell in program order, of one step the read before the write."""

    def __init__(self, accesses: Touched, allocations: list[Allocation], steps: int):
        pair, pairs = _pairs(accesses, allocations)
        cuts = _Cuts(pairs, np.bincount(pair, minlength=len(pairs)))
        self.others = cuts.refused[pair]
        """The accesses to allocations that boxes cut into too many pieces."""
        access, within = spread(np.where(self.others, 0, cuts.sizes[pair]))
        cell = cuts.cells[cuts.first[pair][access] + within]
        key = _distinct((cell * steps + accesses.step[access]) * 2 + accesses.writes[access])
        self._writes = (key & 1).astype(bool)
        self._cell, self._step = np.divmod(key >> 1, steps)
        self._allocation = cuts.allocation[self._cell]
        begins = np.ones(len(key), bool)
        begins[1:] = self._cell[1:] != self._cell[:-1]
        at = np.arange(len(key))
        begin = np.maximum.accumulate(np.where(begins, at, 0))
        self._written = np.maximum.accumulate(np.where(self._writes, at, -1))
        """The last write up to here; not of this cell where it lies before ``begin``."""
        self._begin, self._at = begin, at

    def edges(self) -> Edges:
        """Who waits for whom."""
        at, writes, step = self._at, self._writes, self._step
        before = np.concatenate([[-1], self._written[:-1]])[: len(at)]
        after_write = before >= self._begin
        last = before[after_write]
        kind = np.where(writes[after_write], OUTPUT, TRUE)
        # the next write after each read, in its cell
        next_ = np.minimum.accumulate(np.where(writes, at, len(at))[::-1])[::-1]
        reads = np.flatnonzero(~writes & (next_ < len(at)))
        reads = reads[self._cell[next_[reads]] == self._cell[reads]]
        consumer = np.concatenate([step[after_write], step[next_[reads]]])
        producer = np.concatenate([step[last], step[reads]])
        kinds = np.concatenate([kind, np.full(len(reads), ANTI)])
        apart = consumer != producer
        return Edges(consumer[apart], producer[apart], kinds[apart])

    def endings(self, steps: Ints, allocations: Ints) -> Edges:
        """``steps`` wait for what ended the use of ``allocations``: of each cell the last write and the reads since."""
        written = np.where(self._written >= self._begin, self._written, -1)
        ends = np.ones(len(self._cell), bool)
        ends[:-1] = self._cell[1:] != self._cell[:-1]
        last = np.flatnonzero(ends)
        cell_number = np.cumsum(ends) - ends
        tail = self._at >= written[last][cell_number]
        of, step = self._allocation[tail], self._step[tail]
        low, high = np.searchsorted(of, allocations), np.searchsorted(of, allocations, "right")
        which, within = spread(high - low)
        return Edges(steps[which], step[low[which] + within], np.full(len(which), ANTI))


@dataclass(frozen=True)
class _Pairs:
    """Each allocation with each box in which it is touched, by allocation."""

    allocation: Ints
    box: Ints
    boxes: list[Box | None]
    """``None``: all of it."""
    allocations: list[Allocation]

    def __len__(self) -> int:
        return len(self.allocation)


def _pairs(accesses: Touched, allocations: list[Allocation]) -> tuple[Ints, _Pairs]:
    """Per access its allocation and box."""
    box = np.zeros(len(accesses), np.int64)
    boxes: list[Box | None] = [None]
    parts = np.flatnonzero(~accesses.whole)
    if len(parts):
        box[parts] = _number_boxes(accesses, parts, allocations, boxes)
    key, pair = np.unique(accesses.allocation * len(boxes) + box, return_inverse=True)
    allocation, box_of_pair = np.divmod(key, len(boxes))
    return pair.reshape(-1), _Pairs(allocation, box_of_pair, boxes, allocations)


def _number_boxes(accesses: Touched, parts: Ints, allocations: list[Allocation], boxes: list[Box | None]) -> Ints:
    """The number of each access's box. Accesses of one pattern at one offset of allocations of one shape have the same."""
    shapes: dict[object, int] = {}
    used, inverse = np.unique(accesses.allocation[parts], return_inverse=True)
    kind = [shapes.setdefault((allocations[a].shape, allocations[a].dtype.itemsize), len(shapes)) for a in used.tolist()]
    offset = accesses.offset[parts]
    pattern = np.array(kind)[inverse.reshape(-1)] * len(accesses.slots) + accesses.slot[parts]
    _, example, number = np.unique(pattern * (int(offset.max()) + 1) + offset, return_index=True, return_inverse=True)
    known: dict[Box, int] = {}
    numbers = []
    for i in parts[example].tolist():
        found = box_of(allocations[accesses.allocation[i]], accesses.slots[accesses.slot[i]], int(accesses.offset[i]))
        numbers.append(known.setdefault(found, len(known) + len(boxes)))
    boxes.extend(known)
    in_order: Ints = np.array(numbers, np.int64)[number.reshape(-1)]
    return in_order


class _Cuts:
    """The cells of all pairs: those of pair ``i`` are ``cells[first[i]:first[i] + sizes[i]]``."""

    def __init__(self, pairs: _Pairs, uses: Ints):
        begins = np.ones(len(pairs), bool)
        begins[1:] = pairs.allocation[1:] != pairs.allocation[:-1]
        begin = np.flatnonzero(begins)
        boxes = np.diff(begin, append=len(pairs))
        self.refused = np.zeros(len(pairs), bool)
        self.sizes = np.ones(len(pairs), np.int64)
        counts = np.ones(len(begin), np.int64)
        """Cells per allocation."""
        cuts = list(self._several(pairs, uses, np.flatnonzero(boxes > 1), begin, begin + boxes))
        for group, of_group, cut in cuts:
            counts[group], self.sizes[of_group] = cut.count, cut.sizes
            self.refused[of_group] = not cut.count
        base = np.cumsum(counts) - counts
        self.first = np.cumsum(self.sizes) - self.sizes
        self.cells = np.repeat(np.repeat(base, boxes), self.sizes)
        for group, of_group, cut in cuts:
            start = self.first[of_group.start]
            self.cells[start : start + len(cut.cells)] = cut.cells + base[group]
        self.allocation = np.repeat(pairs.allocation[begin], counts)

    def _several(self, pairs: _Pairs, uses: Ints, groups: Ints, begin: Ints, end: Ints) -> Iterator[tuple[int, slice, _Cut]]:
        """The cells of allocations that are touched in several boxes: none where there are too many."""
        known: dict[tuple[object, ...], _Cut] = {}
        for group in groups.tolist():
            mine = slice(int(begin[group]), int(end[group]))
            cut, used = self._cut(pairs, mine.start, mine.stop, known), uses[mine]
            if not cut.count or cut.sizes @ used > PER_ACCESS * used.sum():
                cut = _Cut(np.zeros(len(used), np.int64), _ALL.cells[:0], 0)
            yield group, mine, cut

    @staticmethod
    def _cut(pairs: _Pairs, begin: int, end: int, known: dict[tuple[object, ...], _Cut]) -> _Cut:
        shape = pairs.allocations[pairs.allocation[begin]].shape
        key = (shape, pairs.box[begin:end].tobytes())
        found = known.get(key)
        if found is None:
            boxes = [pairs.boxes[i] for i in pairs.box[begin:end].tolist()]
            found = known[key] = _cut([whole(shape) if box is None else box for box in boxes])
        return found


def _cut(boxes: list[Box]) -> _Cut:
    """The cells of boxes of one allocation, on a grid with a line wherever one begins or ends."""
    first, end = np.array([box.first for box in boxes]), np.array([box.last for box in boxes]) + 1
    lines = [_distinct(np.concatenate([first[:, d], end[:, d]])) for d in range(first.shape[1])]
    grid = tuple(len(line) - 1 for line in lines)
    if np.prod(grid, dtype=np.float64) > MOST:
        return _Cut(_ALL.sizes[:0], _ALL.cells[:0], 0)
    low = np.stack([np.searchsorted(line, first[:, d]) for d, line in enumerate(lines)], axis=1)
    high = np.stack([np.searchsorted(line, end[:, d]) for d, line in enumerate(lines)], axis=1)
    # pieces that the same boxes cover are one cell: each box adds a number of its own; equal sums of others only merge cells
    draw = random.Random(0)
    marks = np.array([draw.getrandbits(62) for _ in boxes], np.uint64)
    sums = np.zeros(grid, np.uint64)
    for region, mark in zip(_regions(low, high), marks, strict=True):
        sums[region] += mark
    label = np.unique(sums, return_inverse=True)[1].reshape(grid)
    cells = [_distinct(label[region].ravel()) for region in _regions(low, high)]
    return _Cut(np.array([len(found) for found in cells]), np.concatenate(cells), int(label.max()) + 1)


def _regions(low: Ints, high: Ints) -> Iterator[tuple[slice, ...]]:
    """One after the other: as many tuples at once would set the garbage collector to work."""
    for first, end in zip(low, high, strict=True):
        yield tuple(map(slice, first.tolist(), end.tolist()))


def _distinct(values: Ints) -> Ints:
    """The different values, sorted. NumPy's ``unique`` hashes them, which is slower, and loads ``numpy.ma``."""
    if len(values) == 1:
        return values
    values = np.sort(values)
    new = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]
