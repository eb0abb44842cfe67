"""The tensor engine, its accumulation in PSUM, and the DMA engines, against NumPy."""

import warnings

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import TARGETS, hb, ld, ps, sb, st
from nki_sim import NkiValidationError, NkiWarning
from references import FLOATS, STORED, random, rounded, run, same


def product(a, b):
    return a.astype(np.float64).T @ b.astype(np.float64)


def close(got, want, rtol=1e-5):
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=rtol, atol=rtol * np.abs(want).max())


def multiplied(a, b, dtype="float32", **how):
    m, n = int(np.prod(a.shape[1:])), int(np.prod(b.shape[1:]))
    p = ps(m, n, dt=dtype)
    nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b), **how)
    return st(p)


# --- nc_matmul -------------------------------------------------------------------------------------------------------


@given(k=some.integers(1, 128), m=some.integers(1, 128), n=some.integers(1, 512), seed=some.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_matmul_of_any_size(k, m, n, seed):
    a, b = random((k, m), seed=seed), random((k, n), seed=seed + 1)
    error = np.abs(run(multiplied, a, b).astype(np.float64) - product(a, b))
    assert (error <= k * 2.0**-24 * product(np.abs(a), np.abs(b))).all()  # what summing k float32 products can lose


@pytest.mark.parametrize("dtypes", [("bfloat16", "bfloat16"), ("float16", "bfloat16"), ("float8_e4m3", "float8_e5m2"),
                                    ("float8_e5m2", "bfloat16")])  # fmt: skip
@pytest.mark.parametrize("target", TARGETS)
def test_low_precision_products_are_exact_and_summed_in_float32(dtypes, target):
    a, b = random((64, 16), dtypes[0]), random((64, 24), dtypes[1], seed=1)
    close(run(multiplied, a, b, target=target), product(a, b))


def test_operands_may_be_views():
    def kernel(a, b):
        p = ps(16, 3, 8)
        ta, tb = ld(a), ld(b)
        nisa.nc_matmul(dst=p, stationary=ta[:, 4:20], moving=tb.permute((0, 2, 1)))
        return st(p)

    a, b = random((64, 24)), random((64, 8, 3), seed=1)
    want = product(a[:, 4:20], b.transpose(0, 2, 1).reshape(64, 24))
    close(run(kernel, a, b), want.reshape(16, 3, 8))


def test_double_row_contracts_both_leading_dimensions():
    a, b = random((64, 2, 32), "float8_e4m3"), random((64, 2, 48), "float8_e5m2", seed=1)

    def kernel(a, b):
        p = ps(32, 48)
        nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b), perf_mode=nisa.matmul_perf_mode.double_row)
        return st(p)

    want = np.einsum("kim,kin->mn", a.astype(np.float64), b.astype(np.float64))
    close(run(kernel, a, b), want)


def test_a_tile_of_the_array_gives_the_same_product():
    a, b = random((32, 32)), random((32, 16), seed=1)
    close(run(multiplied, a, b, tile_position=(64, 32), tile_size=(32, 32)), product(a, b))


def accumulated(a, b, flags):
    p = ps(a.shape[2], b.shape[2])
    for i, flag in enumerate(flags):
        nisa.nc_matmul(dst=p, stationary=ld(a[i]), moving=ld(b[i]), accumulate=flag)
    return st(p)


@pytest.mark.parametrize("flags", [(None, None, None), (False, True, True), (False, None, True), (None, True, None)])
def test_a_group_adds_up(flags):
    a, b = random((3, 64, 16)), random((3, 64, 24), seed=1)
    close(run(accumulated, a, b, flags), sum(product(a[i], b[i]) for i in range(3)))


@pytest.mark.parametrize("flags", [(None, None, False), (False, False, False), (None, True, False)])
def test_false_starts_again(flags):
    a, b = random((3, 64, 16)), random((3, 64, 24), seed=1)
    close(run(accumulated, a, b, flags), product(a[2], b[2]))


def test_each_location_has_its_own_group():
    """The second matmul overlaps the first by half: it adds where the first wrote, and overwrites the rest."""

    def kernel(a, b):
        p = ps(16, 24)
        ta, tb = ld(a), ld(b)
        nisa.nc_matmul(dst=p[:, 0:16], stationary=ta, moving=tb[:, 0:16])
        nisa.nc_matmul(dst=p[:, 8:24], stationary=ta, moving=tb[:, 8:24])
        return st(p)

    a, b = random((64, 16)), random((64, 24), seed=1)
    want = product(a, b)
    want[:, 8:16] *= 2
    close(run(kernel, a, b), want)


