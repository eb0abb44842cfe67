"""``nki.isa.nonzero_with_count``: values, which partitions, limits."""

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
NEW = "trn2 trn3"


def listed(row, offset=0, padding=-1):
    """Element by element."""
    found = [i + offset for i, value in enumerate(row) if value != 0]
    return np.array([*found, *[padding] * (len(row) - len(found)), len(found)], np.int32)


def nonzero(data, offset=0, padding=-1):
    t = sb(data.shape[0], data.shape[1] + 1, dt=nl.int32)
    nisa.memset(dst=t, value=7)
    nisa.nonzero_with_count(dst=t, src=ld(data), index_offset=offset, padding_val=padding)
    return st(t)


@given(rows=some.integers(1, 128), n=some.integers(1, 30), offset=some.integers(-50, 5000), padding=some.integers(-9, 9),
       dtype=some.sampled_from(["float32", "int32"]), seed=some.integers(0, 99), most=some.integers(1, 4))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_one_partition_of_each_core(rows, n, offset, padding, dtype, seed, most):
    data = np.random.default_rng(seed).integers(-1, most, (rows, n)).astype(dtype)
    want = np.full((rows, n + 1), 7, np.int32)
    for p in range(0, rows, 16):
        want[p] = listed(data[p], offset, padding)
    same(run(nonzero, data, offset, padding), want)


def test_the_example_of_the_reference():
    got = run(nonzero, np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.float32), 16)
    same(got, np.array([[17, 18, 21, -1, -1, -1, -1, -1, 3]], np.int32))


def test_special_values_and_a_view():
    def kernel(data):
        t, tile = sb(16, 5, dt=nl.int32), ld(data)
        nisa.memset(dst=t, value=7)
        nisa.nonzero_with_count(dst=t, src=tile.permute((0, 2, 1)))
        return st(t)

    data = np.zeros((16, 2, 2), np.float32)
    data[0] = [[-0.0, np.nan], [np.inf, 1e-45]]
    same(run(kernel, data)[:1], listed([0, np.inf, np.nan, 1e-45])[None])


def test_only_the_first_partition_of_a_core_is_read_and_written():
    def kernel(data, whole):
        tile, t = sb(32, 4), sb(32, 5, dt=nl.int32)
        for p in (0, 16):
            nisa.dma_copy(dst=tile[p : p + 1, :], src=data[p : p + 1, :])
        nisa.nonzero_with_count(dst=t, src=tile)
        return st(t if whole else t[0:1, :])

    data = (np.arange(128).reshape(32, 4) % 3).astype(np.float32)
    same(run(kernel, data, False), listed(data[0])[None])
    with pytest.raises(nki_sim.NkiValidationError, match="never written") as caught:
        run(kernel, data, True)
    assert caught.value.diagnosis.rule.id == "ndarray.uninitialised"


def test_a_row_that_is_read_must_have_been_written():
    def kernel(data):
        tile, t = sb(32, 4), sb(32, 5, dt=nl.int32)
        nisa.dma_copy(dst=tile[0:16, :], src=data)
        nisa.nonzero_with_count(dst=t, src=tile)
        return st(t[0:1, :])

    with pytest.raises(nki_sim.NkiValidationError, match="4 of 8 elements were never written"):
        run(kernel, np.ones((16, 4), np.float32))


def test_one_plan_does_not_let_another_size_through():
    def kernel(data):
        t, tile = sb(16, 5, dt=nl.int32), ld(data)
        nisa.nonzero_with_count(dst=t, src=tile)
        nisa.nonzero_with_count(dst=t, src=tile[0:1, :])
        return st(t[0:1, :])

    with pytest.raises(nki_sim.NkiValidationError) as caught:
        run(kernel, np.ones((16, 4), np.float32))
    assert caught.value.diagnosis.rule.id == "nonzero_with_count.partition"


@book.breaks("nonzero_with_count.gen3", on="trn1")
def _(bad):
    if bad:
        nisa.nonzero_with_count(dst=sb(16, 9, dt=nl.int32), src=x(16, 8))
    return x(16, 8), v(16, 8)


@book.breaks("nonzero_with_count.src", on=NEW)
def _(bad):
    t = sb(16, 9, dt=nl.int32)
    nisa.nonzero_with_count(dst=t, src=x(16, 8, buffer=nl.psum if bad else nl.sbuf))
    return t[0:1, :], listed(v(1, 8)[0])


@book.breaks("nonzero_with_count.src", on=NEW)
def _(bad):
    t = sb(16, 9, dt=nl.int32)
    nisa.nonzero_with_count(dst=t, src=x(16, 8, dt=nl.bfloat16 if bad else nl.int32))
    return t[0:1, :], listed(v(1, 8)[0])


@book.breaks("nonzero_with_count.dst", on=NEW)
def _(bad):
    t = sb(16, 9, dt=nl.uint32 if bad else nl.int32)
    nisa.nonzero_with_count(dst=t, src=x(16, 8))
    return t[0:1, :], listed(v(1, 8)[0])


@book.breaks("nonzero_with_count.dst", on=NEW)
def _(bad):
    t = nl.ndarray((16, 9), dtype=nl.int32, buffer=nl.psum if bad else nl.sbuf)
    nisa.nonzero_with_count(dst=t, src=x(16, 8))
    return t[0:1, :], listed(v(1, 8)[0])


@book.breaks("nonzero_with_count.partition", on=NEW)
def _(bad):
    t = sb(32 if bad else 16, 9, dt=nl.int32)
    nisa.nonzero_with_count(dst=t, src=x(16, 8))
    return t[0:1, :], listed(v(1, 8)[0])


@book.breaks("nonzero_with_count.dst_plus_one", on=NEW)
def _(bad):
    t = sb(16, 8 if bad else 9, dt=nl.int32)
    nisa.nonzero_with_count(dst=t, src=x(16, 8))
    return t[0:1, :], listed(v(1, 8)[0])


@book.breaks("nonzero_with_count.int32_params", on=NEW)
def _(bad):
    t = sb(16, 9, dt=nl.int32)
    nisa.nonzero_with_count(dst=t, src=x(16, 8), padding_val=2**31 if bad else 2**24)
    return t[0:1, :], listed(v(1, 8)[0], padding=2**24)


@book.breaks("nonzero_with_count.int32_params", on=NEW)
def _(bad):
    t = sb(16, 9, dt=nl.int32)
    nisa.nonzero_with_count(dst=t, src=x(16, 8), index_offset=1.0 if bad else 1)
    return t[0:1, :], listed(v(1, 8)[0], 1)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
