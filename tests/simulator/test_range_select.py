"""``nki.isa.range_select``: values, running maxima, special values, limits."""

import operator

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, ps, sb, st
from nki.isa import reduce_cmd
from references import FLOATS, floats, random, rounded, run, same
from rulebook import Book, hx, v, x

book = Book()
NEW = "trn2 trn3"
LOW = np.finfo(np.float32).min
COMPARISONS = {
    nl.equal: operator.eq, nl.less: operator.lt, nl.less_equal: operator.le,
    nl.greater: operator.gt, nl.greater_equal: operator.ge,
}  # fmt: skip


def selected(data, op0, op1, low, high, start=0):
    """Element by element."""
    rows = np.asarray(data, np.float32).reshape(len(data), -1)
    first, second = COMPARISONS[op0], COMPARISONS[op1]
    out = [[value if first(start + i, low[p, 0]) and second(start + i, high[p, 0]) else LOW for i, value in enumerate(row)]
           for p, row in enumerate(rows)]  # fmt: skip
    return np.array(out, np.float32).reshape(data.shape)


def select(data, low, high, op0=nl.greater_equal, op1=nl.less, start=0, dtype="float32", which=0, **more):
    t, most = sb(*data.shape, dt=dtype), sb(data.shape[0], 1)
    nisa.range_select(dst=t, on_true_tile=ld(data), comp_op0=op0, comp_op1=op1, bound0=ld(low), bound1=ld(high),
                      reduce_res=most, range_start=start, **more)  # fmt: skip
    return st(most if which else t)


def bounds(*rows):
    return np.array(rows, np.float32).reshape(-1, 1)


