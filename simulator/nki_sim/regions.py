"""Which elements an access touches, as a box: the unit of dependencies and of pictures.

An access pattern is boxed in the coordinates of its allocation: first and last index per dimension. A box may be larger
than the pattern (a step of 2 touches every other element), never smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from nki_sim.memory import Allocation
from nki_sim.program import Operand, Slot


class Box(NamedTuple):
    """First and last index (inclusive) per dimension of an allocation."""

    first: tuple[int, ...]
    last: tuple[int, ...]

    def overlaps(self, other: Box) -> bool:
        """Whether two boxes of one allocation share an element."""
        for a, b, c, d in zip(self.first, self.last, other.first, other.last, strict=True):  # noqa: SIM110 - faster
            if a > d or c > b:
                return False
        return True

    def contains(self, other: Box) -> bool:
        """Whether the other box lies inside this one."""
        for a, b, c, d in zip(self.first, self.last, other.first, other.last, strict=True):  # noqa: SIM110 - faster
            if a > c or d > b:
                return False
        return True


def whole(shape: tuple[int, ...]) -> Box:
    """The box of a whole allocation."""
    return Box((0,) * len(shape), tuple(n - 1 for n in shape))


def volume(box: Box) -> int:
    """Elements in a box."""
    return math.prod(b - a + 1 for a, b in zip(box.first, box.last, strict=True))


class Boxes:
    """Steps by the box they touched, on a grid of cells as large as the first box: close to constant time per access."""

    __slots__ = ("_cells", "_grain", "_large")

    MOST = 64
    """Cells of one box; larger ones are kept apart."""

    def __init__(self) -> None:
        self._grain: tuple[int, ...] = ()
        self._cells: dict[tuple[int, ...], dict[Box, list[int]]] = {}
        self._large: dict[Box, list[int]] = {}

    def add(self, box: Box, step: int) -> None:
        if not self._grain:
            self._grain = tuple(b - a + 1 for a, b in zip(box.first, box.last, strict=True))
        cells = self._covered(box)
        if cells is None:
            self._large.setdefault(box, []).append(step)
            return
        for cell in cells:
            self._cells.setdefault(cell, {}).setdefault(box, []).append(step)

    def find(self, box: Box | None, found: dict[int, int], kind: int) -> None:
        """Add the steps whose boxes share an element with ``box``, all of them for ``None``, with the stronger of two kinds."""
        for group in self._groups(box):
            for other, steps in group.items():
                if box is None or other is box or other.overlaps(box):
                    for step in steps:
                        if found.get(step, -1) < kind:
                            found[step] = kind

    def cover(self, box: Box) -> None:
        """Forget what lies inside ``box``."""
        for group in list(self._groups(box)):
            for other in [other for other in group if other is box or box.contains(other)]:
                del group[other]

    def inside(self, box: Box) -> set[int]:
        """The steps whose boxes lie inside ``box``."""
        groups = self._groups(box)
        return {step for group in groups for other, steps in group.items() if box.contains(other) for step in steps}

    def take(self, box: Box | None) -> set[int]:
        """Forget what shares an element with ``box``, all of it for ``None``; the steps."""
        taken: set[int] = set()
        for group in list(self._groups(box)):
            for other in [other for other in group if box is None or other.overlaps(box)]:
                taken.update(group.pop(other))
        return taken

    def _groups(self, box: Box | None) -> Iterable[dict[Box, list[int]]]:
        cells = self._covered(box) if box is not None and self._grain else None
        found = [self._large] if self._large else []
        if cells is None:
            return [*found, *self._cells.values()]
        return found + [self._cells[cell] for cell in cells if cell in self._cells]

    def _covered(self, box: Box) -> list[tuple[int, ...]] | None:
        ranges = [(a // g, b // g) for a, b, g in zip(box.first, box.last, self._grain, strict=True)]
        if all(a == b for a, b in ranges):
            return [tuple(a for a, _ in ranges)]
        cells: list[tuple[int, ...]] = [()]
        for a, b in ranges:
            cells = [(*cell, i) for cell in cells for i in range(a, b + 1)] if b - a < self.MOST else []
            if not 0 < len(cells) <= self.MOST:
                return None
        return cells


@lru_cache(maxsize=65536)
def _box(
    shape: tuple[int, ...], itemsize: int, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...], width: int
) -> Box:
    """The box of a pattern of ``width``-byte elements in an allocation of ``itemsize``-byte elements."""
    low = offset * width // itemsize
    steps = [itemsize] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        steps[i] = steps[i + 1] * shape[i + 1]
    first, remaining = [], low * itemsize
    for step in steps:
        first.append(remaining // step)
        remaining %= step
    last = list(first)
    moves = [((n - 1), s * width) for n, s in zip(sizes, strides, strict=True) if n > 1 and s]
    along_row = offset * width - low * itemsize + width - 1  # bytes, to the last one of the last element
    for count, stride in moves:
        # a dimension of the pattern moves along the outermost dimension of the allocation whose step divides its own
        dim = next((d for d, step in enumerate(steps[:-1]) if step <= stride and stride % step == 0), None)
        if dim is None:
            along_row += count * stride
        else:
            last[dim] += count * stride // steps[dim]
    last[-1] += along_row // itemsize
    if any(index >= size for index, size in zip(last, shape, strict=True)):
        end = offset * width + sum(count * stride for count, stride in moves) + width - 1
        return _flat(shape, steps, low * itemsize, end)
    return Box(tuple(first), tuple(last))


def _flat(shape: tuple[int, ...], steps: list[int], low: int, high: int) -> Box:
    """The box around a run of bytes: exact down to the first dimension in which it spans more than one index."""
    first, last = [], []
    for dim, (step, size) in enumerate(zip(steps, shape, strict=True)):
        a, b = low // step, min(high // step, size - 1)
        first.append(a)
        last.append(b)
        low, high = low % step, high % step
        if a != b:
            rest = shape[dim + 1 :]
            return Box((*first, *(0 for _ in rest)), (*last, *(n - 1 for n in rest)))
    return Box(tuple(first), tuple(last))


def box_of(allocation: Allocation, slot: Slot, offset: int) -> Box:
    """The box that a recorded operand touches."""
    if slot.gathers:
        return whole(allocation.shape)
    return _box(allocation.shape, allocation.dtype.itemsize, offset, slot.shape, slot.strides, slot.itemsize)


def operand_box(operand: Operand) -> Box:
    """The box of a decoded operand that is a tensor."""
    if operand.allocation is None:
        raise ValueError(f"{operand.slot.name} is no tensor")
    return box_of(operand.allocation, operand.slot, operand.offset)
