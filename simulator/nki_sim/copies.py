"""Copies of the callers' arrays for the ranks that write them. Ranks that are given the same array, a cache of keys and values
say, share its pages; the system copies a page for a rank that writes it."""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np

from nki_sim.dtypes import Array

LEAST = 1 << 20
"""Bytes from which on pages are shared."""


class PrivateCopies:
    """Copies of arrays that nobody writes meanwhile."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], tuple[Array, BinaryIO]] = {}
        """By address and size the array, which must stay where it is, and a file in memory with its bytes."""

    def of(self, data: Array) -> Array:
        """A copy of contiguous bytes, which may be written."""
        if data.nbytes < LEAST or not hasattr(os, "memfd_create"):
            return data.copy()
        try:
            return np.asarray(np.memmap(self._file(data), np.uint8, "c", shape=(data.nbytes,)))
        except OSError:  # as many files are open as may be
            return data.copy()

    def _file(self, data: Array) -> BinaryIO:
        key = data.__array_interface__["data"][0], data.nbytes
        known = self._files.get(key)
        if known is not None:
            return known[1]
        file = os.fdopen(os.memfd_create("nki_sim"), "w+b")
        file.write(data.data)
        file.flush()
        self._files[key] = data, file
        return file

    def clear(self) -> None:
        """Let go of the arrays; copies stay."""
        for _, file in self._files.values():
            file.close()
        self._files.clear()
