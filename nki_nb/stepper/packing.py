"""Arrays for the browser: little-endian bytes with their type and shape.

In a message to a widget the bytes travel beside the JSON, in a saved page as base64 in it: :func:`apart` and
:func:`as_text` make the one and the other of an answer that holds packed arrays.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Container
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


NAMED = 4096
"""Bytes from which an array in a message has a name by which the viewer keeps it and is not sent it again."""


def pack(values: npt.ArrayLike, kind: str) -> dict[str, Any]:
    """``{kind, shape, data}``, which ``unpack`` in ``packing.js`` turns into a typed array."""
    array: Array = np.ascontiguousarray(values, dtype=KINDS[kind])
    return {"kind": kind, "shape": list(array.shape), "data": array.tobytes()}


def pack_counts(values: npt.ArrayLike) -> dict[str, Any]:
    """Whole numbers in the narrowest kind that holds them."""
    array: Array = np.asarray(values)
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    return pack(array, "i4" if low < 0 or high >= 1 << 16 else "u2" if high >= 1 << 8 else "u1")


def unpack(packed: dict[str, Any]) -> Array:
    """The array again."""
    dtype: np.dtype[Any] = KINDS[packed["kind"]]
    return np.frombuffer(_bytes(packed["data"]), dtype).reshape(packed["shape"])


def as_text(answer: Any) -> Any:
    """An answer with its arrays in base64: JSON."""
    return _replaced(answer, lambda data: base64.b64encode(data).decode("ascii"))


def apart(answer: Any, held: Container[str] = ()) -> tuple[Any, list[bytes]]:
    """An answer with its arrays beside it.

    Args:
        answer: what holds packed arrays.
        held: names of the arrays that the viewer has: their bytes stay here.

    Returns:
        The answer with, in the place of the bytes of an array, their number in the list, or ``{name, at}`` for a large
        one, ``at`` left out where the viewer has it or it is in the list already; and the list.
    """
    buffers: list[bytes] = []
    named: set[str] = set()

    def take(data: bytes) -> int | dict[str, Any]:
        if len(data) >= NAMED:
            name = hashlib.blake2b(data, digest_size=12).hexdigest()
            if name in held or name in named:
                return {"name": name}
            named.add(name)
            buffers.append(data)
            return {"name": name, "at": len(buffers) - 1}
        buffers.append(data)
        return len(buffers) - 1

    return _replaced(answer, take), buffers


def _replaced(answer: Any, put: Callable[[bytes], Any]) -> Any:
    if isinstance(answer, bytes):
        return put(answer)
    if isinstance(answer, dict):
        return {key: _replaced(value, put) for key, value in answer.items()}
    if isinstance(answer, list) and answer and isinstance(answer[0], (dict, list, bytes)):
        return [_replaced(value, put) for value in answer]
    return answer


def _bytes(data: bytes | str) -> bytes:
    return base64.b64decode(data) if isinstance(data, str) else data
