"""``nki.isa.max8``: values, special values, limits."""

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import copied, ld, ps, sb, st
from references import STORED, floats, random, rounded, run, same
from rulebook import Book, hx, v, x

book = Book()


def largest(rows):
    """The eight largest of each row, by taking the maximum eight times."""
    out = []
    for row in np.asarray(rows, np.float32).reshape(len(rows), -1):
        left, found = list(row), []
        for _ in range(8):
            at = max(range(len(left)), key=lambda i: (np.isnan(left[i]), left[i]))
            found.append(left.pop(at))
        out.append(found)
    return np.array(out, np.float32)


def top(data, dtype="float32"):
    t = sb(data.shape[0], 8, dt=dtype)
    nisa.max8(dst=t, src=ld(data))
    return st(t)


@given(data=floats((5, 40)), rows=some.integers(1, 5), n=some.integers(8, 40))
@settings(max_examples=60, deadline=None)
def test_eight_largest(data, rows, n):
    data = data[:rows, :n]
    same(run(top, data), largest(data))


@pytest.mark.parametrize("dtype", STORED)
def test_every_dtype_in_and_out(dtype):
    data = random((16, 3, 10), dtype)
    same(run(top, data), largest(data))
    same(run(top, random((16, 30)), dtype), rounded(largest(random((16, 30))), dtype))


def test_duplicates_are_counted_and_nan_comes_first():
    data = np.array([[3, 9, 9, -np.inf, 3, np.inf, 1, 9, 0, -0.5], [np.nan, *range(9)]], np.float32)
    want = [[np.inf, 9, 9, 9, 3, 3, 1, 0], [np.nan, 8, 7, 6, 5, 4, 3, 2]]
    same(run(top, data), np.array(want, np.float32))


def test_a_view_in_psum_and_a_slice_of_dst():
    def kernel(data):
        t, p = sb(4, 20), ps(4, 5, 8)
        nisa.memset(dst=t, value=-1.0)
        nisa.tensor_copy(dst=p, src=ld(data), engine=nisa.engine.vector)
        nisa.max8(dst=t[:, 6:14], src=p.permute((0, 2, 1))[:, 1:7, :])
        return st(copied(t))

    data = random((4, 5, 8))
    got = run(kernel, data)
    same(got[:, 6:14], largest(data[:, :, 1:7]))
    assert (got[:, :6] == -1).all()
    assert (got[:, 14:] == -1).all()


@book.breaks("max8.buffers")
def _(bad):
    t = sb(16, 8)
    nisa.max8(dst=t, src=hx(16, 20) if bad else x(16, 20))
    return t, largest(v(16, 20))


@book.breaks("max8.src_rank")
def _(bad):
    t = sb(16, 8)
    nisa.max8(dst=t, src=x(16, 2, 5, 2) if bad else x(16, 2, 10))
    return t, largest(v(16, 20))


@book.breaks("max8.free_8_16384")
def _(bad):
    t = sb(16, 8)
    nisa.max8(dst=t, src=x(16, 8)[:, 0:7] if bad else x(16, 8))
    return t, largest(v(16, 8))


@book.breaks("max8.free_8_16384")
def _(bad):
    t, data = sb(2, 8), sb(2, 16385)
    nisa.memset(dst=data, value=3.0)
    nisa.max8(dst=t, src=data if bad else data[:, 0:16384])
    return t, 3


@book.breaks("max8.dst_8")
def _(bad):
    t = sb(16, 9 if bad else 8)
    nisa.max8(dst=t, src=x(16, 20))
    return t, largest(v(16, 20))


@book.breaks("max8.dst_8")
def _(bad):
    t = sb(16, 2, 4) if bad else sb(16, 8)
    nisa.max8(dst=t, src=x(16, 20))
    return t, largest(v(16, 20))


@book.breaks("max8.dst_8")
def _(bad):
    t = sb(16, 8)
    nisa.max8(dst=t, src=x(17 if bad else 16, 20, dt=nl.bfloat16))
    return t, largest(v(16, 20))


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
