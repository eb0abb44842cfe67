"""``nki.isa.nc_n_gather``: values, limits."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, sb, st
from references import STORED, random, run, same
from rulebook import Book, v, x

book = Book()


def taken(data, index):
    """Element by element."""
    flat = data.reshape(len(data), -1)
    rows = [[flat[p, int(k)] for k in row] for p, row in enumerate(index.reshape(len(index), -1))]
    return np.array(rows, data.dtype).reshape(index.shape)


def gather(data, index):
    t = sb(*index.shape, dt=data.dtype)
    nisa.nc_n_gather(dst=t, data=ld(data), indices=ld(index))
    return st(t)


def indices(shape, high, seed=3):
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.uint32)


@given(rows=some.integers(1, 40), n=some.integers(1, 50), count=some.integers(1, 60), seed=some.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_each_partition_with_its_own_indices(rows, n, count, seed):
    data, index = random((rows, n), seed=seed), indices((rows, count), n, seed)
    same(run(gather, data, index), taken(data, index))


@pytest.mark.parametrize("dtype", STORED)
def test_every_dtype_bit_by_bit(dtype):
    data, index = random((32, 3, 7), dtype), indices((32, 2, 5), 21)
    same(run(gather, data, index), taken(data, index))


def test_views_and_in_place():
    def kernel(data, index):
        t = ld(data)
        nisa.nc_n_gather(dst=t[:, :, 1], data=t.permute((0, 2, 1)), indices=ld(index))
        return st(t)

    data, index = random((16, 4, 5)), indices((16, 4), 20)
    want = data.copy()
    want[:, :, 1] = taken(np.ascontiguousarray(data.transpose(0, 2, 1)), index)
    same(run(kernel, data, index), want)


@pytest.mark.parametrize("index", [8, 2**31, 2**32 - 1])
def test_an_index_out_of_range_stops_the_run(index):
    with pytest.raises(nki_sim.NkiValidationError, match=f"index {index} of 8 elements") as caught:
        nki_sim.run(gather, random((2, 8)), np.array([[0, 7], [index, 1]], np.uint32))
    assert caught.value.diagnosis.rule.id == "nc_n_gather.range"


def three(*shape, dt=nl.uint32):
    t = sb(*shape, dt=dt)
    nisa.memset(dst=t, value=3)
    return t


@book.breaks("nc_n_gather.buffers")
def _(bad):
    t = sb(16, 4)
    nisa.nc_n_gather(dst=t, data=x(16, 8, buffer=nl.psum if bad else nl.sbuf), indices=three(16, 4))
    return t, v(16, 8)[:, 3:4]


@book.breaks("nc_n_gather.partition")
def _(bad):
    t = sb(16, 4)
    nisa.nc_n_gather(dst=t, data=x(17 if bad else 16, 8), indices=three(16, 4))
    return t, v(16, 8)[:, 3:4]


@book.breaks("nc_n_gather.count")
def _(bad):
    t = sb(16, 2, 2)
    nisa.nc_n_gather(dst=t, data=x(16, 8), indices=three(16, 5 if bad else 4))
    return t, v(16, 8)[:, 3].reshape(16, 1, 1)


@book.breaks("nc_n_gather.dtype")
def _(bad):
    t = sb(16, 4, dt=nl.float32 if bad else nl.bfloat16)
    nisa.nc_n_gather(dst=t, data=x(16, 8, dt=nl.bfloat16), indices=three(16, 4))
    return t, v(16, 8)[:, 3:4]


@book.breaks("nc_n_gather.indices_u32")
def _(bad):
    t = sb(16, 4)
    nisa.nc_n_gather(dst=t, data=x(16, 8), indices=three(16, 4, dt=nl.int32 if bad else nl.uint32))
    return t, v(16, 8)[:, 3:4]


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
