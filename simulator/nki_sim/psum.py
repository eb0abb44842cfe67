"""PSUM accumulation groups: for each element, whether a matmul has started a sum there.

The documents leave the granularity open (bank or location) and ask for overlap-aware tracking; this is per element of
the tensor object: a fresh ``nl.ndarray`` at the same address starts clean. A write by any other engine ends the group.
Source: ``nki.isa.nc_matmul``, "Accumulation mode"; release notes 0.5.0 and 0.6.0.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from nki_sim.dtypes import Array

if TYPE_CHECKING:
    from nki_sim.tensor import NkiTensor


class State(IntEnum):
    """Of one PSUM element."""

    EMPTY = 0
    """No matmul result: fresh, or last written by another engine."""
    OPEN = 1
    """A matmul has written here; the next one adds."""
    READ = 2
    """As OPEN, and another engine has read the sum since."""


class Accumulation:
    """The states of one PSUM tensor: a single state while all its elements agree, else an array."""

    __slots__ = ("_array", "_uniform")

    def __init__(self) -> None:
        self._uniform: State = State.EMPTY
        self._array: Array | None = None

    def _view(self, tile: NkiTensor, every: bool = False) -> Array:
        """The states of the tile's elements; of one partition, for all, while no access tells partitions apart, unless
        ``every`` element's own is wanted."""
        storage = tile.storage
        size, unit = tile.info.itemsize, storage.itemsize
        alike = not every and size == unit and storage.spans_partitions(tile.shape, tile.strides)
        if self._array is None:
            self._array = np.full(storage.row_elems if alike else storage.count, self._uniform, np.uint8)
        if not alike and len(self._array) < storage.count:
            self._array = np.tile(self._array, storage.rows)
        if size == unit:
            shape = (1, *tile.shape[1:]) if len(self._array) < storage.count else tile.shape
            return np.ndarray(shape, np.uint8, self._array.data, tile.offset, tile.strides)
        # a view of another width: every element it touches, as one flat selection
        index = np.zeros(tile.shape, np.int64)
        for dim, (count, stride) in enumerate(zip(tile.shape, tile.strides, strict=True)):
            index += (np.arange(count) * stride).reshape([-1 if d == dim else 1 for d in range(tile.ndim)])
        return self._array[(index + tile.offset) * size // unit]

    def of(self, tile: NkiTensor) -> Array | State:
        """The state of the tile's elements: one State when they agree, else an array that broadcasts to the tile's shape."""
        if self._array is None:
            return self._uniform
        view = self._view(tile)
        first = view.flat[0]
        return State(int(first)) if (view == first).all() else view

    def set(self, tile: NkiTensor, state: State, chosen: Array | None = None) -> None:
        """Give all of the tile's elements, or the ``chosen`` ones, one state."""
        storage = tile.storage
        if chosen is not None and tile.info.itemsize == storage.itemsize:
            self._view(tile, every=True)[chosen] = state
            return
        if tile.size * tile.info.itemsize == storage.count * storage.itemsize:
            self._uniform, self._array = state, None
            return
        if self._array is None and self._uniform is state:
            return
        if tile.info.itemsize == storage.itemsize:
            self._view(tile)[...] = state
        else:
            self._array = np.full(storage.count, State.EMPTY, np.uint8)
            self._uniform = State.EMPTY

    def read(self, tile: NkiTensor) -> None:
        """Another engine reads the tile: open sums there count as evicted."""
        if self._array is None and self._uniform is not State.OPEN:
            return
        states = self.of(tile)
        if isinstance(states, State):
            if states is State.OPEN:
                self.set(tile, State.READ)
        elif tile.info.itemsize == tile.storage.itemsize:
            states[states == State.OPEN] = State.READ
