"""Arrays for the browser: little-endian bytes in base64, with their type and shape."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
from nki_sim.dtypes import Array

KINDS: dict[str, np.dtype[Any]] = {
    "f4": np.dtype("<f4"),
    "i4": np.dtype("<i4"),
    "u1": np.dtype("u1"),
    "u2": np.dtype("<u2"),
    "u4": np.dtype("<u4"),
    "f8": np.dtype("<f8"),
}


def pack(values: npt.ArrayLike, kind: str) -> dict[str, Any]:
    """``{kind, shape, data}``, which ``unpack`` in ``packing.js`` turns into a typed array."""
    array: Array = np.ascontiguousarray(values, dtype=KINDS[kind])
    return {"kind": kind, "shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode("ascii")}


def pack_counts(values: npt.ArrayLike) -> dict[str, Any]:
    """Whole numbers in the narrowest kind that holds them."""
    array: Array = np.asarray(values)
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    return pack(array, "i4" if low < 0 or high >= 1 << 16 else "u2" if high >= 1 << 8 else "u1")


def unpack(packed: dict[str, Any]) -> Array:
    """The array again."""
    dtype: np.dtype[Any] = KINDS[packed["kind"]]
    return np.frombuffer(base64.b64decode(packed["data"]), dtype).reshape(packed["shape"])
