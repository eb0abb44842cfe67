"""Memory of dead arrays for the next ones: fresh pages cost more than what is done in them.

Values that live within one call are in memory that the call takes and gives back. Results are in memory that is lent: whoever
has the last view of it gives it back by letting go of that.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from nki_sim.dtypes import Array

MOST = 64 << 20
"""Bytes that are kept, by all threads together."""
LEAST = 64 << 10
"""Bytes from which on an array is kept."""
LARGE = 1 << 20
"""Bytes from which on memory is lent."""
LARGE_PAGE = 2 << 20
"""Products of matrices that lie on whole large pages, where the system has such, take up to 7 % less time."""

_lock = threading.Lock()
_kept: list[Array] = []
_returned: deque[Array] = deque()
"""What was lent and is free again. It ends whenever Python likes, also while the lock is held, so it waits here."""


def take(shape: tuple[int, ...]) -> Array:
    """An array of float32 that nobody else has; its values are anything."""
    return _taken(4 * int(np.prod(shape))).view(np.float32).reshape(shape)


def give_back(array: Array) -> None:
    """Let the next one have an array that :func:`take` gave; whoever gives it back has no view of it any more."""
    with _lock:
        _keep(array.reshape(-1).view(np.uint8))


def lend(size: int) -> Array:
    """Bytes that nobody else has, with any values, until the last view of them is gone."""
    return np.asarray(_Loan(_taken(size))) if size >= LARGE else np.empty(size, np.uint8)


class _Loan:
    """What the array of lent bytes has as its base, as all views of it have."""

    def __init__(self, data: Array):
        self._data, self.__array_interface__ = data, data.__array_interface__

    def __del__(self, returned: deque[Array] = _returned) -> None:
        if sum([data.nbytes for data in tuple(returned)]) + self._data.nbytes <= MOST:
            returned.append(self._data)


def _taken(size: int) -> Array:
    with _lock:
        _collect()
        at = next((i for i in reversed(range(len(_kept))) if _kept[i].nbytes == size), None)
        data = _kept.pop(at) if at is not None else None
    return _fresh(size) if data is None else data


def _collect() -> None:
    while _returned:
        _keep(_returned.popleft())


def _keep(data: Array) -> None:
    if LEAST <= data.nbytes <= MOST:
        _kept.append(data)
    while sum(each.nbytes for each in _kept) > MOST:
        del _kept[0]


def _fresh(size: int) -> Array:
    """Bytes that begin where a large page may."""
    if size < LARGE_PAGE:
        return np.empty(size, np.uint8)
    made = np.empty(size + LARGE_PAGE, np.uint8)
    first = -made.__array_interface__["data"][0] % LARGE_PAGE
    return made[first : first + size]


def kept() -> int:
    """Bytes that are kept now."""
    with _lock:
        _collect()
        return sum(data.nbytes for data in _kept)


def forget() -> None:
    """Let go of all that is kept."""
    with _lock:
        _returned.clear()
        _kept.clear()
