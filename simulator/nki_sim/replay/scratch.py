"""Memory for values that live within one call, kept from call to call: fresh pages cost more than what is done in them."""

from __future__ import annotations

import threading

import numpy as np

from nki_sim.dtypes import Array

MOST = 64 << 20
"""Bytes that are kept, by all threads together."""
LEAST = 64 << 10
"""Bytes from which on an array is kept."""
LARGE_PAGE = 2 << 20
"""Products of matrices that lie on whole large pages, where the system has such, take up to 7 % less time."""

_lock = threading.Lock()
_kept: list[Array] = []


def take(shape: tuple[int, ...]) -> Array:
    """An array of float32 that nobody else has; its values are anything."""
    size = 4 * int(np.prod(shape))
    with _lock:
        at = next((i for i in reversed(range(len(_kept))) if _kept[i].nbytes == size), None)
        data = _kept.pop(at) if at is not None else None
    return (_fresh(size) if data is None else data).view(np.float32).reshape(shape)


def _fresh(size: int) -> Array:
    """Bytes that begin where a large page may."""
    if size < LARGE_PAGE:
        return np.empty(size, np.uint8)
    made = np.empty(size + LARGE_PAGE, np.uint8)
    first = -made.__array_interface__["data"][0] % LARGE_PAGE
    return made[first : first + size]


def give_back(array: Array) -> None:
    """Let the next one have an array that :func:`take` gave; whoever gives it back has no view of it any more."""
    data = array.reshape(-1).view(np.uint8)
    with _lock:
        if LEAST <= data.nbytes <= MOST:
            _kept.append(data)
        while kept() > MOST:
            del _kept[0]


def kept() -> int:
    """Bytes that are kept now."""
    return sum(data.nbytes for data in _kept)


def forget() -> None:
    """Let go of all that is kept."""
    with _lock:
        _kept.clear()
