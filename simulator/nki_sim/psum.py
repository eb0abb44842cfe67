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
from nki_sim.marks import Marks

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
    """The states of one PSUM tensor: a single state while all its elements agree, else a mark for each."""

    __slots__ = ("_marks", "_uniform")

    def __init__(self) -> None:
        self._uniform: State = State.EMPTY
        self._marks: Marks | None = None

    def _view(self, tile: NkiTensor, every: bool = False) -> Array:
        if self._marks is None:
            self._marks = Marks(tile.storage, self._uniform, np.uint8)
        return self._marks.of(tile.pattern, every)

    def of(self, tile: NkiTensor) -> Array | State:
        """The state of the tile's elements: one State when they agree, else an array that broadcasts to the tile's shape."""
        if self._marks is None:
            return self._uniform
        view = self._view(tile)
        first = view.flat[0]
        if (view == first).all():
            return State(int(first))
        return view if view.ndim == tile.ndim else view[..., 0]

    def set(self, tile: NkiTensor, state: State, chosen: Array | None = None) -> None:
        """Give all of the tile's elements, or the ``chosen`` ones, one state."""
        if chosen is not None:
            self._view(tile, every=True)[chosen] = state
        elif tile.size * tile.info.itemsize == tile.storage.count * tile.storage.itemsize:
            self._uniform, self._marks = state, None
        elif self._marks is not None or self._uniform is not state:
            self._view(tile)[...] = state

    def read(self, tile: NkiTensor) -> None:
        """Another engine reads the tile: open sums there count as evicted."""
        if self._marks is None:
            if self._uniform is State.OPEN:
                self.set(tile, State.READ)
            return
        states = self._view(tile)
        states[states == State.OPEN] = State.READ
