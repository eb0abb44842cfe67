"""Element-wise instructions against NumPy: float32 in the engine, one rounding out; integers where they are exact."""

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, sb, st
from ml_dtypes import bfloat16
from references import FLOATS, INTEGERS, STORED, floats, random, rounded, run, same

ENGINES = [nisa.engine.vector, nisa.engine.gpsimd]


# --- casts -----------------------------------------------------------------------------------------------------------


def cast(x, dtype, engine=nisa.engine.vector):
    t = sb(*x.shape, dt=dtype)
    nisa.tensor_copy(dst=t, src=ld(x), engine=engine)
    return st(t)


def cast_by_dma(x, dtype):
    t = sb(*x.shape, dt=dtype)
    nisa.dma_copy(dst=t, src=x)
    return st(t)


EDGES = np.array(
    [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 127.5, 128, 255.5, 256, -129, -32768.5, 65535.5, 7e4, 2147483520, 3e9,
     4294967040, 5e9, -3e9, 1e-8, 448, 464, 480, 240, 57344, 65504, 65520, np.inf, -np.inf, 0.0, -0.0],
    np.float32,
).reshape(4, 8)  # fmt: skip


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("how", [cast, cast_by_dma])
def test_float32_rounds_once_and_integers_saturate(dtype, how):
    same(run(how, EDGES, dtype), rounded(EDGES, dtype))


@given(x=floats((3, 5), -1e5, 1e5), dtype=some.sampled_from([*INTEGERS, *FLOATS]))
@settings(max_examples=60, deadline=None)
def test_float32_to_any_dtype(x, dtype):
    same(run(cast, x, dtype), rounded(x, dtype))


@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3", "int32", "uint8", "int16"])
def test_any_dtype_to_any_other_goes_through_float32(source, dtype):
    x = random((8, 16), source)
    want = x if source == dtype else rounded(x.astype(np.float32), dtype)
    same(run(cast, x, dtype), want)
    same(run(cast_by_dma, x, dtype), want)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("engine", [nisa.engine.vector, nisa.engine.scalar, nisa.engine.gpsimd])
def test_a_copy_of_one_dtype_keeps_every_bit(dtype, engine):
    bits = np.random.default_rng(3).integers(0, 256, (8, 64), np.uint8)
    got = run(cast, bits.view(STORED[dtype]), dtype, engine)
    np.testing.assert_array_equal(got.view(np.uint8), bits)


def test_large_integers_survive_a_copy_and_not_a_conversion():
    x = np.array([[16777217, 2147483647, -2147483647, 5]], np.int32)
    same(run(cast, x, "int32"), x)
    same(run(cast, x, "uint32"), np.array([[16777216, 2147483648, 0, 5]], np.uint32))


def test_tfloat32_keeps_ten_bits_of_mantissa():
    x = np.array([[1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-12, -(1 + 2**-10), 1e30, np.inf, 3.0]], np.float32)
    want = np.array([[1 + 2**-10, 1, 1 + 2**-9, 1, -(1 + 2**-10), 0, np.inf, 3]], np.float32)
    got = run(cast, x, "tfloat32")
    want[0, 5] = got[0, 5]
    same(got, want)
    assert abs(got[0, 5] / 1e30 - 1) < 2**-11


def test_nan_stays_nan():
    x = np.array([[np.nan, 1.0]], np.float32)
    for dtype in FLOATS:
        assert np.isnan(run(cast, x, dtype)[0, 0].astype(np.float32))


# --- tensor_tensor ---------------------------------------------------------------------------------------------------

BINARY = {
    nl.add: np.add, nl.subtract: np.subtract, nl.multiply: np.multiply, nl.maximum: np.maximum, nl.minimum: np.minimum,
    nl.equal: np.equal, nl.not_equal: np.not_equal, nl.less: np.less, nl.less_equal: np.less_equal,
    nl.greater: np.greater, nl.greater_equal: np.greater_equal, nl.logical_and: np.logical_and,
    nl.logical_or: np.logical_or, nl.logical_xor: np.logical_xor,
}  # fmt: skip


