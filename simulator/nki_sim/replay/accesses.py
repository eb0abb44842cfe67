"""Accesses as NumPy sees them: a place in an allocation's bytes, shape and strides; and how one becomes part of another."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki_sim import dtypes
from nki_sim.dtypes import Array
from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.program import Slot


@dataclass(frozen=True)
class Access:
    """A strided view of an allocation; sizes in elements, ``offset`` and ``strides`` in bytes.

    Attributes:
        key: whose bytes: an allocation's number, or the memory's region for explicit addresses.
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


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a contiguous array."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def access(machine: Machine, tensor: Allocation, slot: Slot, offset: int) -> Access:
    """Where a recorded operand lies in the bytes of its allocation."""
    info = dtypes.TABLE[slot.dtype]
    stored, own = machine.memory.stored(info), machine.memory.stored(tensor.dtype)
    size = stored.itemsize
    if not tensor.region.on_chip:
        return Access(tensor.id, slot.shape, offset * size, tuple(s * size for s in slot.strides), stored.storage)
    elements = tensor.row_bytes // tensor.dtype.itemsize
    row = elements * tensor.dtype.itemsize // info.itemsize
    key: Any = tensor.id
    pitch, base = elements * own.itemsize, 0
    if is_pinned(machine, tensor):
        core, key = machine.core, tensor.region
        pitch = core.sbuf_partition_bytes if tensor.region.value == "sbuf" else core.psum_partition_bytes
        assert tensor.address is not None
        base = tensor.address[0] * pitch + tensor.address[1]
    start = base + offset // row * pitch + offset % row * size
    strides = (slot.strides[0] // row * pitch, *(s * size for s in slot.strides[1:]))
    return Access(key, slot.shape, start, strides, stored.storage)


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
    index, remaining = [], part.offset
    for stride in whole.strides:
        index.append(remaining // stride)
        remaining %= stride
    if remaining:
        return None
    strides = []
    for n, stride in zip(part.shape, part.strides, strict=True):
        dim = _dimension(stride, n, index, whole)
        if dim is None:
            return None
        strides.append(0 if n == 1 or not stride else stride // whole.strides[dim] * target.strides[dim])
    offset = target.offset + sum(i * s for i, s in zip(index, target.strides, strict=True))
    return replace(part, key=target.key, offset=offset, strides=tuple(strides))


def _dimension(stride: int, n: int, index: list[int], whole: Access) -> int | None:
    """The dimension of ``whole`` along which a stride moves, without leaving it."""
    if n == 1 or not stride:
        return 0
    for dim, step in enumerate(whole.strides):
        if stride > 0 and stride % step == 0 and index[dim] + (n - 1) * (stride // step) < whole.shape[dim]:
            return dim
    return None


def joined(first: Access, second: Access, dim: int) -> Access | None:
    """Two accesses one after the other along ``dim``, as one."""
    if first.key != second.key or first.dtype != second.dtype or first.strides != second.strides:
        return None
    same = all(a == b for i, (a, b) in enumerate(zip(first.shape, second.shape, strict=True)) if i != dim)
    if not same or second.offset != first.offset + first.shape[dim] * first.strides[dim]:
        return None
    shape = tuple(n + (second.shape[dim] if i == dim else 0) for i, n in enumerate(first.shape))
    return replace(first, shape=shape)
