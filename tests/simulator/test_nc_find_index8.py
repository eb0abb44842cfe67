"""``nki.isa.nc_find_index8``: positions, duplicates, what is not there, limits."""

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays
from kernels import ld, ps, sb, st
from references import STORED, random, run, same
from rulebook import Book, hx, v, x

book = Book()
NOWHERE = {"uint16": 0xFFFF, "uint32": 0xFFFFFFFF}


def positions(data, vals, dtype="uint32"):
    """For each value in turn the first place that holds it and was not taken."""
    out = []
    for row, wanted in zip(data.reshape(len(data), -1), vals.reshape(len(vals), -1), strict=True):
        taken, found = set(), []
        for value in wanted:
            here = [i for i, d in enumerate(row) if np.float32(d) == np.float32(value) and i not in taken]
            taken.update(here[:1])
            found.append(here[0] if here else NOWHERE[dtype])
        out.append(found)
    return np.array(out, STORED[dtype])


def found(data, vals, dtype="uint32"):
    t = sb(data.shape[0], 8, dt=dtype)
    nisa.nc_find_index8(dst=t, data=ld(data), vals=ld(vals))
    return st(t)


few = arrays.arrays(np.float32, (4, 30), elements=some.sampled_from([0, -0.0, 1, 2, 3, -7.5, np.inf, -np.inf, np.nan]))


@given(data=few, vals=few, rows=some.integers(1, 4), n=some.integers(8, 30), dtype=some.sampled_from(list(NOWHERE)))
@settings(max_examples=100, deadline=None)
def test_first_places_that_are_left(data, vals, rows, n, dtype):
    data, vals = data[:rows, :n], vals[:rows, :8]
    same(run(found, data, vals, dtype), positions(data, vals, dtype))


@pytest.mark.parametrize("dtype", STORED)
def test_every_dtype(dtype):
    data, vals = random((8, 3, 10), dtype), random((8, 2, 4), dtype)
    vals[:4] = data[:4, 1, :8].reshape(4, 2, 4)
    same(run(found, data, vals), positions(data, vals))


def test_the_largest_eight_are_found_where_they_are():
    def kernel(data):
        top, t = sb(16, 8), sb(16, 8, dt=nl.uint16)
        nisa.max8(dst=top, src=ld(data))
        nisa.nc_find_index8(dst=t, data=ld(data), vals=top)
        return st(t)

    data = random((16, 300))
    got = run(kernel, data)
    same(got, np.argsort(-data, axis=1, kind="stable")[:, :8].astype(np.uint16))


def test_one_value_repeated_by_a_stride_of_zero():
    def kernel(data):
        one, t = sb(3, 1), sb(3, 8, dt=nl.uint32)
        p = ps(3, 12)
        nisa.memset(dst=one, value=8.0)
        nisa.tensor_copy(dst=p, src=ld(data), engine=nisa.engine.vector)
        nisa.nc_find_index8(dst=t, data=p, vals=one.broadcast(1, 8))
        return st(t)

    data = np.tile(np.array([1, 8, 8, 8] * 3, np.float32), (3, 1))
    same(run(kernel, data), np.tile(np.array([1, 2, 3, 5, 6, 7, 9, 10], np.uint32), (3, 1)))


@book.breaks("nc_find_index8.buffers")
def _(bad):
    t = sb(16, 8, dt=nl.uint16)
    nisa.nc_find_index8(dst=t, data=hx(16, 20) if bad else x(16, 20), vals=x(16, 8, at=1))
    return t, positions(v(16, 20), v(16, 8, at=1), "uint16")


@book.breaks("nc_find_index8.rank")
def _(bad):
    t = sb(16, 8, dt=nl.uint16)
    nisa.nc_find_index8(dst=t, data=x(16, 2, 5, 2) if bad else x(16, 2, 10), vals=x(16, 8, at=1))
    return t, positions(v(16, 20), v(16, 8, at=1), "uint16")


@book.breaks("nc_find_index8.rank")
def _(bad):
    t = sb(16, 8, dt=nl.uint16)
    nisa.nc_find_index8(dst=t, data=x(16, 20), vals=x(16, 2, 2, 2, at=1) if bad else x(16, 2, 4, at=1))
    return t, positions(v(16, 20), v(16, 8, at=1), "uint16")


@book.breaks("nc_find_index8.data_8_16384")
def _(bad):
    t = sb(16, 8, dt=nl.uint16)
    nisa.nc_find_index8(dst=t, data=x(16, 8)[:, 0:7] if bad else x(16, 8), vals=x(16, 8, at=1))
    return t, positions(v(16, 8), v(16, 8, at=1), "uint16")


@book.breaks("nc_find_index8.data_8_16384")
def _(bad):
    t, data, vals = sb(2, 8, dt=nl.uint16), sb(2, 16385), sb(2, 8)
    nisa.memset(dst=data, value=3.0)
    nisa.memset(dst=vals, value=3.0)
    nisa.nc_find_index8(dst=t, data=data if bad else data[:, 0:16384], vals=vals)
    return t, range(8)


@book.breaks("nc_find_index8.vals_8")
def _(bad):
    t = sb(16, 8, dt=nl.uint16)
    nisa.nc_find_index8(dst=t, data=x(16, 20), vals=x(16, 9, at=1) if bad else x(16, 8, at=1))
    return t, positions(v(16, 20), v(16, 8, at=1), "uint16")


@book.breaks("nc_find_index8.vals_8")
def _(bad):
    t = sb(16, 8, dt=nl.uint16)
    nisa.nc_find_index8(dst=t, data=x(16, 20), vals=x(1 if bad else 16, 8, at=1))
    return t, positions(v(16, 20), v(16, 8, at=1), "uint16")


@book.breaks("nc_find_index8.dst")
def _(bad):
    t = sb(16, 8, dt=nl.int32 if bad else nl.uint16)
    nisa.nc_find_index8(dst=t, data=x(16, 20), vals=x(16, 8, at=1))
    return t, positions(v(16, 20), v(16, 8, at=1), "uint16")


@book.breaks("nc_find_index8.dst")
def _(bad):
    t = sb(16, 2, 4, dt=nl.uint16) if bad else sb(16, 8, dt=nl.uint16)
    nisa.nc_find_index8(dst=t, data=x(16, 20), vals=x(16, 8, at=1))
    return t, positions(v(16, 20), v(16, 8, at=1), "uint16")


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
