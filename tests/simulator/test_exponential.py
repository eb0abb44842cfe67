"""``nki.isa.exponential``: values, running sums, special values, limits."""

import math

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, ps, sb, st
from nki.isa import reduce_cmd
from references import INTEGERS, STORED, floats, random, rounded, run, same
from rulebook import Book, hx, v, x

book = Book()
NEW = "trn3"
DST = [*(n for n in STORED if n not in ("float8_e4m3fn", "uint32"))]
SRC = [*(n for n in STORED if n != "float8_e4m3fn")]


def exps(data, most):
    """Element by element, in double precision."""
    rows = np.asarray(data, np.float32).reshape(len(data), -1)
    out = [[math.exp(np.float32(value) - np.float32(most[p])) for value in row] for p, row in enumerate(rows)]
    return np.array(out, np.float64).reshape(data.shape)


def near(got, want):
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=3e-7, atol=1e-37)


def exp(data, most=0.0, dtype="float32", result=None, **more):
    t = sb(*data.shape, dt=dtype)
    total = None if result is None else sb(data.shape[0], 1, dt=result)
    most = ld(most) if hasattr(most, "buffer") else most
    nisa.exponential(dst=t, src=ld(data), max_value=most, reduce_res=total, **more)
    return st(t if total is None else total)


@given(data=floats((3, 17), -50, 50), rows=some.integers(1, 3), n=some.integers(1, 17), most=floats((3, 1), -20, 20))
@settings(max_examples=60, deadline=None)
def test_element_by_element(data, rows, n, most):
    data, most = data[:rows, :n], most[:rows]
    near(run(exp, data, most, target="trn3"), exps(data, most[:, 0]))


@pytest.mark.parametrize("dtype", SRC)
def test_every_source(dtype):
    data = random((3, 2, 5), dtype, scale=1)
    most = data.astype(np.float32).reshape(3, -1).max(1, keepdims=True)
    near(run(exp, data, most, target="trn3"), exps(data, most[:, 0]))


@pytest.mark.parametrize("dtype", DST)
def test_every_destination(dtype):
    data = random((3, 10), scale=1)
    same(run(exp, data, -2.0, dtype=dtype, target="trn3"), rounded(np.exp(data + np.float32(2)), dtype))


@pytest.mark.parametrize("dtype", [n for n in DST if n not in INTEGERS])
def test_the_sum_is_of_what_was_not_rounded_yet(dtype):
    data = random((3, 40), scale=1)
    got = run(exp, data, dtype="int8", result=dtype, reduce_cmd=reduce_cmd.reset_reduce, target="trn3")
    want = np.add.accumulate(np.exp(data), axis=1, dtype=np.float32)[:, -1:]
    same(got, rounded(want, dtype))


def test_special_values():
    data = np.array([[np.inf, -np.inf, np.nan, 0, 200, -200]], np.float32)
    with np.errstate(over="ignore"):
        same(run(exp, data, target="trn3"), np.exp(data))


def test_a_sum_over_three_parts_begins_with_a_value():
    def kernel(data, first):
        t, total = sb(4, 8), sb(4, 1)
        for i in range(3):
            nisa.exponential(dst=t, src=ld(data[:, 8 * i : 8 * i + 8]), max_value=1.0, reduce_res=total if i == 2 else None,
                             reduce_cmd=reduce_cmd.reduce if i else reduce_cmd.load_reduce,
                             reduce_init=0.0 if i else ld(first))  # fmt: skip
        return st(total)

    data, first = random((4, 24), scale=1), random((4, 1), seed=1)
    got = run(kernel, data, first, target="trn3")
    np.testing.assert_allclose(got[:, 0], exps(data, [1] * 4).sum(1) + first[:, 0], rtol=1e-6)


def test_views_of_psum_in_the_upper_rows():
    def kernel(data):
        p, t = ps(128, 5, 4), sb(128, 4, 5)
        nisa.tensor_copy(dst=p[96:104, :, :], src=ld(data), engine=nisa.engine.vector)
        nisa.exponential(t[96:104], p[96:104].permute((0, 2, 1)))
        return st(t[96:104])

    data = random((8, 5, 4))
    near(run(kernel, data, target="trn3"), exps(data.transpose(0, 2, 1), [0] * 8))


