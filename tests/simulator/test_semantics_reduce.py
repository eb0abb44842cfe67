"""Reductions, scans, statistics and the Scalar Engine's functions against NumPy in higher precision."""

import math

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import hb, ld, sb, st
from nki.isa import reduce_cmd
from references import INTEGERS, STORED, floats, random, rounded, run, same


def in_order(ufunc, x):
    """Reduce the last axis one element after the other, in float32."""
    return ufunc.accumulate(x, axis=-1, dtype=np.float32)[..., -1]


# --- tensor_reduce ---------------------------------------------------------------------------------------------------

REDUCTIONS = {
    nl.add: np.add, nl.subtract: np.subtract, nl.multiply: np.multiply, nl.maximum: np.maximum, nl.minimum: np.minimum,
}  # fmt: skip


def reduced(x, op, axis, kept, dtype="float32", negate=False, keepdims=False):
    t = sb(*kept, dt=dtype)
    nisa.tensor_reduce(dst=t, op=op, data=ld(x), axis=axis, negate=negate, keepdims=keepdims)
    return st(t)


@given(x=floats((3, 17), -10, 10), op=some.sampled_from(list(REDUCTIONS)), negate=some.booleans(),
       rows=some.integers(1, 3), n=some.integers(1, 17))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_tensor_reduce_goes_element_by_element(x, op, negate, rows, n):
    x = x[:rows, :n]
    want = in_order(REDUCTIONS[op], x).reshape(-1, 1)
    same(run(reduced, x, op, 1, (rows, 1), negate=negate), -want if negate else want)


@pytest.mark.parametrize("shape", [(128, 257), (5, 512), (2, 1000), (64, 4096)])
@pytest.mark.parametrize("strided", [False, True])
def test_wide_sums_go_element_by_element(shape, strided):
    rows, n = shape
    x = random((rows, n + n % 2), scale=100)
    want = in_order(np.add, x[:, ::2] if strided else x[:, :n]).reshape(-1, 1)

    def kernel(data):
        t, total = ld(data), sb(rows, 1)
        nisa.tensor_reduce(dst=total, op=nl.add, data=t[:, ::2] if strided else t[:, :n], axis=1)
        return st(total)

    same(run(kernel, x), want)


@pytest.mark.parametrize("dtype", STORED)
def test_tensor_reduce_of_every_dtype(dtype):
    x = random((16, 40), dtype, scale=1)
    want = in_order(np.add, x.astype(np.float32)).reshape(-1, 1)
    same(run(reduced, x, nl.add, (1,), (16, 1)), want)
    same(run(reduced, x, nl.maximum, (1,), (16, 1), dtype), x.max(1, keepdims=True))


@pytest.mark.parametrize(
    ("axis", "kept"), [((1, 2, 3), (8, 1)), ((2, 3), (8, 3)), ((3,), (8, 3, 4)), (-1, (8, 3, 4)), ((-2, -1), (8, 3))]
)
def test_tensor_reduce_over_the_last_axes(axis, kept):
    x = random((8, 3, 4, 5))
    n = {1: 5, 2: 20, 3: 60}[len(axis) if isinstance(axis, tuple) else 1]
    want = in_order(np.add, x.reshape(8, -1, n)).reshape(kept)
    same(run(reduced, x, nl.add, axis, kept), want)
    same(run(reduced, x, nl.add, axis, (8, *kept[1:], 1), keepdims=True), want.reshape(8, *kept[1:], 1))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bit_reductions(dtype):
    x = random((8, 16), dtype)
    for op, ufunc in ((nl.bitwise_and, np.bitwise_and), (nl.bitwise_or, np.bitwise_or), (nl.bitwise_xor, np.bitwise_xor)):
        same(run(reduced, x, op, 1, (8, 1), dtype), ufunc.reduce(x, axis=1, keepdims=True))


def test_logical_reductions():
    x = (random((8, 4)) > 0).astype(np.float32)
    for op, ufunc in ((nl.logical_and, np.logical_and), (nl.logical_or, np.logical_or), (nl.logical_xor, np.logical_xor)):
        same(run(reduced, x, op, 1, (8, 1)), ufunc.reduce(x, axis=1, keepdims=True).astype(np.float32))


