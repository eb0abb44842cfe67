"""``nki.isa.nc_matmul_mx``: products, scales and where they lie, sums in PSUM, special values, limits."""

import ml_dtypes
import mx_reference as mx
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ps, sb, st
from nki_sim.errors import NkiTypeError
from references import run
from rulebook import Book, hx, v, x

book = Book()
BF16, E4, E5, F4 = nl.bfloat16, nl.float8_e4m3fn_x4, nl.float8_e5m2_x4, nl.float4_e2m1fn_x4
ONE = {E4: 0x38, E5: 0x3C, F4: 0x2}
"""The bit pattern of 1."""


def packed(shape, dtype, seed=0, most=1e9):
    """Random packed elements, finite ones of at most some magnitude."""
    width = 4 if dtype == F4 else 8
    good = np.array([c for c in range(1 << width) if abs(mx.decoded(c, dtype)) <= most])
    chosen = np.random.default_rng(seed).choice(good, (*shape, 4)).astype(np.uint64)
    return (chosen << (np.arange(4, dtype=np.uint64) * width)).sum(-1).astype(mx.STORED[dtype])


def scales(p, n, seed=0, low=118, high=134):
    return np.random.default_rng(seed + 100).integers(low, high, (p // 8, n), endpoint=True).astype(np.uint8)


def multiply(left, right, left_scales, right_scales, left_dtype, right_dtype, dst=nl.float32, first=0, offsets=(0, 0),
             modes=(None,), scale_dtype=nl.uint8, **tile):  # fmt: skip
    """A kernel's body: operands in HBM, on partitions from ``first``, scales scattered from [P / 8, F]."""
    p = left.shape[0]
    operands = []
    for data, dtype in ((left, left_dtype), (right, right_dtype)):
        whole = sb(first + p, data.shape[1], dt=dtype)
        nisa.dma_copy(dst=whole[first:, :], src=data.view(dtype))
        operands.append(whole[first:, :])
    for numbers, start in zip((left_scales, right_scales), offsets, strict=True):
        whole = sb(first + p, numbers.shape[1], dt=scale_dtype)
        for q in range(p // 32):
            rows = slice(first + start + 32 * q, first + start + 32 * q + 4)
            nisa.dma_copy(dst=whole[rows, :], src=numbers[4 * q : 4 * q + 4, :].view(scale_dtype))
        operands.append(whole[first + start :, :])
    acc = ps(left.shape[1], right.shape[1], dt=dst)
    for mode in modes:
        nisa.nc_matmul_mx(acc, *operands, accumulate=mode, **tile)
    return st(acc)


def close(got, want, bound, digits=20):
    """Within rounding of a sum of magnitudes ``bound``."""
    assert (np.abs(got.astype(np.float64) - want) <= bound * 2.0**-digits).all()


def magnitudes(left, left_dtype, left_scales, right, right_dtype, right_scales):
    """The sum of the magnitudes of all products."""
    factors = [mx.dequantized(left, left_dtype, left_scales), mx.dequantized(right, right_dtype, right_scales)]
    return np.abs(factors[0]) @ np.abs(factors[1]).T


@given(p=some.sampled_from([32, 64, 96, 128]), m=some.integers(1, 3), n=some.integers(1, 5), left=some.sampled_from(mx.PACKED),
       right=some.sampled_from(mx.PACKED), offsets=some.tuples(*[some.sampled_from([0, 4, 8, 12])] * 2), data=some.data(),
       dst=some.sampled_from(["float32", "bfloat16"]), seed=some.integers(0, 2**32))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_element_by_element(p, m, n, left, right, offsets, data, dst, seed):
    a, b = packed((p, 2 * m), left, seed), packed((p, n), right, seed + 1)
    sa, sb_ = scales(p, 2 * m, seed), scales(p, n, seed + 1)
    first = data.draw(some.sampled_from({32: [0, 32, 64, 96], 64: [0, 64], 96: [0], 128: [0]}[p]))
    size = data.draw(some.sampled_from([s for s in (32, 64, 128) if s >= p]))
    tile = {"tile_position": (data.draw(some.sampled_from(range(0, 129 - size, size))), 0), "tile_size": (size, 128)}
    sums = {(None,): 1, (False,): 1, (None, None, None): 3, (False, True): 2, (None, False): 1, (False, True, None): 3}
    modes, times = data.draw(some.sampled_from(list(sums.items())))
    got = run(multiply, a, b, sa, sb_, left, right, dst, first, offsets, modes, target="trn3",
              **(tile if data.draw(some.booleans()) else {}))  # fmt: skip
    want, most = mx.product(a, left, sa, b, right, sb_), magnitudes(a, left, sa, b, right, sb_)
    assert got.dtype == (np.float32 if dst == "float32" else ml_dtypes.bfloat16)
    rounding = 0 if dst == "float32" else times * np.abs(want) * 2.0**13  # 2^-7 of the sum, for up to three additions
    close(got, times * want, times * most + rounding)


@pytest.mark.parametrize("right", mx.PACKED)
@pytest.mark.parametrize("left", mx.PACKED)
def test_small_numbers_are_exact(left, right):
    a, b = packed((128, 128), left, 1, most=4), packed((128, 70), right, 2, most=4)
    width = 2.0**-4  # drop what is too small for an exact sum in 24 bits
    a, b = (np.where([[min((abs(mx.decoded(c, d)) or 1) for c in mx.codes(e, d)) >= width for e in row] for row in t], t, 0)
            .astype(t.dtype) for t, d in ((a, left), (b, right)))  # fmt: skip
    sa, sb_ = scales(128, 128, 3, 127, 128), scales(128, 70, 4, 126, 127)
    factors = [np.array(mx.dequantized(t, d, s)) for t, d, s in ((a, left, sa), (b, right, sb_))]
    got = run(multiply, a, b, sa, sb_, left, right, target="trn3")
    np.testing.assert_array_equal(got, factors[0] @ factors[1].T)
    half = run(multiply, a, b, sa, sb_, left, right, BF16, target="trn3")
    np.testing.assert_array_equal(half, (factors[0] @ factors[1].T).astype(np.float32).astype(ml_dtypes.bfloat16))


def ones(p, n, dtype):
    width = 4 if dtype == F4 else 8
    return np.full((p, n), sum(ONE[dtype] << width * i for i in range(4)), mx.STORED[dtype])


@pytest.mark.parametrize("byte", [0, 1, 64, 126, 128, 190, 239, 240, 253, 254])
@pytest.mark.parametrize("dtype", mx.PACKED)
def test_scales_multiply_sums_so_that_large_and_small_ones_cancel(dtype, byte):
    """Elements as large as the format has them, under scales whose product is 1, or 2 at the ends."""
    largest = max(range(128 if dtype != F4 else 8), key=lambda c: (np.isfinite(mx.decoded(c, dtype)), mx.decoded(c, dtype)))
    a, b = ones(32, 2, dtype), ones(32, 3, dtype)
    a[8, 0] = largest
    sa, sb_ = np.full((4, 2), byte, np.uint8), np.full((4, 3), 254 - byte, np.uint8)
    got = run(multiply, a, b, sa, sb_, dtype, dtype, target="trn3")
    # one element is the largest, its three neighbours are 0
    np.testing.assert_array_equal(got, [[124 + mx.decoded(largest, dtype)] * 3, [128] * 3])


def test_products_past_float32_are_infinite_and_those_below_it_are_zero():
    a, b = ones(32, 2, E5), ones(32, 2, E5)
    a[:, 1] |= 0x80808080
    same = np.full((4, 2), 254, np.uint8)
    assert run(multiply, a, b, same, same, E5, E5, target="trn3").tolist() == [[np.inf] * 2, [-np.inf] * 2]
    assert (run(multiply, a, b, 254 - same, 254 - same, E5, E5, target="trn3") == 0).all()


def test_nan_scales_and_elements_reach_their_row_and_column():
    a, b = ones(64, 4, E4), ones(64, 3, E5)
    sa, sb_ = np.full((8, 4), 127, np.uint8), np.full((8, 3), 127, np.uint8)
    sa[5, 1], b[40, 2], a[3, 3] = 255, ONE[E5] | 0x7E << 24, ONE[E4] | 0x7F << 8
    got = run(multiply, a, b, sa, sb_, E4, E5, target="trn3")
    want = np.full((4, 3), 256.0)
    want[2, :2] = 256
    want[1], want[3], want[:, 2] = np.nan, np.nan, np.nan
    np.testing.assert_array_equal(got, want)


def test_infinities_of_e5m2_and_signed_zeros():
    a, b = ones(32, 2, E5), ones(32, 4, E5)
    sa, sb_ = np.full((4, 2), 127, np.uint8), np.full((4, 4), 127, np.uint8)
    b[0, 0], b[1, 1], b[2, 2] = 0x7C, 0xFC, 0x7C | 0xFC << 8
    b[:, 3] = 0x80808080
    got = run(multiply, a, b, sa, sb_, E5, E5, target="trn3")
    np.testing.assert_array_equal(got[0], [np.inf, -np.inf, np.nan, 0])


def test_each_addition_to_bfloat16_is_rounded():
    a, b = ones(32, 2, E4), ones(32, 2, E4)
    first, then = np.full((4, 2), 127 + 8, np.uint8), np.full((4, 2), 127 - 7, np.uint8)

    def kernel(a, b, first, then):
        acc = ps(2, 2, dt=BF16)
        one = np.full((4, 2), 127, np.uint8)
        for k, numbers in enumerate((first, then, then)):
            multiply_into(acc, a, b, numbers, one, accumulate=k > 0)
        return st(acc)

    def multiply_into(acc, a, b, sa, sb_, **how):
        tiles = [sb(32, 2, dt=E4), sb(32, 2, dt=E4), sb(4, 2, dt=nl.uint8), sb(4, 2, dt=nl.uint8)]
        for tile, source in zip(tiles[:3], (a, b, sa), strict=True):
            nisa.dma_copy(dst=tile.view(source.dtype), src=source)
        nisa.memset(dst=tiles[3], value=int(sb_[0, 0]))
        nisa.nc_matmul_mx(acc, *tiles, **how)

    # 2^15 + 1 + 1: each 1 is less than half of bfloat16's step there
    assert (run(kernel, a, b, first, then, target="trn3") == 2.0**15).all()


def accumulate(a, b, sa, sb_, case):
    tiles = [sb(*t.shape, dt=dt) for t, dt in ((a, E4), (b, E4), (sa, nl.uint8), (sb_, nl.uint8))]
    for tile, source in zip(tiles, (a, b, sa, sb_), strict=True):
        nisa.dma_copy(dst=tile.view(source.dtype), src=source)
    s, m, ss, ms = tiles
    acc = ps(2, 6)
    if case == "overlap":
        nisa.nc_matmul_mx(acc[:, 0:4], s, m[:, 0:4], ss, ms[:, 0:4])
        nisa.nc_matmul_mx(acc[:, 2:6], s, m[:, 0:4], ss, ms[:, 0:4])
    elif case == "mixed with nc_matmul":
        ones_ = sb(32, 6)
        nisa.memset(dst=ones_, value=1.0)
        nisa.nc_matmul(acc, ones_[:, 0:2], ones_)
        nisa.nc_matmul_mx(acc, s, m, ss, ms)
        nisa.nc_matmul(acc, ones_[:, 0:2], ones_)
    elif case == "after a memset":
        nisa.memset(dst=acc, value=5.0)
        nisa.nc_matmul_mx(acc, s, m, ss, ms, accumulate=True)
    elif case == "unwritten":
        nisa.nc_matmul_mx(acc, s, m, ss, ms, accumulate=True)
    elif case == "evicted":
        nisa.nc_matmul_mx(acc, s, m, ss, ms)
        st(acc)
        nisa.nc_matmul_mx(acc, s, m, ss, ms)
    return st(acc)


@pytest.mark.parametrize(
    ("case", "want"),
    [("overlap", [128, 128, 256, 256, 128, 128]), ("mixed with nc_matmul", [192] * 6), ("after a memset", [133] * 6)],
)
def test_sums_are_those_of_nc_matmul(case, want):
    sa, sb_ = np.full((4, 2), 127, np.uint8), np.full((4, 6), 127, np.uint8)
    got = run(accumulate, ones(32, 2, E4), ones(32, 6, E4), sa, sb_, case, target="trn3")
    np.testing.assert_array_equal(got, [want] * 2)


@pytest.mark.parametrize(
    ("case", "rule"),
    [("unwritten", "nc_matmul.accumulate.first_must_overwrite"), ("evicted", "nc_matmul.accumulate.warn_patterns")],
)
def test_what_is_wrong_with_a_sum_is_reported_as_for_nc_matmul(case, rule):
    sa, sb_ = np.full((4, 2), 127, np.uint8), np.full((4, 6), 127, np.uint8)
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        run(accumulate, ones(32, 2, E4), ones(32, 6, E4), sa, sb_, case, target="trn3")
    assert caught.value.diagnosis.rule.id == rule
    assert caught.value.diagnosis.instruction == "nc_matmul_mx"


def test_views_with_dimensions_and_steps_and_scales_as_numbers():
    def kernel(a, b, sa, sb_):
        s, m = sb(128, 2, 6, dt=E4), sb(128, 3, 8, dt=F4)
        ss, ms = nl.zeros((128, 2, 6), dtype=nl.float8_e8m0fnu, buffer=nl.sbuf), sb(128, 3, 8, dt=nl.float8_e8m0fnu)
        nisa.dma_copy(dst=s.view(nl.uint32), src=a)
        nisa.dma_copy(dst=m.view(nl.uint16), src=b)
        for q in range(4):
            nisa.dma_copy(dst=ss[32 * q + 8 : 32 * q + 12].view(nl.uint8), src=sa[4 * q : 4 * q + 4])
            nisa.dma_copy(dst=ms[32 * q : 32 * q + 4].view(nl.uint8), src=sb_[4 * q : 4 * q + 4])
        acc = ps(4, 2, 9)
        columns = (slice(None), slice(None), slice(1, 6, 4))
        moving, moving_scale = m[:, 0:3:2, 4:8].permute((0, 2, 1)), ms[:, 0:3:2, 4:8].permute((0, 2, 1))
        nisa.nc_matmul_mx(acc[:, :, 5:9], s[columns], moving, ss[8:][columns], moving_scale)
        out = sb(4, 2, 4)
        nisa.tensor_copy(dst=out, src=acc[:, :, 5:9])
        return st(out)

    a, b = packed((128, 2, 6), E4, 1, 4), packed((128, 3, 8), F4, 2)
    sa, sb_ = scales(128, 12).reshape(16, 2, 6), scales(128, 24).reshape(16, 3, 8)
    left, left_scales = (t[:, :, 1:6:4].reshape(-1, 4) for t in (a, sa))
    right, right_scales = (t[:, 0:3:2, 4:8].transpose(0, 2, 1).reshape(-1, 8) for t in (b, sb_))
    got = run(kernel, a, b, sa, sb_, target="trn3").reshape(4, 8)
    arguments = left, E4, left_scales, right, F4, right_scales
    close(got, mx.product(*arguments), magnitudes(*arguments))


@pytest.mark.parametrize("scale_dtype", [nl.uint8, nl.float8_e8m0fnu])
def test_without_narrow_floats_the_numbers_are_the_same(scale_dtype, monkeypatch):
    a, b, sa, sb_ = packed((64, 4), E5, 1), packed((64, 3), E4, 2), scales(64, 4), scales(64, 3)
    want = run(multiply, a, b, sa, sb_, E5, E4, target="trn3")
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    if scale_dtype == nl.uint8:
        np.testing.assert_array_equal(run(multiply, a, b, sa, sb_, E5, E4, target="trn3"), want)
        return
    numbers = [s.view(ml_dtypes.float8_e8m0fnu) for s in (sa, sb_)]
    got = run(multiply, a, b, *numbers, E5, E4, scale_dtype=scale_dtype, target="trn3")
    np.testing.assert_array_equal(got, want)


def test_scale_rows_are_the_ones_that_must_be_written():
    a, b, s = ones(64, 2, E4), ones(64, 2, E4), np.full((8, 2), 127, np.uint8)

    def kernel(a, b, s, missing):
        tile, left, right = sb(64, 2, dt=nl.uint8), sb(64, 2, dt=E4), sb(64, 2, dt=E4)
        for row in range(8):
            if row != missing:
                nisa.dma_copy(dst=tile[32 * (row // 4) + row % 4, :], src=s[row, :])
        nisa.dma_copy(dst=left, src=a.view(E4))
        nisa.dma_copy(dst=right, src=b.view(E4))
        acc = ps(2, 2)
        nisa.nc_matmul_mx(acc, left, right, tile, tile)
        return st(acc)

    assert (run(kernel, a, b, s, None, target="trn3") == 256).all()
    for missing in (0, 3, 4, 7):
        with pytest.raises(nki_sim.NkiValidationError) as caught:
            run(kernel, a, b, s, missing, target="trn3")
        assert caught.value.diagnosis.rule.id == "ndarray.uninitialised"


def test_quantised_operands_give_nearly_the_product():
    """From 16-bit floats to their product; scales of both operands share a tile at explicit bytes."""

    def kernel(a, b):
        left, right = nl.load(a), nl.load(b)
        qa, qb, s = sb(128, 64, dt=E4), sb(128, 512, dt=E5), sb(128, 512, dt=nl.uint8, address=(0, 4096))
        nisa.quantize_mx(dst=qa, src=left, dst_scale=s[12:, 0:64])
        nisa.quantize_mx(dst=qb, src=right, dst_scale=s[4:, :])
        acc = ps(64, 512)
        nisa.nc_matmul_mx(acc, qa, qb, s[12:, 0:64], s[4:, :])
        return st(acc)

    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((128, n)).astype(ml_dtypes.bfloat16) for n in (256, 2048))
    left, right = (t.astype(np.float64).reshape(128, -1, 4) for t in (a, b))
    done = nki_sim.run(kernel, a, b, target="trn3", strict=True)
    error = done.result - np.einsum("kmq,knq->mn", left, right)
    assert np.sqrt((error**2).mean()) < 0.06 * np.sqrt(512)
    (qa, sa), (qb, sb_) = mx.quantized(left.reshape(128, -1), E4), mx.quantized(right.reshape(128, -1), E5)
    numbers = [np.array(mx.dequantized(q, d, s)) for q, d, s in ((qa, E4, sa), (qb, E5, sb_))]
    close(done.result, numbers[0] @ numbers[1].T, np.abs(numbers[0]) @ np.abs(numbers[1].T))
    assert done.program.flops() == 2 * 512 * 64 * 512
    step = next(s for s in done.program if s.instruction == "nc_matmul_mx")
    assert (step.engine, step.plan.cycles) == ("tensor", 512)
    replay = done.replay()
    output = next(a for a in done.program.allocations if a.role == "output")
    np.testing.assert_array_equal(replay.values(output, len(done.program)), done.result)
    replay.seek(0)
    np.testing.assert_array_equal(replay.operand(step.index, 0, after=True), done.result)


def test_the_record_has_the_rows_that_scales_are_read_from():
    a, b, s = ones(96, 2, E4), ones(96, 2, E4), np.full((12, 2), 127, np.uint8)
    done = nki_sim.run(multiply, a, b, s, s, E4, E4, offsets=(4, 0), target="trn3", strict=True)
    step = next(s for s in done.program if s.instruction == "nc_matmul_mx")
    labels = {o.slot.name: o.label.partition("[")[2] for o in step.operands if o.allocation}
    assert {n: labels[n] for n in labels if "scale" in n} == {
        "stationary_scale": "4:8, :]", "stationary_scale_q1": "36:40, :]", "stationary_scale_q2": "68:72, :]",
        "moving_scale": "0:4, :]", "moving_scale_q1": "32:36, :]", "moving_scale_q2": "64:68, :]",
    }  # fmt: skip


# -- limits ------------------------------------------------------------------------------------------------------------


def tile_of_ones(p, n, dtype, first=0):
    """A packed tile of ones on partitions from ``first``."""
    width = 2 if dtype == F4 else 4
    made = sb(first + p, n * width, dt=nl.uint8)
    nisa.memset(dst=made, value=ONE[dtype] * (17 if dtype == F4 else 1))
    return made.view(dtype)[first:, :]


def scale_tile(p, n, dt=nl.uint8, value=127):
    made = sb(p, n, dt=dt)
    nisa.memset(dst=made.view(nl.uint8), value=value)
    return made


def issue(p=32, m=2, n=3, left=E4, right=E5, dst=nl.float32, acc=None, **changed):
    """A matmul of ones, with parts exchanged, and what it gives: 4·P everywhere."""
    rows = 4 if p == 32 else p
    acc = ps(m, n, dt=dst) if acc is None else acc
    given = {"stationary": None, "moving": None, "stationary_scale": None, "moving_scale": None, **changed}
    made = {
        "stationary": lambda: tile_of_ones(p, m, left), "moving": lambda: tile_of_ones(p, n, right),
        "stationary_scale": lambda: scale_tile(rows, m), "moving_scale": lambda: scale_tile(rows, n),
    }  # fmt: skip
    operands = {name: made[name]() if name in made and value is None else value for name, value in given.items()}
    nisa.nc_matmul_mx(dst=acc, **operands)
    return acc, np.full(acc.shape, 4.0 * p)


# -- tensor indirection ---------------------------------------------------------------------------------------------------


def test_columns_that_are_gathered_bring_their_scales():
    p, n = 64, 12
    a, b = packed((p, 6), E4, 1, most=4), packed((p, 40), E5, 2, most=4)
    sa, sb_ = scales(p, 6, 1), scales(p, 40, 2)
    index = np.random.default_rng(3).integers(0, 40, (32, 1)).astype(np.uint16)
    chosen = index[np.arange(n), 0]

    def gathering(left, right, left_scales, right_scales, index):
        given = []
        for data, dtype in ((left, E4), (right, E5)):
            given.append(sb(p, data.shape[1], dt=dtype))
            nisa.dma_copy(dst=given[-1], src=data.view(dtype))
        for numbers in (left_scales, right_scales):
            given.append(nl.full((p, numbers.shape[1]), 127, dtype=nl.uint8))
            for q in range(p // 32):
                nisa.dma_copy(dst=given[-1][32 * q : 32 * q + 4, :], src=numbers[4 * q : 4 * q + 4, :])
        at = sb(p, 1, dt=nl.uint16)
        for q in range(p // 32):
            nisa.dma_copy(dst=at[32 * q : 32 * q + 32, :], src=index)
        acc = ps(6, n)
        nisa.nc_matmul_mx(acc, given[0], given[1].indirect(at, num_elem=n), given[2], given[3].indirect(at, num_elem=n))
        return st(acc)

    got = run(gathering, a, b, sa, sb_, index, target="trn3")
    want = run(multiply, a, np.ascontiguousarray(b[:, chosen]), sa, np.ascontiguousarray(sb_[:, chosen]), E4, E5, target="trn3")
    np.testing.assert_array_equal(got, want)


def first_columns(tile, index, count=3):
    return tile.indirect(index, num_elem=count)


def zeros_at(partition=0, address=None):
    made = sb(64, 1, dt=nl.uint16, **({"address": address} if address else {}))
    nisa.memset(dst=made, value=0)
    return made[partition : partition + 32]


@book.breaks("nc_matmul_mx.indirect.pair_agree", on="trn3")
def _(bad):
    index, other = zeros_at(), zeros_at()
    data, factors = tile_of_ones(32, 3, E5), scale_tile(32, 3)
    return issue(moving=first_columns(data, index), moving_scale=first_columns(factors, other if bad else index))


@book.breaks("nc_matmul_mx.indirect.pair_agree", on="trn3")
def _(bad):
    index = zeros_at()
    data, factors = tile_of_ones(32, 3, E5), scale_tile(32, 3)
    return issue(moving=first_columns(data, index), moving_scale=factors if bad else first_columns(factors, index))


@book.breaks("nc_matmul_mx.indirect.tile_position", on="trn3")
def _(bad):
    index = zeros_at()
    data, factors = tile_of_ones(32, 3, E5), scale_tile(32, 3)
    return issue(moving=first_columns(data, index), moving_scale=first_columns(factors, index),
                 tile_position=(32 if bad else 0, 0), tile_size=(32, 128))  # fmt: skip


@book.breaks("nc_matmul_mx.indirect.partitions", on="trn3")
def _(bad):
    index = zeros_at(32 if bad else 0)
    data, factors = tile_of_ones(32, 3, E5), scale_tile(32, 3)
    return issue(moving=first_columns(data, index), moving_scale=first_columns(factors, index))


@book.breaks("nc_matmul_mx.gen4_only", on="trn1 trn2")
def _(bad):
    if not bad:
        return x(32, 8), v(32, 8)
    p, t = ps(8, 8), x(32, 8)
    nisa.nc_matmul_mx(p, t, t, t, t)
    return p, 0


@book.breaks("nc_matmul_mx.buffers", on="trn3")
def _(bad):
    return issue(acc=(sb if bad else ps)(2, 3))


@book.breaks("nc_matmul_mx.buffers", on="trn3")
def _(bad):
    t = ps(32, 2, dt=nl.uint32) if bad else tile_of_ones(32, 2, E4)
    return issue(stationary=t.view(E4))


@book.breaks("nc_matmul_mx.buffers", on="trn3")
def _(bad):
    return issue(moving=hx(32, 3, dt=nl.uint32).view(E5) if bad else tile_of_ones(32, 3, E5))


@book.breaks("nc_matmul_mx.buffers", on="trn3")
def _(bad):
    return issue(moving_scale=hx(4, 3, dt=nl.uint8) if bad else scale_tile(4, 3))


@book.breaks("nc_matmul_mx.data_dtype", on="trn3")
def _(bad):
    t = tile_of_ones(32, 2, E4)
    return issue(stationary=t.view(nl.uint32) if bad else t)


@book.breaks("nc_matmul_mx.data_dtype", on="trn3")
def _(bad):
    t = tile_of_ones(32, 12 if bad else 3, F4)
    return issue(moving=t.view(nl.float8_e5m2)[:, 0:3] if bad else t)


@book.breaks("nc_matmul_mx.scale_dtype", on="trn3")
def _(bad):
    return issue(stationary_scale=scale_tile(4, 2, dt=nl.int8 if bad else nl.float8_e8m0fnu))


@book.breaks("nc_matmul_mx.dst_dtype", on="trn3")
def _(bad):
    return issue(dst=nl.float16 if bad else BF16)


@book.breaks("nc_matmul_mx.k_mult_32", on="trn3")
def _(bad):
    return issue(p=64, moving=tile_of_ones(32 if bad else 64, 3, E5))


@book.breaks("nc_matmul_mx.k_mult_32", on="trn3")
def _(bad):
    return issue(p=80 if bad else 96)


@book.breaks("nc_matmul_mx.stationary_free_even_le_128", on="trn3")
def _(bad):
    return issue(m=3 if bad else 4)


@book.breaks("nc_matmul_mx.stationary_free_even_le_128", on="trn3")
def _(bad):
    t, s = tile_of_ones(32, 130, E4), scale_tile(4, 130)
    wide = slice(0, 130 if bad else 128)
    return issue(acc=ps(128, 3), stationary=t[:, wide], stationary_scale=s[:, wide])


@book.breaks("nc_matmul_mx.moving_free", on="trn3")
def _(bad):
    t, s = tile_of_ones(32, 4098, F4), scale_tile(4, 4098)
    wide = slice(0, 4097 if bad else 4096)
    return issue(acc=ps(2, 4096), moving=t[:, wide], moving_scale=s[:, wide])


@book.breaks("nc_matmul_mx.moving_free", on="trn3")
def _(bad):
    t, s = tile_of_ones(32, 8194, F4), scale_tile(4, 8194)
    wide = slice(0, 8193 if bad else 8192)
    acc, _ = issue(acc=ps(2, 8192, dt=BF16), moving=t[:, wide], moving_scale=s[:, wide])
    return acc[:, 4096:], np.full((2, 4096), 128.0)


@book.breaks("nc_matmul_mx.dst_shape", on="trn3")
def _(bad):
    acc = ps(2, 4)
    issue(acc=acc if bad else acc[:, 1:4])
    return acc[:, 1:4], np.full((2, 3), 128.0)


@book.breaks("nc_matmul_mx.scale_shape", on="trn3")
def _(bad):
    s = scale_tile(4, 4)
    return issue(moving_scale=s if bad else s[:, 0:3])


@book.breaks("nc_matmul_mx.scale_shape", on="trn3")
def _(bad):
    return issue(stationary_scale=scale_tile(3 if bad else 4, 2))


@book.breaks("nc_matmul_mx.scale_shape", on="trn3")
def _(bad):
    return issue(p=128, moving_scale=scale_tile(16 if bad else 128, 3))


@book.breaks("nc_matmul_mx.scale_shape", on="trn3")
def _(bad):
    s = scale_tile(128, 2)
    return issue(p=128, stationary_scale=s[0:99, :] if bad else s[0:100, :])


@book.breaks("nc_matmul_mx.scale_same_quadrant", on="trn3")
def _(bad):
    s = scale_tile(128, 2)
    return issue(stationary=tile_of_ones(32, 2, E4, first=96), stationary_scale=s[0:4, :] if bad else s[96:100, :])


@book.breaks("nc_matmul_mx.scale_same_quadrant", on="trn3")
def _(bad):
    s = scale_tile(128, 3)
    return issue(p=64, moving=tile_of_ones(64, 3, E5, first=64), moving_scale=s[12:, :] if bad else s[76:, :])


@book.breaks("nc_matmul_mx.scale_offset_in_quadrant", on="trn3")
def _(bad):
    s = scale_tile(128, 3)
    return issue(p=128, moving_scale=s[16:, :] if bad else s[12:, :])


@book.breaks("nc_matmul_mx.scale_offset_in_quadrant", on="trn3")
def _(bad):
    s = scale_tile(32, 2)
    return issue(stationary_scale=s[6:10, :] if bad else s[8:12, :])


@book.breaks("hw.start_partition.p1_32", on="trn3")
def _(bad):
    t = tile_of_ones(64, 3, E5)
    return issue(moving=t[16:48, :] if bad else t[0:32, :])


@book.breaks("nc_matmul_mx.row_tiling_only", on="trn3")
def _(bad):
    return issue(tile_position=(0, 0), tile_size=(32, 64 if bad else 128))


@book.breaks("nc_matmul_mx.row_tiling_only", on="trn3")
def _(bad):
    return issue(tile_position=(0, 0), tile_size=(96 if bad else 64, 128))


@book.breaks("nc_matmul_mx.row_tiling_only", on="trn3")
def _(bad):
    return issue(tile_position=(32, 32 if bad else 0), tile_size=(32, 128))


@book.breaks("nc_matmul_mx.start_row", on="trn3")
def _(bad):
    return issue(tile_position=(32 if bad else 64, 0), tile_size=(64, 128))


@book.breaks("nc_matmul_mx.start_row", on="trn3")
def _(bad):
    return issue(tile_position=(128 if bad else 96, 0), tile_size=(32, 128))


@book.breaks("nc_matmul_mx.tile_fits", on="trn3")
def _(bad):
    return issue(p=64, tile_position=(0, 0), tile_size=(32 if bad else 64, 128))


@book.breaks("nc_matmul_mx.tile_both_or_none", on="trn3")
def _(bad):
    return issue(tile_position=(0, 0), tile_size=() if bad else (128, 128))


@book.breaks("nc_matmul_mx.tile_both_or_none", on="trn3", error=NkiTypeError)
def _(bad):
    return issue(tile_position=(0, 0), tile_size=(128.0 if bad else 128, 128))


@book.rejects()
def test_rejects(case, target):
    with pytest.raises(case.error) as caught:
        case.run(target, bad=True)
    assert caught.value.diagnosis.rule.id == case.rule, str(caught.value)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
