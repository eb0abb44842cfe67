"""Ranks that write an array they were all given: each has what it wrote, and only that takes memory."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import nki.isa as nisa
import nki_sim
import numpy as np
import pytest
from kernels import ld
from nki_sim import copies
from nki_sim.errors import NkiIndexError

ROWS, COLUMNS, RANKS = 4096, 1024, 8


def with_a_row(cache, row, which):
    """A cache in HBM, of which one row is written."""
    nisa.dma_copy(dst=cache[which : which + 1, :], src=ld(row))
    return cache


def run(cache, ranks=RANKS):
    rows = [np.full((1, COLUMNS), rank + 1, np.float32) for rank in range(ranks)]
    return nki_sim.run_ranks(
        with_a_row, [(cache, row, 10 * rank) for rank, row in enumerate(rows)], ranks=ranks, keep_inputs=False
    )


def expected(cache, rank):
    made = cache.copy()
    made[10 * rank] = rank + 1
    return made


@pytest.mark.parametrize("least", [copies.LEAST, 1 << 40], ids=["shared pages", "copied"])
def test_each_rank_has_what_it_wrote(monkeypatch, least):
    monkeypatch.setattr(copies, "LEAST", least)
    before = np.random.default_rng(3).standard_normal((ROWS, COLUMNS), np.float32)
    cache = before.copy()
    results = run(cache).result
    for rank, result in enumerate(results):
        assert result.tobytes() == expected(before, rank).tobytes()
    results[0][...] = 0
    assert results[1].tobytes() == expected(before, 1).tobytes()
    cache[...] = 1
    assert results[2].tobytes() == expected(before, 2).tobytes()


def test_where_no_more_files_may_be_open_arrays_are_copied(monkeypatch):
    def none_left(_):
        raise OSError(24, "too many open files")

    monkeypatch.setattr(os, "memfd_create", none_left, raising=False)
    before = np.ones((ROWS, COLUMNS), np.float32)
    for rank, result in enumerate(run(before.copy(), 2).result):
        assert result.tobytes() == expected(before, rank).tobytes()


def own_bytes():
    """Bytes of memory that only this process has."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="pages are shared on Linux only")
def test_pages_that_nobody_writes_are_there_once():
    cache = np.ones((ROWS, COLUMNS), np.float32)
    before, files = own_bytes(), len(os.listdir("/proc/self/fd"))
    made = run(cache)
    assert own_bytes() - before < 2 * cache.nbytes
    assert len(made.result) == RANKS
    del made
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files


def files_in_memory():
    """Open files that hold an array, or that a copy of one is read from."""
    opened = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return sum("memfd:nki_sim" in os.readlink(path) for path in opened if path.is_symlink())


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="pages are shared on Linux only")
def test_a_run_that_fails_lets_go_of_the_arrays():
    def failing(cache):
        nisa.dma_copy(dst=cache[0:1, :], src=cache[1:2, :])
        nisa.dma_copy(dst=cache[0:1, :], src=cache[ROWS : ROWS + 1, :])

    cache = np.ones((ROWS, COLUMNS), np.float32)
    with pytest.raises(NkiIndexError) as caught:
        nki_sim.run_ranks(failing, [(cache,)] * 2, ranks=2)
    assert files_in_memory() == 1  # of the copy that the run has, which can still be looked at
    del caught
    gc.collect()
    assert files_in_memory() == 0


def test_what_is_returned_unwritten_is_a_copy():
    def same(x):
        return x

    given = np.ones((64, 32), np.float32)
    result = nki_sim.run(same, given).result
    assert not np.shares_memory(result, given) and result.tobytes() == given.tobytes()