def test_tensor_reduce_of_a_permuted_view():
    def kernel(x):
        t = sb(16, 4)
        nisa.tensor_reduce(dst=t, op=nl.add, data=ld(x).permute((0, 2, 1)), axis=2)
        return st(t)

    x = random((16, 5, 4))
    same(run(kernel, x), in_order(np.add, x.transpose(0, 2, 1)))


# --- registers: tensor_scalar_reduce, select_reduce ------------------------------------------------------------------


@pytest.mark.parametrize(("op", "ufunc"), [(nl.add, np.add), (nl.maximum, np.maximum), (nl.minimum, np.minimum),
                                           (nl.multiply, np.multiply)], ids=str)  # fmt: skip
def test_tensor_scalar_reduce_in_a_chain(op, ufunc):
    def kernel(x):
        t, out, step = sb(8, 5), sb(8, 1), reduce_cmd.reset_reduce
        for i in range(3):
            nisa.tensor_scalar_reduce(
                dst=t, data=ld(x[i]), op0=nl.multiply, operand0=0.5, reduce_op=op, reduce_cmd=step,
                reduce_res=out if i == 2 else None,
            )  # fmt: skip
            step = reduce_cmd.reduce
        return st(out), st(t)

    x = random((3, 8, 5))
    out, last = run(kernel, x)
    parts = in_order(ufunc, x * np.float32(0.5))
    same(out[:, 0], ufunc(ufunc(parts[0], parts[1]), parts[2]))
    same(last, x[2] * np.float32(0.5))


def test_tensor_scalar_reduce_negates_what_it_writes_and_not_what_it_keeps():
    def kernel(x):
        t, a, b = sb(8, 5), sb(8, 1), sb(8, 1)
        nisa.tensor_scalar_reduce(dst=t, data=ld(x), op0=nl.add, operand0=0.0, reduce_op=nl.add, reduce_res=a,
                                  reduce_res_negate=True)  # fmt: skip
        nisa.tensor_scalar_reduce(dst=t, data=ld(x), op0=nl.add, operand0=0.0, reduce_op=nl.add, reduce_res=b,
                                  reduce_cmd=reduce_cmd.reduce)  # fmt: skip
        return st(a), st(b)

    x = random((8, 5))
    once = in_order(np.add, x).reshape(8, 1)
    a, b = run(kernel, x)
    same(a, -once)
    same(b, once + once)


@pytest.mark.parametrize("tile", [True, False])
def test_tensor_scalar_reduce_from_a_loaded_start(tile):
    def kernel(x, start):
        t, a = sb(8, 5), sb(8, 1)
        nisa.tensor_scalar_reduce(dst=t, data=ld(x), op0=nl.add, operand0=1.0, reduce_op=nl.maximum, reduce_res=a,
                                  reduce_cmd=reduce_cmd.load_reduce, reduce_init=ld(start) if tile else 1.5)  # fmt: skip
        return st(a)

    x, start = random((8, 5)), random((8, 1), seed=1)
    same(run(kernel, x, start), np.maximum((x + 1).max(1, keepdims=True), start if tile else np.float32(1.5)))


def test_the_reduction_takes_the_values_before_they_are_rounded_into_dst():
    def kernel(x):
        t, a = sb(8, 5, dt=nl.bfloat16), sb(8, 1)
        nisa.tensor_scalar_reduce(dst=t, data=ld(x), op0=nl.multiply, operand0=1.0, reduce_op=nl.add, reduce_res=a)
        return st(a)

    x = random((8, 5))
    same(run(kernel, x), in_order(np.add, x).reshape(8, 1))


def test_select_reduce_keeps_a_running_maximum():
    def kernel(x, p, low):
        t, out, step = sb(8, 5), sb(8, 1), reduce_cmd.reset_reduce
        for i in range(3):
            nisa.select_reduce(dst=t, predicate=ld(p[i]), on_true=ld(x[i]), on_false=ld(low), reduce_res=out,
                               reduce_cmd=step, reverse_pred=True)  # fmt: skip
            step = reduce_cmd.reduce
        return st(out), st(t)

    x, low = random((3, 8, 5)), random((8, 1), seed=2)
    p = np.random.default_rng(1).integers(0, 2, (3, 8, 5)).astype(np.int8)
    out, last = run(kernel, x, p, low)
    picked = np.where(p == 0, x, low)
    same(out[:, 0], picked.max((0, 2)))
    same(last, picked[2])


