"""Properties of kernels that divide their work: any number of cores, in any interleaving, and of ranks gives one result."""

import random

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from nki_sim.cores import interleaved

FEW = settings(max_examples=25, deadline=None)
SEEDS = some.integers(0, 2**32 - 1)


def mine(rows):
    """The rows of this core; the last one takes what is left."""
    me, cores = nl.program_id(0), nl.num_programs()
    share = -(-rows // cores)
    return range(min(share * me, rows), min(share * (me + 1), rows))


def exponentials(x):
    out, rows = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), mine(x.shape[0])
    for start in rows[::128]:
        stop = min(start + 128, rows.stop)
        nl.store(out[start:stop], nl.exp(nl.load(x[start:stop])))
    return out


def row_sums(x):
    out, rows = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm), mine(x.shape[0])
    for start in rows[::128]:
        stop = min(start + 128, rows.stop)
        nl.store(out[start:stop], nl.sum(nl.load(x[start:stop]), axis=1, keepdims=True))
    return out


def gram(x):
    """x.T @ x by columns: each core some columns of the result."""
    n = x.shape[1]
    out, columns = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.shared_hbm), mine(n)
    if not columns:
        return out
    acc = nl.ndarray((n, len(columns)), dtype=nl.float32, buffer=nl.psum)
    for k in range(0, x.shape[0], 128):
        rows = nl.load(x[k : min(k + 128, x.shape[0])])
        nisa.nc_matmul(dst=acc, stationary=rows, moving=rows[:, columns.start : columns.stop])
    nl.store(out[:, columns.start : columns.stop], nl.copy(acc))
    return out


def turned(x):
    """Rows in another order, through memory that all cores share."""
    rows = mine(x.shape[0])
    between, out = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    if rows:
        nisa.dma_copy(dst=between[rows.start : rows.stop], src=x[rows.start : rows.stop])
    if nl.num_programs() > 1:
        nisa.core_barrier(data=between, cores=(0, 1))
    for row in rows:
        nisa.dma_copy(dst=out[row : row + 1], src=between[(row + 3) % x.shape[0] : (row + 3) % x.shape[0] + 1])
    return out


@pytest.mark.parametrize("kernel", [exponentials, row_sums, gram, turned])
@FEW
@given(rows=some.integers(1, 200), columns=some.integers(1, 90), seed=SEEDS, target=some.sampled_from(["trn2", "trn3"]))
def test_two_cores_give_what_one_gives(kernel, rows, columns, seed, target):
    x = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    if kernel is turned:
        x = x[:20]
    one, two = (nki_sim.run(nki.jit(kernel)[cores], x, target=target, strict=True).result for cores in (1, 2))
    np.testing.assert_array_equal(two, one)
    with interleaved(random.Random(seed).choice):
        mixed = nki_sim.run(nki.jit(kernel)[2], x, target=target, strict=True)
    np.testing.assert_array_equal(mixed.result, one)


def scattered_and_gathered(x, group):
    src, part, out = (
        nl.ndarray((rows, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        for rows in (x.shape[0], x.shape[0] // len(group.groups[0]), x.shape[0])
    )
    nisa.dma_copy(dst=src, src=x)
    ncc.reduce_scatter(srcs=[src], dsts=[part], replica_group=group, collective_dim=0, op=nl.add)
    ncc.all_gather(srcs=[part], dsts=[out], replica_group=group, collective_dim=0)
    return out


def all_reduced(x, group):
    src, out = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    nisa.dma_copy(dst=src, src=x)
    ncc.all_reduce(srcs=[src], dsts=[out], replica_group=group, op=nl.add)
    return out


@FEW
@given(ranks=some.integers(1, 6), rows=some.integers(1, 5), columns=some.integers(1, 30), cores=some.integers(1, 2), seed=SEEDS)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(ranks, rows, columns, cores, seed):
    rng = np.random.default_rng(seed)
    order = [int(rank) for rank in rng.permutation(ranks)]
    xs = [rng.standard_normal((rows * ranks, columns)).astype(np.float32) for _ in range(ranks)]
    given_ = [(x, ncc.ReplicaGroup([order])) for x in xs]
    expected = xs[order[0]].copy()
    for rank in order[1:]:
        expected += xs[rank]
    with interleaved(random.Random(seed).choice):
        for kernel in (all_reduced, scattered_and_gathered):
            kernel = nki.jit(kernel)[cores] if cores > 1 else nki.jit(kernel)
            if cores > 1:
                with pytest.warns(nki_sim.NkiWarning, match="with the same values"):  # both cores copy all of the input
                    results = nki_sim.run_ranks(kernel, given_, ranks=ranks).result
            else:
                results = nki_sim.run_ranks(kernel, given_, ranks=ranks, strict=True).result
            for result in results:
                np.testing.assert_array_equal(result, expected)
