"""Arrays of other libraries at the kernel's border: anything with ``__array__`` or ``__dlpack__``, and torch's bfloat16.

torch and JAX are never imported here; a tensor of theirs brings its own module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_sim.dtypes import TABLE, Array, DType, assign, lookup

Restore = Callable[[Array], Any]


@dataclass
class Incoming:
    """One array argument: its values as C-contiguous NumPy, and how to give results back in the caller's kind.

    Attributes:
        array: what the kernel sees; shares the caller's memory where that is C-contiguous, else a copy.
        dtype: NKI dtype.
        writable: whether the caller's array can be written.
        write_back: stores the kernel's values in the caller's array.
        restore: turns an output into the caller's kind of array.
    """

    array: Array
    dtype: DType
    writable: bool
    write_back: Callable[[Array], None]
    restore: Restore


def is_array(value: Any) -> bool:
    """Whether a kernel argument is a tensor rather than a compile-time value."""
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, (np.generic, type)):
        return False
    return hasattr(value, "__dlpack__") or hasattr(value, "__array__")


def incoming(value: Any) -> Incoming:
    """Take an array argument in.

    Raises:
        UnknownDTypeError: its dtype has no NKI twin (float64, complex, objects).
    """
    if type(value).__module__.partition(".")[0] == "torch":
        return _from_torch(value)
    if isinstance(value, np.ndarray):
        source, restore = value, _same
    else:
        source, restore = _as_numpy(value), _same
    dtype = lookup(source.dtype)
    own = np.ascontiguousarray(source, source.dtype.newbyteorder("=")).view(dtype.storage)
    return Incoming(own.reshape(source.shape), dtype, bool(source.flags.writeable), _writer(source), restore)


def outgoing(array: Array, dtype: DType) -> Array:
    """An output as the caller sees it: bool for bool_, float32 for tfloat32, the NumPy dtype for the rest."""
    return array.view(np.bool_) if dtype.kind == "bool" else array


def _same(array: Array) -> Array:
    return array


def _writer(target: Array) -> Callable[[Array], None]:
    def write(values: Array) -> None:
        native = target.dtype.newbyteorder("=")
        assign(target, values.view(native) if values.dtype.itemsize == native.itemsize else values)

    return write


def _as_numpy(value: Any) -> Array:
    if hasattr(value, "__array__"):
        return np.asarray(value)
    return np.asarray(np.from_dlpack(value))


def _from_torch(value: Any) -> Incoming:
    torch = sys.modules["torch"]
    name = str(value.dtype).rpartition(".")[2]
    special = {label: TABLE[label].storage for label in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
    host = value.detach().cpu().contiguous()
    if name in special:
        raw = torch.int16 if name == "bfloat16" else torch.uint8
        array = host.view(raw).numpy().view(special[name])
    else:
        array = host.numpy()
    dtype = lookup(array.dtype)

    def to_torch(result: Array) -> Any:
        for label, storage in special.items():
            if result.dtype == storage:
                raw = np.int16 if label == "bfloat16" else np.uint8
                return torch.from_numpy(result.view(raw).copy()).view(getattr(torch, label))
        return torch.from_numpy(np.ascontiguousarray(result))

    def write_back(values: Array) -> None:
        value.detach().copy_(to_torch(values.view(array.dtype)))

    own = array.view(np.uint8) if dtype.kind == "bool" else array
    return Incoming(own, dtype, True, write_back, to_torch)
