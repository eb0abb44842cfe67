"""Casts between float32 and the formats that NumPy lacks are those of ml_dtypes, bit for bit."""

import ml_dtypes
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays
from nki_sim import dtypes, lowprec

with_format = pytest.mark.parametrize("name", lowprec.NAMES)
NEAR = (-0x8001, -0x8000, -0x7FFF, -2, -1, 0, 1, 2, 0x7FFF, 0x8000, 0x8001)
SIGN, CUT = np.uint32(1 << 31), np.uint32(16)


def stored(name):
    return np.dtype(getattr(ml_dtypes, name))


def unsigned(name):
    return np.dtype(f"u{stored(name).itemsize}")


def codes(name):
    """Every bit pattern of an element."""
    return np.arange(16 if "float4" in name else 1 << 8 * stored(name).itemsize, dtype=unsigned(name))


def theirs(name, numbers):
    with np.errstate(all="ignore"):
        return numbers.astype(stored(name)).view(unsigned(name))


def same_bits(name, numbers):
    found = lowprec.encode(name, numbers)
    assert found.dtype == unsigned(name) and found.shape == numbers.shape
    np.testing.assert_array_equal(found, theirs(name, numbers))


@with_format
def test_every_code_is_decoded(name):
    got, want = lowprec.decode(name, codes(name)), codes(name).view(stored(name)).astype(np.float32)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@with_format
def test_every_bfloat16_number_is_encoded(name):
    same_bits(name, (np.arange(1 << 16, dtype=np.uint32) << CUT).view(np.float32))


@with_format
def test_numbers_around_every_upper_half_are_encoded(name):
    """Where the cut-off half of a float32 is near zero, near one half or near one."""
    halves = np.arange(1 << 16, dtype=np.uint32) << CUT
    same_bits(name, np.add.outer(np.array(NEAR).astype(np.uint32), halves).view(np.float32))


@with_format
def test_numbers_around_every_tie_are_encoded(name):
    """The middle of two neighbouring numbers, the numbers, and 64 float32 numbers on both sides of each."""
    finite = np.unique(np.abs(lowprec.decode(name, codes(name))))
    finite = finite[np.isfinite(finite)].astype(np.float64)
    places = np.append(finite, (finite[1:] + finite[:-1]) / 2)
    places = np.append(places, finite[-1] + (finite[-1] - finite[-2]) / 2)
    places = places[places <= np.finfo(np.float32).max].astype(np.float32).view(np.uint32)
    around = np.add.outer(np.arange(-64, 65).astype(np.uint32), places)
    same_bits(name, around.view(np.float32))
    same_bits(name, (around | SIGN).view(np.float32))


@with_format
@settings(max_examples=30, deadline=None)
@given(bits=arrays.arrays(np.uint32, arrays.array_shapes(max_dims=3, max_side=6), elements=some.integers(0, 2**32 - 1)))
def test_any_bits_are_encoded(name, bits):
    same_bits(name, bits.view(np.float32))
    same_bits(name, bits.T.view(np.float32))


@with_format
@pytest.mark.parametrize("shape", [(), (1,), (300, 1000), (1, 200_000), (3, 5, 7), (0, 4)])
def test_any_shape_is_encoded(name, shape):
    bits = np.random.default_rng(1).integers(0, 1 << 32, shape, dtype=np.uint32)
    same_bits(name, np.asarray(bits).view(np.float32))


VIEWS = [
    lambda a: a,
    lambda a: a[:, ::2],
    lambda a: a[:, 1:-1],
    lambda a: a[:, :7],
    lambda a: a[::2, None, :],
    lambda a: a.T,
    lambda a: a.reshape(8, 4, 16, 3).transpose(2, 0, 3, 1),
    lambda a: np.broadcast_to(a[:1], (5, 48)),
    lambda a: np.broadcast_to(a[:, None, :4], (32, 2, 4)),
    lambda a: a[3:3],
    lambda a: a[0, 0],
]


@with_format
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_decoded_with_its_layout(name, view):
    """Sums depend on the order in memory, which NumPy's own casts keep."""
    data = np.random.default_rng(2).integers(0, len(codes(name)), (32, 48)).astype(unsigned(name)).view(stored(name))
    seen = np.asarray(view(data))
    got, want = lowprec.decode(name, seen), seen.astype(np.float32)
    assert got.strides == want.strides
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@with_format
def test_a_tag_tells_a_format_from_others(name):
    tag = lowprec.tag(name)
    assert tag.itemsize == stored(name).itemsize
    assert [n for n in lowprec.NAMES if lowprec.tag(n) == tag] == [name]
    if name in dtypes.TABLE:
        assert dtypes.lookup(tag) is dtypes.lookup(name) is dtypes.lookup(stored(name))
    with pytest.raises(dtypes.UnknownDTypeError):
        dtypes.lookup([(name, np.float64)])


@pytest.mark.parametrize("name", [n for n in lowprec.NAMES if n in dtypes.TABLE])
def test_to_dtype_and_back(name):
    numbers = np.random.default_rng(3).standard_normal((40, 30))
    made = nki_sim.to_dtype(numbers, name)
    assert made.dtype == stored(name)
    same_bits(name, numbers.astype(np.float32))
    np.testing.assert_array_equal(made.view(unsigned(name)), theirs(name, numbers.astype(np.float32)))
    np.testing.assert_array_equal(nki_sim.to_float32(made), made.astype(np.float32))
    tagged = made.view(lowprec.tag(name))
    np.testing.assert_array_equal(nki_sim.to_float32(tagged), made.astype(np.float32))
    np.testing.assert_array_equal(nki_sim.to_dtype(tagged, "float16"), made.astype(np.float32).astype(np.float16))


def test_to_dtype_rounds_and_saturates_as_engines_do():
    assert nki_sim.to_dtype([0.5, 1.5, 300, -7], "uint8").tolist() == [0, 2, 255, 0]
    assert nki_sim.to_dtype(np.array([2**40, 5]), "int32").tolist() == [2**31 - 1, 5]
    assert nki_sim.to_dtype(1 + 2.0**-11 + 2.0**-20, "tfloat32") == np.float32(1 + 2.0**-10)
    same = np.ones(3, np.float32)
    assert nki_sim.to_float32(same) is same
    for name in ("bool", "float8_e5m2_x4", "float64"):
        with pytest.raises(dtypes.UnknownDTypeError):
            nki_sim.to_dtype(same, name)
