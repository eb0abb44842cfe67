"""Matmuls that add up in PSUM and are one product: which of them are, and that the results are what they were."""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from nki_sim.replay.nodes import Graph, Product
from properties import tried
from recordings import assert_fused_is_unfused

RANDOM = np.random.default_rng(11)
X = RANDOM.integers(-3, 4, (512, 128)).astype(np.float32)
"""Whole numbers, whose sums are exact in any order."""
Y = RANDOM.integers(-3, 4, (512, 256)).astype(np.float32)
Z = RANDOM.integers(-3, 4, X.shape).astype(np.float32)
W = Y.astype(ml_dtypes.bfloat16)


def out_of(y, rows=128):
    return nl.ndarray((rows, y.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)


def psum(shape=(128, 256)):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def add_up(total, x, y, pieces, accumulate=None):
    """Matmuls of rows of x and y: the first overwrites, unless ``accumulate`` says otherwise."""
    for i, (first, last) in enumerate(pieces):
        adds = i > 0 if accumulate is None else accumulate[i]
        nisa.nc_matmul(dst=total, stationary=nl.load(x[first:last, :]), moving=nl.load(y[first:last, :]), accumulate=adds)


def stored(total, out):
    tile = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=total)
    nisa.dma_copy(dst=out, src=tile)


QUARTERS = [(0, 128), (128, 256), (256, 384), (384, 512)]


def one_sum(x, y):
    total, out = psum(), out_of(y)
    add_up(total, x, y, QUARTERS)
    stored(total, out)
    return out


def by_default(x, y):
    """``accumulate`` left out: the first overwrites, the others add."""
    total, out = psum(), out_of(y)
    for first, last in QUARTERS:
        nisa.nc_matmul(dst=total, stationary=nl.load(x[first:last, :]), moving=nl.load(y[first:last, :]))
    stored(total, out)
    return out


def unequal_rows(x, y):
    total, out = psum(), out_of(y)
    add_up(total, x, y, [(0, 128), (128, 160), (160, 288), (288, 290)])
    stored(total, out)
    return out


def parts_of_one_load(x, y):
    """All columns are loaded at once, and half of them multiplied."""
    total, out = psum((128, 128)), out_of(y[:, 0:128])
    for i, (first, last) in enumerate(QUARTERS):
        loaded = nl.load(y[first:last, :])
        nisa.nc_matmul(dst=total, stationary=nl.load(x[first:last, :]), moving=loaded[:, 64:192], accumulate=i > 0)
    stored(total, out)
    return out


def two_at_once(x, y):
    """Two sums, whose matmuls come in turns."""
    totals, out = [psum(), psum()], out_of(y, 256)
    for i, (first, last) in enumerate(QUARTERS):
        for total, other in zip(totals, (first, (first + 128) % 512), strict=True):
            rows = x[other : other + 128, :]
            nisa.nc_matmul(dst=total, stationary=nl.load(rows), moving=nl.load(y[first:last, :]), accumulate=i > 0)
    for i, total in enumerate(totals):
        stored(total, out[128 * i : 128 * i + 128, :])
    return out


def rows_missing(x, y):
    total, out = psum(), out_of(y)
    add_up(total, x, y, [(0, 128), (256, 384)])
    stored(total, out)
    return out


def rows_in_another_order(x, y):
    total, out = psum(), out_of(y)
    add_up(total, x, y, QUARTERS[::-1])
    stored(total, out)
    return out


def begun_again(x, y):
    total, out = psum(), out_of(y)
    add_up(total, x, y, QUARTERS, [False, True, False, True])
    stored(total, out)
    return out


def read_between(x, y):
    total, out, seen = psum(), out_of(y), nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    add_up(total, x, y, QUARTERS[:2])
    nisa.tensor_copy(dst=seen, src=total)
    add_up(total, x, y, QUARTERS[2:], [True, True])
    stored(total, out)
    return out


def in_halves(x, y):
    """Each matmul writes half of the tile."""
    total, out = psum(), out_of(y)
    for half in (0, 128):
        add_up(total[:, half : half + 128], x, y[:, half : half + 128], QUARTERS)
    stored(total, out)
    return out


def of_what_was_computed(x, y):
    total, out = psum(), out_of(y)
    for i, (first, last) in enumerate(QUARTERS):
        doubled = nl.multiply(nl.load(x[first:last, :]), 2.0)
        nisa.nc_matmul(dst=total, stationary=doubled, moving=nl.load(y[first:last, :]), accumulate=i > 0)
    stored(total, out)
    return out


def of_what_is_written(x, y):
    """An input that the kernel writes afterwards."""
    total = psum((128, 128))
    add_up(total, x, y[:, 0:128], QUARTERS)
    stored(total, x[0:128, :])
    return x


