"""``nki.isa.dma_compute``: sums, additions to gathered and scattered rows, limits."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import hb, ld, ps, sb, st
from references import STORED, floats, random, rounded, run, same
from rulebook import Book, hx, v, x

book = Book()
NkiTypeError = nki_sim.errors.NkiTypeError
oob_mode = nisa.oob_mode


def added(sources):
    """Element by element, in the order of the sources."""
    flat = [np.asarray(s, np.float32).reshape(-1) for s in sources]
    out = []
    for values in zip(*flat, strict=True):
        total = np.float32(0) + values[0]
        for value in values[1:]:
            total = np.float32(total + value)
        out.append(total)
    return np.array(out, np.float32)


def column(values, dt=nl.uint32):
    """An SBUF column of indices with the values of an HBM tensor."""
    t = sb(values.shape[0], 1, dt=dt)
    nisa.dma_copy(dst=t, src=values)
    return t


def rows_of(table, index, count):
    """``count`` rows of a 2-D HBM tensor, chosen by a column of indices."""
    width = table.shape[1]
    return table.ap(pattern=[[width, count], [1, width]], vector_offset=index, indirect_dim=0)


# --- sums ------------------------------------------------------------------------------------------------------------


@given(data=floats((16, 3, 8)), count=some.integers(1, 16))
@settings(max_examples=40, deadline=None)
def test_a_sum_of_up_to_sixteen(data, count):
    def kernel(data):
        t = sb(3, 8)
        nisa.dma_compute(t, [data[i] if i % 2 else ld(data[i]) for i in range(count)], nl.add, scales=[1.0] * count)
        return st(t)

    same(run(kernel, data), added(data[:count]).reshape(3, 8))


@pytest.mark.parametrize("dtype", STORED)
def test_every_dtype_goes_through_float32(dtype):
    def kernel(a, b, to):
        t = hb(8, 6, dt=to)
        nisa.dma_compute(dst=t, srcs=(a, b), reduce_op=nl.add)
        return t

    a, b = random((8, 6), dtype), random((8, 6), seed=1)
    want = added([a, b]).reshape(8, 6)
    same(run(kernel, a, b, "float32"), want)
    same(run(kernel, a, b, dtype), rounded(want, dtype))


def test_shapes_and_views_need_only_equal_counts_and_order():
    def kernel(a, b):
        t = sb(4, 3, 2)
        nisa.dma_compute(dst=t, srcs=[a.permute((1, 0)), ld(b)], reduce_op=nl.add)
        return st(t)

    a, b = random((6, 4)), random((8, 3), seed=1)
    same(run(kernel, a, b), added([a.T, b]).reshape(4, 3, 2))


def test_a_tensor_may_be_added_to_itself():
    def kernel(a):
        t = ld(a)
        nisa.dma_compute(dst=t, srcs=[t, t, t], reduce_op=nl.add)
        return st(t)

    a = random((6, 4))
    same(run(kernel, a), added([a, a, a]).reshape(6, 4))


def test_nan_and_infinity():
    def kernel(a, b):
        t = sb(1, 4)
        nisa.dma_compute(dst=t, srcs=[a, b], reduce_op=nl.add)
        return st(t)

    a, b = np.array([[np.nan, np.inf, np.inf, 1]], np.float32), np.array([[0, 1, -np.inf, 2]], np.float32)
    with np.errstate(invalid="ignore"):
        same(run(kernel, a, b), a + b)


# --- gather and scatter ----------------------------------------------------------------------------------------------


def gathered(table, data, index, first, dtype="float32", skip=False):
    t = sb(*data.shape, dt=dtype)
    nisa.dma_copy(dst=t, src=data)
    view = rows_of(table, column(index), data.shape[0])
    mode = oob_mode.skip if skip else oob_mode.error
    nisa.dma_compute(dst=t, srcs=[view, t] if first else [t, view], reduce_op=nl.add, oob_mode=mode)
    return st(t)


def scattered(table, data, index, first, dtype="float32", skip=False):
    out = hb(*table.shape, dt=dtype)
    nisa.dma_copy(dst=out, src=table)
    view, mode = rows_of(out, column(index), data.shape[0]), oob_mode.skip if skip else oob_mode.error
    nisa.dma_compute(dst=view, srcs=[view, ld(data)] if first else [ld(data), view], reduce_op=nl.add, oob_mode=mode)
    return out


@given(index=some.lists(some.integers(0, 11), min_size=1, max_size=12), first=some.booleans(), data=floats((12, 5)),
       table=floats((12, 5)))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_gather_adds_rows(index, first, data, table):
    data, at = data[: len(index)], np.array(index, np.uint32).reshape(-1, 1)
    want = np.array([[np.float32(d + t) for d, t in zip(data[i], table[k], strict=True)] for i, k in enumerate(index)])
    same(run(gathered, table, data, at, first), want.astype(np.float32))


@given(index=some.permutations(range(12)), n=some.integers(1, 12), first=some.booleans(), data=floats((12, 5)),
       table=floats((12, 5)))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_scatter_adds_into_rows(index, n, first, data, table):
    at, want = np.array(index[:n], np.uint32).reshape(-1, 1), table.copy()
    for i, k in enumerate(index[:n]):
        want[k] = want[k] + data[i]
    same(run(scattered, table, data[:n], at, first), want)


@pytest.mark.parametrize("dtype", STORED)
def test_gather_and_scatter_of_every_dtype(dtype):
    table, data, at = random((9, 4), dtype), random((4, 4), dtype, seed=1), np.array([[7], [0], [3], [8]], np.uint32)
    both = rounded(table[at[:, 0]].astype(np.float32) + data.astype(np.float32), dtype)
    same(run(gathered, table, data, at, True, dtype), both)
    want = table.copy()
    want[at[:, 0]] = both
    same(run(scattered, table, data, at, False, dtype), want)


@pytest.mark.parametrize(("kernel", "kept"), [(gathered, 1), (scattered, 0)])
def test_rows_out_of_bounds_are_an_error_or_skipped(kernel, kept):
    table, data, at = random((9, 4)), random((3, 4), seed=1), np.array([[7], [9], [2]], np.uint32)
    with pytest.raises(nki_sim.NkiValidationError, match="runtime index 9") as caught:
        run(kernel, table, data, at, True)
    assert caught.value.diagnosis.rule.id == "dma_copy.oob_error_default"
    want = [data, table][1 - kept].copy()
    for i, k in ((0, 7), (2, 2)):
        want[i if kept else k] = table[k] + data[i]
    same(run(kernel, table, data, at, True, skip=True), want)


def test_two_lanes_for_one_row_are_reported():
    table, data, at = random((9, 4)), random((3, 4), seed=1), np.array([[7], [7], [2]], np.uint32)
    with pytest.warns(nki_sim.NkiWarning, match="two lanes add to one row") as caught:
        got = nki_sim.run(scattered, table, data, at, True).result
    assert "dma_compute.duplicate_index_ub" in str(caught[0].message)
    same(got[[0, 2]], np.stack([table[0], table[2] + data[2]]))


def test_one_plan_does_not_let_a_wrong_pair_through():
    """Equal shapes are not enough: the other source of a gather is dst itself."""

    def kernel(table, data, index):
        t, other, view = ld(data), ld(data), rows_of(table, column(index), 3)
        nisa.dma_compute(dst=t, srcs=[view, t], reduce_op=nl.add)
        nisa.dma_compute(dst=t, srcs=[view, other], reduce_op=nl.add)
        return st(t)

    with pytest.raises(nki_sim.NkiValidationError) as caught:
        run(kernel, random((9, 4)), random((3, 4)), np.array([[7], [0], [2]], np.uint32))
    assert caught.value.diagnosis.rule.id == "dma_compute.rmw.gather"


@pytest.mark.parametrize("wrong", [lambda a: [a] * 17, lambda a: a])
def test_one_plan_does_not_let_another_list_through(wrong):
    def kernel(a):
        t = sb(6, 4)
        for srcs in ([a] * 16, [a], wrong(a)):
            nisa.dma_compute(dst=t, srcs=srcs, reduce_op=nl.add)
        return st(t)

    with pytest.raises(nki_sim.NkiError) as caught:
        run(kernel, random((6, 4)))
    assert caught.value.diagnosis.rule.id == "dma_compute.max_16_srcs"


def test_the_record_has_all_sources():
    def kernel(a):
        t = sb(6, 4)
        nisa.dma_compute(dst=t, srcs=[a, ld(a)], reduce_op=nl.add)
        return st(t)

    program = nki_sim.run(kernel, random((6, 4))).program
    step = next(i for i in range(len(program)) if program[i].instruction == "dma_compute")
    assert program[step].engine == "dma"
    assert len(list(program[step].reads())) == 2


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"srcs": None}, "dma_compute.max_16_srcs"),
        ({"srcs": "ab"}, "dma_compute.max_16_srcs"),
        ({"srcs": [None]}, "dma_compute.max_16_srcs"),
        ({"scales": 1.0}, "dma_compute.scales_one"),
        ({"scales": ["1"]}, "dma_compute.scales_one"),
        ({"reduce_op": "add"}, "kernel.operator"),
        ({"reduce_op": np.add}, "kernel.operator"),
        ({"oob_mode": 7}, "kernel.enum_members"),
        ({"dst": None}, "kernel.operand_type"),
    ],
)
def test_malformed_arguments(changed, rule):
    def kernel(a):
        t = sb(6, 4)
        nisa.dma_compute(**{"dst": t, "srcs": [a], "reduce_op": nl.add, **changed})
        return st(t)

    with pytest.raises(nki_sim.NkiError) as caught:
        run(kernel, random((6, 4)))
    assert caught.value.diagnosis.rule.id == rule


def test_a_source_of_another_run_is_refused():
    kept = []

    def first(a):
        kept.append(ld(a))
        return st(kept[0])

    def second(a):
        t = sb(6, 4)
        nisa.dma_compute(dst=t, srcs=[a, kept[0]], reduce_op=nl.add)
        return st(t)

    run(first, random((6, 4)))
    with pytest.raises(nki_sim.NkiError) as caught:
        run(second, random((6, 4)))
    assert caught.value.diagnosis.rule.id == "dma_compute.max_16_srcs"


# --- limits ----------------------------------------------------------------------------------------------------------


@book.breaks("dma_compute.buffers")
def _(bad):
    t = ps(16, 8) if bad else sb(16, 8)
    nisa.dma_compute(dst=t, srcs=[hx(16, 8), x(16, 8)], reduce_op=nl.add)
    return t, 2 * v(16, 8)


@book.breaks("dma_compute.buffers")
def _(bad):
    t, second = sb(16, 8), x(16, 8, buffer=nl.psum if bad else nl.sbuf)
    nisa.dma_compute(dst=t, srcs=[hx(16, 8), second], reduce_op=nl.add)
    return t, 2 * v(16, 8)


@book.breaks("dma_compute.max_16_srcs")
def _(bad):
    t, one = sb(16, 8), hx(16, 8)
    nisa.dma_compute(dst=t, srcs=[one] * (17 if bad else 16), reduce_op=nl.add)
    return t, 16 * v(16, 8)


@book.breaks("dma_compute.max_16_srcs")
def _(bad):
    t, one = sb(16, 8), hx(16, 8)
    nisa.dma_compute(dst=t, srcs=[] if bad else [one], reduce_op=nl.add)
    return t, v(16, 8)


@book.breaks("dma_compute.max_16_srcs", error=NkiTypeError)
def _(bad):
    t, one = sb(16, 8), hx(16, 8)
    nisa.dma_compute(dst=t, srcs=one if bad else [one], reduce_op=nl.add)
    return t, v(16, 8)


@book.breaks("dma_compute.max_16_srcs", error=NkiTypeError)
def _(bad):
    t, one = sb(16, 8), hx(16, 8)
    nisa.dma_compute(dst=t, srcs=[one, 2.0 if bad else one], reduce_op=nl.add)
    return t, 2 * v(16, 8)


@book.breaks("dma_compute.elem_count")
def _(bad):
    t = sb(16, 8)
    nisa.dma_compute(dst=t, srcs=[hx(16, 8), hx(16, 9 if bad else 8)], reduce_op=nl.add)
    return t, 2 * v(16, 8)


@book.breaks("dma_compute.reduce_op_add")
def _(bad):
    t = sb(16, 8)
    nisa.dma_compute(dst=t, srcs=[hx(16, 8), hx(16, 8)], reduce_op=nl.maximum if bad else nl.add)
    return t, 2 * v(16, 8)


@book.breaks("dma_compute.scales_one")
def _(bad):
    t = sb(16, 8)
    nisa.dma_compute(dst=t, srcs=[hx(16, 8), hx(16, 8)], reduce_op=nl.add, scales=[1.0, 2.0 if bad else 1.0])
    return t, 2 * v(16, 8)


@book.breaks("dma_compute.scales_one")
def _(bad):
    t = sb(16, 8)
    nisa.dma_compute(dst=t, srcs=[hx(16, 8), hx(16, 8)], reduce_op=nl.add, scales=(1.0,) if bad else (1.0, 1.0))
    return t, 2 * v(16, 8)


@book.breaks("dma_compute.static_addresses")
def _(bad):
    t, table, index = sb(16, 32), hx(64, 32), sb(1, 1, dt=nl.uint32)
    nisa.memset(dst=index, value=8)
    moving = table.ap(pattern=[[32, 16], [1, 32]], scalar_offset=index, indirect_dim=0)
    nisa.dma_compute(dst=t, srcs=[moving if bad else table[8:24, :], table[0:16, :]], reduce_op=nl.add)
    return t, v(64, 32)[8:24] + v(64, 32)[0:16]


def eight_on(count):
    """Indices 8, 9, …"""
    t = sb(count, 1, dt=nl.uint32)
    nisa.iota(dst=t, pattern=[[1, 1]], offset=8, channel_multiplier=1)
    return t


@book.breaks("dma_compute.rmw.two_srcs")
def _(bad):
    t, rows = x(16, 32, at=1), rows_of(hx(64, 32), eight_on(16), 16)
    nisa.dma_compute(dst=t, srcs=[t, rows, t] if bad else [t, rows], reduce_op=nl.add)
    return t, v(16, 32, at=1) + v(64, 32)[8:24]


@book.breaks("dma_compute.rmw.unique")
def _(bad):
    t, rows = x(16, 32, at=1), rows_of(hx(64, 32), eight_on(16), 16)
    nisa.dma_compute(dst=t, srcs=[t, rows], reduce_op=nl.add, unique_indices=not bad)
    return t, v(16, 32, at=1) + v(64, 32)[8:24]


@book.breaks("dma_compute.rmw.gather")
def _(bad):
    t, rows = x(16, 32, at=1), rows_of(hx(64, 32), eight_on(16), 16)
    nisa.dma_compute(dst=t, srcs=[x(16, 32, at=1) if bad else t, rows], reduce_op=nl.add)
    return t, v(16, 32, at=1) + v(64, 32)[8:24]


@book.breaks("dma_compute.rmw.gather")
def _(bad):
    t = hx(16, 32, at=1) if bad else x(16, 32, at=1)
    nisa.dma_compute(dst=t, srcs=[t, rows_of(hx(64, 32), eight_on(16), 16)], reduce_op=nl.add)
    return t, v(16, 32, at=1) + v(64, 32)[8:24]


@book.breaks("dma_compute.rmw.scatter")
def _(bad):
    table, index = hx(64, 32), eight_on(16)
    rows, other = rows_of(table, index, 16), rows_of(table, eight_on(16), 16)
    nisa.dma_compute(dst=rows, srcs=[other if bad else rows, x(16, 32, at=1)], reduce_op=nl.add)
    want = v(64, 32).copy()
    want[8:24] += v(16, 32, at=1)
    return table, want


@book.breaks("dma_compute.rmw.scatter")
def _(bad):
    table = hx(64, 32)
    rows = rows_of(table, eight_on(16), 16)
    nisa.dma_compute(dst=rows, srcs=[rows, hx(16, 32, at=1) if bad else x(16, 32, at=1)], reduce_op=nl.add)
    want = v(64, 32).copy()
    want[8:24] += v(16, 32, at=1)
    return table, want


@book.breaks("dma_compute.indices")
def _(bad):
    t, rows = x(16, 32, at=1), rows_of(hx(64, 32), eight_on(8 if bad else 16), 16)
    nisa.dma_compute(dst=t, srcs=[t, rows], reduce_op=nl.add)
    return t, v(16, 32, at=1) + v(64, 32)[8:24]


@book.breaks("dma_compute.oob_skip_indirect")
def _(bad):
    t = sb(16, 8)
    nisa.dma_compute(dst=t, srcs=[hx(16, 8), hx(16, 8)], reduce_op=nl.add, oob_mode=oob_mode.skip if bad else oob_mode.error)
    return t, 2 * v(16, 8)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
