"""MX numbers element by element, from the formats' definitions: what the simulator's tables must agree with."""

import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache

import numpy as np

FORMATS = {  # exponent bits, mantissa bits, bias, largest exponent, largest finite value
    "float8_e5m2_x4": (5, 2, 15, 15, 57344),
    "float8_e4m3fn_x4": (4, 3, 7, 8, 448),
    "float4_e2m1fn_x4": (2, 1, 1, 2, 6),
}
PACKED = list(FORMATS)
STORED = {"float8_e5m2_x4": np.uint32, "float8_e4m3fn_x4": np.uint32, "float4_e2m1fn_x4": np.uint16}


def decoded(code, dtype):
    """The number that a bit pattern of an element stands for."""
    exponent_bits, mantissa_bits, bias, _, _ = FORMATS[dtype]
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent, mantissa = code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
    if dtype == "float8_e5m2_x4" and exponent == 31:
        return math.nan if mantissa else sign * math.inf
    if dtype == "float8_e4m3fn_x4" and (exponent, mantissa) == (15, 7):
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


def scale_of(byte):
    """The number that a scale byte stands for."""
    return math.nan if byte == 255 else 2.0 ** (byte - 127)


def codes(packed, dtype):
    """The four bit patterns of a packed element, the first from the lowest bits."""
    width = 4 if dtype == "float4_e2m1fn_x4" else 8
    return [int(packed) >> width * i & (1 << width) - 1 for i in range(4)]


@cache
def finite(dtype):
    """The non-negative finite numbers of a format in order, which is also the order of their bit patterns."""
    exponent_bits, mantissa_bits, _, _, largest = FORMATS[dtype]
    numbers = [decoded(code, dtype) for code in range(1 << exponent_bits + mantissa_bits)]
    numbers = numbers[: numbers.index(largest) + 1]
    assert numbers == sorted(numbers)
    return numbers


def nearest(value, dtype):
    """The bit pattern nearest to a number; of two, the even one; too large ones become the largest finite one."""
    exponent_bits, mantissa_bits, _, _, largest = FORMATS[dtype]
    sign = (1 << exponent_bits + mantissa_bits) if math.copysign(1, value) < 0 else 0
    numbers, size = finite(dtype), min(abs(value), largest)
    above = bisect_left(numbers, size)
    if numbers[above] == size:
        return sign | above
    down, up = size - numbers[above - 1], numbers[above] - size  # exact: the value has few bits
    return sign | (above if up < down or (up == down and above % 2 == 0) else above - 1)


def quantized(values, dtype):
    """[P, F] numbers as (packed elements [P, F / 4], scale bytes [P / 8, F / 4]); finite ones only."""
    _, _, _, largest_exponent, _ = FORMATS[dtype]
    rows, columns = values.shape[0], values.shape[1] // 4
    packed, scales = np.zeros((rows, columns), STORED[dtype]), np.zeros((rows // 8, columns), np.uint8)
    for b in range(rows // 8):
        for f in range(columns):
            block = [[float(v) for v in values[8 * b + p, 4 * f : 4 * f + 4]] for p in range(8)]
            most = max(abs(v) for row in block for v in row)
            byte = 0 if most == 0 else max(0, floor_log2(most) - (largest_exponent - 1) + 127)
            scales[b, f] = byte
            for p, row in enumerate(block):
                patterns = [nearest(v / scale_of(byte), dtype) for v in row]
                packed[8 * b + p, f] = sum(c << 8 * i for i, c in enumerate(patterns))
    return packed, scales


def floor_log2(value):
    """⌊log2⌋, exactly."""
    exponent = math.frexp(value)[1] - 1
    assert Fraction(2) ** exponent <= Fraction(value) < Fraction(2) ** (exponent + 1)
    return exponent


def scattered(scales, start=0, rows=128, fill=77):
    """[P / 8, F] scales as they lie in SBUF: four rows at the start of each quadrant."""
    out = np.full((rows, scales.shape[1]), fill, np.uint8)
    for r, row in enumerate(scales):
        out[32 * (r // 4) + r % 4 + start] = row
    return out


def product(left, left_dtype, left_scales, right, right_dtype, right_scales):
    """The matrix product of packed operands with [P / 8, F] scales, in Python's floats."""
    out = np.zeros((left.shape[1], right.shape[1]))
    a, b = dequantized(left, left_dtype, left_scales), dequantized(right, right_dtype, right_scales)
    for m in range(out.shape[0]):
        for n in range(out.shape[1]):
            out[m, n] = sum(a[m][k] * b[n][k] for k in range(len(a[m])))
    return out


def dequantized(packed, dtype, scales):
    """Per column the list of its 4·P numbers."""
    numbers = {c: decoded(c, dtype) for c in range(16 if dtype == "float4_e2m1fn_x4" else 256)}
    return [
        [numbers[c] * scale_of(int(scales[p // 8, f])) for p in range(len(packed)) for c in codes(packed[p, f], dtype)]
        for f in range(packed.shape[1])
    ]
