"""What people ran into, as small kernels: the right value, or an error whose words name the limit.

From public issues, forum threads, course repositories and release notes. The numbers are those of our list of reported
problems; each kernel is our own.
"""

import warnings

import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from kernels import TARGETS, hb, ld, ps, sb, st
from ml_dtypes import bfloat16
from nki_sim import NkiError, NkiValidationError, NkiWarning
from nki_sim.lint import lint

RNG = np.random.default_rng(11)


def rand(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def says(kernel, *args, target="trn2", error=NkiValidationError):
    """The text of the error that a kernel must raise."""
    with pytest.raises(error) as caught:
        nki_sim.run(kernel, *args, target=target)
    assert caught.value.diagnosis.line is not None
    return str(caught.value)


def result(kernel, *args, **how):
    return nki_sim.run(kernel, *args, **how).result


def warned(kernel, *args, **how):
    """The result of a kernel, and the warnings of ours that it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = result(kernel, *args, **how)
    assert all(issubclass(w.category, NkiWarning) for w in caught)
    return got, [w.message for w in caught]


# --- shapes, slices, partitions --------------------------------------------------------------------------------------


@nki.jit
def k1(lhs_t):
    t = sb(128, 512)  # should be (128, 128)
    nisa.dma_copy(dst=t, src=lhs_t[0:128, 0:128])
    return st(t)


def test_1_a_copy_of_part_of_a_tensor_into_a_larger_tile():
    text = says(k1, rand(128, 1024))
    assert "src=16384" in text and "dst=65536" in text
    assert "(128, 128)" in text and "(128, 512)" in text


@nki.jit
def k2(a):
    return st(ld(a))


def test_2_more_than_128_partitions():
    text = says(k2, rand(256, 64))
    assert "256" in text and "128" in text and "loop" in text
    a = rand(128, 64)
    np.testing.assert_array_equal(result(k2, a), a)


@nki.jit
def k4(a):
    t = sb(128, 64)
    nisa.dma_copy(dst=t, src=a[0:128, 0:64])
    return st(t)


def test_4_a_slice_past_the_end_is_not_clipped():
    text = says(k4, rand(32, 64))
    assert "out-of-bound" in text and "index 127" in text and "size 32" in text


@nki.jit
def k6(v, right):
    t = sb(128, 64)
    big = sb(128, 4, 64) if right else sb(4, 128, 64)
    nisa.dma_copy(dst=big, src=v.permute((1, 0, 2)) if right else v)
    nisa.tensor_copy(dst=t, src=big[:, 2, :] if right else big[2, :, :])
    return st(t)


def test_6_an_index_on_the_partition_axis_keeps_it():
    v = rand(4, 128, 64)
    text = says(k6, v, False)
    assert "tensor_copy" in text and "dst 128, src 1" in text
    np.testing.assert_array_equal(result(k6, v, True), v[2])


@nki.jit
def k8(a, width):
    return st(ld(a).reshape((128, width)))


def test_8_reshape_keeps_the_number_of_elements():
    text = says(k8, rand(128, 512), 500, error=AssertionError)
    assert "65536" in text and "64000" in text
    a = rand(128, 512)
    np.testing.assert_array_equal(result(k8, a, 512), a)


@nki.jit
def k9(a, how):
    t, u = ld(a), sb(64, 64)
    nisa.memset(dst=u, value=0.0)
    if how == "engine":
        nisa.tensor_copy(dst=u[0:2, :], src=t[1:3, :])
    elif how == "dma":
        nisa.dma_copy(dst=u[0:2, :], src=t[1:3, :])
    elif how == "half":
        nisa.tensor_copy(dst=u, src=t[32:96, :])
    return st(u)


@pytest.mark.parametrize("target", TARGETS)
def test_9_an_engine_access_starts_at_a_quadrant(target):
    a = rand(128, 64)
    text = says(k9, a, "engine", target=target)
    assert "starts at partition 1" in text and "0/32/64/96" in text
    assert "0/64" in says(k9, a, "half", target=target)
    got = result(k9, a, "dma", target=target)
    np.testing.assert_array_equal(got[:2], a[1:3])
    assert not got[2:].any()


@nki.jit
def k11(a, axis, n):
    s = sb(128, n)
    nisa.tensor_reduce(dst=s, op=nl.add, data=ld(a), axis=axis)
    return st(s)


def test_11_the_axis_of_tensor_reduce_is_absolute_and_last():
    a = rand(128, 4, 8)
    np.testing.assert_allclose(result(k11, a, (2,), 4), a.sum(2), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result(k11, a, (1, 2), 1)[:, 0], a.sum((1, 2)), rtol=1e-5, atol=1e-5)
    assert "axis must be the last contiguous dim(s) of the tile" in says(k11, a, (1,), 8)
    text = says(k11, a, (0,), 1)
    assert "nc_matmul" in text and "ones" in text and "transpose" in text


@nki.jit
def k13(x, w):
    r = sb(128, 256)
    nisa.tensor_tensor(dst=r, data1=ld(x), data2=ld(w), op=nl.multiply)
    return st(r)


def test_13_an_element_wise_product_does_not_cross_partitions():
    text = says(k13, rand(64, 256), rand(128, 64))
    assert "data1 64" in text and "data2 128" in text and "dst 128" in text
    assert "nc_matmul" in text and "contracts" in text


# --- matmul, transpose, PSUM -----------------------------------------------------------------------------------------


@nki.jit
def k14(lhs_t, rhs, m, n):
    p = ps(m, n)
    nisa.nc_matmul(dst=p, stationary=ld(lhs_t), moving=ld(rhs))
    return st(p)


@pytest.mark.parametrize("target", TARGETS)
def test_14_stationary_columns_come_out_on_partitions(target):
    a, b = rand(128, 64), rand(128, 512)
    np.testing.assert_allclose(result(k14, a, b, 64, 512, target=target), a.T @ b, rtol=1e-4, atol=1e-4)
    says(k14, a, b, 512, 64, target=target)
    assert "[128, 64]" in says(k14, rand(128, 128), rand(128, 64), 64, 128, target=target)


@nki.jit
def k15(a, b):
    p = ps(128, 256)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=b)
    return st(p)


@nki.jit
def k15_tall(a, b):
    p = ps(128, 256)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
    return st(p)


@nki.jit
def k15_both_fit(a, b):
    p = ps(96, 96)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
    return st(p)


def test_15_the_contraction_lies_on_the_partition_axis_of_both():
    assert "512" in says(k15_tall, rand(128, 512), rand(512, 256))
    assert "moving is in HBM" in says(k15, rand(128, 128), rand(512, 256))
    text = says(k15_both_fit, rand(64, 96), rand(96, 96))
    assert "the contraction lies on the partition axis of both" in text
    assert "stationary 64" in text and "moving 96" in text


@nki.jit
def k17(a_t, b):
    p = ps(128, 128)
    nisa.nc_matmul(dst=p, stationary=ld(b), moving=ld(a_t))
    return st(p)


def test_17_swapped_operands_give_the_transpose():
    a_t, b = rand(128, 128), rand(128, 128)
    got = result(k17, a_t, b)
    np.testing.assert_allclose(got, (a_t.T @ b).T, rtol=1e-4, atol=1e-4)
    assert np.abs(got - a_t.T @ b).max() > 1


@nki.jit
def k18(a, b):
    r = sb(64, 512)
    nisa.nc_matmul(dst=r, stationary=ld(a), moving=ld(b))
    return st(r)


def test_18_a_matmul_writes_psum():
    text = says(k18, rand(128, 64), rand(128, 512))
    assert "dst is in SBUF" in text and "buffer=nl.psum" in text


@nki.jit
def k20(a):
    t = sb(128, 128)
    nisa.nc_transpose(dst=t, data=ld(a))
    return st(t)


@nki.jit
def k20_right(a):
    out = hb(512, 128)
    t = ld(a)
    for i in range(4):
        p = ps(128, 128)
        nisa.nc_transpose(dst=p, data=t[:, i * 128 : (i + 1) * 128])
        o = sb(128, 128)
        nisa.tensor_copy(dst=o, src=p)
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, :], src=o)
    return out


def test_20_a_transpose_is_128_by_128_at_most():
    a = rand(128, 512)
    assert "32" in says(k20, a)
    np.testing.assert_array_equal(result(k20_right, a), a.T)


@nki.jit
def k22(bias, a, b):
    p = ps(64, 512)
    nisa.tensor_copy(dst=p, src=ld(bias))
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b), accumulate=True)
    return st(p)


@nki.jit
def k22_zeros(a, b):
    p = nl.zeros((64, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b), accumulate=True)
    return st(p)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_22_psum_that_another_engine_initialised(target):
    bias, a, b = rand(64, 512), rand(128, 64), rand(128, 512)
    got, found = warned(k22, bias, a, b, target=target)
    assert np.isnan(got).all()
    assert [w.diagnosis.rule.id for w in found] == ["nc_matmul.accumulate.non_matmul_init_ub"]
    assert "accumulate=True" in found[0].diagnosis.site.text
    with pytest.raises(NkiValidationError, match="another engine initialised"):
        nki_sim.run(k22, bias, a, b, target=target, strict=True)


def test_22_public_kernels_that_add_to_zeros_run_with_a_warning():
    a, b = rand(128, 64), rand(128, 512)
    got, found = warned(k22_zeros, a, b)
    np.testing.assert_allclose(got, a.T @ b, rtol=1e-4, atol=1e-4)
    assert [w.diagnosis.rule.id for w in found] == ["nc_matmul.accumulate.non_matmul_init_ub"]


def test_22_trn3_defines_it():
    bias, a, b = rand(64, 512), rand(128, 64), rand(128, 512)
    got, found = warned(k22, bias, a, b, target="trn3")
    np.testing.assert_allclose(got, bias + a.T @ b, rtol=1e-4, atol=1e-4)
    assert found == []


@nki.jit
def k25(a, b):
    p = ps(64, 512)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
    out = hb(64, 512)
    nisa.dma_copy(dst=out, src=p)
    return out


@nki.jit
def k25_store(a, b):
    p = ps(64, 512)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
    out = hb(64, 512)
    nl.store(out, p)
    return out


@pytest.mark.parametrize("kernel", [k25, k25_store])
def test_25_psum_does_not_go_straight_to_hbm(kernel):
    text = says(kernel, rand(128, 64), rand(128, 512))
    assert "PSUM" in text and "tensor_copy" in text


@nki.jit
def k26(a, b):
    p = ps(64, 512)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
    c = nl.copy(p)
    assert c.buffer is nl.sbuf
    nisa.memset(dst=p, value=0.0)
    return st(c)


def test_26_nl_copy_is_a_copy():
    a, b = rand(128, 64), rand(128, 512)
    np.testing.assert_allclose(result(k26, a, b), a.T @ b, rtol=1e-4, atol=1e-4)


@nki.jit
def k28(a, b):
    p = ps(64, 512, dt=nl.bfloat16)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
    return st(p)


def test_28_a_bfloat16_psum_tile():
    a, b = rand(128, 64, dtype=bfloat16), rand(128, 512, dtype=bfloat16)
    assert "dst dtype must be float32 on gen2" in says(k28, a, b, target="trn1")
    assert "dst dtype must be float32 on gen3" in says(k28, a, b, target="trn2")
    want = (a.astype(np.float32).T @ b.astype(np.float32)).astype(bfloat16)
    np.testing.assert_array_equal(result(k28, a, b, target="trn3"), want)


@nki.jit
def k29(a, b, copy):
    p, q = ps(64, 512), ps(64, 512)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
    nisa.nc_matmul(dst=q, stationary=ld(a), moving=ld(b))
    o = sb(64, 512)
    nisa.tensor_tensor(dst=o, data1=p, data2=nl.copy(q) if copy else q, op=nl.add)
    return st(o)


def test_29_two_inputs_in_psum():
    a, b = rand(128, 64), rand(128, 512)
    text = says(k29, a, b, False)
    assert "data1 and data2 are both in PSUM" in text and "copy data2 to SBUF first" in text
    np.testing.assert_allclose(result(k29, a, b, True), 2 * (a.T @ b), rtol=1e-4, atol=1e-4)


@nki.jit
def k31(a, b):
    p = ps(64, 512)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
    o = sb(64, 512)
    nisa.tensor_scalar(dst=o, data=p, op0=nl.add, operand0=1.0)
    return st(o)


def test_31_a_bug_of_a_shipped_sample_gives_what_it_says():
    a, b = rand(128, 64), rand(128, 512)
    np.testing.assert_array_equal(result(k31, a, b), result(k14, a, b, 64, 512) + np.float32(1))


# --- capacity and addresses ------------------------------------------------------------------------------------------


@nki.jit
def k33(x):
    t = nl.ndarray((128, 1000), dtype=nl.float32, buffer=nl.sbuf, address=(0, 400000))
    nisa.dma_copy(dst=t, src=x)
    return st(t)


@pytest.mark.parametrize(("target", "usable"), [("trn1", 180216), ("trn2", 212984), ("trn3", 245752)])
def test_33_a_tile_placed_beyond_the_partition(target, usable):
    text = says(k33, rand(128, 1000), target=target)
    assert "400000" in text and "4000 bytes" in text and str(usable) in text


@nki.jit
def k35(x):
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
    nisa.dma_copy(dst=t, src=x)
    nisa.activation(dst=t, op=nl.exp, data=t)
    return st(t)


def test_35_hand_placement_needs_no_psum_tile():
    x = rand(128, 512)
    run = nki_sim.run(k35, x)
    np.testing.assert_allclose(run.result, np.exp(x), rtol=1e-6)
    assert run.memory.psum.tiles == []


@nki.jit
def k36(x, inside):
    out = hb(8, 128, 512)
    t = sb(128, 512)
    for i in range(8):
        if inside:
            t = sb(128, 512)
        nisa.dma_copy(dst=t, src=x[i])
        nisa.dma_copy(dst=out[i], src=t)
    return out


def test_36_one_buffer_or_one_per_round():
    x = rand(8, 128, 512)
    outside, inside = nki_sim.run(k36, x, False), nki_sim.run(k36, x, True)
    np.testing.assert_array_equal(outside.result, x)
    np.testing.assert_array_equal(inside.result, x)

    def buffers(run):
        return len({operand.allocation.id for step in run.program for operand in step.operands
                    if operand.allocation is not None and operand.allocation.region is nl.sbuf})  # fmt: skip

    assert (buffers(outside), buffers(inside)) == (1, 8)
    assert outside.memory.sbuf.peak == inside.memory.sbuf.peak == 2048


# --- dtypes and arithmetic -------------------------------------------------------------------------------------------


@nki.jit
def k39(a, b):
    ta, tb = ld(a), ld(b)
    r, v = sb(128, 1, dt=nl.int32), sb(128, 1, dt=nl.int32)
    nisa.tensor_tensor(dst=r, data1=ta, data2=tb, op=nl.multiply)
    nisa.tensor_tensor(dst=v, data1=ta, data2=tb, op=nl.multiply, engine=nisa.engine.vector)
    return st(r), st(v)


def test_39_the_engine_decides_the_arithmetic_of_integers():
    exact, rounded = result(k39, np.full((128, 1), 16777217, np.int32), np.ones((128, 1), np.int32))
    assert (exact == 16777217).all()
    assert (rounded == 16777216).all()


@nki.jit
def k42(value):
    t = sb(128, 8, dt=nl.int32)
    nisa.memset(dst=t, value=value)
    return st(t)


def test_42_memset_of_an_integer_tile():
    text = says(k42, 2.0)
    assert "int32" in text and "float 2.0" in text
    assert (result(k42, 2) == 2).all()


@nki.jit
def k43(x, b):
    r = sb(128, 64)
    nisa.activation(dst=r, op=nl.copy, data=ld(x), bias=ld(b))
    return st(r)


@pytest.mark.parametrize("target", TARGETS)
def test_43_the_copy_activation_adds_its_bias(target):
    x, b = rand(128, 64), rand(128, 1)
    got, found = warned(k43, x, b, target=target)
    np.testing.assert_array_equal(got, x + b)
    assert [w.diagnosis.rule.id for w in found] == (["activation.copy_bias_trn1"] if target == "trn1" else [])


@nki.jit
def k45(x, tile):
    r, b = sb(128, 8), sb(128, 1)
    nisa.memset(dst=b, value=1e-10)
    nisa.activation(dst=r, op=nl.log, data=ld(x), bias=b if tile else 1e-10)
    return st(r)


@pytest.mark.parametrize("tile", [True, False])
def test_45_log_with_a_bias(tile):
    x = RNG.uniform(0.1, 10, (128, 8)).astype(np.float32)
    np.testing.assert_allclose(result(k45, x, tile), np.log(x + np.float32(1e-10)), rtol=1e-6, atol=1e-6)


@nki.jit
def k46(w):
    s = sb(w.shape[0], 1)
    nisa.tensor_reduce(dst=s, op=nl.add, data=ld(w), axis=(1,))
    return st(s)


@pytest.mark.parametrize("shape", [(128, 128), (1, 1000), (1, 4), (128, 4), (7, 513)])
def test_46_tensor_reduce_sums_one_after_the_other(shape):
    w = (rand(*shape) * 10 ** RNG.uniform(-3, 3, shape)).astype(np.float32)
    want = np.add.accumulate(w, axis=1, dtype=np.float32)[:, -1:]
    np.testing.assert_array_equal(result(k46, w), want)


@nki.jit
def k48(x):
    e, s, r = sb(128, 64), sb(128, 1), sb(128, 1)
    nisa.activation(dst=e, op=nl.exp, data=ld(x))
    nisa.tensor_reduce(dst=s, op=nl.add, data=e, axis=(1,))
    nisa.reciprocal(dst=r, data=s)
    nisa.tensor_scalar(dst=e, data=e, op0=nl.multiply, operand0=r)
    return st(e)


def test_48_softmax_without_its_maximum_overflows_on_large_data():
    small = RNG.uniform(0, 1, (128, 64)).astype(np.float32)
    want = np.exp(small) / np.exp(small).sum(1, keepdims=True)
    np.testing.assert_allclose(result(k48, small), want, rtol=1e-5)
    assert np.isnan(result(k48, 40 * rand(128, 64))).any()


# --- indices at run time ---------------------------------------------------------------------------------------------


@nki.jit
def k50(table, index, mode):
    t = sb(128, 64)
    nisa.memset(dst=t, value=-1.0)
    rows = table.ap(pattern=[[64, 128], [1, 64]], vector_offset=ld(index), indirect_dim=0)
    nisa.dma_copy(dst=t, src=rows, oob_mode=mode)
    return st(t)


@pytest.mark.parametrize("sentinel", [2**31 - 1, 256, -1, -(2**31)])
def test_50_a_sentinel_index_is_out_of_bounds(sentinel):
    table, index = rand(256, 64), RNG.permutation(256)[:128].astype(np.int32).reshape(128, 1)
    np.testing.assert_array_equal(result(k50, table, index, nisa.oob_mode.error), table[index[:, 0]])
    index[5] = sentinel
    text = says(k50, table, index, nisa.oob_mode.error)
    assert str(sentinel) in text and "256" in text
    got = result(k50, table, index, nisa.oob_mode.skip)
    want = table[np.where(index[:, 0] == sentinel, 0, index[:, 0])]
    want[5] = -1
    np.testing.assert_array_equal(got, want)


@nki.jit
def k52(table, index, mode):
    t = sb(64, 32, dt=nl.bfloat16)
    nisa.memset(dst=t, value=0.0)
    rows = table.ap(pattern=[[64, 32], [1, 64]], vector_offset=ld(index), indirect_dim=0)
    nisa.dma_transpose(dst=t, src=rows, oob_mode=mode)
    return st(t)


def test_52_a_gather_transpose_that_skips_only_some_rows_is_not_for_current_hardware():
    table, index = rand(256, 64, dtype=bfloat16), np.arange(32, dtype=np.uint32).reshape(32, 1)
    got = result(k52, table, index, nisa.oob_mode.skip)
    np.testing.assert_array_equal(got, table[:32].T)
    index[3] = 2**31 - 1
    text = says(k52, table, index, nisa.oob_mode.skip)
    assert "undefined on current hardware" in text and "dma_transpose.oob_skip_mixed" in text
    index[:16] = 2**31 - 1  # a block that is outside as a whole is dropped as a whole
    got = result(k52, table, index, nisa.oob_mode.skip)
    np.testing.assert_array_equal(got[:, 16:], table[16:32].T)
    assert not got[:, :16].any()


@nki.jit
def k53(x, rank):
    t = sb(128, *([1] * (rank - 2)), 128, dt=nl.bfloat16)
    nisa.dma_transpose(dst=t, src=x)
    return st(t)


def test_53_a_plain_two_dimensional_dma_transpose():
    x = rand(128, 128, dtype=bfloat16)
    np.testing.assert_array_equal(result(k53, x, 2), x.T)
    says(k53, x, 3, error=AssertionError)


@nki.jit
def k55(x, start):
    t, u, at = ld(x), sb(128, 16), ld(start)
    nisa.tensor_copy(dst=u, src=t.ap([[64, 128], [1, 16]], scalar_offset=at, indirect_dim=1))
    return st(u)


def test_55_a_slice_of_an_sbuf_tile_with_a_start_known_at_run_time():
    x = rand(128, 64)
    for start in (0, 5, 48):
        np.testing.assert_array_equal(result(k55, x, np.array([[start]], np.int32)), x[:, start : start + 16])
    for start in (49, 64, -1):
        assert str(start) in says(k55, x, np.array([[start]], np.int32))


@nki.jit
def k57(x):
    scratch = hb(128, 128)
    nisa.dma_copy(dst=scratch, src=ld(x))
    return st(nl.load_transpose2d(scratch))


@pytest.mark.parametrize("target", TARGETS)
def test_57_a_transposing_load_from_hbm_of_the_kernel(target):
    x = rand(128, 128)
    got, found = warned(k57, x, target=target)
    np.testing.assert_array_equal(got, x.T)
    assert [w.diagnosis.rule.id for w in found] == ["nl.load_transpose2d_local"]
    assert "trn1" in str(found[0])


# --- names, messages, silence ----------------------------------------------------------------------------------------


@nki.jit
def k58(x):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    for _ in range(128 // 512):
        nisa.dma_copy(dst=out, src=ld(x))
    return out


def test_58_an_output_that_a_loop_of_no_rounds_never_wrote():
    got, found = warned(k58, rand(128, 128))
    assert np.isnan(got).all()
    assert len(found) == 1 and "0 of 16384 elements of output out written" in str(found[0])
    with pytest.raises(NkiValidationError, match="0 of 16384"):
        nki_sim.run(k58, rand(128, 128), strict=True)


@nki.jit
def k60(a, name):
    r = getattr(nisa, name)(ld(a), 0.25)
    return st(r)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("multiply", ("nisa.tensor_scalar(dst=", "op0=nl.multiply, operand0=", "nisa.tensor_tensor")),
        ("scalar_mul", ("nisa.tensor_scalar(dst=", "op0=nl.multiply")),
        ("matmul", ("nisa.nc_matmul(dst=",)),
    ],
)
def test_60_an_invented_instruction_is_answered_with_the_real_one(name, instead):
    text = says(k60, rand(128, 64), name, error=AttributeError)
    assert f"nki.isa has no {name}" in text
    for words in instead:
        assert words in text


@nki.jit
def k60_keyword(a):
    p = ps(64, 64)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(a), transpose_moving=True)
    return st(p)


def test_60_an_invented_keyword():
    text = says(k60_keyword, rand(128, 64), error=TypeError)
    assert "transpose_moving" in text and "[K, N]" in text


@nki.jit
def k60_called(a):
    return st(nl.tile_size(128))


def test_60_tile_size_is_no_function():
    text = says(k60_called, rand(128, 64), error=NkiError)
    assert "nl.tile_size.pmax" in text


@pytest.mark.parametrize("name", ["simulate_kernel", "baremetal", "benchmark", "profile"])
def test_60_entry_points_that_are_gone(name):
    with pytest.raises(AttributeError, match=r"nki\.simulate"):
        getattr(nki, name)


@pytest.mark.parametrize("name", ["arange", "mgrid", "par_dim"])
def test_60_language_that_is_gone(name):
    with pytest.raises(AttributeError, match=r"nl\.ds|nl\.ndarray"):
        getattr(nl, name)


@nki.jit
def k60_zeros():
    return st(nl.zeros((16, 8), dtype=nl.float32, buffer=nl.psum))


def test_60_zeros_takes_a_buffer():
    assert not result(k60_zeros).any()


@nki.jit
def k61(x):
    acc = sb(128, 64)
    nisa.memset(dst=acc, value=0.0)
    for i in range(4):
        nisa.tensor_tensor(dst=acc, data1=acc, data2=ld(x[i]), op=nl.add)
    return st(acc)


@nki.jit
def k61_python(x):
    acc = nl.zeros((128, 64), dtype=nl.float32)
    for i in range(4):
        acc += ld(x[i])
    return st(acc)


def test_61_a_sum_is_an_instruction():
    x = rand(4, 128, 64)
    np.testing.assert_array_equal(result(k61, x), np.add.accumulate(x, axis=0, dtype=np.float32)[-1])
    text = says(k61_python, x, error=TypeError)
    assert "+" in text and "nisa.tensor_tensor" in text


@nki.jit
def k62(x, scale=2.0):
    tiles = [ld(x[i]) for i in range(4)]
    for t in tiles:
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=scale)
    return tuple(st(t) for t in tiles)


def test_62_comprehensions_and_default_arguments_are_python():
    x = rand(4, 128, 64)
    got = result(k62, x)
    assert isinstance(got, tuple) and len(got) == 4
    np.testing.assert_array_equal(np.stack(got), 2 * x)


K62_SOURCE = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def k62(x, scale=2.0):
    tiles = [nl.load(x[i]) for i in range(4)]
    for t in tiles:
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=scale)
    return tiles[0]
"""


def test_62_the_frontend_of_0_6_refuses_what_0_7_takes():
    assert lint(K62_SOURCE, "k62.py", frontend="0.7") == []
    [found] = lint(K62_SOURCE, "k62.py", frontend="0.6")
    assert found.rule.id == "lang.unsupported_python"
    assert found.line == 8
    assert "list comprehension" in found.text()
