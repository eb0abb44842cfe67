"""``nc_matmul`` over views, dtypes, tile positions, modes and accumulation flags, against sums over elements."""

import math

import nki.isa as nisa
import numpy as np
import properties as pr
from hypothesis import given
from hypothesis import strategies as some
from nki.isa import matmul_perf_mode
from properties import BY_NAME, F, equal, execute, same_bits, tiles, tried

COVERS = {"nc_matmul": "test_nc_matmul"}
SINGLE = ["float32", "tfloat32"]
HALF = ["bfloat16", "float16", "float8_e4m3", "float8_e5m2"]


@some.composite
def pairs(draw, target, fp8=False):
    """Two dtypes that meet in a matmul of a generation."""
    if not fp8 and draw(some.booleans()):
        return draw(some.sampled_from(SINGLE)), draw(some.sampled_from(SINGLE))
    legal = HALF[2:] if fp8 else HALF
    left, right = draw(some.sampled_from(legal)), draw(some.sampled_from(legal))
    if target == "trn3" and draw(some.booleans()):  # the OCP format takes the place of the other one on both sides
        left, right = (d.replace("float8_e4m3", "float8_e4m3fn") for d in (left, right))
    return left, right


def numbers(generator, shape, dtype, special):
    """Everyday numbers and zeros of both signs; with ``special`` also NaN and infinity."""
    made = pr.contents(generator, shape, dtype, "plain")
    made = np.where(generator.random(shape) < 0.2, generator.choice(np.array([0.0, -0.0]).astype(made.dtype), shape), made)
    if special:
        odd = generator.choice(np.array([np.nan, np.inf, -np.inf], F).astype(made.dtype), shape)
        made = np.where(generator.random(shape) < 0.02, odd, made)
    return made


@some.composite
def operands(draw, target, rows, columns, dtype, special, double, simple):
    """An operand [K, columns], with double_row [K, 2, columns]; ``simple``: one free dimension in memory."""
    generator = np.random.default_rng(draw(pr.seeds))
    each = 2 * columns if double else columns
    values = numbers(generator, (rows, each), dtype, special)
    shape = (2, columns) if double else (columns,) if simple else None
    # a broadcast repeats what is in memory, so the values come from there
    repeats = not simple and draw(some.booleans())
    return draw(tiles(rows, each, dtype, "plain", "sbuf", shape=shape, values=None if repeats else values, repeats=repeats))


def products(left, right, k, m, n, double):
    """Sums of products in double precision, and of their magnitudes."""
    total, size = np.empty((m, n)), np.empty((m, n))
    for i in range(m):
        for j in range(n):
            terms = [float(left[p, r * m + i]) * float(right[p, r * n + j]) for p in range(k) for r in range(1 + double)]
            if any(math.isnan(t) for t in terms) or (math.inf in terms and -math.inf in terms):
                total[i, j], size[i, j] = math.nan, 0
            elif math.inf in terms or -math.inf in terms:
                total[i, j], size[i, j] = math.inf if math.inf in terms else -math.inf, 0
            else:
                total[i, j], size[i, j] = math.fsum(terms), math.fsum(map(abs, terms))
    return total, size


FLAGS = [(None,), (False,), (None, None), (False, True), (False, None, True), (None, True, None), (None, None, False)]
"""The first matmul overwrites."""


@given(data=some.data(), target=pr.targets, k=some.sampled_from([1, 2, 5, 33, 128]), m=some.sampled_from([1, 2, 4, 33]),
       n=some.integers(1, 7), special=some.integers(0, 3).map(lambda i: i == 0))  # fmt: skip