def test_a_new_tile_starts_clean():
    def kernel(a, b):
        out = hb(3, 16, 24)
        for i in range(3):
            p = ps(16, 24)
            nisa.nc_matmul(dst=p, stationary=ld(a[i]), moving=ld(b[i]))
            nisa.dma_copy(dst=out[i], src=nl.copy(p))
        return out

    a, b = random((3, 64, 16)), random((3, 64, 24), seed=1)
    close(run(kernel, a, b), np.stack([product(a[i], b[i]) for i in range(3)]))


def test_adding_after_the_eviction_is_reported_and_done():
    def kernel(a, b):
        p, out = ps(16, 24), hb(2, 16, 24)
        for i in range(2):
            nisa.nc_matmul(dst=p, stationary=ld(a[i]), moving=ld(b[i]))
            nisa.dma_copy(dst=out[i], src=nl.copy(p))
        return out

    a, b = random((2, 64, 16)), random((2, 64, 24), seed=1)
    with pytest.warns(NkiWarning, match="adds to a sum that was evicted already") as caught:
        got = nki_sim.run(kernel, a, b).result
    close(got[1], product(a[0], b[0]) + product(a[1], b[1]))
    assert "nc_matmul" in caught[0].message.diagnosis.site.text


def test_another_engine_ends_the_group():
    def kernel(a, b):
        p = ps(16, 24)
        nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
        nisa.memset(dst=p, value=5.0)
        nisa.nc_matmul(dst=p, stationary=ld(a), moving=ld(b))
        return st(p)

    a, b = random((64, 16)), random((64, 24), seed=1)
    close(run(kernel, a, b), product(a, b))


def test_adding_to_psum_that_nobody_started_gives_nan():
    a, b = random((1, 64, 16)), random((1, 64, 24), seed=1)
    with pytest.warns(NkiWarning, match="no matmul has started"):
        got = nki_sim.run(accumulated, a, b, (True,)).result
    assert np.isnan(got).all()


def test_bfloat16_accumulation_rounds_each_time_on_trn3():
    def kernel(a, b):
        p = ps(16, 24, dt=nl.bfloat16)
        for i in range(3):
            nisa.nc_matmul(dst=p, stationary=ld(a[i]), moving=ld(b[i]))
        return st(p)

    a, b = random((3, 4, 16), "bfloat16"), random((3, 4, 24), "bfloat16", seed=1)
    want = np.zeros((16, 24), np.float32)
    for i in range(3):
        want = rounded(want + product(a[i], b[i]).astype(np.float32), "bfloat16").astype(np.float32)
    got = run(kernel, a, b, target="trn3").astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=2**-7, atol=2**-4)  # the order of the inner sum is not documented
    assert (got == want).mean() > 0.95


# --- transposes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_transpose_mode_moves_bits(dtype, target):
    def kernel(x):
        p = ps(24, 32, dt=dtype)
        eye = nl.shared_identity_matrix(32, dtype=dtype)
        nisa.nc_matmul(dst=p, stationary=ld(x), moving=eye, is_transpose=True)
        return st(p)

    x = random((32, 24), dtype)
    x[3, 5], x[4, 6] = np.nan, np.inf
    same(run(kernel, x, target=target), x.T)


def test_on_trn1_a_transpose_is_a_product_and_nan_spreads():
    def kernel(x):
        p = ps(24, 32)
        eye = nl.shared_identity_matrix(32, dtype=nl.float32)
        nisa.nc_matmul(dst=p, stationary=ld(x), moving=eye, is_transpose=True)
        return st(p)

    x = random((32, 24))
    same(run(kernel, x, target="trn1"), x.T)
    x[3, 5] = np.nan
    got = run(kernel, x, target="trn1")
    assert np.isnan(got[5]).all() and not np.isnan(np.delete(got, 5, axis=0)).any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "tfloat32"])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_nc_transpose_on_the_tensor_engine(dtype, target):
    def kernel(x):
        p = ps(6 * 7, 128, dt=x.dtype)
        nisa.nc_transpose(dst=p, data=ld(x), engine=nisa.engine.tensor)
        return st(p)

    x = random((128, 6, 7), dtype if dtype in STORED else "float32")
    same(run(kernel, x, target=target), x.reshape(128, 42).T)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("where", ["sbuf", "psum"])
def test_nc_transpose_on_the_vector_engine(dtype, where):
    def kernel(x):
        p = nl.ndarray((20, 32), dtype=dtype, buffer=getattr(nl, where))
        nisa.nc_transpose(dst=p, data=ld(x), engine=nisa.engine.vector)
        return st(p)

    x = random((32, 20), dtype)
    same(run(kernel, x), x.T)


