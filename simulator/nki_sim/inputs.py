"""What a run began with, for who steps through it later.

Small arrays are copied. Of large ones a run has the caller's own array and a digest of it, which costs a fraction of a copy's
time and none of its memory; the copy is made when somebody looks, if the array is still what it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from nki_sim.dtypes import Array

COPIED = 1 << 20
"""Bytes up to which an array is copied at once."""
_BLOCK = 4096
_CHUNK = 256 * _BLOCK


class Inputs(Mapping[int, Array]):
    """The inputs' values before the run, by allocation number.

    Raises:
        ValueError: by access, when a large array was changed since.
    """

    def __init__(self) -> None:
        self._values: dict[int, Array] = {}
        self._digests: dict[int, bytes] = {}
        self._names: dict[int, str] = {}

    def add(self, number: int, name: str, array: Array) -> None:
        """Keep an input: a C-contiguous array, before the kernel runs."""
        self._names[number] = name
        if array.nbytes <= COPIED:
            self._values[number] = array.copy()
        else:
            self._values[number], self._digests[number] = array, digest(array)

    def copy(self, number: int) -> None:
        """Copy an input now: the caller's array is about to be written. It is still what it was."""
        if self._digests.pop(number, None) is not None:
            self._values[number] = self._values[number].copy()

    def __getitem__(self, number: int) -> Array:
        known = self._digests.get(number)
        if known is not None:
            array = self._values[number].copy()
            if digest(array) != known:
                what = f"the array given as {self._names[number]} was changed after the run, whose steps begin with it"
                raise ValueError(f"{what}: run the kernel again, or leave the array as it is until you have looked")
            self._values[number] = array
            del self._digests[number]
        return self._values[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def digest(array: Array) -> bytes:
    """16 bytes that tell a C-contiguous array from what it is after a change: a hash of the sums of its bytes, eight at a time,
    over each 4 KiB and over each place in 4 KiB. Memory is read once, at its own pace."""
    from hashlib import blake2b  # small inputs need none

    flat = array.reshape(-1).view(np.uint8)
    whole = len(flat) // _BLOCK * _BLOCK
    columns = np.zeros(_BLOCK // 8, np.uint64)
    hashed = blake2b(flat[whole:].tobytes(), digest_size=16)
    for start in range(0, whole, _CHUNK):
        blocks = flat[start : min(start + _CHUNK, whole)].view(np.uint64).reshape(-1, _BLOCK // 8)
        hashed.update(blocks.sum(axis=1).data)
        columns += blocks.sum(axis=0)
    hashed.update(columns.data)
    return hashed.digest()