def test_registers_are_per_lane():
    """A chain on partitions 64 to 95 does not touch the registers of lanes 0 to 31."""

    def kernel(x):
        t, whole, a = ld(x), sb(128, 1), sb(128, 4)
        nisa.tensor_scalar_reduce(dst=a, data=t, op0=nl.add, operand0=0.0, reduce_op=nl.add)
        nisa.tensor_scalar_reduce(dst=a[64:96, :], data=t[64:96, :], op0=nl.add, operand0=0.0, reduce_op=nl.add)
        nisa.tensor_scalar_reduce(dst=a, data=t, op0=nl.multiply, operand0=0.0, reduce_op=nl.add, reduce_res=whole,
                                  reduce_cmd=reduce_cmd.reduce)  # fmt: skip
        return st(whole)

    x = random((128, 4))
    same(run(kernel, x), in_order(np.add, x).reshape(128, 1))


# --- tensor_tensor_scan ----------------------------------------------------------------------------------------------


@given(a=floats((2, 6), -2, 2), b=floats((2, 6), -2, 2), start=floats((2, 1), -2, 2),
       ops=some.tuples(some.sampled_from(list(REDUCTIONS)), some.sampled_from(list(REDUCTIONS))),
       reverse=some.tuples(some.booleans(), some.booleans()))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_tensor_tensor_scan(a, b, start, ops, reverse):
    def kernel(a, b, start):
        t = sb(*a.shape)
        nisa.tensor_tensor_scan(dst=t, data0=ld(a), data1=ld(b), initial=ld(start), op0=ops[0], op1=ops[1],
                                reverse0=reverse[0], reverse1=reverse[1])  # fmt: skip
        return st(t)

    f, g = REDUCTIONS[ops[0]], REDUCTIONS[ops[1]]
    want, state = np.empty_like(a), start[:, 0]
    for i in range(a.shape[1]):
        state = f(state, a[:, i]) if reverse[0] else f(a[:, i], state)
        state = g(b[:, i], state) if reverse[1] else g(state, b[:, i])
        want[:, i] = state
    same(run(kernel, a, b, start), want)


def test_the_state_of_a_scan_is_float32_whatever_dst_is():
    def kernel(a, b):
        t = sb(*a.shape, dt=nl.bfloat16)
        nisa.tensor_tensor_scan(dst=t, data0=ld(a), data1=ld(b), initial=0.0, op0=nl.multiply, op1=nl.add)
        return st(t)

    a, b = np.ones((4, 300), np.float32), np.ones((4, 300), np.float32)
    same(run(kernel, a, b), rounded(np.cumsum(b, 1), "bfloat16"))  # a bfloat16 state would stick at 256


