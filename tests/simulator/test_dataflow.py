"""What a kernel does for nothing: found by line, and nothing found where values are used."""

from __future__ import annotations

import resource

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from kernels import hb, ld, ps, sb, st
from nki_sim.dataflow import wasted

X = np.ones((16, 8), np.float32)
PICKS = np.array([[3], [5]], np.int32)


def found(kernel, *args, target="trn2"):
    """(rule, line within the kernel, words) of what it did for nothing."""
    run = nki_sim.run(kernel, *args, target=target)
    first = getattr(kernel, "function", kernel).__code__.co_firstlineno
    return [(d.rule.id, d.line - first, d.headline) for d in wasted(run.program, target)]


# -- the rules -----------------------------------------------------------------------------------------------------------


def test_a_load_that_nothing_reads():
    def kernel(x, y):
        a = nl.load(x)
        b = nl.load(y[0:8])  # noqa: F841
        return st(a)

    [(rule, line, words)] = found(kernel, X, X.copy())
    assert (rule, line) == ("dataflow.unused_load", 2)
    assert words == "loads y[0:8, :] into b, which nothing reads"


def test_a_result_that_nothing_reads():
    def kernel(x):
        a = nl.load(x)
        b = nl.exp(a)  # noqa: F841
        return st(a)

    assert found(kernel, X) == [("dataflow.never_read", 2, "writes b, which nothing reads")]


def test_a_value_that_is_overwritten():
    def kernel(x):
        a = ld(x)
        b = sb(16, 8)
        nisa.memset(dst=b, value=0.0)
        nisa.tensor_copy(dst=b, src=a, engine=nisa.engine.vector)
        return st(b)

    first = kernel.__code__.co_firstlineno
    words = f"writes b, which line {first + 4} overwrites before anything reads it"
    assert found(kernel, X) == [("dataflow.overwritten", 3, words)]


def test_stores_to_one_place_because_an_index_was_forgotten():
    def kernel(x):
        out = hb(4, 8)
        for i in range(4):
            nisa.dma_copy(dst=out[0:4], src=ld(x[4 * i : 4 * i + 4]))
        return out

    [(rule, line, words)] = found(kernel, X)
    assert (rule, line) == ("dataflow.overwritten", 3)
    assert words.startswith("writes out, which line") and words.endswith("before anything reads it, 3 of 4 times")


def test_a_tile_that_is_never_used():
    def kernel(x):
        spare = nl.ndarray((16, 8), dtype=nl.bfloat16, buffer=nl.sbuf)  # noqa: F841
        return st(ld(x))

    assert found(kernel, X) == [("dataflow.unused_tile", 1, "spare (sbuf bfloat16 [16 × 8]) is never used")]


def test_all_rounds_of_a_loop_count_as_one_line():
    def kernel(x):
        for i in range(4):
            nl.load(x[4 * i : 4 * i + 4])
        return st(ld(x))

    [(rule, line, words)] = found(kernel, X)
    assert (rule, line) == ("dataflow.unused_load", 2) and words.endswith(", 4 of 4 times")


def test_a_helper_counts_for_each_line_that_calls_it():
    def load(x):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        return tile

    def kernel(x, y):
        a = load(x)
        load(y)
        return st(a)

    assert [rule for rule, _, _ in found(kernel, X, X)] == ["dataflow.unused_load"]


def test_the_matmul_of_a_sum_that_nothing_reads():
    @nki.jit
    def kernel(x):
        a, acc = ld(x), ps(8, 8)
        nisa.nc_matmul(dst=acc, stationary=a, moving=a, accumulate=False)
        nisa.nc_matmul(dst=acc, stationary=a, moving=a, accumulate=True)
        return st(a)

    assert [(rule, line) for rule, line, _ in found(kernel, X)] == [("dataflow.never_read", 4)]


def test_the_diagnosis_says_what_and_where():
    def kernel(x):
        nl.load(x)
        return st(ld(x))

    [diagnosis] = wasted(nki_sim.run(kernel, X, target="trn3").program, "trn3")
    assert diagnosis.target == "trn3" and diagnosis.instruction == "dma_copy" and diagnosis.operand == "dst"
    for words in ("nl.load(x)", "fix", "rule    dataflow.unused_load", "https://"):
        assert words in diagnosis.text()


# -- what is no finding ----------------------------------------------------------------------------------------------------


@nki.jit
def running_sum(x):
    """The sum so far is written once more than it is read."""
    out, so_far = hb(16, 8), sb(4, 8)
    nisa.memset(dst=so_far, value=0.0)
    for i in range(4):
        tile = ld(x[4 * i : 4 * i + 4])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=so_far, op=nl.add)
        nisa.tensor_copy(dst=so_far, src=tile, engine=nisa.engine.vector)
        nisa.dma_copy(dst=out[4 * i : 4 * i + 4], src=tile)
    return out


@nki.jit
def one_round(x):
    """The same loop, of one round: what it leaves for the next is not read either."""
    out, so_far = hb(16, 8), sb(16, 8)
    nisa.memset(dst=so_far, value=0.0)
    for _ in range(1):
        tile = ld(x)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=so_far, op=nl.add)
        nisa.tensor_copy(dst=so_far, src=tile, engine=nisa.engine.vector)
        nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def striped(x):
    """Every other column, then the others: neither overwrites the other."""
    a, tile = ld(x), sb(16, 8)
    nisa.tensor_copy(dst=tile[:, 0:8:2], src=a[:, 0:8:2], engine=nisa.engine.vector)
    nisa.tensor_copy(dst=tile[:, 1:8:2], src=a[:, 1:8:2], engine=nisa.engine.vector)
    nisa.tensor_copy(dst=tile[:, 0:8:3], src=a[:, 0:8:3], engine=nisa.engine.vector)
    return st(tile)


