"""Lists that GpSimd makes, and MX numbers, over views and places, against loops over elements."""

import math

import mx_reference as mx
import nki.isa as nisa
import numpy as np
import properties as pr
from hypothesis import given
from hypothesis import strategies as some
from properties import BY_NAME, F, cast, equal, execute, same_bits, tiles, tried

COVERS = {
    "nc_matmul_mx": "test_nc_matmul_mx",
    "nonzero_with_count": "test_nonzero_with_count",
    "quantize_mx": "test_quantize_mx",
    "sequence_bounds": "test_sequence_bounds",
    "topk": "test_topk",
}


# --- topk, nonzero_with_count, sequence_bounds -----------------------------------------------------------------------


@given(data=some.data(), target=pr.targets, cores=some.integers(1, 3), columns=some.integers(1, 3), kind=some.sampled_from(
    ["special", "few"]))  # fmt: skip
@tried(60)
def test_topk(data, target, cores, columns, kind):
    """Element i of 16 partitions is in partition i mod 16, column i div 16, and so is result i; of equal ones the first."""
    rows = 16 * cores
    n = data.draw(some.integers(8, 16 * columns))
    k = data.draw(some.integers(1, min(n, 20)))
    src = data.draw(tiles(rows, columns, "bfloat16", kind, "sbuf", shape=(columns,)))
    values = data.draw(tiles(rows, k, "bfloat16", buffer="sbuf", shape=(k,), repeats=False))
    numbers = data.draw(tiles(rows, k, "uint32", buffer="sbuf", shape=(k,), repeats=False))
    got = execute(
        lambda v, i, s: nisa.topk(val_dst=v, idx_dst=i, src=s, n=n), [values, numbers, src], [values, numbers], target
    )
    wanted = [[[tile.raw(p, i) for i in range(k)] for p in range(rows)] for tile in (values, numbers)]
    for core in range(cores):
        left = [(src[16 * core + i % 16, i // 16], i) for i in range(n)]
        for j in reversed(range(k)):
            best = 0
            for at, (x, _) in enumerate(left):
                if not np.isnan(left[best][0]) and (np.isnan(x) or x > left[best][0]):
                    best = at
            _, i = left.pop(best)
            wanted[0][16 * core + j % 16][j // 16] = src.raw(16 * core + i % 16, i // 16)
            wanted[1][16 * core + j % 16][j // 16] = i
    same_bits(got[0], values.holding(wanted[0]))
    equal(got[1], numbers.holding(wanted[1]))


@given(data=some.data(), target=some.sampled_from(["trn2", "trn3"]), rows=some.sampled_from([1, 5, 16, 17, 40, 128]),
       n=some.integers(1, 9))  # fmt: skip
@tried(60)
def test_nonzero_with_count(data, target, rows, n):
    n = min(n, 4) if rows > 40 else n
    kind, dtype = data.draw(some.sampled_from(["few", "special"])), data.draw(some.sampled_from(["float32", "int32"]))
    src = data.draw(tiles(rows, n, dtype, kind, "sbuf"))
    dst = data.draw(tiles(rows, n + 1, "int32", buffer="sbuf", repeats=False))
    offset = data.draw(some.integers(-50, 5000) | some.just(2**31 - 20))
    padding = data.draw(some.integers(-(2**31), 2**31 - 1))

    def issue(d, s):
        nisa.nonzero_with_count(dst=d, src=s, index_offset=offset, padding_val=padding)

    (got,) = execute(issue, [dst, src], [dst], target)
    values = [[dst.raw(p, i) for i in range(n + 1)] for p in range(rows)]
    for p in range(0, rows, 16):
        found = [i + offset for i in range(n) if src.raw(p, i) != 0]
        values[p] = [*found, *[padding] * (n - len(found)), len(found)]
    equal(got, dst.holding(values))


@given(data=some.data(), target=pr.targets, n=some.integers(1, 12), dtype=some.sampled_from(["float32", "int32"]))
@tried(60)
def test_sequence_bounds(data, target, n, dtype):
    """Different whole numbers are different segments, however large."""
    numbers = some.sampled_from([0, 0, 1, 2, 3, 16777215, 16777216, 16777217, 2147483647])
    ids = data.draw(some.lists(numbers, min_size=n, max_size=n))
    ids = [BY_NAME[dtype](i) for i in sorted(ids)] if data.draw(some.booleans()) else [BY_NAME[dtype](i) for i in ids]
    src = data.draw(tiles(1, n, dtype, buffer="sbuf", values=[ids], repeats=False))
    dst = data.draw(
        tiles(1, 2 * n, data.draw(some.sampled_from(["float32", "int32"])), buffer="sbuf", shape=(2, n), repeats=False)
    )
    (got,) = execute(lambda d, s: nisa.sequence_bounds(dst=d, segment_ids=s), [dst, src], [dst], target)
    starts, ends = [], []
    for i in range(n):
        first, last = i, i
        while first > 0 and ids[first - 1] == ids[i]:
            first -= 1
        while last < n - 1 and ids[last + 1] == ids[i]:
            last += 1
        starts.append(first if ids[i] else n)
        ends.append(last + 1 if ids[i] else -1)
    equal(got, dst.holding([[BY_NAME[dst.dtype](x) for x in starts + ends]]))


# --- MX --------------------------------------------------------------------------------------------------------------


@some.composite
def placed(draw, p, first, columns, numbers=None):
    """A tile for the scales of p partitions of data: ``numbers`` of row r of blocks are on partition 32 (r // 4) + r % 4."""
    start = first + draw(some.sampled_from([0, 4, 8, 12]))
    rows = p - 28
    blank = draw(tiles(rows, columns, "uint8", buffer="sbuf", repeats=False, first=start))
    values = [[int(blank.raw(q, i)) for i in range(columns)] for q in range(rows)]
    if numbers is not None:
        for r, row in enumerate(numbers):
            values[r // 4 * 32 + r % 4] = list(row)
        blank.array = blank.holding(values)
    return blank


@given(data=some.data(), p=some.sampled_from([32, 64, 96]), columns=some.integers(1, 2), dtype=some.sampled_from(mx.PACKED[:2]))
@tried(30)
def test_quantize_mx(data, p, columns, dtype):
    """Blocks of 8 partitions by 4 elements with a power of 2 each, over views of data, results and scales."""
    source = data.draw(some.sampled_from(["bfloat16", "float16"]))
    generator = np.random.default_rng(data.draw(pr.seeds))
    made = generator.standard_normal((p, 4 * columns)) * np.exp2(generator.integers(-6, 6, (p, 4 * columns)))
    values = [[cast(F(x), source) for x in row] for row in made]
    first = data.draw(some.sampled_from(pr.starts(p)))
    src = data.draw(tiles(p, 4 * columns, source, buffer="sbuf", values=values, repeats=False, first=first))
    dst = data.draw(tiles(p, columns, dtype, buffer="sbuf", repeats=False))
    scales = data.draw(placed(p, first, columns))
    got, factors = execute(
        lambda d, s, x: nisa.quantize_mx(dst=d, src=s, dst_scale=x), [dst, src, scales], [dst, scales], "trn3"
    )
    packed, found = mx.quantized(np.array(values).astype(np.float64), dtype)
    equal(got, dst.holding(np.asarray(packed)))
    want = [[scales.raw(q, i) for i in range(columns)] for q in range(scales.rows)]
    for r, row in enumerate(np.asarray(found)):
        want[r // 4 * 32 + r % 4] = list(row)
    equal(factors, scales.holding(want))


def packed(generator, shape, dtype):
    """Random packed elements, finite ones of everyday size."""
    width = 4 if dtype.startswith("float4") else 8
    good = np.array([c for c in range(1 << width) if abs(mx.decoded(c, dtype)) <= 8])
    chosen = generator.choice(good, (*shape, 4)).astype(np.uint64)
    return (chosen << (np.arange(4, dtype=np.uint64) * width)).sum(-1).astype(mx.STORED[dtype])


@given(data=some.data(), p=some.sampled_from([32, 64]), m=some.sampled_from([2, 4]), n=some.integers(1, 4),
       left=some.sampled_from(mx.PACKED), right=some.sampled_from(mx.PACKED))  # fmt: skip
@tried(30)
def test_nc_matmul_mx(data, p, m, n, left, right):
    """Products of scaled blocks over views of data, scales and result, within 2^-20 of the sum of magnitudes."""
    generator = np.random.default_rng(data.draw(pr.seeds))
    first = data.draw(some.sampled_from(pr.starts(p)))
    operands, given_values = [], []
    for columns, dtype in ((m, left), (n, right)):
        elements = packed(generator, (p, columns), dtype)
        factors = generator.integers(120, 134, (p // 8, columns)).astype(np.uint8)
        operands.append(data.draw(tiles(p, columns, dtype, buffer="sbuf", values=elements, repeats=False, first=first)))
        operands.append(data.draw(placed(p, first, columns, factors)))
        given_values.append((elements, factors))
    dst = data.draw(tiles(m, n, data.draw(some.sampled_from(["float32", "bfloat16"])), buffer="psum", repeats=False))

    def issue(d, a, sa, b, sb):
        nisa.nc_matmul_mx(dst=d, stationary=a, moving=b, stationary_scale=sa, moving_scale=sb)

    (got,) = execute(issue, [dst, *operands], [dst], "trn3")
    (a, sa), (b, sb) = given_values
    want = np.asarray(mx.product(a, left, sa, b, right, sb), np.float64)
    size = np.abs(mx.dequantized(a, left, sa)) @ np.abs(mx.dequantized(b, right, sb)).T
    mine = got.reshape(-1)[dst.where]
    equal(got, dst.holding(mine))
    allowed = size * 2.0**-20 + (np.abs(want) * 2.0**-8 if dst.dtype == "bfloat16" else 0)
    assert (np.abs(mine.astype(np.float64) - want) <= allowed).all()
    assert not math.isnan(float(want.sum()))