# --- bn_stats, bn_aggr -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 512])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bn_stats_of_even_and_odd_elements(n, dtype):
    def kernel(x):
        t = sb(16, 6)
        nisa.bn_stats(dst=t, data=ld(x))
        return st(t)

    x = random((16, n), dtype)
    got, wide = run(kernel, x), x.astype(np.float64)
    for at, part in ((0, wide[:, ::2]), (3, wide[:, 1::2])):
        count = part.shape[1]
        assert (got[:, at] == count).all()
        if count:
            np.testing.assert_allclose(got[:, at + 1], part.mean(1), rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(got[:, at + 2], part.var(1) * count, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [512, 1000, 1536])
def test_bn_aggr_joins_groups_of_different_size(n):
    def kernel(x):
        t, groups = ld(x), -(-n // 512)
        stats, out = sb(16, groups, 6), sb(16, 2)
        for g in range(groups):
            nisa.bn_stats(dst=stats[:, g, :], data=t[:, g * 512 : min(n, g * 512 + 512)])
        nisa.bn_aggr(dst=out, data=stats)
        return st(out)

    x = random((16, n)) + np.float32(3)
    got = run(kernel, x)
    np.testing.assert_allclose(got[:, 0], x.mean(1, dtype=np.float64), rtol=1e-5)
    np.testing.assert_allclose(got[:, 1], x.var(1, dtype=np.float64), rtol=1e-4)


# --- activation ------------------------------------------------------------------------------------------------------


def each(f):
    return np.vectorize(f, otypes=[np.float64])


def phi(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def derivative(f):
    return lambda x: (f(x + 1e-5) - f(x - 1e-5)) / 2e-5


def gelu_sigmoid(x):
    return x * sigmoid(1.702 * x)


FUNCTIONS = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "relu": lambda x: max(x, 0.0),
    "exp": math.exp,
    "tanh": math.tanh,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": derivative(lambda x: x * sigmoid(x)),
    "gelu": lambda x: x * phi(x),
    "gelu_dx": lambda x: phi(x) + x * density(x),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_apprx_sigmoid": gelu_sigmoid,
    "gelu_apprx_sigmoid_dx": derivative(gelu_sigmoid),
    "softplus": softplus,
    "mish": lambda x: x * math.tanh(softplus(x)),
    "erf": math.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "arctan": math.atan,
    "sin": math.sin,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}
POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal")
NARROW = {"sin": 3.1, "arctan": 1.5}


def activated(x, name, dtype="float32"):
    t = sb(*x.shape, dt=dtype)
    nisa.activation(dst=t, op=getattr(nl, name), data=ld(x))
    return st(t)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activation_functions(name, dtype):
    high = NARROW.get(name, 8.0)
    x = np.linspace(1e-3 if name in POSITIVE else -high, high, 512, dtype=np.float32).reshape(16, 32)
    want = each(FUNCTIONS[name])(x.astype(np.float64))
    got = run(activated, x, name, dtype).astype(np.float64)
    accuracy = 2**-8 if dtype == "bfloat16" else 2e-6
    np.testing.assert_allclose(got, want, rtol=accuracy, atol=2e-6)


def test_every_activation_function_of_the_table_is_here():
    assert set(FUNCTIONS) == set(nki_sim.ops.ACTIVATIONS) - {"prelu"}


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "gelu", "silu", "softplus", "mish", "erf"])
def test_activation_functions_at_the_ends(name):
    x = np.array([[-100.0, -30, 30, 80]], np.float32)
    want = each(FUNCTIONS[name])(x.astype(np.float64))
    np.testing.assert_allclose(run(activated, x, name), want, rtol=1e-5, atol=1e-7)


def test_sin_is_a_cubic_outside_its_range():
    """A published device value: sin(9.0) is about 27.65."""
    with pytest.warns(nki_sim.NkiWarning, match=r"nl.sin of 9, outside its valid range \(1 of 4") as caught:
        got = nki_sim.run(activated, np.array([[9.0, 1.0, -3.0, 0.0]], np.float32), "sin").result
    np.testing.assert_allclose(got, [[27.65, math.sin(1), math.sin(-3), 0]], rtol=1e-3, atol=1e-6)
    assert caught[0].message.diagnosis.rule.id == "act.range_sin"


def affine(x, bias, scale, dtype):
    t = sb(*x.shape, dt=dtype)
    nisa.activation(
        dst=t, op=nl.square, data=ld(x), bias=ld(bias) if hasattr(bias, "shape") else bias,
        scale=ld(scale) if hasattr(scale, "shape") else scale,
    )  # fmt: skip
    return st(t)


@pytest.mark.parametrize("bias", [None, 0.5, "column", "bfloat16 column"])
@pytest.mark.parametrize("scale", [1.0, 0.3, "column"])
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("bfloat16", "float32"), ("float32", "int8")])
def test_activation_scales_then_adds_the_bias(bias, scale, dtypes):
    x = random((8, 6), dtypes[0])
    column, other = random((8, 1), seed=1), random((8, 1), seed=2)
    b = {"column": column, "bfloat16 column": column.astype(STORED["bfloat16"])}.get(bias, bias)
    s = other if scale == "column" else scale
    wide = x.astype(np.float32)
    if not isinstance(s, float) or s != 1.0:
        wide = wide * np.asarray(s, np.float32)
    if b is not None:
        wide = wide + np.asarray(b, np.float32)
    same(run(affine, x, b, s, dtypes[1]), rounded(np.square(wide), dtypes[1]))


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_dst_may_be_the_bias(scale):
    def kernel(x, b):
        t = ld(b)
        nisa.activation(dst=t, op=nl.exp, data=ld(x), bias=t, scale=scale)
        return st(t)

    x, b = random((8, 1), scale=1), random((8, 1), seed=1, scale=1)
    same(run(kernel, x, b), np.exp(x * np.float32(scale) + b))


