"""``nki.isa.tensor_scalar_cumulative``: values, chains, special values, limits."""

import operator

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, ps, sb, st
from nki.isa import reduce_cmd
from references import FLOATS, floats, random, rounded, run, same
from rulebook import Book, hx, v, x

book = Book()
OP0 = {nl.add: operator.add, nl.subtract: operator.sub, nl.multiply: operator.mul, nl.maximum: max, nl.less: operator.lt}
OP1 = {
    nl.add: (operator.add, 0), nl.subtract: (operator.sub, 0), nl.multiply: (operator.mul, 1),
    nl.maximum: (np.maximum, -np.inf), nl.minimum: (np.minimum, np.inf),
}  # fmt: skip
SMALL = ("uint8", "uint16", "int8", "int16")


def scanned(data, op0, op1, imm0, first=None):
    """Element by element, each step rounded to float32."""
    out = np.empty(data.shape, np.float32).reshape(len(data), -1)
    fold, neutral = OP1[op1]
    for p, row in enumerate(np.asarray(data, np.float32).reshape(len(data), -1)):
        reg = np.float32(neutral if first is None else first[p])
        for i, value in enumerate(row):
            reg = out[p, i] = np.float32(fold(np.float32(OP0[op0](value, np.float32(imm0[p]))), reg))
    return out.reshape(data.shape)


def scan(data, op0, op1, imm0, imm1=None, dtype="float32", **more):
    t = sb(*data.shape, dt=dtype)
    made = [ld(i) if hasattr(i, "buffer") else i for i in (imm0, imm1)]
    command = reduce_cmd.reset_reduce if imm1 is None else reduce_cmd.load_reduce
    nisa.tensor_scalar_cumulative(dst=t, src=ld(data), op0=op0, op1=op1, imm0=made[0], imm1=made[1], reduce_cmd=command)
    return st(t)


@given(data=floats((3, 17), -4, 4), rows=some.integers(1, 3), n=some.integers(1, 17), op0=some.sampled_from(list(OP0)),
       op1=some.sampled_from(list(OP1)), imm0=floats((3, 1), -3, 3), first=some.none() | floats((3, 1), -9, 9))  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_element_by_element(data, rows, n, op0, op1, imm0, first):
    data, imm0 = data[:rows, :n], imm0[:rows]
    first = None if first is None else first[:rows]
    want = scanned(data, op0, op1, imm0[:, 0], None if first is None else first[:, 0])
    same(run(scan, data, op0, op1, imm0, first), want)


@pytest.mark.parametrize("dtype", [*FLOATS, *SMALL])
def test_every_dtype_in_and_out(dtype):
    data = random((3, 2, 5), dtype, scale=1)
    want = scanned(data, nl.add, nl.maximum, [1.5] * 3)
    same(run(scan, data, nl.add, nl.maximum, 1.5), want)
    same(run(scan, data, nl.add, nl.maximum, 1.5, dtype=dtype), rounded(want, dtype))


def test_the_register_keeps_float32_between_the_elements():
    data = np.full((2, 8), 0.25, np.float32)
    got = run(scan, data, nl.add, nl.add, 0.0, dtype="int8")
    same(got, np.tile(np.array([0, 0, 1, 1, 1, 2, 2, 2], np.int8), (2, 1)))


def test_a_chain_goes_on_where_it_stopped():
    def kernel(data, first):
        t = sb(4, 24)
        for i in range(3):
            part, command = slice(8 * i, 8 * i + 8), reduce_cmd.reduce if i else reduce_cmd.load_reduce
            imm1 = None if i else ld(first)
            nisa.tensor_scalar_cumulative(t[:, part], ld(data[:, part]), nl.multiply, nl.subtract, 2.0, imm1, command)
        return st(t)

    data, first = random((4, 24)), random((4, 1), seed=1)
    same(run(kernel, data, first), scanned(data, nl.multiply, nl.subtract, [2] * 4, first[:, 0]))


def test_nan_and_infinity_stay():
    data = np.array([[1, np.inf, 2, -np.inf, 3], [1, np.nan, 2, 3, 4]], np.float32)
    with np.errstate(invalid="ignore"):
        for op in (nl.add, nl.maximum, nl.multiply):
            same(run(scan, data, nl.add, op, 0.0), scanned(data, nl.add, op, [0, 0]))