@pytest.mark.parametrize("name", ["max_value", "reduce_init"])
@pytest.mark.parametrize("value", [None, np.zeros(3), "0"])
def test_values_that_are_no_operands(name, value):
    def kernel(data):
        t = sb(4, 4)
        nisa.exponential(dst=t, src=ld(data), **{name: value})
        return st(t)

    with pytest.raises(nki_sim.NkiError) as caught:
        run(kernel, random((4, 4)), target="trn3")
    assert caught.value.diagnosis.rule.id == "kernel.operand_type"


def zeros(*shape, dt=nl.float32):
    t = sb(*shape, dt=dt)
    nisa.memset(dst=t, value=0.0 if "float" in dt else 0)
    return t


@book.breaks("exponential.gen4_only", on="trn1 trn2", elsewhere="")
def _(bad):
    t = x(16, 8)
    if bad:
        nisa.exponential(dst=t, src=zeros(16, 8))
    return t, v(16, 8)


@book.breaks("exponential.buffers", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.exponential(dst=t, src=hx(16, 8) if bad else zeros(16, 8))
    return t, 1


@book.breaks("exponential.partition", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.exponential(dst=t, src=zeros(17 if bad else 16, 8))
    return t, 1


@book.breaks("exponential.free", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.exponential(dst=t, src=zeros(16, 2, 5 if bad else 4))
    return t, 1


@book.breaks("exponential.rank", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.exponential(dst=t, src=zeros(16, 2, 2, 2, 1) if bad else zeros(16, 2, 2, 2))
    return t, 1


@book.breaks("exponential.dst_dtype", on=NEW)
def _(bad):
    t = sb(16, 8, dt=nl.uint32 if bad else nl.int32)
    nisa.exponential(dst=t, src=zeros(16, 8))
    return t, 1


@book.breaks("exponential.src_dtype", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.exponential(dst=t, src=zeros(16, 8, dt=nl.tfloat32 if bad else nl.float32))
    return t, 1


@book.breaks("exponential.max_value", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.exponential(dst=t, src=zeros(16, 8), max_value=zeros(16, 1, dt=nl.bfloat16 if bad else nl.float32))
    return t, 1


@book.breaks("exponential.max_value", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.exponential(dst=t, src=zeros(16, 8), max_value=zeros(16, 2 if bad else 1))
    return t, 1


@book.breaks("exponential.reduce_res", on=NEW)
def _(bad):
    t, total = sb(16, 8), sb(16, 1, dt=nl.int16 if bad else nl.bfloat16)
    nisa.exponential(dst=t, src=zeros(16, 8), reduce_res=total, reduce_cmd=reduce_cmd.reset_reduce)
    return total, 8


@book.breaks("exponential.reduce_res", on=NEW)
def _(bad):
    t, total = sb(16, 8), sb(16, 2 if bad else 1)
    nisa.exponential(dst=t, src=zeros(16, 8), reduce_res=total, reduce_cmd=reduce_cmd.reset_reduce)
    return total, 8


@book.breaks("exponential.reduce_cmd", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.exponential(dst=t, src=zeros(16, 8), reduce_cmd=reduce_cmd.reset if bad else reduce_cmd.idle)
    return t, 1


@book.breaks("exponential.reduce_init", on=NEW)
def _(bad):
    t, total, command = sb(16, 8), sb(16, 1), reduce_cmd.reset_reduce if bad else reduce_cmd.load_reduce
    nisa.exponential(dst=t, src=zeros(16, 8), reduce_res=total, reduce_cmd=command, reduce_init=2.0)
    return total, 10


@book.breaks("exponential.reduce_init", on=NEW)
def _(bad):
    t, total, command = sb(16, 8), sb(16, 1), reduce_cmd.load_reduce
    first = zeros(16, 1, dt=nl.bfloat16 if bad else nl.float32)
    nisa.exponential(dst=t, src=zeros(16, 8), reduce_res=total, reduce_cmd=command, reduce_init=first)
    return total, 8


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