def test_activation_reduces_in_a_chain():
    def kernel(x):
        t, out = sb(8, 5), sb(8, 1)
        for i, step in enumerate((reduce_cmd.reset_reduce, reduce_cmd.reduce, reduce_cmd.reduce)):
            nisa.activation(dst=t, op=nl.exp, data=ld(x[i]), reduce_op=nl.add, reduce_cmd=step,
                            reduce_res=out if i == 2 else None)  # fmt: skip
        return st(out), st(t)

    x = random((3, 8, 5), scale=1)
    out, last = run(kernel, x)
    parts = in_order(np.add, np.exp(x))
    same(out[:, 0], parts[0] + parts[1] + parts[2])
    same(last, np.exp(x[2]))


def test_reset_clears_the_registers_without_adding():
    def kernel(x):
        t, out = sb(8, 5), sb(8, 1)
        nisa.activation(dst=t, op=nl.copy, data=ld(x), reduce_op=nl.add, reduce_cmd=reduce_cmd.reset)
        nisa.activation(dst=t, op=nl.copy, data=ld(x), reduce_op=nl.add, reduce_cmd=reduce_cmd.reduce, reduce_res=out)
        return st(out)

    x = random((8, 5))
    same(run(kernel, x), in_order(np.add, x).reshape(8, 1))


def test_the_sum_may_lie_where_the_result_does():
    def kernel(x):
        t = sb(8, 5)
        nisa.activation(dst=t, op=nl.square, data=ld(x), reduce_op=nl.add, reduce_cmd=reduce_cmd.reset_reduce,
                        reduce_res=t[:, 0:1])  # fmt: skip
        return st(t)

    x = random((8, 5))
    want = x * x
    want[:, 0] = in_order(np.add, x * x)
    same(run(kernel, x), want)


def test_activation_reduce():
    def kernel(x, b):
        t, out = sb(8, 2, 3, dt=nl.bfloat16), sb(8, 1)
        nisa.activation_reduce(dst=t, op=nl.exp, data=ld(x), reduce_op=nl.add, reduce_res=out, bias=ld(b), scale=0.5)
        return st(t), st(out)

    x, b = random((8, 2, 3), scale=1), random((8, 1), seed=1)
    wide = np.exp(x * np.float32(0.5) + b[:, :, None])
    t, out = run(kernel, x, b)
    same(t, rounded(wide, "bfloat16"))
    same(out, in_order(np.add, wide.reshape(8, 6)).reshape(8, 1))


# --- iota, affine_select ---------------------------------------------------------------------------------------------


@given(
    pattern=some.lists(some.tuples(some.integers(-50, 50), some.integers(1, 4)), min_size=1, max_size=4),
    offset=some.integers(-1000, 1000),
    multiplier=some.integers(-100, 100),
    dtype=some.sampled_from(["int32", "float32", "uint8", "int16"]),
)
@settings(max_examples=60, deadline=None)
def test_iota(pattern, offset, multiplier, dtype):
    n = math.prod(num for _, num in pattern)

    def kernel():
        t = sb(5, n, dt=dtype)
        nisa.iota(dst=t, pattern=[list(p) for p in pattern], offset=offset, channel_multiplier=multiplier)
        return st(t)

    free = np.zeros((), int)
    for step, num in pattern:
        free = free[..., None] + step * np.arange(num)
    want = free.reshape(1, -1) + multiplier * np.arange(5)[:, None] + offset
    same(run(kernel), rounded(want.astype(np.float32), dtype))


def test_iota_counts_in_32_bits():
    def kernel():
        t = sb(2, 2, dt=nl.int32)
        nisa.iota(dst=t, pattern=[[1, 2]], offset=2**31 - 2, channel_multiplier=1)
        return st(t)

    same(run(kernel), np.array([[2**31 - 2, 2**31 - 1], [2**31 - 1, -(2**31)]], np.int32))


