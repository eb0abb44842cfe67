"""Which elements an access touches, as a box: the unit of dependencies and of pictures.

An access pattern is boxed in the coordinates of its allocation: first and last index per dimension. A box may be larger
than the pattern (a step of 2 touches every other element), never smaller.
"""

from __future__ import annotations

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
