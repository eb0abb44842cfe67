"""Microscaling (MX) numbers: four elements packed in one, and one power of two for 32 of them.

A block is 8 partitions of 4 packed elements. Its scale is an E8M0 byte b, the number 2^(b - 127); 255 is NaN. The first
of the packed elements is in the lowest bits. Sources: the OCP Microscaling Formats specification 1.0 (formats, scale,
saturation), ``nki.isa.quantize_mx`` (scale of a block), the MXFP deep dive (blocks, packing, where scales lie).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from nki_sim import lowprec
from nki_sim.dtypes import Array

PACK = 4
"""Elements in one packed element."""
BLOCK = 8
"""Partitions of a block."""
QUADRANT = 32
"""Partitions whose scales lie together: in the quadrant that their data are in."""
SCALE_ROWS = QUADRANT // BLOCK
"""Partitions of a quadrant that hold scales."""
SCALE_STARTS = (0, 4, 8, 12)
"""Where in a quadrant they may begin."""
SCALE_DTYPES = ("float8_e8m0fnu", "uint8")
NAN_SCALE = 255
BIAS = 127


@dataclass(frozen=True)
class Element:
    """An element format: its name, the largest exponent, the largest finite value."""

    name: str
    bits: int
    emax: int
    largest: float

    @property
    def storage(self) -> np.dtype[Any]:
        """The NumPy dtype of an element in a byte of its own."""
        return lowprec.storage(self.name)


ELEMENTS = {
    "float8_e5m2_x4": Element("float8_e5m2", 8, 15, 57344.0),
    "float8_e4m3fn_x4": Element("float8_e4m3fn", 8, 8, 448.0),
    "float4_e2m1fn_x4": Element("float4_e2m1fn", 4, 2, 6.0),
}

SCALES: Array = np.append(np.ldexp(np.float32(1), np.arange(NAN_SCALE) - BIAS), np.float32(np.nan))
"""The scale of each byte."""
INVERSES: Array = 1 / SCALES
"""One by the scale of each byte; both are exact in float32."""


_NIBBLES = np.arange(0, 16, 4, dtype=np.uint16)


@cache
def _fours(name: str) -> Array:
    """The four values of each packed element of 4-bit elements."""
    return np.ascontiguousarray(lowprec.values(name)[np.arange(1 << 16)[:, None] >> _NIBBLES & 15])


def elements(packed: Array, dtype: str) -> Array:
    """The elements in a type of their own, a byte each, the four of each packed one along a new last axis."""
    element = ELEMENTS[dtype]
    if element.bits == 4:
        bits = (packed[..., None] >> _NIBBLES & 15).astype(np.uint8)
    else:
        bits = np.ascontiguousarray(packed).view(np.uint8).reshape(*packed.shape, PACK)
    return bits.view(element.storage)


def unpack(packed: Array, dtype: str) -> Array:
    """The elements as float32."""
    name = ELEMENTS[dtype].name
    if ELEMENTS[dtype].bits == 4:
        return np.take(_fours(name), packed, axis=0)
    return lowprec.decode(name, elements(packed, dtype))


def pack(values: Array, dtype: str) -> Array:
    """float32 values, four along the last axis, rounded to nearest even and packed; the opposite of :func:`unpack`."""
    bits = lowprec.encode(ELEMENTS[dtype].name, values)
    if ELEMENTS[dtype].bits == 8:
        return bits.view(np.uint32)[..., 0]
    return np.asarray(np.bitwise_or.reduce(bits.astype(np.uint16) << _NIBBLES, axis=-1))


def scale_values(scales: Array) -> Array:
    """A tile of scales as float32 numbers, whether it holds bytes or (with ``NKI_PRECISE_FP=0``) the numbers."""
    return scales if scales.dtype == np.float32 else np.take(SCALES, scales.view(np.uint8))


def store_scales(dst: Array, scales: Array) -> None:
    """Write E8M0 bytes to a tile of scales."""
    if dst.dtype == np.float32:
        dst[...] = SCALES[scales]
    else:
        dst.view(np.uint8)[...] = scales


def _times(values: Array, scales: Array, out: Array | None = None) -> Array:
    """(P, F, 4) elements times the (P / 8, F) factors of their blocks."""
    rows = np.repeat(scales, PACK, axis=1)[:, None, :]
    into = None if out is None else out.reshape(-1, BLOCK, rows.shape[2])
    product: Array = np.multiply(values.reshape(-1, BLOCK, rows.shape[2]), rows, out=into)
    return product.reshape(values.shape)


def scaled(values: Array, scales: Array) -> Array:
    """Multiply (P, F, 4) elements by the (P / 8, F) scales of their blocks, in place."""
    return _times(values, scales, out=values)


def quantize(values: Array, dtype: str) -> tuple[Array, Array]:
    """(P, F, 4) float32 values as packed elements (P, F) and the E8M0 bytes of their blocks (P / 8, F).

    The scale is 2^(floor(log2(amax)) - (emax - 1)): twice that of the OCP's sample algorithm, so that rounding never
    leaves the element's range. It is clamped to 2^-127 from below, which is also the scale of a block of zeros.
    The documents leave NaN and infinity open. Here NaN in a block makes its scale, and with it all of it, NaN; infinity
    gives the largest scale, 2^127, and saturates as finite values do that are too large.
    """
    element = ELEMENTS[dtype]
    columns = values.shape[1]
    lanes = np.maximum.reduce(np.abs(values).reshape(-1, BLOCK, columns * PACK), axis=1)
    amax = np.maximum.reduce(lanes.reshape(-1, columns, PACK), axis=2)
    exponent = np.frexp(amax)[1] - 1  # floor(log2), subnormal numbers included
    scales = np.clip(exponent - (element.emax - 1) + BIAS, 0, NAN_SCALE - 1)
    scales[amax == 0] = 0
    scales[np.isinf(amax)] = NAN_SCALE - 1
    scales[np.isnan(amax)] = NAN_SCALE
    quotients = _times(values, INVERSES[scales])
    return pack(np.clip(quotients, -element.largest, element.largest), dtype), scales.astype(np.uint8)