@pytest.mark.parametrize(("op", "compare"), [(nl.equal, np.equal), (nl.not_equal, np.not_equal), (nl.less, np.less),
                                             (nl.less_equal, np.less_equal), (nl.greater, np.greater),
                                             (nl.greater_equal, np.greater_equal)], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
def test_affine_select(op, compare, dtype):
    def kernel(x):
        t = sb(*x.shape, dt=dtype)
        nisa.affine_select(dst=t, pattern=[[-1, 9]], channel_multiplier=2, on_true_tile=ld(x), on_false_value=-7.0,
                           cmp_op=op, offset=3)  # fmt: skip
        return st(t)

    x = random((12, 9), dtype)
    value = 2 * np.arange(12)[:, None] - np.arange(9)[None, :] + 3
    same(run(kernel, x), np.where(compare(value, 0), x, rounded(np.full((1, 1), -7.0), dtype)))


def test_affine_select_keeps_large_integers():
    def kernel(x):
        t = sb(4, 4, dt=nl.int32)
        nisa.affine_select(dst=t, pattern=[[-1, 4]], channel_multiplier=1, on_true_tile=ld(x), on_false_value=0.0,
                           cmp_op=nl.greater_equal)  # fmt: skip
        return st(t)

    x = np.full((4, 4), 16777217, np.int32)
    same(run(kernel, x), np.tril(x))


# --- nl --------------------------------------------------------------------------------------------------------------


def function(x, name, *args, **more):
    return st(getattr(nl, name)(ld(x), *args, **more))


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
@given(x=floats((2, 8), -3e9, 3e9))
@settings(max_examples=40, deadline=None)
def test_nl_rounding_functions(name, x):
    got = run(function, x, name)
    np.testing.assert_array_equal(got, getattr(np, name)(x))


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_nl_rounding_functions_at_the_halves(name):
    x = np.array([[-2.5, -2.0, -1.5, -0.5, 0.0, 0.5, 1.5, 2.0, 2.5, 8388607.5, 8388609.0, -8388608.5]], np.float32)
    np.testing.assert_array_equal(run(function, x, name), getattr(np, name)(x))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_nl_trigonometry_takes_any_argument(name):
    x = np.linspace(-60, 60, 400, dtype=np.float32).reshape(8, 50)
    want = getattr(np, name)(x.astype(np.float64))
    got = run(function, x, name)
    if name == "tan":  # absolute error of sin and cos over a small cosine
        far = np.abs(np.cos(x.astype(np.float64))) > 0.1
        np.testing.assert_allclose(got[far], want[far], rtol=1e-3, atol=1e-4)
    else:
        np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nl_softmax(axis, dtype):
    x = random((16, 40), dtype) * np.asarray(10, STORED[dtype])
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    got = run(function, x, "softmax", axis=axis)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got.astype(np.float64), e / e.sum(1, keepdims=True), rtol=2**-7 if dtype == "bfloat16" else
                               1e-5, atol=1e-7)  # fmt: skip


def test_nl_softmax_over_the_last_of_two_free_dimensions():
    x = random((8, 3, 20))
    e = np.exp(x.astype(np.float64) - x.max(2, keepdims=True))
    np.testing.assert_allclose(run(function, x, "softmax", axis=2), e / e.sum(2, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("row", [True, False])
def test_nl_rms_norm(row):
    def kernel(x, w):
        return st(nl.rms_norm(ld(x), ld(w), axis=1, n=40, epsilon=1e-5))

    x, w = random((16, 40)), random((1 if row else 16, 40), seed=1)
    want = x / np.sqrt(np.square(x.astype(np.float64)).mean(1, keepdims=True) + 1e-5) * w
    np.testing.assert_allclose(run(kernel, x, w), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "mean"])
@pytest.mark.parametrize(("axis", "shape"), [(1, (8, 7)), ([1, 2], (8, 3, 4)), ([2], (8, 3, 4)), ([1, 2, 3], (4, 2, 2, 2))])
@pytest.mark.parametrize("keepdims", [False, True])
def test_nl_reductions(name, axis, shape, keepdims):
    x = random(shape, scale=1)
    axes = tuple(axis) if isinstance(axis, list) else axis
    want = getattr(np, name)(x.astype(np.float64), axis=axes, keepdims=keepdims)
    got = run(function, x, name, axis=axis, keepdims=keepdims)
    assert got.shape == (want.shape if want.ndim > 1 else (want.shape[0], 1))
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-6)


