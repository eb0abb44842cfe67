"""``nki.isa.sequence_bounds``: values, padding, limits."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, sb, st
from references import run, same
from rulebook import Book, v, x

book = Book()


def bounds(ids):
    """For each element, walk left and right as long as the id stays."""
    n, out = len(ids), []
    for i, own in enumerate(ids):
        first, last = i, i
        while first > 0 and ids[first - 1] == own:
            first -= 1
        while last < n - 1 and ids[last + 1] == own:
            last += 1
        out.append((first, last + 1) if own else (n, -1))
    return np.array(out).T[None]


def bounded(ids, dtype="float32"):
    t = sb(1, 2, ids.shape[1], dt=dtype)
    nisa.sequence_bounds(dst=t, segment_ids=ld(ids))
    return st(t)


@given(ids=some.lists(some.integers(0, 3), min_size=1, max_size=40), dtype=some.sampled_from(["float32", "int32"]),
       to=some.sampled_from(["float32", "int32"]))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_runs_of_equal_ids(ids, dtype, to):
    same(run(bounded, np.array([ids], dtype), to), bounds(ids).astype(to))


def test_the_example_of_the_reference():
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]], np.int32)
    want = [[[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]]
    same(run(bounded, ids, "int32"), np.array(want, np.int32))


def test_a_view_and_a_row_in_the_middle():
    def kernel(ids):
        t, all_ids = sb(128, 2, 3), sb(128, 3, 4)
        nisa.dma_copy(dst=all_ids[32:33, :, :], src=ids)
        nisa.sequence_bounds(dst=t[32:33], segment_ids=all_ids[32:33, :, 1])
        return st(t[32:33])

    ids = np.arange(12).reshape(1, 3, 4).astype(np.float32) // 6
    same(run(kernel, ids), bounds(ids[0, :, 1]).astype(np.float32))


def test_a_negative_id_stops_the_run():
    with pytest.raises(nki_sim.NkiValidationError, match="segment id -2 at 3") as caught:
        run(bounded, np.array([[1, 1, 0, -2]], np.float32))
    assert caught.value.diagnosis.rule.id == "sequence_bounds.nonneg"


@book.breaks("sequence_bounds.engine")
def _(bad):
    t = sb(1, 2, 8)
    nisa.sequence_bounds(dst=t, segment_ids=x(1, 8, buffer=nl.psum if bad else nl.sbuf))
    return t, bounds(v(1, 8)[0])


@book.breaks("sequence_bounds.partition_1")
def _(bad):
    t = sb(1, 2, 8)
    nisa.sequence_bounds(dst=t, segment_ids=x(2 if bad else 1, 8))
    return t, bounds(v(1, 8)[0])


@book.breaks("sequence_bounds.dtype")
def _(bad):
    t = sb(1, 2, 8)
    nisa.sequence_bounds(dst=t, segment_ids=x(1, 8, dt=nl.bfloat16 if bad else nl.int32))
    return t, bounds(v(1, 8)[0])


@book.breaks("sequence_bounds.dtype")
def _(bad):
    t = sb(1, 2, 8, dt=nl.int16 if bad else nl.int32)
    nisa.sequence_bounds(dst=t, segment_ids=x(1, 8))
    return t, bounds(v(1, 8)[0])


@book.breaks("sequence_bounds.dst_shape")
def _(bad):
    t = sb(1, 16) if bad else sb(1, 2, 8)
    nisa.sequence_bounds(dst=t, segment_ids=x(1, 8))
    return t, bounds(v(1, 8)[0])


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
