"""Floats that NumPy lacks, as bits: bfloat16 by shifting, the formats of 8 and 4 bits by tables.

Rounding is to nearest even; what is too large becomes infinity, NaN or the largest number, as the format has them. Bits
and values are those of ml_dtypes, whose NumPy dtypes are the storage where it is installed. Where it is not (a Python in
the browser), an element is stored as its bits, under the name of the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    import ml_dtypes as _installed
except ImportError:
    _installed = None  # type: ignore[assignment]

Array = npt.NDArray[Any]

BFLOAT16 = "bfloat16"
_SCALE = "float8_e8m0fnu"
_QUIET = np.uint32(0x7FC00000)
_AT_ONCE = 1 << 16
"""Elements that are encoded at a time: their intermediate results stay in the cache."""


@dataclass(frozen=True)
class Format:
    """A float of at most 8 bits: a sign, an exponent, a mantissa.

    Attributes:
        bits: of an element, in the low end of a byte.
        mantissa: bits of the mantissa.
        bias: of the exponent.
        largest: the bits of the largest number; what is too large for it gets the next higher bits, if there are any.
        nan: the bits of a positive NaN.
    """

    bits: int
    mantissa: int
    bias: int
    largest: int
    nan: int

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


FORMATS = {
    "float8_e4m3": Format(8, 3, 7, 0x77, 0x7C),
    "float8_e4m3fn": Format(8, 3, 7, 0x7E, 0x7F),
    "float8_e5m2": Format(8, 2, 15, 0x7B, 0x7E),
    "float4_e2m1fn": Format(4, 1, 1, 0x7, 0x8),
}
NAMES = (BFLOAT16, *FORMATS, _SCALE)


def tag(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a format's bits, which tells it from other formats and from integers."""
    return np.dtype([(name, np.uint16 if name == BFLOAT16 else np.uint8)])


def storage(name: str) -> np.dtype[Any]:
    """The NumPy dtype in which elements are stored."""
    found: np.dtype[Any] = tag(name) if _installed is None else np.dtype(getattr(_installed, name))
    return found


def is_fast(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy casts a dtype from and to float32 faster than the functions here."""
    return dtype.names is None and dtype.name == BFLOAT16


# --- bits to float32 -------------------------------------------------------------------------------------------------


@cache
def values(name: str) -> Array:
    """The float32 value of each byte; of a 4-bit format, of each half of one."""
    if name == _SCALE:
        powers = np.ldexp(np.float32(1), np.arange(-127, 128))
        return np.append(powers, np.full(1, np.nan, np.float32))
    form = FORMATS[name]
    magnitudes = _magnitudes(form)
    bits = magnitudes.view(np.uint32)
    bits[form.largest + 1 :] = _QUIET
    if form.largest + 1 < form.nan and form.bits == 8:
        magnitudes[form.largest + 1] = np.inf
    return np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)


def _magnitudes(form: Format) -> Array:
    """The value of all bits but the sign, if they all were numbers."""
    bits = np.arange(form.sign)
    exponent, mantissa = bits >> form.mantissa, bits & ((1 << form.mantissa) - 1)
    whole = mantissa + ((exponent > 0) << form.mantissa)
    made: Array = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - form.bias - form.mantissa)
    return made


@cache
def _pairs(name: str) -> Array:
    """The values of two neighbouring bytes, as the 8 bytes of one number: half as many look-ups."""
    both = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    return values(name)[both].view(np.float64)


def decode(name: str, array: Array) -> Array:
    """Elements of a format, of any dtype of their size, as float32; axes lie in memory as those of ``array``."""
    if name == BFLOAT16:
        wide = array.view(np.uint16).astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    bits = array.view(np.uint8)
    found = np.empty_like(bits, dtype=np.float32)
    if name == "float4_e2m1fn":
        bits = bits & np.uint8(15)
    elif bits.ndim and bits.strides[-1] == 1 and not bits.shape[-1] % 2 and found.flags.c_contiguous:
        np.take(_pairs(name), bits.view(np.uint16), out=found.view(np.float64), mode="wrap")
        return found
    return np.take(values(name), bits, out=found, mode="wrap")  # with "raise", NumPy makes a copy of out first


# --- float32 to bits -------------------------------------------------------------------------------------------------


@cache
def _nearest(name: str) -> Array:
    """The bits nearest to each float32 number whose lower 16 bits are zero, by the upper 16."""
    halves = np.arange(1 << 15, dtype=np.uint32)
    if name == _SCALE:
        # From the middle between two powers on, the upper one; 2^-127, which float32 has without its leading 1, is exact.
        bits = (halves + 0x40 - (halves == 0x40)) >> 7
        bits[0] = bits[0x7F80:] = 0xFF
        return np.append(bits, np.full(1 << 15, 0xFF)).astype(np.uint8)
    form, numbers = FORMATS[name], (halves[:0x7F81] << 16).view(np.float32)
    grid = _magnitudes(form)[: form.largest + 2]
    middles = (grid[1:] + grid[:-1]) / 2
    bits = np.full(len(halves), form.nan)
    found = np.searchsorted(middles, numbers)
    tie = middles[np.minimum(found, len(middles) - 1)] == numbers
    bits[: len(found)] = found + (tie & (found % 2 == 1))
    return np.append(bits, bits ^ form.sign).astype(np.uint8)


def encode(name: str, numbers: Any) -> Array:
    """float32 numbers rounded once, as bits: uint16 for bfloat16, uint8 for the others."""
    numbers = np.asarray(numbers, np.float32)
    if name == BFLOAT16:
        return _bfloat16(np.atleast_1d(numbers)).reshape(numbers.shape)
    table, found = _nearest(name), np.empty(numbers.shape, np.uint8)
    rows = _AT_ONCE * len(numbers) // numbers.size if numbers.size > _AT_ONCE else 0
    for start in range(0, len(numbers) if rows else 0, rows or 1):
        np.take(table, _upper(numbers[start : start + rows]), out=found[start : start + rows], mode="wrap")
    return found if rows else np.take(table, _upper(numbers), out=found, mode="wrap")


def _upper(numbers: Array) -> Array:
    """The upper 16 bits of float32 numbers, the last of which says whether anything was cut off.

    They are as good as all bits for rounding to at most 5 bits of mantissa.
    """
    bits = numbers.view(np.uint32)
    upper: Array = (bits & 0xFFFF) + 0xFFFF
    upper |= bits
    upper >>= 16
    return upper.view(np.int32)  # a 32-bit NumPy takes no uint32 as places


def _bfloat16(numbers: Array) -> Array:
    bits = numbers.view(np.uint32)
    upper: Array = bits >> 16
    upper &= 1
    upper += 0x7FFF
    upper += bits
    upper >>= 16
    special = np.isnan(numbers)
    if special.any():
        upper[special] = bits[special] >> 31 << 15 | 0x7FC0
    return upper.astype(np.uint16)