def test_nl_all_and_var():
    x = random((8, 6))
    x[::2, 3] = 0
    same(run(function, x, "all", axis=1), (x != 0).all(1, keepdims=True).astype(np.float32))
    got = run(function, x, "var", axis=1)
    np.testing.assert_allclose(got, x.var(1, dtype=np.float64, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_nl_where(dtype):
    def kernel(c, x, y):
        return st(nl.where(ld(c), ld(x), ld(y))), st(nl.where(ld(c), ld(x), 0)), st(nl.where(ld(c), 1, ld(y)))

    c = (random((8, 6)) > 0).astype(np.float32)
    x, y = random((8, 6), dtype, seed=1), random((8, 6), dtype, seed=2)
    both, left, right = run(kernel, c, x, y)
    same(both, np.where(c, x, y))
    same(left, np.where(c, x, np.zeros((), x.dtype)))
    same(right, np.where(c, np.ones((), x.dtype), y))


def test_nl_unary_and_logical_functions():
    x = random((8, 6))
    same(run(function, x, "negative"), -x)
    same(run(function, x, "logical_not"), np.zeros_like(x))
    same(run(function, np.array([[0, 1, 0]], np.float32), "logical_not"), np.array([[1, 0, 1]], np.float32))
    same(run(function, x, "abs"), np.abs(x))
    same(run(function, random((8, 6), "int16"), "invert"), ~random((8, 6), "int16"))
    same(run(function, x, "subtract", 1.5), x - np.float32(1.5))
    same(run(lambda a: st(nl.subtract(1.5, ld(a))), x), np.float32(1.5) - x)
    same(run(function, x, "less", 0.5, dtype=nl.uint8), (x < 0.5).astype(np.uint8))


def test_nl_broadcast_to():
    def kernel(row, column):
        return st(nl.broadcast_to(ld(row), (128, 6))), st(nl.broadcast_to(ld(column), (64, 5)))

    row, column = random((1, 6)), random((64, 1), "bfloat16")
    down, across = run(kernel, row, column)
    same(down, np.repeat(row, 128, 0))
    same(across, np.repeat(column, 5, 1))


def test_nl_creation():
    def kernel(x):
        t = ld(x)
        far = nl.full((3, 1000), 2.5, dtype=nl.float32, buffer=nl.shared_hbm)
        return (
            st(nl.zeros_like(t)), st(nl.ones((4, 2), dtype=nl.int8)), far, st(nl.expand_dims(t, 1)),
            st(nl.shared_identity_matrix(5, dtype=nl.bfloat16)),
        )  # fmt: skip

    x = random((4, 3))
    zeros, ones, far, expanded, eye = run(kernel, x)
    same(zeros, np.zeros_like(x))
    same(ones, np.ones((4, 2), np.int8))
    same(far, np.full((3, 1000), 2.5, np.float32))
    same(expanded, x[:, None, :])
    same(eye, np.eye(5, dtype=STORED["bfloat16"]))


def test_nl_load_store_and_transposes():
    def kernel(x):
        out = hb(5, 7)
        t = nl.load(x, dtype=nl.bfloat16)
        nl.store(out, nl.copy(t, dtype=nl.float32))
        return out, st(nl.load_transpose2d(x)), st(nl.copy(nl.transpose(nl.load(x))))

    x = random((5, 7))
    low, turned, again = run(kernel, x)
    same(low, x.astype(STORED["bfloat16"]).astype(np.float32))
    same(turned, x.T)
    same(again, x.T)


def test_nl_matmul():
    def kernel(a, b):
        return st(nl.matmul(ld(a), ld(b), transpose_x=True))

    a, b = random((64, 32)), random((64, 48), seed=1)
    np.testing.assert_allclose(run(kernel, a, b), a.T.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["affine_range", "sequential_range", "static_range"])
def test_deprecated_ranges_are_ranges(name):
    def kernel(x):
        t = ld(x)
        for i in getattr(nl, name)(1, 4, 2):
            nisa.memset(dst=t[:, i : i + 1], value=0.0)
        return st(t)

    x = random((2, 5))
    with pytest.warns(DeprecationWarning, match=name):
        got = nki_sim.run(kernel, x).result
    want = x.copy()
    want[:, [1, 3]] = 0
    same(got, want)


def test_activation_does_not_continue_the_sum_of_activation_reduce():
    """activation_reduce.shared_regs: it runs, and says so."""

    def kernel(x):
        t, total = ld(x), sb(128, 1)
        nisa.activation_reduce(dst=t, op=nl.copy, data=t, reduce_op=nl.add, reduce_res=None)
        nisa.activation(dst=t, op=nl.copy, data=t, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reduce, reduce_res=total)
        return st(total)

    x = np.ones((128, 8), np.float32)
    with pytest.warns(nki_sim.NkiWarning, match="an accumulation that activation_reduce left"):
        run = nki_sim.run(kernel, x)
    assert [f.rule.id for f in run.findings] == ["activation_reduce.shared_regs"]
    np.testing.assert_array_equal(run.result, np.full((128, 1), 16, np.float32))
