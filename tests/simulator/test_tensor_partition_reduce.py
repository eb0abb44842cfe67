"""``nki.isa.tensor_partition_reduce``: values, bits, limits."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, sb, st
from references import INTEGERS, STORED, floats, random, rounded, run, same
from rulebook import Book, v, x

book = Book()


def folded(data, step):
    """Partition after partition."""
    total = data[0]
    for row in data[1:]:
        total = step(total, row)
    return total[None]


def reduced(data, op, dtype="float32"):
    t = sb(1, *data.shape[1:], dt=dtype)
    nisa.tensor_partition_reduce(dst=t, op=op, data=ld(data))
    return st(t)


@given(data=floats((40, 6)), rows=some.integers(1, 40), n=some.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_partition_after_partition(data, rows, n):
    data = data[:rows, :n]
    same(run(reduced, data, nl.add), folded(data, np.add))
    same(run(reduced, data, nl.maximum), folded(data, np.maximum))


def test_the_average_is_the_sum_over_the_partitions():
    data = random((37, 6))
    same(run(reduced, data, nl.average), folded(data, np.add) / np.float32(37))


def test_no_other_instruction_averages():
    def kernel(data):
        t = sb(*data.shape)
        nisa.tensor_tensor(dst=t, data1=ld(data), data2=ld(data), op=nl.average)

    def reduce(data):
        nisa.tensor_reduce(dst=sb(data.shape[0], 1), op=nl.average, data=ld(data), axis=(1,))

    for wrong in (kernel, reduce):
        with pytest.raises(nki_sim.NkiValidationError, match=r"nl\.average"):
            run(wrong, random((4, 5)))


@pytest.mark.parametrize("dtype", STORED)
def test_every_dtype(dtype):
    data = random((128, 3, 4), dtype, scale=1)
    want = folded(data.astype(np.float32), np.add)
    same(run(reduced, data, nl.add), want)
    same(run(reduced, data, nl.add, dtype), rounded(want, dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits(dtype):
    data = random((20, 6), dtype)
    same(run(reduced, data, nl.bitwise_and, dtype), folded(data, np.bitwise_and))
    same(run(reduced, data, nl.bitwise_or, dtype), folded(data, np.bitwise_or))


def test_nan_and_infinity_and_a_view():
    def kernel(data):
        t = sb(1, 3, 2)
        nisa.tensor_partition_reduce(dst=t, op=nl.maximum, data=ld(data).permute((0, 2, 1)))
        return st(t)

    data = random((64, 2, 3))
    data[3, 0, 1], data[4, 1, 1], data[5, 0, 0] = np.nan, np.inf, -np.inf
    same(run(kernel, data), folded(data.transpose(0, 2, 1), np.maximum))


@book.breaks("tensor_partition_reduce.engine")
def _(bad):
    t = sb(1, 8)
    nisa.tensor_partition_reduce(dst=t, op=nl.add, data=x(16, 8, buffer=nl.psum if bad else nl.sbuf))
    return t, v(16, 8).sum(0)


@book.breaks("tensor_partition_reduce.ops")
def _(bad):
    t = sb(1, 8)
    nisa.tensor_partition_reduce(dst=t, op=nl.minimum if bad else nl.maximum, data=x(16, 8))
    return t, v(16, 8).max(0)


@book.breaks("tensor_partition_reduce.dst")
def _(bad):
    t = sb(2, 8) if bad else sb(1, 8)
    nisa.tensor_partition_reduce(dst=t, op=nl.add, data=x(16, 8))
    return t, v(16, 8).sum(0)


@book.breaks("tensor_partition_reduce.dst")
def _(bad):
    t = sb(1, 9 if bad else 8)
    nisa.tensor_partition_reduce(dst=t, op=nl.add, data=x(16, 2, 4))
    return t, v(16, 8).sum(0)


@book.breaks("tensor_partition_reduce.bitvec_int")
def _(bad):
    t, data = sb(1, 8, dt=nl.int32), x(16, 8, dt=nl.float32 if bad else nl.int32)
    nisa.tensor_partition_reduce(dst=t, op=nl.bitwise_or, data=data)
    return t, np.bitwise_or.reduce(v(16, 8).astype(int), axis=0)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