@given(data=floats((4, 20)), rows=some.integers(1, 4), n=some.integers(1, 20), op0=some.sampled_from(list(COMPARISONS)),
       op1=some.sampled_from(list(COMPARISONS)), low=floats((4, 1), -5, 30), high=some.integers(-5, 30),
       start=some.integers(-4, 9))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_element_by_element(data, rows, n, op0, op1, low, high, start):
    data, low, top = data[:rows, :n], low[:rows], np.full((rows, 1), high, np.float32)
    want = selected(data, op0, op1, low, top, start)
    same(run(select, data, low, top, op0, op1, start, target="trn3"), want)
    same(run(select, data, low, top, op0, op1, start, which=1), want.max(1, keepdims=True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_in_and_out(dtype):
    data, low, high = random((3, 4, 5), dtype), bounds(0, 3, 25), bounds(20, 11, 30)
    want = selected(data, nl.greater_equal, nl.less, low, high)
    same(run(select, data, low, high), want)
    same(run(select, data, low, high, dtype=dtype), rounded(want, dtype))
    same(run(select, data, low, high, dtype=dtype, which=1), want.reshape(3, -1).max(1, keepdims=True))


def test_an_empty_row_of_bfloat16_is_minus_infinity_and_its_maximum_is_not():
    data, low, high = random((1, 4), "bfloat16"), bounds(9), bounds(3)
    assert (run(select, data, low, high, dtype="bfloat16") == -np.inf).all()
    assert run(select, data, low, high, dtype="bfloat16", which=1) == LOW


def test_special_values():
    data = np.array([[np.nan, 1, np.inf, -np.inf]], np.float32)
    same(run(select, data, bounds(0), bounds(4)), data)
    assert np.isnan(run(select, data, bounds(0), bounds(4), which=1))
    assert run(select, data, bounds(1), bounds(np.inf), which=1) == np.inf
    assert (run(select, data, bounds(np.nan), bounds(4)) == LOW).all()


def test_positions_are_compared_in_float32():
    data = np.ones((1, 2), np.float32)
    start = 2**24 - 1
    same(run(select, data, bounds(start), bounds(start), nl.equal, nl.equal, start), np.array([[1, LOW]], np.float32))


def test_a_running_maximum_over_three_parts():
    def kernel(data, low, high):
        t, most, lo, hi = sb(4, 8), sb(4, 1), ld(low), ld(high)
        for i in range(3):
            nisa.range_select(
                dst=t, on_true_tile=ld(data[:, 8 * i : 8 * i + 8]), comp_op0=nl.greater, comp_op1=nl.less_equal, bound0=lo,
                bound1=hi, range_start=8 * i, reduce_res=most if i == 2 else None,
                reduce_cmd=reduce_cmd.reduce if i else reduce_cmd.reset_reduce,
            )  # fmt: skip
        return st(most)

    data, low, high = random((4, 24)), bounds(-1, 3, 10, 30), bounds(5, 22, 10, 30)
    same(run(kernel, data, low, high), selected(data, nl.greater, nl.less_equal, low, high).max(1, keepdims=True))


def test_views_of_psum_and_rows_from_64():
    def kernel(data, low):
        p, t, lo = ps(128, 5, 4), sb(128, 4, 5), sb(128, 1)
        nisa.tensor_copy(dst=p[64:72, :, :], src=ld(data), engine=nisa.engine.vector)
        nisa.dma_copy(dst=lo[64:72, :], src=low)
        rows = slice(64, 72)
        nisa.range_select(t[rows], p[rows].permute((0, 2, 1)), nl.greater_equal, nl.greater_equal, lo[rows], lo[rows])
        return st(t[rows])

    data, low = random((8, 5, 4)), bounds(*range(8))
    want = selected(data.transpose(0, 2, 1), nl.greater_equal, nl.greater_equal, low, low)
    same(run(kernel, data, low), want)


def issue(bad=False, width=8, start=0, dt=nl.float32, bound=nl.float32, result=None, src=None, low=None, **changed):
    """A range_select of ``x(16, 8)`` from 2 to 5, with parts exchanged."""
    t, lo, hi = sb(16, width, dt=dt), sb(16, 1), sb(16, 1, dt=bound)
    nisa.memset(dst=lo, value=2.0)
    nisa.memset(dst=hi, value=6.0 if bound == nl.float32 else 6)
    given = {"comp_op0": nl.greater_equal, "comp_op1": nl.less, "bound0": lo if low is None else low, "bound1": hi}
    source = x(16, 8, dt=nl.bfloat16) if src is None else src
    nisa.range_select(dst=t, on_true_tile=source, range_start=start, reduce_res=result, **{**given, **changed})
    want = np.full((16, 8), LOW)
    want[:, max(0, 2 - start) : max(0, 6 - start)] = v(16, 8)[:, max(0, 2 - start) : max(0, 6 - start)]
    return t, want


@book.breaks("range_select.gen3", on="trn1")
def _(bad):
    if not bad:
        return x(16, 8), v(16, 8)
    t = sb(16, 8)
    nisa.range_select(t, x(16, 8), nl.less, nl.less, x(16, 1), x(16, 1))
    return t, 0


@book.breaks("range_select.buffers", on=NEW)
def _(bad):
    t, want = issue(src=hx(16, 8) if bad else x(16, 8))
    return t, want


@book.breaks("range_select.cmp_ops", on=NEW)
def _(bad):
    t, want = issue(comp_op1=nl.not_equal if bad else nl.less)
    return t, want


@book.breaks("range_select.shape", on=NEW)
def _(bad):
    t, want = issue(width=9 if bad else 8)
    return t, want


@book.breaks("range_select.bounds_shape", on=NEW)
def _(bad):
    low = sb(16, 2)
    nisa.memset(dst=low, value=2.0)
    t, want = issue(low=low if bad else low[:, 0:1])
    return t, want


@book.breaks("range_select.bounds_fp32", on=NEW)
def _(bad):
    t, want = issue(bound=nl.int32 if bad else nl.float32)
    return t, want


@book.breaks("range_select.on_true_fp", on=NEW)
def _(bad):
    t, want = issue(src=x(16, 8, dt=nl.int16 if bad else nl.float16))
    return t, want


@book.breaks("range_select.range_start_const", on=NEW, error=nki_sim.errors.NkiTypeError)
def _(bad):
    t, want = issue(start=1.0 if bad else 1)
    return t, want


@book.breaks("range_select.index_2p24", on=NEW)
def _(bad):
    t, want = issue(start=2**24 - 6 if bad else 2**24 - 7)
    return t, want


@book.breaks("range_select.on_false_fp32min", on=NEW)
def _(bad):
    t, want = issue(on_false_value=float("-inf") if bad else -3.4028235e38)
    return t, want


@book.breaks("range_select.reduce_op", on=NEW)
def _(bad):
    t, want = issue(reduce_op=nl.add if bad else nl.maximum)
    return t, want


@book.breaks("range_select.reduce_cmd", on=NEW)
def _(bad):
    t, want = issue(reduce_cmd=reduce_cmd.load_reduce if bad else reduce_cmd.idle)
    return t, want


@book.breaks("range_select.reduce_res", on=NEW)
def _(bad):
    t, want = issue(result=sb(16, 2) if bad else sb(16, 1))
    return t, want


@book.breaks("range_select.nan_hazard", on=NEW)
def _(bad):
    t, want = issue(dt=nl.bfloat16, result=sb(16, 1, dt=nl.bfloat16 if bad else nl.float32))
    return t, np.where(want == LOW, -np.inf, want)


@book.rejects()
def test_rejects(case, target):
    if case.rule == "range_select.gen3":
        case.reject(target)
        return
    with pytest.raises(case.error) as caught:
        case.run(target, bad=True)
    assert caught.value.diagnosis.rule.id == case.rule


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