def test_views_of_psum_in_the_upper_rows():
    def kernel(data):
        p, t = ps(128, 5, 4), sb(128, 4, 5)
        nisa.tensor_copy(dst=p[96:104, :, :], src=ld(data), engine=nisa.engine.vector)
        nisa.tensor_scalar_cumulative(t[96:104], p[96:104].permute((0, 2, 1)), nl.add, nl.add, 1.0)
        return st(t[96:104])

    data = random((8, 5, 4))
    same(run(kernel, data), scanned(data.transpose(0, 2, 1), nl.add, nl.add, [1] * 8))


SUMS = np.cumsum(v(16, 8) + 1, axis=1)


@book.breaks("tensor_scalar_cumulative.buffers")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar_cumulative(dst=t, src=hx(16, 8) if bad else x(16, 8), op0=nl.add, op1=nl.add, imm0=1.0)
    return t, SUMS


@book.breaks("tensor_scalar_cumulative.op0")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8), op0=nl.bitwise_or if bad else nl.add, op1=nl.add, imm0=1.0)
    return t, SUMS


@book.breaks("tensor_scalar_cumulative.op0", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8), op0=nl.abs_max if bad else nl.maximum, op1=nl.add, imm0=0.0)
    return t, np.cumsum(v(16, 8), axis=1)


@book.breaks("tensor_scalar_cumulative.op1")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8), op0=nl.add, op1=nl.logical_or if bad else nl.add, imm0=1.0)
    return t, SUMS


@book.breaks("tensor_scalar_cumulative.shape")
def _(bad):
    t = sb(16, 9 if bad else 8)
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 2, 4), op0=nl.add, op1=nl.add, imm0=1.0)
    return t, SUMS


@book.breaks("tensor_scalar_cumulative.dtypes")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8, dt=nl.int32 if bad else nl.int16), op0=nl.add, op1=nl.add, imm0=1.0)
    return t, SUMS


@book.breaks("tensor_scalar_cumulative.dtypes")
def _(bad):
    t = sb(16, 8, dt=nl.uint32 if bad else nl.uint16)
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8), op0=nl.add, op1=nl.add, imm0=1.0)
    return t, SUMS


@book.breaks("tensor_scalar_cumulative.imm_shape")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8), op0=nl.add, op1=nl.add, imm0=x(16, 2 if bad else 1, at=1))
    return t, np.cumsum(v(16, 8) + v(16, 1, at=1), axis=1)


@book.breaks("tensor_scalar_cumulative.imm_fp32")
def _(bad):
    t = sb(16, 8)
    imm0 = x(16, 1, at=1, dt=nl.bfloat16 if bad else nl.float32)
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8), op0=nl.add, op1=nl.add, imm0=imm0)
    return t, np.cumsum(v(16, 8) + v(16, 1, at=1), axis=1)


@book.breaks("tensor_scalar_cumulative.reduce_cmd")
def _(bad):
    t, command = sb(16, 8), reduce_cmd.idle if bad else reduce_cmd.reset_reduce
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8), op0=nl.add, op1=nl.add, imm0=1.0, reduce_cmd=command)
    return t, SUMS


@book.breaks("tensor_scalar_cumulative.reduce_cmd")
def _(bad):
    t, command = sb(16, 8), reduce_cmd.reset_reduce if bad else reduce_cmd.load_reduce
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8), op0=nl.add, op1=nl.add, imm0=1.0, imm1=5.0, reduce_cmd=command)
    return t, SUMS + 5


@book.breaks("tensor_scalar_cumulative.reduce_cmd")
def _(bad):
    t, imm1 = sb(16, 8), None if bad else 5.0
    nisa.tensor_scalar_cumulative(
        dst=t, src=x(16, 8), op0=nl.add, op1=nl.add, imm0=1.0, imm1=imm1, reduce_cmd=reduce_cmd.load_reduce
    )
    return t, SUMS + 5


@book.breaks("vector.accumulator_idle_dirty")
def _(bad):
    t, command = sb(16, 8), reduce_cmd.reduce if bad else reduce_cmd.reset_reduce
    nisa.tensor_scalar_cumulative(dst=t, src=x(16, 8), op0=nl.add, op1=nl.add, imm0=1.0, reduce_cmd=command)
    return t, SUMS


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
