"""Products of matrices in float32, rounded once to what they are stored as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki_sim.dtypes import Array, encoder, to_float32
from nki_sim.replay import scratch

F32 = np.dtype(np.float32)
AT_ONCE = 1 << 21
"""Elements of a product in float32 before they are rounded: fewer cost time, more cost memory."""

_KNOWN: dict[np.dtype[Any], Callable[..., None]] = {}


def multiplied(dtype: np.dtype[Any]) -> Callable[..., None]:
    """``dst = stationaryᵀ · moving`` in float32, rounded to ``dtype`` once."""
    found = _KNOWN.get(dtype)
    if found is not None:
        return found
    if dtype == F32:

        def multiply(dst: Array, stationary: Array, moving: Array) -> None:
            np.matmul(to_float32(stationary).T, to_float32(moving), out=dst)
    else:
        store = encoder(dtype)

        def multiply(dst: Array, stationary: Array, moving: Array) -> None:
            left, right = to_float32(stationary).T, to_float32(moving)
            rows = max(AT_ONCE // right.shape[1], 1)
            product = scratch.take((min(rows, len(left)), right.shape[1]))
            for first in range(0, len(left), rows):
                some = slice(first, first + rows)
                part = np.matmul(left[some], right, out=product[: len(left[some])])
                store(dst[some], part)
            scratch.give_back(product)

    _KNOWN[dtype] = multiply
    return multiply