@tried(60)
def test_nc_matmul(data, target, k, m, n, special):
    """The order of a sum is not documented: within 2^-20 of the sum of magnitudes, and a rounding to bfloat16 each."""
    n = min(n, 3) if k * m > 200 else n
    double = target != "trn1" and data.draw(some.integers(0, 3)) == 0
    flags = data.draw(some.sampled_from(FLAGS))
    dtypes = data.draw(pairs(target, double))
    steps = [
        (data.draw(operands(target, k, m, dtypes[0], special, double, True)),
         data.draw(operands(target, k, n, dtypes[1], special, double, False))) for _ in flags
    ]  # fmt: skip
    dst = data.draw(tiles(m, n, data.draw(some.sampled_from(["float32", "bfloat16"])) if target == "trn3" else "float32",
                          buffer="psum", repeats=False))  # fmt: skip
    tile = {}
    legal = [128, 64, *[32] * (target != "trn1")]
    if data.draw(some.booleans()):
        rows = data.draw(some.sampled_from([s for s in legal if s >= k]))
        columns = data.draw(some.sampled_from([s for s in legal if s >= m])) if not double else 128
        starts = tuple(data.draw(some.sampled_from(range(0, 129 - each, each))) for each in (rows, columns))
        tile = {"tile_position": starts, "tile_size": (rows, columns)}
    if double:
        tile["perf_mode"] = matmul_perf_mode.double_row

    def issue(d, *views):
        for at, flag in enumerate(flags):
            nisa.nc_matmul(dst=d, stationary=views[2 * at], moving=views[2 * at + 1], accumulate=flag, **tile)

    (got,) = execute(issue, [dst, *(o for step in steps for o in step)], [dst], target)
    want, bound = None, None
    for (left, right), flag in zip(steps, flags, strict=True):
        total, size = products(left, right, k, m, n, double)
        if want is None or flag is False:
            want, bound = total, size
        else:
            with np.errstate(invalid="ignore"):
                want, bound = want + total, bound + size
    mine = got.reshape(-1)[dst.where].astype(np.float64)
    equal(got, dst.holding(got.reshape(-1)[dst.where]))  # nothing else changed
    finite = np.isfinite(want)
    np.testing.assert_array_equal(mine[~finite], want[~finite])
    allowed = bound * (2.0**-20 + (0 if dst.dtype == "float32" else len(flags) * 2.0**-8))
    assert (np.abs(mine[finite] - want[finite]) <= allowed[finite]).all()


@given(data=some.data(), target=pr.targets, k=some.sampled_from([1, 3, 32, 40]), m=some.sampled_from([1, 2, 5, 33]))
@tried(50)
def test_a_transpose_moves_bits(data, target, k, m):
    """With an identity matrix as moving; trn1 multiplies, so its numbers are finite here."""
    dtype = data.draw(some.sampled_from([*SINGLE, "bfloat16", "float16"]))
    generator = np.random.default_rng(data.draw(pr.seeds))
    values = pr.contents(generator, (k, m), dtype, "plain" if target == "trn1" else "special")
    left = data.draw(tiles(k, m, dtype, buffer="sbuf", values=values, shape=(m,), repeats=False))
    eye = [[BY_NAME[dtype](i == j) for j in range(k)] for i in range(k)]
    right = data.draw(tiles(k, k, dtype, buffer="sbuf", values=eye, repeats=False))
    dst = data.draw(tiles(m, k, "float32" if target == "trn1" else dtype, buffer="psum", repeats=False, most=1))  # in one bank

    def issue(d, s, i):
        nisa.nc_matmul(dst=d, stationary=s, moving=i, is_transpose=True)

    (got,) = execute(issue, [dst, left, right], [dst], target)
    if target == "trn1":
        equal(got, dst.holding([[left[p, i] for p in range(k)] for i in range(m)]), zeros=False)
    else:
        same_bits(got, dst.holding([[left.raw(p, i) for p in range(k)] for i in range(m)]))


@given(data=some.data(), target=pr.targets, k=some.sampled_from([1, 4, 32]), m=some.integers(1, 6), n=some.integers(2, 6))
@tried(60)
def test_each_place_of_psum_has_its_own_sum(data, target, k, m, n):
    """Two matmuls over overlapping columns: the second adds where the first wrote, and overwrites the rest."""
    first, second = data.draw(some.integers(1, n)), data.draw(some.integers(0, n - 1))
    left = data.draw(operands(target, k, m, "float32", False, False, True))
    right = data.draw(tiles(k, n, "float32", "plain", "sbuf", shape=(n,)))
    dst = data.draw(tiles(m, n, "float32", buffer="psum", shape=(n,), repeats=False))

    def issue(d, s, x):
        nisa.nc_matmul(dst=d[:, 0:first], stationary=s, moving=x[:, 0:first])
        nisa.nc_matmul(dst=d[:, second:n], stationary=s, moving=x[:, second:n])

    (got,) = execute(issue, [dst, left, right], [dst], target)
    total, size = products(left, right, k, m, n, False)
    mine = got.reshape(-1)[dst.where].astype(np.float64)
    for j in range(n):
        times = (j < first) + (j >= second)
        if times == 0:
            np.testing.assert_array_equal(mine[:, j], [float(dst[i, j]) for i in range(m)])
        else:
            assert (np.abs(mine[:, j] - total[:, j] * times) <= size[:, j] * 2.0**-19).all()
