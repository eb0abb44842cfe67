"""``nki.isa.local_gather``: values, layout of the indices, limits."""

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


def taken(data, index, e=1, valid=None):
    """Element by element."""
    flat = data.reshape(len(data), -1)
    valid = index.shape[1] * 16 if valid is None else valid
    out = np.empty((len(data), valid * e), data.dtype)
    for p in range(len(data)):
        for i in range(valid):
            start = int(index[p // 16 * 16 + i % 16, i // 16])
            for j in range(e):
                out[p, i * e + j] = flat[p, start + j]
    return out


def gather(data, index, e=1, valid=None):
    count = index.shape[1] * 16 if valid is None else valid
    t = sb(data.shape[0], count * e, dt=data.dtype)
    nisa.local_gather(dst=t, src_buffer=ld(data), index=ld(index), num_elem_per_idx=e, num_valid_indices=valid)
    return st(t)


def indices(rows, columns, high, seed=3):
    return np.random.default_rng(seed).integers(0, high, (rows, columns)).astype(np.uint16)


@given(cores=some.integers(1, 8), columns=some.integers(1, 4), e=some.sampled_from([1, 2, 4, 8, 16, 32]),
       spare=some.none() | some.integers(0, 15), seed=some.integers(0, 99))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_each_core_with_its_own_indices(cores, columns, e, spare, seed):
    data, index = random((16 * cores, 70), seed=seed), indices(16 * cores, columns, 70 - e + 1, seed)
    valid = None if spare is None else 16 * columns - spare
    same(run(gather, data, index, e, valid), taken(data, index, e, valid))


@pytest.mark.parametrize("dtype", STORED)
def test_every_dtype_bit_by_bit(dtype):
    data, index = random((32, 3, 7), dtype), indices(32, 2, 20)
    same(run(gather, data, index, 2), taken(data, index, 2))


def test_a_view_of_dst_and_of_src():
    def kernel(data, index):
        t = sb(16, 20, 16)
        nisa.memset(dst=t, value=5.0)
        nisa.local_gather(dst=t[:, 3:5, :], src_buffer=ld(data).permute((0, 2, 1)), index=ld(index))
        return st(t)

    data, index = random((16, 4, 5)), indices(16, 2, 20)
    got = run(kernel, data, index)
    same(got[:, 3:5].reshape(16, 32), taken(np.ascontiguousarray(data.transpose(0, 2, 1)), index))
    assert (np.delete(got, [3, 4], axis=1) == 5).all()


def test_an_index_out_of_bounds_is_reported_and_reads_as_never_written():
    data, index = random((16, 8)), indices(16, 1, 8)
    index[3] = 7
    index[5] = 8
    with pytest.warns(nki_sim.NkiWarning, match="index 8 of 8 elements") as caught:
        got = nki_sim.run(gather, data, index).result
    assert "local_gather.oob_ub" in str(caught[0].message)
    assert np.isnan(got[:, 5]).all()
    assert not np.isnan(np.delete(got, 5, axis=1)).any()
    with pytest.raises(nki_sim.NkiValidationError):  # the last index is right, the element after it is not
        run(gather, data, np.full_like(index, 7), 2)


def same_index(columns, dt=nl.uint16, rows=16):
    """Indices 3 everywhere."""
    t = sb(rows, columns, dt=dt)
    nisa.memset(dst=t, value=3)
    return t


@book.breaks("local_gather.engine")
def _(bad):
    t = sb(16, 16)
    nisa.local_gather(dst=t, src_buffer=x(16, 8, buffer=nl.psum if bad else nl.sbuf), index=same_index(1))
    return t, v(16, 8)[:, 3:4]


@book.breaks("local_gather.partition_mult_16")
def _(bad):
    rows = 24 if bad else 32
    t = sb(rows, 16)
    nisa.local_gather(dst=t, src_buffer=x(rows, 8), index=same_index(1, rows=rows))
    return t, v(rows, 8)[:, 3:4]


@book.breaks("local_gather.partition_mult_16")
def _(bad):
    t = sb(32, 16)
    nisa.local_gather(dst=t, src_buffer=x(32, 8), index=same_index(1, rows=16 if bad else 32))
    return t, v(32, 8)[:, 3:4]


@book.breaks("local_gather.num_elem_per_idx")
def _(bad):
    e = 3 if bad else 2
    t = sb(16, 16 * e)
    nisa.local_gather(dst=t, src_buffer=x(16, 8), index=same_index(1), num_elem_per_idx=e)
    return t, np.tile(v(16, 8)[:, 3:5], 16)


@book.breaks("local_gather.indices_per_core")
def _(bad):
    columns = 257 if bad else 256
    t = sb(16, 16 * columns)
    nisa.local_gather(dst=t, src_buffer=x(16, 8), index=same_index(columns))
    return t, v(16, 8)[:, 3:4]


@book.breaks("local_gather.index_dtype")
def _(bad):
    t = sb(16, 16)
    nisa.local_gather(dst=t, src_buffer=x(16, 8), index=same_index(1, dt=nl.uint32 if bad else nl.uint16))
    return t, v(16, 8)[:, 3:4]


@book.breaks("local_gather.no_cast")
def _(bad):
    t = sb(16, 16, dt=nl.bfloat16)
    nisa.local_gather(dst=t, src_buffer=x(16, 8, dt=nl.float32 if bad else nl.bfloat16), index=same_index(1))
    return t, v(16, 8)[:, 3:4]


@book.breaks("local_gather.num_valid")
def _(bad):
    valid = 17 if bad else 16
    t = sb(16, valid)
    nisa.local_gather(dst=t, src_buffer=x(16, 8), index=same_index(1), num_valid_indices=valid)
    return t, v(16, 8)[:, 3:4]


@book.breaks("local_gather.known_issue")
def _(bad):
    t = sb(16, 16 if bad else 32)
    nisa.local_gather(dst=t, src_buffer=x(16, 8), index=same_index(1), num_elem_per_idx=2)
    return t, np.tile(v(16, 8)[:, 3:5], 16)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
