"""Accesses as NumPy sees them: a place in an allocation's bytes, shape and strides; and how one becomes part of another."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from nki_sim import dtypes
from nki_sim.dtypes import Array
from nki_sim.machine import Machine
from nki_sim.memory import Allocation


class Access(NamedTuple):
    """A strided view of an allocation; sizes in elements, ``offset`` and ``strides`` in bytes.

    Attributes:
        key: whose bytes: an allocation's number, or for explicit addresses a core's memory: its region and the core.
        dtype: as NumPy stores an element.
    """

    key: Any
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    def view(self, data: Array) -> Array:
        """The view of an allocation's bytes."""
        return np.ndarray(self.shape, self.dtype, data, self.offset, self.strides)

    def covers(self, size: int) -> bool:
        """Whether it is all of an allocation of ``size`` bytes, in its order."""
        return self.offset == 0 and self.strides == row_major(self.shape, self.dtype.itemsize) and self.size == size

    @property
    def size(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


made_of = partial(tuple.__new__, Access)
"""An access of its five fields, without the function that NamedTuple puts around it: every operand of a record is made so."""


@lru_cache(maxsize=4096)
def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a contiguous array."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


class Walk(NamedTuple):
    """How an access goes through its tensor: sizes, and strides in elements of an NKI data type."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def is_dense(self) -> bool:
        """Whether rows lie in one piece, so that reading or writing in place costs no more than a copy would."""
        return self.shape[-1] == 1 or self.strides[-1] == 1

    def part(self, offset: int, whole: Walk, target: Walk) -> tuple[int, Walk] | None:
        """Where the elements of this part of ``whole``, from its element ``offset`` on, are where those of ``whole`` lie as
        ``target``: elements after its first one, and the way through them; ``None`` where that is no walk."""
        if self.dtype != target.dtype:
            return None
        if self == whole and not offset:
            return 0, target
        moved = _moved((self.shape, offset, self.strides), (whole.shape, whole.strides), target.strides)
        return None if moved is None else (moved[0], Walk(self.shape, moved[1], self.dtype))


def access(machine: Machine, tensor: Allocation, walk: Walk, offset: int) -> Access:
    """Where a recorded operand lies in the bytes of its allocation."""
    return way_of(machine, tensor, walk)([tensor.id], [offset])[0]


Way = Callable[[list[int], list[int]], list[Access]]
"""Where operands lie, by the numbers of their allocations and their offsets."""


def way_of(machine: Machine, tensor: Allocation, walk: Walk) -> Way:
    """Where operands of a walk lie, in all tensors that lie in memory as ``tensor`` does."""
    info = dtypes.TABLE[walk.dtype]
    stored, own = machine.memory.stored(info), machine.memory.stored(tensor.dtype)
    size, shape, dtype = stored.itemsize, walk.shape, stored.storage
    if not tensor.region.on_chip:
        flat = tuple(s * size for s in walk.strides)
        return lambda numbers, offsets: [
            made_of((number, shape, offset * size, flat, dtype)) for number, offset in zip(numbers, offsets, strict=True)
        ]
    elements = tensor.row_bytes // tensor.dtype.itemsize
    row = elements * tensor.dtype.itemsize // info.itemsize
    pinned, where = is_pinned(machine, tensor), (tensor.region, tensor.core)
    pitch, base = elements * own.itemsize, 0
    if pinned:
        core = machine.core
        pitch = core.sbuf_partition_bytes if tensor.region.value == "sbuf" else core.psum_partition_bytes
        assert tensor.address is not None
        base = tensor.address[0] * pitch + tensor.address[1]
    strides = (walk.strides[0] // row * pitch, *(s * size for s in walk.strides[1:]))

    def places(numbers: list[int], offsets: list[int]) -> list[Access]:
        keys = [where] * len(numbers) if pinned else numbers
        return [
            made_of((key, shape, base + offset // row * pitch + offset % row * size, strides, dtype))
            for key, offset in zip(keys, offsets, strict=True)
        ]

    return places


def is_dense(found: Access) -> bool:
    """Whether rows lie in one piece, so that reading or writing in place costs no more than a copy would."""
    return found.shape[-1] == 1 or found.strides[-1] == found.dtype.itemsize


def is_pinned(machine: Machine, tensor: Allocation) -> bool:
    """Whether it lies in the memory's real bytes, at an address that the kernel chose."""
    return tensor.address is not None and machine.memory.stored(tensor.dtype) is tensor.dtype


def within(part: Access, whole: Access, target: Access) -> Access | None:
    """``part`` of ``whole`` as the same part of ``target``, which has the shape of ``whole``; ``None`` where none is.

    Args:
        part: an access to the allocation that ``whole`` covers.
        whole: all of it, in order.
        target: where its elements really are.
    """
    if part.dtype != target.dtype:
        return None
    if part.shape == whole.shape and part.offset == whole.offset and part.strides == whole.strides:
        return target
    moved = _moved((part.shape, part.offset, part.strides), (whole.shape, whole.strides), target.strides)
    return None if moved is None else made_of((target.key, part.shape, target.offset + moved[0], moved[1], part.dtype))


Sizes = tuple[int, ...]


@lru_cache(maxsize=4096)
def _moved(part: tuple[Sizes, int, Sizes], whole: tuple[Sizes, Sizes], target: Sizes) -> tuple[int, Sizes] | None:
    """Offset and strides of a part where the whole has the strides ``target``."""
    (shape, remaining, along), (_, steps) = part, whole
    index = []
    for step in steps:
        index.append(remaining // step)
        remaining %= step
    if remaining:
        return None
    strides = []
    for n, stride in zip(shape, along, strict=True):
        dim = _dimension(stride, n, index, whole)
        if dim is None:
            return None
        strides.append(0 if n == 1 or not stride else stride // steps[dim] * target[dim])
    return sum(i * s for i, s in zip(index, target, strict=True)), tuple(strides)


def _dimension(stride: int, n: int, index: list[int], whole: tuple[Sizes, Sizes]) -> int | None:
    """The dimension of ``whole`` along which a stride moves, without leaving it."""
    if n == 1 or not stride:
        return 0
    for dim, (size, step) in enumerate(zip(*whole, strict=True)):
        if stride > 0 and stride % step == 0 and index[dim] + (n - 1) * (stride // step) < size:
            return dim
    return None


def joined(first: Access, second: Access, dim: int) -> Access | None:
    """Two accesses one after the other along ``dim``, as one."""
    if first.key != second.key or first.dtype != second.dtype or first.strides != second.strides:
        return None
    (before, n, after), (start, more, end) = _split(first.shape, dim), _split(second.shape, dim)
    if before != start or after != end or second.offset != first.offset + n * first.strides[dim]:
        return None
    shape = (*before, n + more, *after)
    return made_of((first.key, shape, first.offset, first.strides, first.dtype))


def _split(shape: tuple[int, ...], dim: int) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    return shape[:dim], shape[dim], shape[dim + 1 :]
