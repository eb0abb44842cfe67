"""``nki.isa.activate2``: values, reductions, special values, limits."""

import math

import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays
from kernels import ld, ps, sb, st
from nki.isa import reduce_cmd
from nki_sim import ops
from references import STORED, random, rounded, run, same
from rulebook import Book, hx, v, x

book = Book()
NEW = "trn3"
F = np.float32
TWO = {nl.add: lambda a, b: F(a + b), nl.subtract: lambda a, b: F(a - b), nl.multiply: lambda a, b: F(a * b)}
PAIRS = [(nl.multiply, nl.add), (nl.multiply, nl.subtract), (nl.multiply, nl.bypass), (nl.add, nl.bypass),
         (nl.subtract, nl.bypass), (nl.bypass, nl.bypass)]  # fmt: skip
EXACT = {
    nl.copy: lambda a, _: a,
    nl.relu: lambda a, _: a if np.isnan(a) else max(a, F(0)),
    nl.abs: lambda a, _: abs(a),
    nl.square: lambda a, _: F(a * a),
    nl.sign: lambda a, _: F(np.sign(a)),
    nl.prelu: lambda a, slope: a if a >= 0 else F(a * slope),
}
REDUCE = {
    nl.add: (0.0, lambda a, b: F(a + b)),
    nl.maximum: (-math.inf, lambda a, b: F(math.nan) if np.isnan(a) or np.isnan(b) else max(a, b)),
    nl.minimum: (math.inf, lambda a, b: F(math.nan) if np.isnan(a) or np.isnan(b) else min(a, b)),
    nl.abs_max: (0.0, lambda a, b: a if abs(a) > abs(b) else b),
    nl.abs_min: (math.inf, lambda a, b: a if abs(a) < abs(b) else b),
}


def column(value, rows):
    return np.broadcast_to(np.asarray(value, F), (rows, 1))[:, 0]


def activated(data, op, imm0, imm1, op0, op1, slope=0.0, reverse0=False, reverse1=False):
    """Element by element, each step in float32."""
    rows = np.asarray(data, F).reshape(len(data), -1)
    imm0, imm1, slope = (column(value, len(rows)) for value in (imm0, imm1, slope))
    out = np.empty(rows.shape, F)
    with np.errstate(all="ignore"):
        for p, row in enumerate(rows):
            for i, value in enumerate(row):
                for stage, imm, reverse in ((op0, imm0[p], reverse0), (op1, imm1[p], reverse1)):
                    if stage is not nl.bypass:
                        value = TWO[stage](imm, value) if reverse else TWO[stage](value, imm)
                out[p, i] = EXACT[op](value, slope[p])
    return out.reshape(data.shape)


def folded(values, op, start=None):
    """One element after the other."""
    identity, combine = REDUCE[op]
    out = []
    with np.errstate(all="ignore"):
        for p, row in enumerate(values.reshape(len(values), -1)):
            held = F(identity if start is None else start[p, 0])
            for value in row:
                held = combine(held, value)
            out.append([held])
    return np.array(out, F)


def act(data, op=nl.copy, imm0=1.0, imm1=0.0, op0=nl.bypass, op1=nl.bypass, dtype="float32", result=None, **more):
    t = sb(*data.shape, dt=dtype)
    held = None if result is None else sb(data.shape[0], 1, dt=result)
    imm0, imm1, more["relu_param"] = (ld(a) if hasattr(a, "buffer") else a for a in (imm0, imm1, more.get("relu_param", 0.0)))
    nisa.activate2(dst=t, op=op, data=ld(data), imm0=imm0, imm1=imm1, op0=op0, op1=op1, reduce_res=held, **more)
    return st(t) if held is None else (st(t), st(held))


def on_trn3(kernel, *args, **how):
    return run(kernel, *args, target="trn3", **how)


ANY = some.floats(width=32) | some.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e-45, -1e-40, 3.4028235e38])
SMALL = some.integers(-4, 4).map(F)


