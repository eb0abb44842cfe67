"""The schedule: in-order lanes, true dependencies, nothing before what it needs."""

from __future__ import annotations

from itertools import pairwise

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nki_sim.memory import claimed
from nki_sim.regions import operand_box
from nki_sim.timing.dependencies import ANTI, TRUE

X = np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)


def timeline(kernel, *args, order="program", **options):
    run = nki_sim.run(kernel, *args, **options)
    return run, run.timeline(order)


def outside_the_loop(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 32), dtype=x.dtype, buffer=nl.sbuf)
    for i in range(8):
        nisa.dma_copy(dst=t, src=x[:, 32 * i : 32 * i + 32])
        nisa.dma_copy(dst=out[:, 32 * i : 32 * i + 32], src=t)
    return out


def inside_the_loop(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(8):
        t = nl.ndarray((128, 32), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[:, 32 * i : 32 * i + 32])
        nisa.dma_copy(dst=out[:, 32 * i : 32 * i + 32], src=t)
    return out


def test_one_buffer_is_a_chain_and_eight_are_pairs():
    run, one = timeline(outside_the_loop, X)
    _, eight = timeline(inside_the_loop, X)
    assert sorted(set(eight.edges)) == [(2 * i, 2 * i + 1) for i in range(8)]
    chain = {(i, i + 1) for i in range(15)}
    assert chain <= set(one.edges)
    assert one.total > eight.total
    assert one.critical_path() == list(range(len(run.program)))


def pipeline(x):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
    acc = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=a, moving=b)
    nisa.nc_matmul(dst=acc, stationary=b, moving=a, accumulate=True)
    e = nl.exp(acc)
    both = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(both, 0.0)
    nisa.tensor_copy(both[0:64, :], e)
    nl.store(out, both)
    return out


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("kernel", [outside_the_loop, inside_the_loop, pipeline])
def test_no_step_starts_before_what_it_needs(kernel, target):
    run, line = timeline(kernel, X, target=target)
    last = {}
    for i, step in enumerate(run.program):
        lane = int(line.lane[i])
        assert line.lanes[lane].startswith("DMA") == (step.engine == "dma")
        assert line.start[i] >= line.end[last[lane]] if lane in last else line.start[i] >= 0
        last[lane] = i
        assert line.start[i] <= line.end[i] <= line.done[i] <= line.total
    known = line.dependencies
    for consumer in range(len(known)):
        for at in range(known.first[consumer], known.first[consumer + 1]):
            producer, ended = known.producers[at], line.end if known.kinds[at] == ANTI else line.done
            same = line.lane[producer] == line.lane[consumer]
            needed = line.end if same and known.kinds[at] != TRUE else ended
            assert producer < consumer and line.start[consumer] >= needed[producer]


@pytest.mark.parametrize("kernel", [outside_the_loop, inside_the_loop, pipeline])
def test_dependencies_are_those_that_share_elements(kernel):
    """Every later access that touches what an earlier one wrote (or overwrites what it read) comes after it in the schedule."""
    run, line = timeline(kernel, X)
    before = {i: {i} for i in range(len(run.program))}
    for producer, consumer in sorted(line.edges, key=lambda e: e[1]):
        before[consumer] |= before[producer]
    steps = list(run.program)
    for j, late in enumerate(steps):
        for i, early in enumerate(steps[:j]):
            if any(_conflict(a, b) for a in _accesses(early) for b in _accesses(late)):
                assert i in before[j], (i, j)


def slices_at_random(x, seed):
    """Tiles, one of them at an address, written and read whole and in slices that overlap."""
    rng = np.random.default_rng(seed)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf), nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf, address=(0, 4096))]
    for tile in tiles:
        nisa.memset(tile, 1.0)
    for _ in range(40):
        p, f = (int(rng.choice((0, 32, 64))), int(rng.integers(0, 28)))
        size, width = 32, int(rng.integers(1, 32 - f + 1))
        if rng.random() < 0.2:
            p, f, size, width = 0, 0, 128, 32
        dst, src = (tiles[i][p : p + size, f : f + width] for i in rng.integers(0, 2, 2))
        nisa.tensor_scalar(dst=dst, data=src, op0=nl.add, operand0=1.0)
        if rng.random() < 0.3:
            nl.store(out[p : p + size, f : f + width], dst)
    nl.store(out, tiles[0])
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cells", [True, False], ids=["in cells", "access by access"])
def test_slices_that_overlap_wait_for_each_other(cells, seed, monkeypatch):
    """Both ways of finding dependencies order every conflict, and name no step that is none."""
    if not cells:
        monkeypatch.setattr("nki_sim.timing.cells.PER_ACCESS", 0)
    check_edges(*timeline(slices_at_random, X[:, :32].copy(), seed))


