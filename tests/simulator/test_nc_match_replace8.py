"""``nki.isa.nc_match_replace8``: values, positions, duplicates, limits."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays
from kernels import ld, ps, sb, st
from references import STORED, random, rounded, run, same
from rulebook import Book, hx, v, x

book = Book()


def replaced(data, vals, imm):
    """``(data with one place per value replaced, the places)``, the last value first."""
    out, places = np.array(data, np.float32).reshape(len(data), -1), np.full((len(data), 8), 0xFFFFFFFF, np.uint32)
    for p, row in enumerate(out.copy()):
        taken = set()
        for column in reversed(range(8)):
            value = np.float32(vals.reshape(len(vals), 8)[p, column])
            for i, d in enumerate(row):
                if d == value and i not in taken:
                    taken.add(i)
                    out[p, i], places[p, column] = imm, i
                    break
    return out.reshape(data.shape), places


def replace(data, vals, imm=0.0, dtype="float32", which=0):
    t, index = sb(*data.shape, dt=dtype), sb(data.shape[0], 8, dt=nl.uint32)
    nisa.nc_match_replace8(dst=t, data=ld(data), vals=ld(vals), imm=imm, dst_idx=index)
    return st(index if which else t)


few = arrays.arrays(np.float32, (4, 30), elements=some.sampled_from([0, -0.0, 1, 2, 3, -7.5, np.inf, -np.inf, np.nan]))


@given(data=few, vals=few, rows=some.integers(1, 4), n=some.integers(8, 30), imm=some.sampled_from([-np.inf, 2.0, 9.5, np.nan]))
@settings(max_examples=100, deadline=None)
def test_one_place_per_value(data, vals, rows, n, imm):
    data, vals = data[:rows, :n], vals[:rows, :8]
    for which, want in enumerate(replaced(data, vals, imm)):
        same(run(replace, data, vals, float(imm), which=which), want)


@pytest.mark.parametrize("dtype", STORED)
def test_every_dtype(dtype):
    data, vals = random((8, 3, 10), dtype), random((8, 2, 4), dtype)
    vals[:4] = data[:4, 1, :8].reshape(4, 2, 4)
    values, places = replaced(data, vals, 1.0)
    same(run(replace, data, vals, 1.0, dtype), rounded(values, dtype))
    same(run(replace, data, vals, 1.0, which=1), places)


def test_equal_values_take_their_places_in_falling_order():
    data = np.array([[1, 2, 3, 4, *[8] * 7]], np.float32)
    vals = np.array([[3, *[8] * 7]], np.float32)
    same(run(replace, data, vals, which=1), np.array([[2, 10, 9, 8, 7, 6, 5, 4]], np.uint32))


def test_repeated_in_place_it_sorts():
    def kernel(data, which):
        t, top, index = ld(data), sb(4, 24), sb(4, 24, dt=nl.uint32)
        for i in range(0, 24, 8):
            nisa.max8(dst=top[:, i : i + 8], src=t)
            nisa.nc_match_replace8(dst=t, data=t, vals=top[:, i : i + 8], imm=float("-inf"), dst_idx=index[:, i : i + 8])
        return st(index if which else top)

    data = random((4, 24))
    order = np.argsort(-data, axis=1)
    same(run(kernel, data, 1), order.astype(np.uint32))
    same(run(kernel, data, 0), np.take_along_axis(data, order, 1))


def test_views_in_psum_without_positions():
    def kernel(data, vals):
        p, t = ps(4, 3, 8), ps(4, 8, 3)
        nisa.tensor_copy(dst=p, src=ld(data), engine=nisa.engine.vector)
        nisa.nc_match_replace8(dst=t, data=p.permute((0, 2, 1)), vals=ld(vals), imm=-1)
        return st(t)

    data, vals = v(4, 3, 8), v(4, 8, at=1)
    same(run(kernel, data, vals), replaced(data.transpose(0, 2, 1), vals, -1)[0])


def test_a_size_that_only_its_sisters_forbid_is_reported():
    def kernel(vals):
        t = sb(2, 7)
        nisa.memset(dst=t, value=3.0)
        nisa.nc_match_replace8(dst=t, data=t, vals=ld(vals), imm=0.0)
        return st(t)

    with pytest.warns(nki_sim.NkiWarning, match="data has 7 elements per partition") as caught:
        got = nki_sim.run(kernel, np.full((2, 8), 3, np.float32)).result
    assert "nc_match_replace8.size_limit" in str(caught[0].message)
    assert (got == 0).all()


@book.breaks("nc_match_replace8.size_limit")
def _(bad):
    t, vals = sb(2, 16385 if bad else 16384), sb(2, 8)
    nisa.memset(dst=t, value=3.0)
    nisa.memset(dst=vals, value=4.0)
    nisa.nc_match_replace8(dst=t, data=t, vals=vals, imm=0.0)
    return t, 3


@book.breaks("nc_match_replace8.buffers")
def _(bad):
    t = sb(16, 20)
    nisa.nc_match_replace8(dst=t, data=hx(16, 20) if bad else x(16, 20), vals=x(16, 8, at=1), imm=9.0)
    return t, replaced(v(16, 20), v(16, 8, at=1), 9)[0]


@book.breaks("nc_match_replace8.shape")
def _(bad):
    t = sb(16, 5, 5 if bad else 4)
    nisa.nc_match_replace8(dst=t, data=x(16, 20), vals=x(16, 8, at=1), imm=9.0)
    return t, replaced(v(16, 5, 4), v(16, 8, at=1), 9)[0]


@book.breaks("nc_match_replace8.vals_8")
def _(bad):
    t = sb(16, 20)
    nisa.nc_match_replace8(dst=t, data=x(16, 20), vals=x(16, 7 if bad else 8, at=1), imm=9.0)
    return t, replaced(v(16, 20), v(16, 8, at=1), 9)[0]


@book.breaks("nc_match_replace8.imm_float")
def _(bad):
    t = sb(16, 20)
    nisa.nc_match_replace8(dst=t, data=x(16, 20), vals=x(16, 8, at=1), imm=x(16, 1) if bad else 9.0)
    return t, replaced(v(16, 20), v(16, 8, at=1), 9)[0]


@book.breaks("nc_match_replace8.dst_idx")
def _(bad):
    index = sb(16, 8, dt=nl.int32 if bad else nl.uint16)
    data, vals = sb(16, 20), sb(16, 8)
    nisa.memset(dst=data, value=3.0)
    nisa.memset(dst=vals, value=3.0)
    nisa.nc_match_replace8(dst=data, data=data, vals=vals, imm=9.0, dst_idx=index)
    return index, range(7, -1, -1)


@book.breaks("nc_match_replace8.dst_idx")
def _(bad):
    index = sb(16, 2, 4, dt=nl.uint32) if bad else sb(16, 8, dt=nl.uint32)
    data, vals = sb(16, 20), sb(16, 8)
    nisa.memset(dst=data, value=3.0)
    nisa.memset(dst=vals, value=3.0)
    nisa.nc_match_replace8(dst=data, data=data, vals=vals, imm=9.0, dst_idx=index)
    return index, range(7, -1, -1)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