@given(data=some.data())
@settings(max_examples=150, deadline=None)
def test_element_by_element(data):
    rows, n = data.draw(some.integers(1, 4)), data.draw(some.integers(1, 12))
    values = data.draw(arrays.arrays(F, (rows, n), elements=data.draw(some.sampled_from([ANY, SMALL]))))
    immediates = [
        data.draw(arrays.arrays(F, (rows, 1), elements=ANY) if data.draw(some.booleans()) else ANY.map(float)) for _ in range(3)
    ]
    (op0, op1), op = data.draw(some.sampled_from(PAIRS)), data.draw(some.sampled_from(list(EXACT)))
    how = {
        "reverse0": op0 is not nl.bypass and data.draw(some.booleans()),
        "reverse1": op1 is not nl.bypass and data.draw(some.booleans()),
    }
    tiles = [i for i in immediates if isinstance(i, np.ndarray)]

    def kernel(values, *tiles):
        given_tiles = iter(tiles)
        imm0, imm1, slope = (next(given_tiles) if isinstance(i, np.ndarray) else i for i in immediates)
        return act(values, op, imm0, imm1, op0, op1, relu_param=slope, **how)

    imm0, imm1, slope = immediates
    same(on_trn3(kernel, values, *tiles), activated(values, op, imm0, imm1, op0, op1, slope, **how))


@given(data=arrays.arrays(F, (3, 14), elements=SMALL | ANY), n=some.integers(1, 14), op=some.sampled_from(list(REDUCE)))
@settings(max_examples=150, deadline=None)
def test_reductions(data, n, op):
    data = data[:, :n]
    if op is not nl.add:  # minimum and maximum of 0 and -0 may be either
        data = np.where(data == 0, F(0), data)
    how = {"reduce_op": op, "reduce_cmd": reduce_cmd.reset_reduce}
    same(on_trn3(lambda d: act(d, result="float32", **how), data)[1], folded(data, op))
    once = folded(data, op)
    with np.errstate(all="ignore"):  # sums are taken of each instruction's elements first
        twice = once + once if op is nl.add else folded(data, op, once)
    same(on_trn3(lambda d: chain(d, op), data), twice)


def chain(data, op):
    """The same data twice; only the second gives the result."""
    act(data, reduce_op=op, reduce_cmd=reduce_cmd.reset_reduce)
    return act(data, result="float32", reduce_op=op, reduce_cmd=reduce_cmd.reduce)[1]


@pytest.mark.parametrize("op", list(REDUCE))
def test_reset_leaves_the_identity(op):
    def kernel(d):
        act(d, reduce_op=op, reduce_cmd=reduce_cmd.reset_reduce)
        _, first = act(d, result="float32", reduce_op=op, reduce_cmd=reduce_cmd.reset)
        act(d)
        _, second = act(d, result="float32", reduce_op=op, reduce_cmd=reduce_cmd.reduce)
        _, third = act(d, result="float32")
        return first, second, third

    data = random((5, 6))
    first, second, third = on_trn3(kernel, data)
    same(first, np.full((5, 1), REDUCE[op][0], F))
    same(second, folded(data, op))
    same(third, second)


def test_other_lanes_keep_their_registers():
    def kernel(d):
        t, r = sb(128, 8), sb(128, 1)
        nisa.dma_copy(dst=t, src=d)
        common = {"op": nl.copy, "imm0": 0.0, "imm1": 0.0, "op0": nl.bypass, "op1": nl.bypass, "reduce_op": nl.maximum}
        nisa.activate2(dst=t, data=t, reduce_cmd=reduce_cmd.reset_reduce, **common)
        nisa.activate2(dst=t[64:96], data=t[64:96], reduce_cmd=reduce_cmd.reset, **common)
        nisa.activate2(dst=t, data=t, reduce_res=r, **common)
        return st(r)

    data = random((128, 8))
    want = data.max(1, keepdims=True)
    want[64:96] = -np.inf
    same(on_trn3(kernel, data), want)


@pytest.mark.parametrize("name", sorted(ops.ACTIVATIONS - {"prelu"}))
def test_every_function_is_that_of_activation(name):
    op, positive = getattr(nl, name), name in ("log", "sqrt", "rsqrt", "reciprocal")

    def kernel(d):
        t = sb(*d.shape)
        nisa.activation(dst=t, op=op, data=ld(d), scale=0.5, bias=0.25)
        return st(t), act(d, op, 0.5, 0.25, nl.multiply, nl.add)

    data = random((3, 40), scale=0.7)
    one, two = on_trn3(kernel, np.abs(data) + F(0.1) if positive else data)
    same(one, two)


