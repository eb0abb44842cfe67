"""What memory knows of each element, written or not and summed up or not, against an array with an entry for every element."""

from __future__ import annotations

from typing import Any

import nki.language as nl
import nki_sim
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from nki_sim import context
from nki_sim.psum import State

SHAPE = (8, 12)
ANY = st.tuples(st.integers(0, 7), st.integers(1, 8), st.integers(0, 11), st.integers(1, 12), st.integers(1, 3))
EVERY_PARTITION = st.tuples(st.just(0), st.just(8), st.integers(0, 11), st.integers(1, 12), st.integers(1, 3))
PARTS = st.one_of(EVERY_PARTITION, EVERY_PARTITION, ANY)


def part(at: tuple[int, int, int, int, int]) -> tuple[slice, slice]:
    row, rows, column, columns, step = at
    return slice(row, min(row + rows, 8)), slice(column, min(column + columns, 12), step)


def within(buffer: Any, work: Any) -> None:
    """Do something with a fresh tile, in a kernel."""

    @nki_sim.jit
    def kernel(x: Any) -> Any:
        work(nl.ndarray(SHAPE, dtype=nl.float32, buffer=buffer))
        return x

    nki_sim.run(kernel, np.zeros((1, 1), np.float32))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), PARTS), min_size=1, max_size=14))
def test_how_many_elements_of_a_part_were_never_written(steps):
    def work(tile: Any) -> None:
        written = np.zeros(SHAPE, bool)
        tile.array[...] = 0.0
        for writes, at in steps:
            view, own = tile[part(at)], written[part(at)]
            assert tile.storage.missing(view.pattern) == (~own).sum()
            if writes:
                tile.storage.mark(view.pattern)
                own[...] = True
            assert tile.storage.unwritten() == (~written).sum()
        if not written.all():
            tile.storage.poison()
            assert (np.isnan(tile.array) == ~written).all()

    within(nl.sbuf, work)


SIDE_BY_SIDE = st.sampled_from([(row, 4, column, 3, 1) for row in (0, 4) for column in (0, 3, 6, 9)])
SUMS = st.sampled_from(["open", "empty", "read", "read all", "open all"])


@settings(max_examples=60)
@given(
    st.one_of(
        st.lists(st.tuples(SUMS, PARTS), min_size=1, max_size=14),
        st.lists(st.tuples(SUMS, SIDE_BY_SIDE), min_size=1, max_size=14),
        st.lists(st.tuples(SUMS, st.one_of(SIDE_BY_SIDE, ANY)), min_size=1, max_size=14),
    ),
    st.booleans(),
)
def test_which_elements_hold_a_sum(steps, always_all):
    def work(tile: Any) -> None:
        group, own = tile.storage.accumulation, np.full(SHAPE, int(State.EMPTY))
        assert context.machine().memory is tile.memory
        for what, at in steps:
            view, mine = (tile, own) if what.endswith("all") else (tile[part(at)], own[part(at)])
            if what.startswith("read"):
                group.read(view)
                mine[mine == State.OPEN] = State.READ
            else:
                state = State.OPEN if what.startswith("open") else State.EMPTY
                group.set(view, state)
                mine[...] = state
            assert (np.broadcast_to(group.of(view), mine.shape) == mine).all()
            if always_all:
                assert (np.broadcast_to(group.of(tile), own.shape) == own).all()
        assert (np.broadcast_to(group.of(tile), own.shape) == own).all()

    within(nl.psum, work)
