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
    from nki_sim.claims import Place
    from nki_sim.memory import Pattern
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
    """The states of one PSUM tensor: of all its elements while they agree, of each part while the parts that kernels take do
    not overlap, else a mark for each element."""

    __slots__ = ("_marks", "_parts", "_places", "_rest")

    MOST = 64
    """Parts; more of them are marked."""

    def __init__(self) -> None:
        self._rest = State.EMPTY
        self._parts: dict[int, State] = {}
        """By the number of their signature, which says where in the tensor they are."""
        self._places: list[tuple[int, Pattern, Place]] = []
        self._marks: Marks | None = None

    def of(self, tile: NkiTensor) -> Array | State:
        """The state of the tile's elements: one State when they agree, else an array that broadcasts to the tile's shape."""
        state = self._state(tile)
        if state is not None:
            return state
        if self._parts and self._apart(tile.place):
            return self._rest
        view = self._view(tile)
        first = view.flat[0]
        if (view == first).all():
            return State(int(first))
        return view if view.ndim == tile.ndim else view[..., 0]

    def set(self, tile: NkiTensor, state: State, chosen: Array | None = None) -> None:
        """Give all of the tile's elements, or the ``chosen`` ones, one state."""
        if self._rest is state and self._marks is None and not self._parts:
            return
        if chosen is not None:
            self._view(tile, every=True)[chosen] = state
        elif self._parts and tile.sig in self._parts:
            self._parts[tile.sig] = state
        elif tile.is_whole:
            self._rest = state
            self._forget()
        elif not self._add(tile, state):
            self._view(tile)[...] = state

    def read(self, tile: NkiTensor) -> None:
        """Another engine reads the tile: open sums there count as evicted."""
        state = self._state(tile)
        if state is None and self._parts and tile.is_whole:
            self._rest = _evicted(self._rest)
            self._parts = {part: _evicted(state) for part, state in self._parts.items()}
            return
        states = self.of(tile) if state is None else state
        if states is State.OPEN:
            self.set(tile, State.READ)
        elif not isinstance(states, State):
            marks = self._view(tile)
            marks[marks == State.OPEN] = State.READ

    def _state(self, tile: NkiTensor) -> State | None:
        """That of all, or of a part that is known."""
        if self._parts:
            return self._parts.get(tile.sig)
        return self._rest if self._marks is None else None

    def _add(self, tile: NkiTensor, state: State) -> bool:
        """Note the state of a part; False where it overlaps another one."""
        place = tile.place
        if self._marks is not None or len(self._parts) >= self.MOST or not self._apart(place):
            return False
        self._parts[tile.sig] = state
        self._places.append((tile.sig, tile.pattern, place))
        return True

    def _apart(self, place: Place) -> bool:
        return not any(place.meets(other) for _, _, other in self._places)

    def _forget(self) -> None:
        self._marks = None
        if self._parts:
            self._parts, self._places = {}, []

    def _view(self, tile: NkiTensor, every: bool = False) -> Array:
        if self._marks is None:
            marks = Marks(tile.storage, self._rest, np.uint8)
            for part, pattern, _ in self._places:
                marks.of(pattern)[...] = self._parts[part]
            self._forget()
            self._marks = marks
        return self._marks.of(tile.pattern, every)


def _evicted(state: State) -> State:
    return State.READ if state is State.OPEN else state