@pytest.mark.parametrize("dtype", STORED)
def test_every_dtype_in_and_out(dtype):
    data = random((4, 2, 9), dtype)
    how = (nl.relu, 0.75, 1.5, nl.multiply, nl.subtract)
    want = activated(data, *how)
    same(on_trn3(lambda d: act(d, *how), data), want)
    same(on_trn3(lambda d: act(d, *how, dtype=dtype), data), rounded(want, dtype))


@pytest.mark.parametrize("dtype", STORED)
def test_the_reduction_takes_what_is_not_rounded_yet(dtype):
    data = random((4, 30))
    how = {"reduce_op": nl.add, "reduce_cmd": reduce_cmd.reset_reduce}
    out, total = on_trn3(lambda d: act(d, dtype="float8_e4m3", result=dtype, **how), data)
    same(out, rounded(data, "float8_e4m3"))
    same(total, rounded(folded(data, nl.add), dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8", "float8_e5m2"])
def test_immediates_of_any_dtype(dtype):
    data, low, high, slope = random((4, 6)), *(random((4, 1), dtype, seed) for seed in (1, 2, 3))
    how = (nl.multiply, nl.subtract)
    got = on_trn3(lambda d, a, b, s: act(d, nl.prelu, a, b, *how, relu_param=s), data, low, high, slope)
    same(got, activated(data, nl.prelu, low, high, *how, slope))


def test_prelu_of_zero_and_of_what_is_not_finite():
    data = np.array([[0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf]] * 3, F)
    slopes = np.array([[np.inf], [0.0], [np.nan]], F)
    got = on_trn3(lambda d, s: act(d, nl.prelu, relu_param=s), data, slopes)
    inf, nan = np.inf, np.nan
    want = [[0, -0.0, 1, -inf, nan, inf, -inf], [0, -0.0, 1, -0.0, nan, inf, nan], [0, -0.0, 1, nan, nan, inf, nan]]
    same(got, np.array(want, F))
    same(np.signbit(got[:2, :4]), np.signbit(np.array(want, F)[:2, :4]))


def test_views_of_psum_in_place():
    def kernel(d, imm):
        p = ps(128, 5, 4)
        nisa.tensor_copy(dst=p[64:72], src=ld(d), engine=nisa.engine.vector)
        t, r = p[64:72, 1:4, :].permute((0, 2, 1)), ps(128, 1)
        i = sb(128, 1)
        nisa.dma_copy(dst=i[64:72], src=imm)
        nisa.activate2(t, nl.abs, t, i[64:72], 0.0, nl.subtract, nl.bypass, reverse0=True, reduce_op=nl.minimum,
                       reduce_res=r[64:72], reduce_cmd=reduce_cmd.reset_reduce)  # fmt: skip
        return st(p[64:72]), st(r[64:72])

    data, imm = random((8, 5, 4)), random((8, 1), seed=1)
    want = data.copy()
    want[:, 1:4] = activated(data[:, 1:4], nl.abs, imm, 0, nl.subtract, nl.bypass, reverse0=True)
    got, least = on_trn3(kernel, data, imm)
    same(got, want)
    same(least, want[:, 1:4].reshape(8, -1).min(1, keepdims=True))


def test_scalars_of_one_plan_may_differ():
    def kernel(d):
        return tuple(act(d, nl.copy, float(k), -float(k), nl.multiply, nl.add) for k in range(3))

    data = random((2, 3))
    for k, got in enumerate(on_trn3(kernel, data)):
        same(got, data * F(k) - F(k))


def test_the_example_of_the_reference():
    @nki.jit
    def kernel(data):
        out = nl.ndarray(data.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        t = nl.ndarray(data.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=data)
        nisa.activate2(dst=t, op=nl.gelu, data=t, imm0=2.0, imm1=0.5, op0=nl.multiply, op1=nl.add)
        nisa.dma_copy(dst=out, src=t)
        return out

    data = random((128, 64), scale=1)
    z = data.astype(np.float64) * 2 + 0.5
    want = z * 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    np.testing.assert_allclose(on_trn3(kernel, data), want, atol=2e-6)


def test_inputs_outside_a_functions_range_are_reported_after_the_stages():
    data = np.array([[1.0, 4.0]], F)
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        on_trn3(lambda d: act(d, nl.sqrt, -1.0, 0.0, nl.multiply), data)
    assert caught.value.diagnosis.rule.id == "act.range_sqrt"
    same(on_trn3(lambda d: act(d, nl.sqrt, 4.0, 0.0, nl.multiply), data), np.array([[2, 4]], F))


def test_replay(monkeypatch):
    data = random((4, 8))

    def kernel(d):
        t, r = ld(d), sb(4, 1)
        for k in range(40):
            nisa.activate2(t, nl.prelu, t, 0.5, 0.25, nl.multiply, nl.subtract, relu_param=-0.5, reduce_op=nl.abs_max,
                           reduce_cmd=reduce_cmd.reduce if k % 4 else reduce_cmd.reset_reduce, reduce_res=r)  # fmt: skip
        return st(t), st(r)

    done = nki_sim.run(kernel, data, target="trn3", strict=True)
    values, registers = data, None
    replay, wanted = done.replay(), {}
    steps = [s for s in range(len(done.program)) if done.program.plan_at(s).instruction == "activate2"]
    for k, step in enumerate(steps):
        values = activated(values, nl.prelu, 0.5, 0.25, nl.multiply, nl.subtract, -0.5)
        registers = folded(values, nl.abs_max, registers if k % 4 else None)
        wanted[step] = values, registers
    for step in (*steps[::-7], *steps[3::5]):
        same(replay.operand(step, 0, after=True), wanted[step][0])
        same(replay.operand(step, 5, after=True), wanted[step][1])


def test_cost():
    def kernel(d):
        return act(d), act(d[:, 0:9]), act(d, result="float32", reduce_op=nl.add, reduce_cmd=reduce_cmd.reset_reduce)[1]

    plans = nki_sim.run(kernel, random((4, 300)), target="trn3").program.plans
    assert [(p.engine, p.cycles) for p in plans if p.instruction == "activate2"] == [
        ("scalar", 300), ("scalar", 64), ("scalar", 364)
    ]  # fmt: skip


def test_chains_do_not_mix():
    def kernel(d, first, second):
        t, r = ld(d), sb(2, 1)
        for begin, command in ((first, reduce_cmd.reset_reduce), (second, reduce_cmd.reduce)):
            if begin == "activation":
                nisa.activation(t, nl.copy, t, reduce_op=nl.add, reduce_cmd=command, reduce_res=r)
            elif begin == "activate2":
                nisa.activate2(
                    t, nl.copy, t, 0.0, 0.0, nl.bypass, nl.bypass, reduce_op=nl.add, reduce_cmd=command, reduce_res=r
                )
        return st(r)

    data = random((2, 5))
    for both in ("activation", "activate2"):
        same(on_trn3(lambda d, b=both: kernel(d, b, b), data), 2 * folded(data, nl.add))
    for first, second, rule in (
        ("activation", "activate2", "activate2.shared_regs"),
        ("activate2", "activation", "activation_reduce.shared_regs"),
        ("nothing", "activate2", "vector.accumulator_idle_dirty"),
    ):
        with pytest.raises(nki_sim.NkiValidationError) as caught:
            on_trn3(lambda d, a=first, b=second: kernel(d, a, b), data)
        assert caught.value.diagnosis.rule.id == rule
    with pytest.warns(nki_sim.NkiWarning, match="continues an accumulation that activation left"):
        got = nki_sim.run(lambda d: kernel(d, "activation", "activate2"), data, target="trn3").result
    same(got, 2 * folded(data, nl.add))


def offsets():
    """Sixteen partitions that pick 7, 6, … 0 of eight."""
    t = sb(16, 1, dt=nl.int32)
    nisa.iota(dst=t, pattern=[[1, 1]], offset=7, channel_multiplier=-1)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.bitwise_and, operand0=7)
    return t


def test_gather_and_scatter():
    def kernel(d):
        t, at = sb(16, 8), offsets()
        nisa.memset(dst=t, value=0.0)
        nisa.activate2(t.indirect(at, num_elem=5), nl.relu, ld(d).indirect(at, num_elem=5), 2.0, 1.0, nl.multiply, nl.add)
        return st(t)

    data = random((16, 8))
    want = np.zeros((16, 8), F)
    want[:, 3:] = activated(data[:, 3:], nl.relu, 2.0, 1.0, nl.multiply, nl.add)
    same(on_trn3(kernel, data), want)


# --- limits ----------------------------------------------------------------------------------------------------------


@book.breaks("activate2.gen4_only", on="trn1 trn2")
def _(bad):
    t = x(4, 8)
    if bad:
        nisa.activate2(t, nl.copy, t, 1.0, 0.0, nl.multiply, nl.bypass)
    return t, v(4, 8)


@book.breaks("activate2.buffers", on=NEW)
def _(bad):
    t = sb(4, 8)
    nisa.activate2(t, nl.copy, hx(4, 8) if bad else x(4, 8), 2.0, 0.0, nl.multiply, nl.bypass)
    return t, 2 * v(4, 8)


@book.breaks("activate2.buffers", on=NEW)
def _(bad):
    t, r = sb(4, 8), sb(4, 1)
    nisa.activate2(t, nl.copy, x(4, 8), 0.0, 0.0, nl.bypass, nl.bypass, reduce_op=nl.add, reduce_res=hx(4, 1) if bad else r,
                   reduce_cmd=reduce_cmd.reset_reduce)  # fmt: skip
    return r, v(4, 8).sum(1, keepdims=True)


@book.breaks("act.legal_functions", on=NEW)
def _(bad):
    t = sb(4, 8)
    nisa.activate2(t, nl.add if bad else nl.square, x(4, 8), 0.0, 0.0, nl.bypass, nl.bypass)
    return t, v(4, 8) ** 2


@book.breaks("activate2.op_combos", on=NEW)
def _(bad):
    t = sb(4, 8)
    nisa.activate2(t, nl.copy, x(4, 8), 2.0, 1.0, nl.add if bad else nl.multiply, nl.subtract)
    return t, 2 * v(4, 8) - 1


@book.breaks("activate2.op_combos", on=NEW)
def _(bad):
    t = sb(4, 8)
    nisa.activate2(t, nl.copy, x(4, 8), 2.0, 1.0, nl.maximum if bad else nl.subtract, nl.bypass)
    return t, v(4, 8) - 2


@book.breaks("activate2.op1_requires_op0", on=NEW)
def _(bad):
    t = sb(4, 8)
    nisa.activate2(t, nl.copy, x(4, 8), 1.0, 1.0, *((nl.bypass, nl.add) if bad else (nl.add, nl.bypass)))
    return t, v(4, 8) + 1


@book.breaks("activate2.op1_requires_op0", on=NEW)
def _(bad):
    t = sb(4, 8)
    nisa.activate2(t, nl.copy, x(4, 8), 3.0, 0.0, nl.bypass if bad else nl.subtract, nl.bypass, reverse0=True)
    return t, 3 - v(4, 8)


@book.breaks("activate2.op1_requires_op0", on=NEW)
def _(bad):
    t = sb(4, 8)
    nisa.activate2(t, nl.copy, x(4, 8), 2.0, 3.0, nl.multiply, nl.bypass if bad else nl.subtract, reverse1=True)
    return t, 3 - 2 * v(4, 8)


@book.breaks("activate2.partition", on=NEW)
def _(bad):
    t = sb(4, 8)
    nisa.activate2(t, nl.copy, x(5 if bad else 4, 8), 0.0, 0.0, nl.bypass, nl.bypass)
    return t, v(4, 8)


@book.breaks("activate2.free", on=NEW)
def _(bad):
    t = sb(4, 9 if bad else 8)
    nisa.activate2(t, nl.copy, x(4, 2, 4), 0.0, 0.0, nl.bypass, nl.bypass)
    return t, v(4, 8)


@book.breaks("activate2.imm_shape", on=NEW)
def _(bad):
    t, imm = sb(4, 8), x(4, 2)
    nisa.activate2(t, nl.copy, x(4, 8), imm if bad else imm[:, 0:1], 0.0, nl.add, nl.bypass)
    return t, v(4, 8) + v(4, 2)[:, 0:1]


@book.breaks("activate2.imm_shape", on=NEW)
def _(bad):
    t, imm = sb(4, 8), x(5 if bad else 4, 1)
    nisa.activate2(t, nl.copy, x(4, 8), 2.0, imm, nl.multiply, nl.add)
    return t, 2 * v(4, 8) + v(4, 1)


@book.breaks("activate2.imm_same_dtype", on=NEW)
def _(bad):
    t = sb(4, 8)
    imm0, imm1 = x(4, 1, dt=nl.bfloat16), x(4, 1, dt=nl.float32 if bad else nl.bfloat16)
    nisa.activate2(t, nl.copy, x(4, 8), imm0, imm1, nl.multiply, nl.add)
    return t, v(4, 8) * v(4, 1) + v(4, 1)


@book.breaks("activate2.relu_param", on=NEW)
def _(bad):
    t, slope = sb(4, 8), x(4, 2)
    nisa.activate2(t, nl.prelu, x(4, 8), -1.0, 0.0, nl.multiply, nl.bypass, relu_param=slope if bad else slope[:, 1:2])
    return t, -v(4, 8) * v(4, 2)[:, 1:2]


@book.breaks("activate2.reduce_op", on=NEW)
def _(bad):
    t, r = sb(4, 8), sb(4, 1)
    nisa.activate2(t, nl.copy, x(4, 8), 0.0, 0.0, nl.bypass, nl.bypass, reduce_op=nl.multiply if bad else nl.abs_max,
                   reduce_cmd=reduce_cmd.reset_reduce, reduce_res=r)  # fmt: skip
    return r, v(4, 8).max(1, keepdims=True)


@book.breaks("activate2.reduce_op", on=NEW)
def _(bad):
    t = sb(4, 8)
    command = reduce_cmd.reset if bad else reduce_cmd.idle
    nisa.activate2(t, nl.copy, x(4, 8), 0.0, 0.0, nl.bypass, nl.bypass, reduce_cmd=command)
    return t, v(4, 8)


@book.breaks("activate2.reduce_cmd", on=NEW)
def _(bad):
    t, r = sb(4, 8), sb(4, 1)
    command = reduce_cmd.load_reduce if bad else reduce_cmd.reset_reduce
    nisa.activate2(t, nl.copy, x(4, 8), 0.0, 0.0, nl.bypass, nl.bypass, reduce_op=nl.add, reduce_cmd=command, reduce_res=r)
    return r, v(4, 8).sum(1, keepdims=True)


@book.breaks("activate2.reduce_res", on=NEW)
def _(bad):
    t, r = sb(4, 8), sb(4, 2)
    nisa.activate2(t, nl.copy, x(4, 8), 0.0, 0.0, nl.bypass, nl.bypass, reduce_op=nl.add, reduce_cmd=reduce_cmd.reset_reduce,
                   reduce_res=r if bad else r[:, 0:1])  # fmt: skip
    nisa.memset(dst=r[:, 1:2], value=0.0)
    return r, np.concatenate([v(4, 8).sum(1, keepdims=True), np.zeros((4, 1))], 1)


@book.breaks("activate2.indirect.operands", on=NEW)
def _(bad):
    t, imm, at = sb(16, 8), x(16, 8, at=1), offsets()
    first = imm.indirect(at, num_elem=1) if bad else imm[:, 7:8]
    nisa.activate2(t, nl.copy, x(16, 8).indirect(at, num_elem=8), first, 0.0, nl.add, nl.bypass)
    return t, v(16, 8)[:, ::-1] + v(16, 8, at=1)[:, 7:8]


@book.breaks("activate2.indirect.partitions", on=NEW)
def _(bad):
    t, at = sb(128, 8), sb(128, 1, dt=nl.int32)
    nisa.memset(dst=at, value=0)
    data = sb(128, 8)
    nisa.memset(dst=data, value=3.0)
    rows = slice(32, 48)
    at = at[64:80] if bad else at[rows]
    nisa.activate2(t[rows], nl.copy, data[rows].indirect(at, num_elem=8), 2.0, 0.0, nl.multiply, nl.bypass)
    return t[rows], 6


@book.breaks("activate2.indirect.scalar_scatter_psum", on=NEW)
def _(bad):
    t, at = (ps if bad else sb)(16, 8), offsets()
    nisa.memset(dst=t, value=0.0)
    nisa.activate2(t.indirect(at, num_elem=8), nl.copy, x(16, 8), 0.0, 0.0, nl.bypass, nl.bypass)
    return t, v(16, 8)[:, ::-1]


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
