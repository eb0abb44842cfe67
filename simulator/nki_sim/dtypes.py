"""One table of data types, and the casts between them with the hardware's rounding.

An NKI dtype is a string (``nl.float32 == "float32"``). Engines compute in float32 and round once on the way out: to
nearest even, and for integers with saturation.

Sources: the table "Supported Data Types" of ``nki.api.shared`` and the 0.7 dtype list (64-bit integers); the rounding
of float32 to integers is that of the NKI 0.6.0 release notes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from nki_sim import lowprec
from nki_sim.lowprec import Array as Array

Kind = Literal["int", "uint", "float", "packed", "bool"]


@dataclass(frozen=True, eq=False)
class DType:
    """One row of the table.

    Attributes:
        name: the NKI name.
        storage: the NumPy dtype of one element in memory.
        kind: int, uint, float, packed (four elements in one) or bool.
        itemsize: bytes of one element.
    """

    name: str
    storage: np.dtype[Any]
    kind: Kind
    itemsize: int

    @property
    def is_integer(self) -> bool:
        """Whether bit operations apply (bool counts, being stored as uint8)."""
        return self.kind in ("int", "uint", "bool")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_fp8(self) -> bool:
        return self.kind == "float" and self.itemsize == 1


def _row(name: str, storage: Any, kind: Kind) -> DType:
    row = np.dtype(storage)
    return DType(name, row, kind, row.itemsize)


TABLE: dict[str, DType] = {
    row.name: row
    for row in (
        _row("bool_", np.uint8, "bool"),
        _row("int8", np.int8, "int"),
        _row("int16", np.int16, "int"),
        _row("int32", np.int32, "int"),
        _row("int64", np.int64, "int"),
        _row("uint8", np.uint8, "uint"),
        _row("uint16", np.uint16, "uint"),
        _row("uint32", np.uint32, "uint"),
        _row("uint64", np.uint64, "uint"),
        _row("float16", np.float16, "float"),
        _row("float32", np.float32, "float"),
        _row("bfloat16", lowprec.storage("bfloat16"), "float"),
        _row("tfloat32", np.float32, "float"),
        _row("float8_e4m3", lowprec.storage("float8_e4m3"), "float"),
        _row("float8_e4m3fn", lowprec.storage("float8_e4m3fn"), "float"),
        _row("float8_e5m2", lowprec.storage("float8_e5m2"), "float"),
        _row("float8_e8m0fnu", lowprec.storage("float8_e8m0fnu"), "float"),
        _row("float8_e5m2_x4", np.uint32, "packed"),
        _row("float8_e4m3fn_x4", np.uint32, "packed"),
        _row("float4_e2m1fn_x4", np.uint16, "packed"),
    )
}

_TAGS = {lowprec.tag(name): name for name in lowprec.NAMES}
_SYNONYMS = {"bool": "bool_", "float64": None, "complex64": None, "complex128": None, "object": None}
_HINTS = {
    "float64": "the hardware has no 64-bit floats: pass float32, for example x.astype(np.float32), in PyTorch x.float()",
    "object": "object arrays hold Python references, not numbers: give the array a numeric dtype",
}


class UnknownDTypeError(TypeError):
    """A value that names no NKI data type."""


def lookup(value: Any) -> DType:
    """The table's row for an NKI name, a NumPy or ml_dtypes dtype, or a torch or JAX dtype.

    Raises:
        UnknownDTypeError: the value names no NKI data type (64-bit floats, complex numbers, objects…).
    """
    found = TABLE.get(value) if isinstance(value, str) else None
    if found is not None:
        return found
    name = _name_of(value)
    name = _SYNONYMS.get(name, name) or name
    found = TABLE.get(name)
    if found is None:
        hint = _HINTS.get(name, f"NKI's data types are {', '.join(TABLE)}")
        raise UnknownDTypeError(f"{name} is not an NKI data type; {hint}")
    return found


def _name_of(value: Any) -> str:
    module = type(value).__module__
    if module.partition(".")[0] == "torch":
        return str(value).rpartition(".")[2]
    if isinstance(value, str):
        return value
    try:
        found = np.dtype(value)
    except TypeError:
        return str(getattr(value, "__name__", value))
    return _TAGS.get(found) or str(found.name)


def poison(dtype: DType) -> Any:
    """What memory that was never written reads as: NaN for floats, 4 for the rest, as the vendor's simulator does."""
    return np.nan if dtype.kind == "float" else 4


def filled(shape: int | tuple[int, ...], value: Any, storage: np.dtype[Any]) -> Array:
    """An array of a NumPy dtype of the table, all of it one number."""
    made = np.empty(shape, storage)
    encoder(storage)(made, value)
    return made