def binary(a, b, op, dtype, engine=nisa.engine.unknown):
    t = sb(*a.shape, dt=dtype)
    nisa.tensor_tensor(dst=t, data1=ld(a), data2=ld(b), op=op, engine=engine)
    return st(t)


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtypes", [("float32", "float32", "float32"), ("bfloat16", "float16", "float32"),
                                    ("bfloat16", "bfloat16", "bfloat16"), ("float8_e5m2", "uint8", "int16"),
                                    ("int8", "float32", "uint8"), ("float32", "int32", "bfloat16")])  # fmt: skip
def test_tensor_tensor_computes_in_float32(op, dtypes):
    a, b, out = random((16, 24), dtypes[0]), random((16, 24), dtypes[1], seed=1), dtypes[2]
    b[:, ::3] = a[:, ::3].astype(np.float32).astype(b.dtype)  # some that are equal
    a[:, 1::5] = 0
    want = BINARY[op](a.astype(np.float32), b.astype(np.float32))
    for engine in ENGINES:
        same(run(binary, a, b, op, out, engine), rounded(want, out))


@given(a=floats((2, 7)), b=floats((2, 7)), op=some.sampled_from(list(BINARY)))
@settings(max_examples=40, deadline=None)
def test_tensor_tensor_property(a, b, op):
    same(run(binary, a, b, op, "float32"), BINARY[op](a, b).astype(np.float32))


@given(
    a=some.lists(some.integers(-(2**31), 2**31 - 1), min_size=4, max_size=4),
    b=some.lists(some.integers(-(2**31), 2**31 - 1), min_size=4, max_size=4),
    op=some.sampled_from([nl.add, nl.subtract, nl.multiply, nl.maximum, nl.less]),
)
@settings(max_examples=40, deadline=None)
def test_32_bit_integers_are_exact_on_gpsimd_and_wrap(a, b, op):
    x, y = np.array([a], np.int32), np.array([b], np.int32)
    wide = BINARY[op](x.astype(object), y.astype(object))
    want = np.array([[(int(w) + 2**31) % 2**32 - 2**31 for w in wide[0]]], np.int32)
    same(run(binary, x, y, op, "int32"), want)
    same(run(binary, x, y, op, "int32", nisa.engine.gpsimd), want)
    through = BINARY[op](x.astype(np.float32), y.astype(np.float32))
    same(run(binary, x, y, op, "int32", nisa.engine.vector), rounded(through, "int32"))


def test_unsigned_integers_wrap_too():
    x, y = np.array([[0, 4294967295]], np.uint32), np.array([[1, 2]], np.uint32)
    same(run(binary, x, y, nl.subtract, "uint32"), np.array([[4294967295, 4294967293]], np.uint32))
    same(run(binary, x, y, nl.add, "uint32"), np.array([[1, 1]], np.uint32))


def test_one_tile_in_psum_takes_integers_to_the_vector_engine():
    def kernel(a, b):
        p, t = nl.ndarray(a.shape, dtype=nl.int32, buffer=nl.psum), sb(*a.shape, dt=nl.int32)
        nisa.tensor_copy(dst=p, src=ld(a))
        nisa.tensor_tensor(dst=t, data1=p, data2=ld(b), op=nl.add)
        return st(t)

    x = np.full((4, 2), 16777216, np.int32)
    same(run(kernel, x, np.ones_like(x)), x)  # 2**24 + 1 is no float32
    same(run(binary, x, np.ones_like(x), nl.add, "int32"), x + 1)


def test_power():
    a, b = np.abs(random((8, 8))) + 1, random((8, 8), seed=1)
    got = run(binary, a, b, nl.power, "float32")
    np.testing.assert_allclose(got, a.astype(np.float64) ** b, rtol=1e-5)


def test_abs_max_keeps_the_sign_and_gives_y_on_a_tie():
    a, b = np.array([[-3, 2, -2, 0]], np.float32), np.array([[2, -3, 2, -0.0]], np.float32)
    same(run(binary, a, b, nl.abs_max, "float32", target="trn3"), np.array([[-3, -3, 2, 0]], np.float32))
    same(run(binary, a, b, nl.abs_min, "float32", target="trn3"), np.array([[2, 2, 2, 0]], np.float32))


BITS = {nl.bitwise_and: np.bitwise_and, nl.bitwise_or: np.bitwise_or, nl.bitwise_xor: np.bitwise_xor}