def of_two_inputs(x, y, z):
    """The second half of the rows is another tensor's."""
    total, out = psum(), out_of(y)
    for i, rows in enumerate((x[0:128, :], z[128:256, :])):
        nisa.nc_matmul(dst=total, stationary=nl.load(rows), moving=nl.load(y[128 * i : 128 * i + 128, :]), accumulate=i > 0)
    stored(total, out)
    return out


def every_second_row_first(x, y):
    """Rows 0, 2 … 254, and then 256, 257 …"""
    total, out = psum(), out_of(y)
    for i, rows in enumerate((x[0:256:2, :], x[256:384, :])):
        nisa.nc_matmul(dst=total, stationary=nl.load(rows), moving=nl.load(y[128 * i : 128 * i + 128, :]), accumulate=i > 0)
    stored(total, out)
    return out


def of_a_constant(x, y, z, w):
    total, out = psum(), out_of(y)
    weights = nl.shared_constant((np.arange(128 * 128).reshape(128, 128) % 7 - 3).astype(ml_dtypes.bfloat16))
    nisa.nc_matmul(dst=total, stationary=nl.load(weights), moving=nl.load(w[0:128, :]), accumulate=False)
    stored(total, out)
    return out


def into_one_half(x, y):
    """The other half of the PSUM tile is never used."""
    total, out = psum()[:, 0:128], out_of(x)
    add_up(total, x, y[:, 0:128], QUARTERS)
    stored(total, out)
    return out


def transposed(x, y):
    total, out = psum((128, 128)), out_of(x)
    nisa.nc_matmul(dst=total, stationary=nl.load(x[0:128, :]), moving=nl.load(y[0:128, 0:128]), is_transpose=True)
    stored(total, out)
    return out


def never_read(x, y):
    add_up(psum(), x, y, QUARTERS)
    out = out_of(y)
    nisa.dma_copy(dst=out, src=y[0:128, :])
    return out


PRODUCTS = {
    one_sum: 1,
    by_default: 1,
    unequal_rows: 1,
    parts_of_one_load: 1,
    two_at_once: 1,
    rows_missing: 0,
    rows_in_another_order: 0,
    begun_again: 0,
    read_between: 0,
    in_halves: 0,
    of_what_was_computed: 0,
    of_what_is_written: 0,
    of_two_inputs: 0,
    every_second_row_first: 0,
    of_a_constant: 0,
    into_one_half: 0,
    transposed: 0,
    never_read: 1,
}
"""How many there are of each kernel; the second sum of ``two_at_once`` begins with other rows than those that follow."""


@pytest.mark.parametrize("kernel", PRODUCTS, ids=lambda kernel: kernel.__name__)
def test_only_sums_of_neighbouring_rows_are_products(kernel):
    given = (X, Y, Z, W)[: kernel.__code__.co_argcount]
    run = nki_sim.run(kernel, *[each.copy() for each in given])
    nodes = Graph.of(run.machine).nodes
    assert sum(isinstance(node, Product) for node in nodes) == PRODUCTS[kernel]
    assert not any(isinstance(node, Product) for node in Graph.of(run.machine, in_place=False).nodes)
    assert_fused_is_unfused(run, *given)
    assert_fused_is_unfused(run, *[(each[::-1] * 2 - 1).astype(each.dtype) for each in given])


@nki.jit
def random_sums(x, y, plan):
    """Matmuls into several PSUM tiles in any order: of each the tile, the first row, how many, and whether it adds."""
    tiles, out = [psum((128, 128)) for _ in range(3)], out_of(y[:, 0:128], 384)
    for tile in tiles:
        add_up(tile, x, y[:, 0:128], [(0, 32)])
    for tile, first, rows, adds, copied in plan:
        last = min(first + rows, 512)
        moving = nl.load(y[first:last, :])[:, 0:128]
        nisa.nc_matmul(dst=tiles[tile], stationary=nl.load(x[first:last, :]), moving=moving, accumulate=adds)
        if copied:
            stored(tiles[tile], out[128 * tile : 128 * tile + 128, :])
    for i, tile in enumerate(tiles):
        stored(tile, out[128 * i : 128 * i + 128, :])
    return out


STEP = some.tuples(
    some.integers(0, 2), some.sampled_from([0, 32, 64, 128, 160]), some.sampled_from([32, 96]), some.booleans(), some.booleans()
)


@tried(40)
@given(some.lists(STEP, max_size=8))
def test_random_sums_are_what_each_instruction_by_itself_gives(plan):
    assert_fused_is_unfused(nki_sim.run(random_sums, X, Y, tuple(plan)), X, Y)