# --- casts -----------------------------------------------------------------------------------------------------------

_OWN = {**_TAGS, **{lowprec.storage(name): name for name in lowprec.NAMES}}
"""The formats that NumPy lacks, by the dtypes of their elements."""
_INT_RANGE = {n: (np.iinfo(d.storage).min, np.iinfo(d.storage).max) for n, d in TABLE.items() if d.is_integer}


@lru_cache
def decoder(storage: np.dtype[Any]) -> Callable[[Array], Array]:
    """A function that gives an array of a NumPy dtype as float32, in memory of its own."""
    name = None if lowprec.is_fast(storage) else _OWN.get(storage)
    if name is None:
        return lambda values: values.astype(np.float32)
    return lambda values: lowprec.decode(name, values)


@lru_cache
def encoder(storage: np.dtype[Any]) -> Callable[[Array, Any], None]:
    """A function that writes numbers to an array of a NumPy dtype; to low precision they are rounded from float32."""
    name = None if lowprec.is_fast(storage) else _OWN.get(storage)
    if name is None:

        def write(dst: Array, values: Any) -> None:
            dst[...] = values

        return write
    bits = np.dtype(f"u{storage.itemsize}")

    def write_bits(dst: Array, values: Any) -> None:
        dst.view(bits)[...] = lowprec.encode(name, values)

    return write_bits


def to_float32(values: Array) -> Array:
    """The values of an array of any NKI data type as float32. No copy when they are float32 already.

    Example:
        y = nki_sim.to_float32(nki_sim.run(kernel, x).result)
    """
    return values if values.dtype == np.float32 else decoder(values.dtype)(values)


def to_dtype(values: Any, dtype: Any) -> Array:
    """Numbers as an array of an NKI data type, rounded as :mod:`nki_sim.dtypes` says, for a kernel's argument.

    Args:
        values: a NumPy array of any NKI data type or float64, or what ``np.asarray`` takes.
        dtype: an NKI data type that is not packed.

    Example:
        x = nki_sim.to_dtype(np.ones((128, 512)), "bfloat16")
    """
    row, given = lookup(dtype), np.asarray(values)
    if row.kind in ("packed", "bool"):
        raise UnknownDTypeError(f"{row.name} is no number to convert to")
    made = np.empty(given.shape, row.storage)
    if given.dtype.kind in "iub":
        write_integers(made, row, given.astype(np.int64))
    else:
        write_float32(made, row, to_float32(given))
    return made


def assign(dst: Array, values: Array) -> None:
    """``dst[...] = values``, converted through float32 when one of the two has low precision and not both the same."""
    if dst.dtype == values.dtype or (dst.dtype == np.float32 and lowprec.is_fast(values.dtype)):
        dst[...] = values
    else:
        encoder(dst.dtype)(dst, to_float32(values) if values.dtype in _OWN else values)


def round_tfloat32(values: Array) -> Array:
    """float32 values rounded to tfloat32's 10 mantissa bits, to nearest even; NaN and infinity stay."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    rounded = (bits + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)
    special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    return np.where(special, bits, rounded).view(np.float32)


def float_to_int(values: Array, dtype: DType) -> Array:
    """float32 values as integers: nearest even, saturated to the type's range; NaN becomes 0 (undocumented)."""
    low, high = _INT_RANGE[dtype.name]
    wide = np.rint(values.astype(np.float64))
    clipped = np.clip(np.nan_to_num(wide, nan=0.0, posinf=np.inf, neginf=-np.inf), float(low), float(high))
    if dtype.itemsize == 8:
        # float(2**63 - 1) rounds up to 2**63, which does not fit: saturate those by hand
        top = clipped >= float(high)
        out = np.where(top, 0.0, clipped).astype(dtype.storage)
        out[top] = high
        return out
    return np.asarray(clipped.astype(dtype.storage))


def write_float32(dst: Array, dtype: DType, values: Array) -> None:
    """Round float32 ``values`` once into ``dst``, whose elements have type ``dtype``."""
    if dtype.name == "tfloat32":
        dst[...] = round_tfloat32(values)
    elif dtype.is_integer and dst.dtype.kind in "iu":
        dst[...] = float_to_int(values, dtype)
    else:
        encoder(dst.dtype)(dst, values)


def write_integers(dst: Array, dtype: DType, values: Array) -> None:
    """Store int64 ``values`` into ``dst``: saturated for integer types, rounded through float32 for the others."""
    if dtype.is_integer and dst.dtype.kind in "iu":
        low, high = _INT_RANGE[dtype.name]
        dst[...] = np.clip(values, low, high)
    else:
        write_float32(dst, dtype, values.astype(np.float32))
