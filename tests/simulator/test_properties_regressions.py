"""What property tests have found, as plain tests."""

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from kernels import ld, ps, sb, st
from references import run, same


def test_a_tfloat32_tile_is_set_to_ten_bits_of_mantissa():
    def kernel():
        t = sb(2, 3, dt=nl.tfloat32)
        nisa.memset(dst=t, value=0.1)
        return st(t)

    same(run(kernel), np.full((2, 3), 0x3DCCC000, np.uint32).view(np.float32))


@pytest.mark.parametrize("compare", [nl.equal, nl.logical_and], ids=["equal", "logical_and"])
def test_the_second_stage_takes_what_a_comparison_gives_as_float32(compare):
    def kernel(x, op):
        t = sb(*x.shape)
        nisa.tensor_scalar(dst=t, data=ld(x), op0=compare, operand0=1.0, op1=op)
        return st(t)

    x = np.array([[1, 0, 1, 0]], np.float32)
    same(run(kernel, x, nl.reciprocal), np.array([[1, np.inf, 1, np.inf]], np.float32))
    same(run(kernel, x, nl.square, target="trn3"), x)


SCALARS = [(3.7, "int8", 4), (2.5, "uint8", 2), (300, "uint8", 255), (-1, "uint16", 0), (1e9, "int16", 32767),
           (16777217, "int32", 16777217)]  # fmt: skip


@pytest.mark.parametrize(("number", "dtype", "want"), SCALARS)
def test_a_scalar_that_is_copied_by_a_predicate_converts_as_everything_does(number, dtype, want):
    def kernel(predicate):
        t = nl.zeros((1, 2), dtype=dtype)
        nisa.tensor_copy_predicated(dst=t, src=number, predicate=ld(predicate))
        return st(t)

    same(run(kernel, np.array([[1, 0]], np.uint8)), np.array([[want, 0]], dtype))


def test_a_scalar_that_is_copied_to_tfloat32_has_ten_bits_of_mantissa():
    def kernel(predicate):
        t = nl.zeros((1, 2), dtype=nl.tfloat32)
        nisa.tensor_copy_predicated(dst=t, src=0.1, predicate=ld(predicate))
        return st(t)

    same(run(kernel, np.array([[1, 0]], np.uint8)), np.array([[0x3DCCC000, 0]], np.uint32).view(np.float32))


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16])
def test_on_trn1_the_tensor_engine_transposes_by_a_product(target, dtype):
    def kernel(x, on_vector):
        t, turned = sb(*x.shape, dt=dtype), ps(x.shape[1], x.shape[0], dt=dtype)
        nisa.tensor_copy(dst=t, src=ld(x))
        nisa.nc_transpose(dst=turned, data=t, engine=nisa.engine.vector if on_vector else nisa.engine.tensor)
        return st(turned)

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    x[1, 0], x[2, 1], x[3, 1] = np.inf, np.nan, 5
    want = x.T.copy()
    np.testing.assert_array_equal(run(kernel, x, True, target=target).astype(np.float32), want)
    if target == "trn1":
        want[0] = [np.nan, np.inf, np.nan, np.nan]
        want[1] = np.nan
    np.testing.assert_array_equal(run(kernel, x, False, target=target).astype(np.float32), want)


def test_segments_with_large_whole_numbers_stay_apart():
    def kernel(ids):
        t = sb(1, 2, 3, dt=nl.int32)
        nisa.sequence_bounds(dst=t, segment_ids=ld(ids))
        return st(t)

    got = run(kernel, np.array([[16777216, 16777217, 16777217]], np.int32))
    same(got, np.array([[[0, 1, 1], [1, 3, 3]]], np.int32))