@pytest.mark.parametrize("shape", [(16, 48), (16, 3, 20), (16, 2, 3, 12)])
@pytest.mark.parametrize("source", ["hbm", "sbuf"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int16"])
def test_dma_transpose(shape, source, dtype):
    axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]

    def kernel(x, given):
        t = sb(*(shape[a] for a in axes), dt=dtype)
        nisa.dma_transpose(dst=t, src=x if source == "hbm" else ld(x), axes=axes if given else None)
        return st(t)

    x = random(shape, dtype)
    same(run(kernel, x, True), x.transpose(axes))
    same(run(kernel, x, False), x.transpose(axes))


# --- dma_copy --------------------------------------------------------------------------------------------------------


@given(
    shape=some.sampled_from([(24, 10), (8, 3, 10), (240,), (2, 3, 4, 10)]),
    to=some.sampled_from([(24, 10), (10, 24), (6, 4, 10), (1, 240), (120, 2)]),
)
@settings(max_examples=20, deadline=None)
def test_a_copy_keeps_the_order_of_elements_whatever_the_shapes(shape, to):
    def kernel(x):
        t, out = sb(*to), hb(*shape)
        nisa.dma_copy(dst=t, src=x)
        nisa.dma_copy(dst=out, src=t)
        return st(t), out

    x = random(shape)
    there, back = run(kernel, x)
    same(there, x.reshape(to))
    same(back, x)


def test_hbm_to_hbm_and_sbuf_to_sbuf():
    def kernel(x):
        mid, t, u = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.hbm), sb(100, 8), sb(100, 8)
        nisa.dma_copy(dst=mid, src=x)
        nisa.dma_copy(dst=t, src=mid)
        nisa.dma_copy(dst=u[1:100, :], src=t[0:99, :])
        nisa.dma_copy(dst=u[0:1, :], src=t[99:100, :])
        return st(u)

    x = random((100, 8))
    same(run(kernel, x), np.roll(x, 1, axis=0))


def test_a_dma_starts_at_any_partition_and_steps_along_the_free_dimension():
    def kernel(x):
        t = ld(x)
        out, far = hb(25, 4), hb(25, 4)
        nisa.dma_copy(dst=out, src=t[3:28, ::2])
        nisa.dma_copy(dst=far, src=x[3:100:4, ::2])
        return out, far

    x = random((100, 8))
    out, far = run(kernel, x)
    same(out, x[3:28, ::2])
    same(far, x[3::4, ::2])