@pytest.mark.parametrize("op", BITS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_bit_operators_keep_all_bits(op, dtype):
    bits = np.random.default_rng(5).integers(0, 256, (2, 8, 32), np.uint8).view(STORED[dtype])
    same(run(binary, bits[0], bits[1], op, dtype), BITS[op](bits[0], bits[1]))
    c = int(bits[1].flat[0])
    same(run(scalar, bits[0], op, c, dtype), BITS[op](bits[0], bits[1].flat[0]))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_move_zeros_in(dtype):
    x = random((8, 16), dtype)
    width = x.dtype.itemsize * 8
    unsigned = x.view(f"u{x.dtype.itemsize}")
    for by in (0, 1, width - 1):
        same(run(scalar, x, nl.right_shift, by, dtype), (unsigned >> np.array(by, unsigned.dtype)).view(x.dtype))
        same(run(scalar, x, nl.left_shift, by, dtype), (unsigned << np.array(by, unsigned.dtype)).view(x.dtype))


# --- tensor_scalar, scalar_tensor_tensor -----------------------------------------------------------------------------


def scalar(x, op, operand, dtype):
    t = sb(*x.shape, dt=dtype)
    nisa.tensor_scalar(dst=t, data=ld(x), op0=op, operand0=operand)
    return st(t)


def two_stages(x, col0, col1, ops, reverse, dtype):
    t = sb(*x.shape, dt=dtype)
    nisa.tensor_scalar(
        dst=t, data=ld(x), op0=ops[0], operand0=ld(col0), reverse0=reverse[0], op1=ops[1], operand1=ld(col1),
        reverse1=reverse[1],
    )  # fmt: skip
    return st(t)


@given(
    x=floats((4, 6)), c0=floats((4, 1)), c1=floats((4, 1)),
    ops=some.tuples(some.sampled_from(list(BINARY)), some.sampled_from(list(BINARY))),
    reverse=some.tuples(some.booleans(), some.booleans()),
    dtype=some.sampled_from(["float32", "bfloat16", "int16"]),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_tensor_scalar_is_two_stages_in_float32(x, c0, c1, ops, reverse, dtype):
    f, g = BINARY[ops[0]], BINARY[ops[1]]
    first = (f(c0, x) if reverse[0] else f(x, c0)).astype(np.float32)
    want = (g(c1, first) if reverse[1] else g(first, c1)).astype(np.float32)
    same(run(two_stages, x, c0, c1, ops, reverse, dtype), rounded(want, dtype))


def test_a_python_scalar_is_a_float32():
    x = random((4, 4))
    same(run(scalar, x, nl.multiply, 0.1, "float32"), x * np.float32(0.1))
    same(run(scalar, random((4, 4), "int32"), nl.add, 3, "int32"), random((4, 4), "int32") + 3)


def test_the_second_operand_may_be_dst():
    def kernel(x, m):
        t = ld(m)
        nisa.tensor_scalar(dst=t, data=ld(x), op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=t)
        return st(t)

    x, m = random((8, 1)), random((8, 1), seed=1)
    same(run(kernel, x, m), x * 2 + m)


def test_dst_may_overlap_data():
    def kernel(x):
        t = ld(x)
        nisa.tensor_scalar(dst=t[:, 1:8], data=t[:, 0:7], op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
        return st(t)

    x = random((8, 8))
    want = x.copy()
    want[:, 1:] = x[:, :7] * 2 + 1
    same(run(kernel, x), want)


@pytest.mark.parametrize("op", [nl.add, nl.subtract, nl.multiply], ids=lambda op: op.__name__)
def test_integer_columns_are_exact(op):
    def kernel(x, c):
        t = sb(*x.shape, dt=nl.int32)
        nisa.tensor_scalar(dst=t, data=ld(x), op0=op, operand0=ld(c))
        return st(t)

    x, c = np.full((4, 3), 16777217, np.int32), np.full((4, 1), 3, np.int32)
    same(run(kernel, x, c), BINARY[op](x, c))


def test_unary_operators_of_the_alu():
    def kernel(x, op):
        t = sb(*x.shape)
        nisa.tensor_scalar(dst=t, data=ld(x), op0=op, operand0=None)
        return st(t)

    x = np.abs(random((4, 8))) + np.float32(0.5)
    same(run(kernel, -x, nl.abs), x)
    np.testing.assert_allclose(run(kernel, x, nl.rsqrt), 1 / np.sqrt(x.astype(np.float64)), rtol=1e-6)
    np.testing.assert_allclose(run(kernel, x, nl.reciprocal), 1 / x.astype(np.float64), rtol=1e-6)
    same(run(kernel, x, nl.square, target="trn3"), x * x)
    same(run(kernel, -x, nl.relu, target="trn3"), np.zeros_like(x))


@given(x=floats((4, 6)), y=floats((4, 6)), c=floats((4, 1)), reverse=some.tuples(some.booleans(), some.booleans()),
       ops=some.tuples(some.sampled_from(list(BINARY)), some.sampled_from(list(BINARY))))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_scalar_tensor_tensor(x, y, c, reverse, ops):
    def kernel(x, y, c):
        t = sb(*x.shape)
        nisa.scalar_tensor_tensor(
            dst=t, data=ld(x), op0=ops[0], operand0=ld(c), op1=ops[1], operand1=ld(y),
            reverse0=reverse[0], reverse1=reverse[1],
        )  # fmt: skip
        return st(t)

    f, g = BINARY[ops[0]], BINARY[ops[1]]
    first = (f(c, x) if reverse[0] else f(x, c)).astype(np.float32)
    same(run(kernel, x, y, c), (g(y, first) if reverse[1] else g(first, y)).astype(np.float32))


@pytest.mark.parametrize("place", ["apart", "data", "operand1", "operand0"])
def test_scalar_tensor_tensor_in_place(place):
    def kernel(data, other):
        t, o = ld(data), ld(other)
        scalar = o[:, 3:4] if place == "operand0" else ld(data[:, 0:1])
        dst = {"apart": sb(16, 24), "data": t}.get(place, o)
        nisa.scalar_tensor_tensor(dst=dst, data=t, op0=nl.multiply, operand0=scalar, op1=nl.subtract, operand1=o)
        return st(dst)

    x, y = random((16, 24)), random((16, 24))
    same(run(kernel, x, y), x * (y[:, 3:4] if place == "operand0" else x[:, 0:1]) - y)


@pytest.mark.parametrize("place", ["apart", "data", "bias", "scale"])
def test_activation_reduce_in_place(place):
    def kernel(data, columns):
        t, c, total = ld(data), ld(columns), sb(16, 1)
        dst = {"apart": sb(16, 24), "data": t}.get(place, c)
        bias, scale = (c if place == n else ld(columns) for n in ("bias", "scale"))
        nisa.activation_reduce(dst=dst, op=nl.square, data=t, reduce_op=nl.add, reduce_res=total, bias=bias[:, 0:1],
                               scale=scale[:, 1:2])  # fmt: skip
        return st(dst), st(total)

    x, y = random((16, 24)), random((16, 24))
    want = np.square(x * y[:, 1:2] + y[:, 0:1])
    found, total = run(kernel, x, y)
    same(found, want)
    same(total, np.add.accumulate(want, axis=1)[:, -1:])


# --- views as operands, in place --------------------------------------------------------------------------------------


def test_operands_may_be_any_view():
    def kernel(x, y):
        a, b, t = ld(x), ld(y), sb(16, 3, 4)
        wide = b.reshape((16, 4, 1)).broadcast(2, 3)
        nisa.tensor_tensor(dst=t.permute((0, 2, 1)), data1=a.permute((0, 2, 1)), data2=wide, op=nl.add)
        nisa.tensor_scalar(dst=t[:, 1, ::2], data=t[:, 1, ::2], op0=nl.multiply, operand0=10.0)
        return st(t)

    x, y = random((16, 3, 4)), random((16, 4), seed=1)
    want = x + y[:, None, :]
    want[:, 1, ::2] *= 10
    same(run(kernel, x, y), want)


def test_ranks_may_differ_when_the_elements_agree():
    def kernel(x, y):
        t = sb(16, 2, 6)
        nisa.tensor_tensor(dst=t, data1=ld(x), data2=ld(y), op=nl.multiply)
        return st(t)

    x, y = random((16, 3, 4), "bfloat16"), random((16, 12), seed=1)
    same(run(kernel, x, y), (x.astype(np.float32).reshape(16, 12) * y).reshape(16, 2, 6))


def test_quadrants_may_differ():
    def kernel(x):
        t = ld(x)
        nisa.tensor_tensor(dst=t[32:64, :], data1=t[0:32, :], data2=t[96:128, :], op=nl.add)
        return st(t)

    x = random((128, 8))
    want = x.copy()
    want[32:64] = x[:32] + x[96:]
    same(run(kernel, x), want)


# --- memset, reciprocal, predicates, shuffles --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", STORED)
def test_memset(dtype):
    def kernel():
        t = sb(4, 6, dt=dtype)
        nisa.memset(dst=t, value=3)
        nisa.memset(dst=t[:, 2:4], value=7)
        return st(t)

    want = np.full((4, 6), 3, STORED[dtype])
    want[:, 2:4] = 7
    same(run(kernel), want)


def test_memset_in_a_loop_takes_each_value():
    def kernel():
        t = sb(1, 5)
        for i in range(5):
            nisa.memset(dst=t[:, i : i + 1], value=float(i))
        return st(t)

    same(run(kernel), np.arange(5, dtype=np.float32).reshape(1, 5))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reciprocal(dtype):
    def kernel(x):
        t = sb(*x.shape, dt=dtype)
        nisa.reciprocal(dst=t, data=ld(x))
        return st(t)

    x = random((8, 8)) + np.float32(20)
    same(run(kernel, x), rounded(np.reciprocal(x), dtype))


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("reverse", [False, True])
def test_tensor_copy_predicated(dtype, reverse):
    def kernel(a, b, p, scalar):
        t = ld(b)
        nisa.tensor_copy_predicated(dst=t, src=3 if scalar else ld(a), predicate=ld(p), reverse_pred=reverse)
        return st(t)

    a, b = random((8, 16), dtype), random((8, 16), dtype, seed=1)
    p = np.random.default_rng(2).integers(0, 3, (8, 16)).astype(np.uint8)
    same(run(kernel, a, b, p, False), np.where((p != 0) != reverse, a, b))
    same(run(kernel, a, b, p, True), np.where((p != 0) != reverse, np.asarray(3, b.dtype), b))


def test_a_predicated_copy_keeps_what_was_never_written():
    def kernel(a, p):
        t = sb(2, 4)
        nisa.tensor_copy_predicated(dst=t, src=ld(a), predicate=ld(p))
        nisa.tensor_copy_predicated(dst=t, src=0.0, predicate=ld(p), reverse_pred=True)
        return st(t)

    a, p = random((2, 4)), np.array([[1, 0, 1, 0], [0, 0, 1, 1]], np.uint32)
    same(run(kernel, a, p), np.where(p, a, 0))


def test_nc_stream_shuffle():
    def kernel(x, mask):
        t = nl.zeros(x.shape, dtype=x.dtype)
        nisa.nc_stream_shuffle(dst=t, src=ld(x), shuffle_mask=mask)
        return st(t)

    x = random((128, 3), "bfloat16")
    mask = np.random.default_rng(1).permutation(32).tolist()
    mask[7] = 255
    want = x.reshape(4, 32, 3)[:, np.minimum(mask, 31)]
    want[:, 7] = 0
    same(run(kernel, x, mask), want.reshape(128, 3))


def test_nc_stream_shuffle_in_place():
    def kernel(x):
        t = ld(x)
        nisa.nc_stream_shuffle(dst=t, src=t, shuffle_mask=[*range(1, 32), 0])
        return st(t)

    x = random((32, 5))
    same(run(kernel, x), np.roll(x, -1, axis=0))


def test_a_shuffle_mask_of_255_shows_nothing_where_nothing_was_written():
    def kernel(x):
        t = sb(32, 2)
        nisa.nc_stream_shuffle(dst=t, src=ld(x), shuffle_mask=[255] * 16 + list(range(16)))
        return st(t)

    x = random((32, 2))
    got = run(kernel, x)
    assert np.isnan(got[:16]).all()
    same(got[16:], x[:16])


@pytest.mark.parametrize("precise", [True, False])
def test_low_precision_may_be_stored_as_float32(precise):
    def kernel(a, b):
        t = sb(*a.shape, dt=nl.bfloat16)
        nisa.tensor_tensor(dst=t, data1=ld(a), data2=ld(b), op=nl.multiply)
        return st(t)

    a, b = random((4, 4), "bfloat16"), random((4, 4), "bfloat16", seed=1)
    exact = a.astype(np.float32) * b.astype(np.float32)
    same(run(kernel, a, b, precise=precise), exact.astype(bfloat16) if precise else exact)