def placed_at_random(x, seed):
    """Tiles placed over each other in turn, of a few sizes, written and read in part; now and then an earlier one again."""
    rng = np.random.default_rng(seed)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for _ in range(40):
        if rng.random() < 0.4 or not tiles:
            width, first = int(rng.choice((8, 16, 32))), int(rng.integers(0, 3))
            tiles.append(nl.ndarray((128, width), x.dtype, buffer=nl.sbuf, address=(0, 4096 + 32 * first)))
        dst, src = (tiles[-1 - int(min(i, len(tiles) - 1))] for i in rng.geometric(0.6, 2) - 1)
        start = int(rng.choice((0, 0, 4)))
        nisa.tensor_scalar(dst=dst[:, start:8], data=src[:, start:8], op0=nl.add, operand0=1.0)
        if rng.random() < 0.3:
            nisa.memset(dst, 0.0)
    nl.store(out[:, 0:8], tiles[-1][:, 0:8])
    return out


@pytest.mark.filterwarnings("ignore::nki_sim.NkiWarning")
@pytest.mark.parametrize("seed", range(12))
def test_tiles_placed_over_each_other_wait_for_each_other(seed):
    check_edges(*timeline(placed_at_random, X[:, :32].copy(), seed))


def test_a_place_used_in_turn_costs_no_more_from_turn_to_turn():
    """A tile waits for the one that had its bytes before it, not for all that ever had."""

    def kernel(x, turns):
        out = nl.ndarray((128, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        for _ in range(turns):
            t = nl.ndarray((128, 32), x.dtype, buffer=nl.sbuf, address=(0, 4096))
            for half in (t[:, 0:16], t[:, 16:32]):
                nisa.memset(half, 1.0)
        nl.store(out, t)
        return out

    few, many = (len(timeline(kernel, X, turns)[1].edges) for turns in (20, 60))
    assert many <= 3 * few + 10


def same_place_in_both_memories(x):
    """Two tiles in turn at one address of SBUF, and two at the same of PSUM."""
    for buffer in (nl.sbuf, nl.psum):
        for _ in range(2):
            nisa.memset(nl.ndarray((128, 32), nl.float32, buffer=buffer, address=(0, 0)), 1.0)
    return nl.ndarray((128, 32), nl.float32, buffer=nl.shared_hbm)


@pytest.mark.filterwarnings("ignore::nki_sim.NkiWarning")
@pytest.mark.parametrize("cores", [1, 2])
def test_the_same_place_in_another_memory_is_another_place(cores):
    run = nki_sim.run(nki_sim.jit(same_place_in_both_memories)[cores], X)
    steps = [step.index for step in run.program if step.instruction == "memset"]
    where = [(step.plan.core, step.operands[0].allocation.region) for step in run.program if step.instruction == "memset"]
    turns = {(a, b) for a, m in zip(steps, where, strict=True) for b, n in zip(steps, where, strict=True) if a < b and m == n}
    assert len(turns) == 2 * cores
    assert {edge for edge in run.timeline().edges if set(edge) <= set(steps)} == turns


def check_edges(run, line):
    """Every conflict is ordered, and no step is named that is none."""
    steps = list(run.program)
    conflicts = {
        (i, j)
        for j, late in enumerate(steps)
        for i, early in enumerate(steps[:j])
        if any(_conflict(a, b) for a in _accesses(early) for b in _accesses(late))
    }
    assert set(line.edges) <= conflicts
    before = {i: {i} for i in range(len(steps))}
    for producer, consumer in sorted(line.edges, key=lambda e: e[1]):
        before[consumer] |= before[producer]
    assert all(i in before[j] for i, j in conflicts)


def _accesses(step):
    return [(o.allocation, operand_box(o), k in step.plan.writes) for k, o in enumerate(step.operands) if o.allocation]


def _conflict(a, b):
    """One of the two writes; bytes of different tensors that share some are not told apart."""
    if not (a[2] or b[2]):
        return False
    if a[0] is b[0]:
        return a[1].overlaps(b[1])
    placed = a[0].address is not None and b[0].address is not None and (a[0].core, a[0].region) == (b[0].core, b[0].region)
    return placed and claimed(a[0]).meets(claimed(b[0]))


def test_the_same_program_has_the_same_schedule():
    first, second = timeline(pipeline, X)[1], timeline(pipeline, X)[1]
    np.testing.assert_array_equal(first.start, second.start)
    assert first.edges == second.edges


def sums_of_columns(x, commands):
    """Sums in the Scalar Engine's registers: each instruction on a tile of its own, with one of the commands."""
    out = nl.ndarray((128, len(commands)), dtype=x.dtype, buffer=nl.shared_hbm)
    for i, command in enumerate(commands):
        tile, sums = nl.load(x), nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=command, reduce_res=sums)
        nisa.dma_copy(dst=out[:, i : i + 1], src=sums)
    return out


def test_a_sum_in_registers_is_a_chain_that_nothing_comes_between():
    anew, goes_on = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce
    x = np.ones((128, 8), np.float32)
    for commands, chained in (([anew, goes_on, anew], True), ([anew, anew, anew], False)):
        run, line = timeline(sums_of_columns, x, commands, order="compiler")
        assert run.result[0].tolist() == [8, 16 if chained else 8, 8]
        steps = [i for i in range(len(run.program)) if run.program[i].instruction == "activation"]
        chain = set(pairwise(steps))
        assert {edge for edge in line.edges if set(edge) <= set(steps)} == (chain if chained else set())
        assert not chained or all(line.start[a] < line.start[b] for a, b in chain)


@pytest.mark.parametrize("seeded", [False, True])
def test_random_numbers_are_drawn_in_order(seeded):
    def kernel(x):
        out = nl.ndarray((128, 24), dtype=nl.uint32, buffer=nl.shared_hbm)
        if seeded:
            nisa.set_rng_seed(src_seeds=nl.full((1, 1), 7, dtype=nl.int32))
        for i in range(3):
            bits = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
            nisa.rng(dst=bits, engine=nisa.engine.vector)
            nisa.dma_copy(dst=out[:, 8 * i : 8 * i + 8], src=bits)
        return out

    run, line = timeline(kernel, np.ones((1, 1), np.float32), order="compiler")
    steps = [i for i in range(len(run.program)) if run.program[i].instruction in ("rng", "set_rng_seed")]
    assert len(steps) == 3 + seeded and set(pairwise(steps)) <= set(line.edges)


def test_depends_on_is_an_edge():
    def kernel(x):
        out = nl.ndarray((128, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        t, u = nl.ndarray((128, 32), nl.float32), nl.ndarray((128, 32), nl.float32)
        first = nisa.memset(t, 1.0)
        nisa.memset(u, 2.0, engine=nisa.engine.gpsimd).depends_on(first, kind=nisa.dependency.runtime)
        nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)
        nl.store(out, t)
        return out

    _, line = timeline(kernel, X)
    assert (0, 1) in line.edges and line.start[1] >= line.done[0]


def test_documented_cycles():
    """max(64, N) on the Vector Engine of trn1; a pass of 512 columns; four passes for fp32; 8N for a reciprocal."""

    def kernel(x):
        out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
        t = nl.load(x)
        u = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(u, t)
        nisa.tensor_copy(u[:, 0:8], t[:, 0:8])
        nisa.reciprocal(u, t)
        p = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=t)
        nl.store(out, u)
        return out

    run, _ = timeline(kernel, np.abs(X) + 1, target="trn1")
    assert [s.plan.cycles for s in run.program][1:5] == [256, 64, 8 * 256, 4 * 256]


@given(st.integers(1, 128), st.integers(1, 300))
@settings(max_examples=20)
def test_dma_descriptors_cover_the_bytes(rows, columns):
    from nki_sim.timing import dma_shape

    def kernel(x):
        t = nl.load(x[:, 0:columns])
        out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, t)
        return out

    run = nki_sim.run(kernel, np.zeros((rows, columns + 1), np.float32))
    shape = dma_shape(run.program[0].plan)
    assert shape.bytes == rows * columns * 4
    assert shape.descriptors * shape.descriptor_bytes == shape.bytes
    assert shape.descriptor_bytes == columns * 4