def rows(table, index, n):
    return table.ap(pattern=[[table.shape[1], n], [1, table.shape[1]]], vector_offset=index, indirect_dim=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("index_dtype", [np.int32, np.uint32])
def test_gather_and_scatter_of_rows(dtype, index_dtype):
    def kernel(table, index):
        t, out = sb(40, 6, dt=dtype), nl.zeros(table.shape, dtype=dtype, buffer=nl.shared_hbm)
        i = ld(index)
        nisa.dma_copy(dst=t, src=rows(table, i, 40))
        nisa.dma_copy(dst=rows(out, i, 40), src=t)
        return st(t), out

    table, index = random((100, 6), dtype), np.random.default_rng(4).permutation(100)[:40].astype(index_dtype)
    got, out = run(kernel, table, index.reshape(40, 1))
    same(got, table[index])
    want = np.zeros_like(table)
    want[index] = table[index]
    same(out, want)


def test_a_scatter_to_one_row_twice_is_reported():
    def kernel(x, index):
        out = nl.zeros((8, 6), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=rows(out, ld(index), 3), src=ld(x))
        return out

    x = random((3, 6))
    with pytest.warns(NkiWarning, match="two lanes scatter to one row") as caught:
        got = nki_sim.run(kernel, x, np.array([[2], [5], [2]], np.int32)).result
    assert caught[0].message.diagnosis.rule.id == "dma_copy.scatter_duplicates"
    same(got[[2, 5]], x[[2, 1]])
    same(run(kernel, x, np.array([[2], [5], [3]], np.int32))[[2, 5, 3]], x)


def test_gather_through_vector_select_and_into_another_shape():
    def kernel(table, index):
        t, u = sb(16, 3, 4), sb(8, 24)
        i = ld(index)
        nisa.dma_copy(dst=t, src=table.vector_select(0, i))
        nisa.dma_copy(dst=u, src=table.vector_select(0, i))
        return st(t), st(u)

    table, index = random((50, 3, 4)), np.random.default_rng(4).integers(0, 50, (16, 1)).astype(np.int32)
    t, u = run(kernel, table, index)
    same(t, table[index[:, 0]])
    same(u, table[index[:, 0]].reshape(8, 24))


def test_gather_converts():
    def kernel(table, index):
        t = sb(16, 6, dt=nl.bfloat16)
        nisa.dma_copy(dst=t, src=rows(table, ld(index), 16))
        return st(t)

    table, index = random((50, 6)), np.random.default_rng(4).integers(0, 50, (16, 1)).astype(np.int32)
    same(run(kernel, table, index), rounded(table[index[:, 0]], "bfloat16"))


def test_a_skipped_row_leaves_dst_as_it_was():
    def kernel(table, index, fresh):
        t = sb(4, 6)
        if not fresh:
            nisa.memset(dst=t, value=-1.0)
        nisa.dma_copy(dst=t, src=rows(table, ld(index), 4), oob_mode=nisa.oob_mode.skip)
        return st(t)

    table, index = random((8, 6)), np.array([[1], [8], [-1], [7]], np.int32)
    got = run(kernel, table, index, False)
    same(got, np.stack([table[1], np.full(6, -1, np.float32), np.full(6, -1, np.float32), table[7]]))
    fresh = run(kernel, table, index, True)
    assert np.isnan(fresh[1:3]).all()
    same(fresh[[0, 3]], table[[1, 7]])


def test_a_skipped_scatter_writes_nothing():
    def kernel(x, index):
        out = nl.zeros((8, 6), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=rows(out, ld(index), 4), src=ld(x), oob_mode=nisa.oob_mode.skip)
        return out

    x, index = random((4, 6)), np.array([[5], [8], [100], [0]], np.int32)
    want = np.zeros((8, 6), np.float32)
    want[5], want[0] = x[0], x[3]
    same(run(kernel, x, index), want)


@pytest.mark.parametrize("start", [0, 3, 4])
def test_a_start_known_at_run_time(start):
    def kernel(table, at):
        t, out = sb(4, 6), nl.zeros((8, 6), dtype=nl.float32, buffer=nl.shared_hbm)
        i = ld(at)
        nisa.dma_copy(dst=t, src=table.ap([[6, 4], [1, 6]], scalar_offset=i, indirect_dim=0))
        nisa.dma_copy(dst=out.ap([[6, 4], [1, 6]], scalar_offset=i, indirect_dim=0), src=t)
        return st(t), out

    table = random((8, 6))
    t, out = run(kernel, table, np.array([[start]], np.int32))
    same(t, table[start : start + 4])
    want = np.zeros_like(table)
    want[start : start + 4] = table[start : start + 4]
    same(out, want)


@pytest.mark.parametrize("start", [5, 8, -1])
def test_a_start_out_of_bounds_drops_the_whole_transfer_when_skipped(start):
    def kernel(table, at):
        t = nl.zeros((4, 6), dtype=nl.float32)
        src = table.ap([[6, 4], [1, 6]], scalar_offset=ld(at), indirect_dim=0)
        nisa.dma_copy(dst=t, src=src, oob_mode=nisa.oob_mode.skip)
        return st(t)

    assert not run(kernel, random((8, 6)), np.array([[start]], np.int32)).any()


def test_select_by_a_value_known_at_run_time():
    def kernel(table, at):
        t = sb(6, 5)
        nisa.dma_copy(dst=t, src=table.select(0, ld(at)))
        return st(t)

    table = random((4, 6, 5))
    for i in range(4):
        same(run(kernel, table, np.array([[i]], np.int32)), table[i])
    with pytest.raises(NkiValidationError, match="runtime index 4 is outside its dimension of size 4"):
        run(kernel, table, np.array([[4]], np.int32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_reinterpreting_bits(dtype):
    def kernel(x):
        return st(ld(x).view(nl.uint8)), st(ld(x).ap([[32, 8], [1, 32]]).view(nl.uint8))

    x = random((8, 32), dtype)
    whole, again = run(kernel, x)
    np.testing.assert_array_equal(whole, x.view(np.uint8))
    np.testing.assert_array_equal(again, x.view(np.uint8))


# --- what was never written -------------------------------------------------------------------------------------------


def reads_nothing(x, dtype):
    t, u = nl.ndarray((4, 6), dtype=dtype, buffer=nl.sbuf, name="hole"), sb(4, 6, dt=dtype)
    nisa.tensor_copy(dst=u, src=t)
    return st(u)


@pytest.mark.parametrize("dtype", STORED)
def test_memory_that_was_never_written_reads_as_nan_or_four(dtype):
    with pytest.warns(NkiWarning, match="src reads hole, which was never written") as caught:
        got = nki_sim.run(reads_nothing, np.zeros((1, 1), np.float32), dtype).result
    assert np.isnan(got.astype(np.float32)).all() if dtype in FLOATS else (got == 4).all()
    assert "nisa.tensor_copy(dst=u, src=t)" in caught[0].message.diagnosis.site.text
    assert caught[0].message.line == caught[0].message.diagnosis.line == caught[0].lineno
    with pytest.raises(NkiValidationError, match="never written"):
        nki_sim.run(reads_nothing, np.zeros((1, 1), np.float32), dtype, strict=True)


def test_part_of_a_tile_that_was_never_written():
    def kernel(x, upto):
        t, u = sb(4, 6), sb(4, 6)
        nisa.memset(dst=t[:, 0:upto], value=1.0)
        nisa.tensor_copy(dst=u, src=t)
        return st(u)

    with pytest.warns(NkiWarning, match="of which 8 of 24 elements were never written"):
        got = nki_sim.run(kernel, np.zeros((1, 1), np.float32), 4).result
    assert (got[:, :4] == 1).all() and np.isnan(got[:, 4:]).all()
    run(kernel, np.zeros((1, 1), np.float32), 6)


def test_writing_in_parts_counts_as_written():
    def kernel(x):
        t, u = sb(4, 6, dt=nl.uint32), sb(4, 6, dt=nl.uint32)
        for i in range(6):
            nisa.memset(dst=t[:, i : i + 1], value=i)
        nisa.tensor_copy(dst=u, src=t)
        w, z = sb(4, 6, dt=nl.uint32), sb(4, 24, dt=nl.uint8)
        nisa.memset(dst=w.view(nl.uint8)[:, ::2], value=1)
        nisa.memset(dst=w.view(nl.uint8)[:, 1::2], value=2)
        nisa.tensor_copy(dst=z, src=w.view(nl.uint8))
        return st(u), st(z)

    u, z = run(kernel, np.zeros((1, 1), np.float32))
    same(u, np.tile(np.arange(6, dtype=np.uint32), (4, 1)))
    same(z, np.tile(np.array([1, 2], np.uint8), (4, 12)))


def test_a_finding_comes_once_per_line():
    def kernel(x):
        u = sb(4, 6)
        for _ in range(3):
            t = sb(4, 6)
            nisa.tensor_copy(dst=u, src=t)
        return st(u)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = nki_sim.run(kernel, np.zeros((1, 1), np.float32)).findings
    assert len(caught) == len(found) == 1


def test_device_print_shows_the_values_now(capsys):
    def kernel(x):
        t = ld(x)
        nl.device_print("before", t)
        nisa.memset(dst=t, value=2.5)
        nl.device_print("after", t)
        return st(t)

    run(kernel, np.zeros((1, 2), np.float32))
    out = capsys.readouterr().out
    assert out.index("before") < out.index("0.") < out.index("after") < out.index("2.5")


def test_a_column_of_indices_may_have_further_dimensions_of_one():
    def kernel(table, rows):
        index = ld(rows).reshape((4, 1, 1))
        out = nl.ndarray((4, 8), dtype=table.dtype, buffer=nl.shared_hbm)
        picked = nl.ndarray((4, 8), dtype=table.dtype, buffer=nl.sbuf)
        view = table.ap(pattern=[[8, 4], [1, 8]], offset=0, vector_offset=index, indirect_dim=0)
        nisa.dma_copy(dst=picked, src=view)
        nisa.dma_copy(dst=out, src=picked)
        return out

    table, rows = np.arange(80, dtype=np.float32).reshape(10, 8), np.array([[7], [0], [3], [3]], np.int32)
    np.testing.assert_array_equal(nki_sim.run(kernel, table, rows).result, table[rows[:, 0]])


def test_integer_tiles_take_zero_as_a_float_and_no_other():
    def kernel(x, value):
        t = nl.ndarray((16, 8), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=t, value=0.0)
        nisa.memset(dst=t, value=value)
        out = nl.ndarray((16, 8), dtype=nl.int32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=t)
        return out

    with pytest.warns(nki_sim.NkiWarning, match=r"value is float 0\.0"):
        run = nki_sim.run(kernel, np.ones((1, 1), np.float32), 7)
    assert (run.result == 7).all()
    with pytest.warns(nki_sim.NkiWarning), pytest.raises(nki_sim.NkiValidationError, match=r"value is float 2\.0"):
        nki_sim.run(kernel, np.ones((1, 1), np.float32), 2.0)
