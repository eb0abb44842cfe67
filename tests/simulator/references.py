"""What NumPy says the hardware computes: one rounding on the way out, integers to nearest even and saturated."""

import ml_dtypes
import nki_sim
import numpy as np
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

STORED = {
    "float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16,
    "float8_e4m3": ml_dtypes.float8_e4m3, "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "int8": np.int8, "int16": np.int16, "int32": np.int32,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32,
}  # fmt: skip
FLOATS = [name for name in STORED if "float" in name]
INTEGERS = [name for name in STORED if "int" in name]


def rounded(values, dtype):
    """float32 values as ``dtype``."""
    storage = np.dtype(STORED[dtype])
    values = np.asarray(values, np.float32)
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            return values.astype(storage)
    low, high = np.iinfo(storage).min, np.iinfo(storage).max
    exact = [[0 if np.isnan(v) else round(max(low, min(high, float(v)))) for v in row] for row in
             values.reshape(len(values), -1)]  # fmt: skip
    return np.array(exact, dtype=object).astype(storage).reshape(values.shape)


def random(shape, dtype="float32", seed=0, scale=4.0):
    """Values that fill a good part of the dtype's range."""
    generator = np.random.default_rng(seed)
    if dtype in FLOATS:
        return (generator.standard_normal(shape) * scale).astype(STORED[dtype])
    info = np.iinfo(STORED[dtype])
    return generator.integers(max(info.min, -100), min(info.max, 100), shape, endpoint=True).astype(STORED[dtype])


def floats(shape, low=-1e4, high=1e4):
    """A strategy of float32 arrays."""
    return arrays.arrays(np.float32, shape, elements=some.floats(low, high, width=32, allow_subnormal=False))


def run(kernel, *args, **how):
    """The result of a kernel that must not be warned about."""
    return nki_sim.run(kernel, *args, strict=True, **how).result


def same(got, want):
    """Equal bit by bit, NaN included, dtype included."""
    assert got.dtype == np.asarray(want).dtype, (got.dtype, np.asarray(want).dtype)
    np.testing.assert_array_equal(got.astype(np.float64), np.asarray(want).astype(np.float64))