@nki.jit
def in_place(x):
    """Writes its argument."""
    tile = ld(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=x, src=tile)


@nki.jit
def only_the_sum(x):
    """Of two results one is wanted."""
    tile, powers, total = ld(x), sb(16, 8), sb(16, 1)
    nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total)
    return st(total)


@nki.jit
def looked_at(x):
    """A tile that Python prints."""
    tile = nl.exp(ld(x))
    nl.device_print("exp", tile[0:1, 0:2])
    return st(ld(x))


@nki.jit
def aliased(x):
    """Two tiles with the same address: one is written, the other read."""
    one = nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
    two = nl.ndarray((16, 8), dtype=nl.int32, buffer=nl.sbuf, address=(0, 0))
    nisa.dma_copy(dst=one, src=x)
    out = hb(16, 8, dt=nl.int32)
    nisa.dma_copy(dst=out, src=two)
    return out


@nki.jit
def padded(x):
    """A tile that is filled, then written in part."""
    tile = sb(16, 10)
    nisa.memset(dst=tile, value=0.0)
    nisa.dma_copy(dst=tile[:, 1:9], src=x)
    return st(tile)


@pytest.mark.parametrize("kernel", [running_sum, one_round, striped, in_place, only_the_sum, looked_at, padded])
def test_values_that_are_used(kernel):
    assert found(kernel, X.copy()) == []


def test_tiles_that_share_an_address():
    with pytest.warns(nki_sim.NkiWarning, match="last written as one"):
        assert found(aliased, X) == []


def test_rows_that_a_gather_skips_keep_what_was_there():
    def kernel(x, picks):
        rows = sb(2, 8)
        nisa.memset(dst=rows, value=-1.0)
        nisa.dma_copy(dst=rows, src=x.vector_select(0, ld(picks)), oob_mode=nisa.oob_mode.skip)
        return st(rows)

    assert found(kernel, X, PICKS) == []


def test_a_tile_that_says_where_is_read():
    def kernel(x, pick):
        index, row = ld(pick), sb(1, 8)
        nisa.dma_copy(dst=row, src=x.ap([[8, 1], [1, 8]], scalar_offset=index))
        return st(row)

    assert found(kernel, X, PICKS[:1]) == []


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_what_one_core_writes_and_the_other_reads(target):
    @nki.jit
    def kernel(x):
        me, other = nl.program_id(0), 1 - nl.program_id(0)
        between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=between[8 * me : 8 * me + 8], src=x[8 * me : 8 * me + 8])
        nisa.core_barrier(data=between, cores=(0, 1))
        nisa.dma_copy(dst=out[8 * me : 8 * me + 8], src=between[8 * other : 8 * other + 8])
        return out

    assert found(kernel[2], X, target=target) == []


def test_what_ranks_exchange():
    @nki.jit
    def kernel(x):
        mine, total, out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), hb(16, 8), hb(16, 8)
        nisa.dma_copy(dst=mine, src=x)
        ncc.all_reduce(dsts=[total], srcs=[mine], op=nl.add, replica_group=ncc.ReplicaGroup([[0, 1]]))
        nisa.dma_copy(dst=out, src=total)
        return out

    run = nki_sim.run_ranks(kernel, [(X,), (X,)], ranks=2)
    assert wasted(run.program, "trn2") == []


# -- without data ----------------------------------------------------------------------------------------------------------


def partly(x):
    """Reads and returns what it has not written."""
    tile, out = sb(16, 8), hb(16, 8)
    nisa.dma_copy(dst=tile[0:8], src=x[0:8])
    acc = ps(8, 8)
    nisa.nc_matmul(dst=acc, stationary=tile, moving=tile, accumulate=True)
    nisa.dma_copy(dst=out[0:8], src=st(acc))
    return out


@pytest.mark.filterwarnings("ignore::nki_sim.NkiWarning")
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_a_dry_run_that_watches_finds_what_a_run_finds(target):
    kernel = nki.jit(partly)
    with_data = kernel.run((X,), {}, nki_sim.RunOptions(target=target)).findings
    spec = nki_sim.TensorSpec((16, 8), "float32")
    dry = kernel.run((spec,), {}, nki_sim.RunOptions(target=target, dry=True, watch=True)).findings
    assert {d.rule.id for d in dry} >= {"ndarray.uninitialised", "kernel.output_written"}
    assert [(d.rule.id, d.line, d.headline) for d in dry] == [(d.rule.id, d.line, d.headline) for d in with_data]


def test_a_dry_run_copies_nothing():
    """The argument takes no room until somebody touches it, and nobody does."""
    spec = nki_sim.TensorSpec((1 << 16, 1 << 13), "float32")  # 2 GiB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def kernel(x):
        tile = ld(x[0:16, 0:8])
        nisa.dma_copy(dst=x[0:16, 0:8], src=tile)

    run = nki.jit(kernel).run((spec,), {}, nki_sim.RunOptions(dry=True, watch=True))
    assert run.findings == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # KiB
