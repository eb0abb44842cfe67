"""Arrays of other libraries at the kernel's border: anything with ``__array__`` or ``__dlpack__``, and all tensors of PyTorch.

torch and JAX are never imported here; a tensor of theirs brings its own module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_sim.dtypes import TABLE, Array, DType, assign, lookup
from nki_sim.errors import Broken, NkiTypeError, violation

Restore = Callable[[Array], Any]

DEVICES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}
"""Of PyTorch's devices besides the CPU, how to take a tensor to the CPU, and a result back from there."""


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
    restore: Restore
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is not None and isinstance(value, tensor):
        return _from_torch(value)
    if isinstance(value, np.ndarray):
        source, restore = value, _same
    else:
        source, restore = _as_numpy(value), _as_jax(value) or _same
    dtype = lookup(source.dtype)
    own = np.ascontiguousarray(source, source.dtype.newbyteorder("=")).view(dtype.storage)
    return Incoming(own.reshape(source.shape), dtype, bool(source.flags.writeable), _writer(source), restore)


def outgoing(array: Array, dtype: DType) -> Array:
    """An output as the caller sees it: bool for bool_, float32 for tfloat32, the NumPy dtype for the rest."""
    return array.view(np.bool_) if dtype.kind == "bool" else array


def _same(array: Array) -> Array:
    return array


def _as_jax(value: Any) -> Restore | None:
    """How results become arrays of JAX, where the argument is one."""
    jax = sys.modules.get("jax")
    return jax.numpy.asarray if jax is not None and isinstance(value, jax.Array) else None


def _writer(target: Array) -> Callable[[Array], None]:
    def write(values: Array) -> None:
        native = target.dtype.newbyteorder("=")
        assign(target, values.view(native) if values.dtype.itemsize == native.itemsize else values)

    return write


def _as_numpy(value: Any) -> Array:
    if hasattr(value, "__array__"):
        return np.asarray(value)
    return np.asarray(np.from_dlpack(value))


_NOT_IN_NUMPY = {
    label: (TABLE[label].storage, raw)
    for label, raw in (("bfloat16", "int16"), ("float8_e4m3fn", "uint8"), ("float8_e5m2", "uint8"), ("float8_e8m0fnu", "uint8"))
}
"""PyTorch's data types that NumPy lacks: their storage, and the integers that both libraries know."""


def _from_torch(value: Any) -> Incoming:
    torch = sys.modules["torch"]
    dtype = lookup(value.dtype)
    to_host, from_host = DEVICES.get(value.device.type, (lambda tensor: tensor.cpu(), lambda tensor: tensor))
    host = to_host(value.detach()).contiguous().resolve_neg()
    if dtype.name in _NOT_IN_NUMPY:
        storage, raw = _NOT_IN_NUMPY[dtype.name]
        array = host.view(getattr(torch, raw)).numpy().view(storage)
    else:
        array = host.numpy()

    def restore(result: Array) -> Any:
        return from_host(_to_torch(torch, result))

    def write_back(values: Array) -> None:
        value.detach().copy_(restore(values.view(array.dtype)))

    own = array.view(np.uint8) if dtype.kind == "bool" else array
    return Incoming(own, dtype, True, write_back, restore)


def _to_torch(torch: Any, result: Array) -> Any:
    """An array as a tensor of the CPU.

    Raises:
        NkiTypeError: PyTorch lacks its data type.
    """
    for label, (storage, raw) in _NOT_IN_NUMPY.items():
        if result.dtype == storage and hasattr(torch, label):
            return torch.from_numpy(result.view(raw).copy()).view(getattr(torch, label))
    try:
        return torch.from_numpy(np.ascontiguousarray(result))
    except TypeError:
        from nki_sim.torch_rules import NO_TWIN  # for who needs it

        broken = Broken(f"an output is {lookup(result.dtype).name}")
        raise NkiTypeError(violation(NO_TWIN, broken, target="", instruction="", sites=())) from None
