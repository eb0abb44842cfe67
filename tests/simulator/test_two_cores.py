"""Two logical cores: what they share, how they meet, and what is found when they do not."""

import random
import re
import signal
import threading

import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import hb, ps, sb
from kernels_on_two import SWAPPED, X, doubled, exchanged, half, me, pinned, private, summed, through_memory
from nki_sim.cores import interleaved

pytestmark = pytest.mark.filterwarnings("ignore::nki_sim.NkiWarning")
TARGETS = pytest.mark.parametrize("target", ["trn2", "trn3"])


def kernel(function):
    return nki.jit(function)[2]


def on_two(function, *args, **options):
    return nki_sim.run(kernel(function), *args, **options)


def refused(function, *args, target="trn2", **options):
    with pytest.raises(nki_sim.NkiError) as caught:
        on_two(function, *args, target=target, **options)
    return caught.value.diagnosis


def found(function, *args, **options):
    """Ids of what a run reports."""
    return [finding.rule.id for finding in on_two(function, *args, **options).findings]


def program_of(core):
    """What a core did, without the numbers that all cores share."""
    return [re.sub(r"tile \d+", "tile", line[5:]) for line in core.listing().splitlines()]


RESULTS = [(doubled, 2 * X), (through_memory, SWAPPED), (exchanged, SWAPPED), (summed, X.sum(axis=1, keepdims=True))]


# --- results -----------------------------------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize(("function", "expected"), RESULTS)
def test_both_cores_make_one_result(function, expected, target):
    run = on_two(function, X, target=target)
    np.testing.assert_array_equal(run.result, expected)
    assert (run.lnc, run.findings) == (2, [])
    assert [len(core) for core in run.cores] == [len(run.program) // 2] * 2
    assert run.cores[0].counts == run.cores[1].counts


@pytest.mark.parametrize(("function", "expected"), RESULTS)
def test_all_ways_to_call_them(function, expected, monkeypatch):
    made = nki.jit(function)
    for call in (made[2], nki.simulate(made[2])):
        np.testing.assert_array_equal(call(X), expected)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    np.testing.assert_array_equal(made(X), expected)
    assert nki_sim.run(made, X).lnc == 2


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("function", "expected"), RESULTS)
def test_the_same_whatever_the_interleaving(function, expected, seed):
    with interleaved(random.Random(seed).choice):
        run = on_two(function, X)
    np.testing.assert_array_equal(run.result, expected)
    assert run.findings == []
    straight = on_two(function, X)
    for one, other in zip(run.cores, straight.cores, strict=True):
        assert program_of(one) == program_of(other)


@pytest.mark.parametrize("seed", range(8))
def test_a_race_is_found_whatever_the_interleaving(seed):
    with interleaved(random.Random(seed).choice):
        assert "memory.race" in found(through_memory, X, sync=False)


@pytest.mark.parametrize(("function", "expected"), RESULTS)
def test_the_record_runs_again(function, expected):
    run = on_two(function, X)
    out = next(a for a in run.program.allocations if a.role == "output")
    replay = run.replay()
    for step in (len(run.program), 3, len(run.program)):
        values = replay.values(out, step)
    np.testing.assert_array_equal(values, expected)


def test_the_programs_know_where_they_are():
    def tell(x):
        seen.append((nl.program_id(0), nl.num_programs(), nl.num_programs(axes=0), nl.program_ndim()))
        return x

    seen = []
    nki_sim.run(nki.jit(tell), X)
    nki_sim.run(nki.jit(tell)[1], X)
    on_two(tell, X)
    assert seen == [(0, 1, 1, 0), (0, 1, 1, 1), (0, 2, 2, 1), (1, 2, 2, 1)]


def test_private_memory_is_each_cores_own():
    run = on_two(private, X)
    np.testing.assert_array_equal(run.result, X)
    assert run.findings == []


def test_shared_tensors_are_one_by_name_or_by_order():
    def named(x):
        i, other = me()
        names = ["a", "b"] if i == 0 else ["b", "a"]
        tensors = {name: nl.ndarray((64, 48), dtype=x.dtype, buffer=nl.shared_hbm, name=name) for name in names}
        unnamed = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=tensors["ab"[i]], src=x[half(i)])
        nisa.core_barrier(data=tensors["a"], cores=(0, 1))
        nisa.dma_copy(dst=unnamed[half(i)], src=tensors["ab"[other]])
        return unnamed

    run = on_two(named, X)
    np.testing.assert_array_equal(run.result, SWAPPED)
    assert [a.name for a in run.program.allocations if not a.region.on_chip] == ["x", "a", "b", ""]


def test_a_word_for_a_member_of_an_enum_means_the_same_on_both_cores_and_again():
    def product(x):
        out = nl.ndarray((2, 64, 32), dtype=nl.float32, buffer=nl.shared_hbm)
        for columns in (32, 16):  # one line, which is reported once
            pair = nl.full((64, 2, 64), 2.0, dtype=nl.float8_e4m3)
            psum = ps(64, columns)
            nisa.nc_matmul(dst=psum, stationary=pair, moving=pair[:, :, 0:columns], perf_mode="double_row")
            tile = sb(64, columns)
            nisa.tensor_copy(dst=tile, src=psum)
            nisa.dma_copy(dst=out[nl.program_id(0), :, 0:columns], src=tile)
        return out

    for _ in range(2):
        np.testing.assert_array_equal(on_two(product, X).result, np.full((2, 64, 32), 512.0, np.float32))


def test_a_core_without_work_may_take_an_empty_slice():
    def rows_of_the_last(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        last = nl.program_id(0) == nl.num_programs(0) - 1
        mine = nl.ds(0, x.shape[0] if last else 0)
        to, src = out[mine], x[mine]
        assert src.shape == (x.shape[0] if last else 0, x.shape[1])
        for row in range(src.shape[0]):
            nisa.dma_copy(dst=to[row : row + 1], src=src[row : row + 1])
        return out

    few = X[:3]
    run = on_two(rows_of_the_last, few)
    np.testing.assert_array_equal(run.result, few)
    assert run.findings == []


def test_inputs_are_written_once_and_by_both():
    def into(x):
        i, _ = me()
        nisa.dma_copy(dst=x[half(i)], src=nl.full((64, 48), float(i), dtype=nl.float32))

    values = X.copy()
    on_two(into, values)
    np.testing.assert_array_equal(values, np.repeat([[0.0], [1.0]], 64, axis=0) * np.ones((1, 48)))


def test_each_core_has_its_own_memory_and_registers():
    def big(x):
        nl.ndarray((128, 40_000), dtype=nl.float32, buffer=nl.sbuf)
        return pinned(x)

    run = on_two(big, X)
    np.testing.assert_array_equal(run.result, X)
    assert run.findings == []
    assert [core.memory.sbuf.peak for core in run.cores] == [run.memory.sbuf.peak] * 2


def test_loops_at_run_time():
    def looped(x):
        i, other = me()
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[half(i)])

        def swap(_):
            got = nl.ndarray((64, 48), dtype=x.dtype, buffer=nl.sbuf)
            nisa.sendrecv(src=tile, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=0)
            nisa.tensor_copy(dst=tile, src=got)

        nl.fori_loop(0, 3, swap)
        nl.store(out[half(i)], tile)
        return out

    np.testing.assert_array_equal(on_two(looped, X).result, SWAPPED)


def test_both_dma_engines():
    for engine in nisa.dma_engine:
        run = on_two(exchanged, X, engine=engine)
        np.testing.assert_array_equal(run.result, SWAPPED)
        step = next(step for step in run.program if step.instruction == "sendrecv")
        assert step.engine == {"dma": "dma", "gpsimd_dma": "gpsimd"}[engine.name]


def test_an_error_on_one_core_ends_the_run():
    def failing(x):
        if nl.program_id(0) == 1:
            nl.load(x[0:200])
        nisa.core_barrier(data=x, cores=(0, 1))
        return x

    assert refused(failing, X).rule.id == "tensor.slice"

    def raising(x):
        if nl.program_id(0) == 0:
            raise KeyError("mine")
        return x

    with pytest.raises(KeyError, match="mine"):
        on_two(raising, X)


def assert_an_interrupt_ends(endless):
    def ring(number, frame):
        raise TimeoutError("enough")

    before, threads = signal.signal(signal.SIGALRM, ring), threading.active_count()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(TimeoutError, match="enough"):
            on_two(endless, X)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert threading.active_count() == threads


def test_an_interrupt_ends_both_cores():
    def endless(x):
        while nl.program_id(0) == 0:
            pass
        return x

    assert_an_interrupt_ends(endless)


@pytest.mark.parametrize("mine", [0, 1])
def test_an_interrupt_ends_both_cores_after_they_have_met(mine):
    """The one that does not end runs in the thread that called, or in one of its own while the other one waits."""

    def endless(x):
        barrier()
        while nl.program_id(0) == mine:
            pass
        barrier()
        return x

    assert_an_interrupt_ends(endless)
    assert on_two(doubled, X).result.shape == X.shape


@pytest.mark.parametrize("meets", [False, True])
def test_cores_have_threads_of_their_own_only_where_they_wait(meets):
    ran = {}

    def kernel(x):
        ran[nl.program_id(0)] = threading.get_ident()
        if meets:
            barrier()
        return x

    on_two(kernel, X)
    assert ran[0] == threading.get_ident()
    assert (ran[1] == threading.get_ident()) == (not meets)


@pytest.mark.parametrize("mine", [0, 1])
def test_an_error_after_they_have_met_is_the_kernels(mine):
    threads, ended = threading.active_count(), []

    def raising(x):
        barrier()
        if nl.program_id(0) == mine:
            raise KeyError("mine")
        try:
            barrier()
        finally:
            ended.append(nl.program_id(0))
        return x

    with pytest.raises(KeyError, match="mine"):
        on_two(raising, X)
    assert ended == ([0] if mine else [])
    assert threading.active_count() == threads


# --- time --------------------------------------------------------------------------------------------------------------


def test_a_barrier_is_a_dependency_between_cores():
    run = on_two(through_memory, X)
    line = run.timeline()
    steps = list(run.program)
    barriers = [s.index for s in steps if s.instruction == "core_barrier"]
    writes = [s.index for s in steps if s.index < min(barriers)]
    reads = [s.index for s in steps if s.index > max(barriers)]
    for order in ("program", "compiler"):
        line = run.timeline(order)
        assert min(line.start[reads]) >= max(line.done[writes])
    assert {name.partition(": ")[0] for name in line.lanes} == {"0", "1"}


def test_two_cores_take_half_the_time_of_one():
    def work(x):
        n, i = nl.num_programs(), nl.program_id(0)
        out, rows = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), x.shape[0] // n
        for at in range(i * rows, (i + 1) * rows, 128):
            nl.store(out[at : at + 128], nl.exp(nl.load(x[at : at + 128])))
        return out

    shape = ((4096, 2048), "float32")
    launch = nki_sim.core("trn2").latencies.launch
    one, two = (nki_sim.estimate(nki.jit(work)[n], shape) for n in (1, 2))
    assert 1.8 < (one.total_time - launch) / (two.total_time - launch) < 2.2
    assert [core["scalar"].instruction_count for core in two.cores] == [16, 16]
    assert two.engines["scalar"].instruction_count == one.engines["scalar"].instruction_count == 32
    assert "core 1 scalar" in str(two)
    assert len(two.as_dict()["cores"]) == 2


# --- races -------------------------------------------------------------------------------------------------------------


def test_a_race_names_both_lines():
    race = next(f for f in on_two(through_memory, X, sync=False).findings if f.rule.id == "memory.race")
    lines = [through_memory.__code__.co_firstlineno + n for n in (5, 8)]
    text = race.text()
    assert all(f"line {line}" in text for line in lines)
    assert "core 0" in text
    assert "core 1" in text
    assert refused(through_memory, X, sync=False, strict=True).rule.id == "memory.race"


def test_what_neither_core_writes_is_still_found():
    def reads(x):
        shared = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.load(shared)
        return x

    assert found(reads, X) == ["ndarray.uninitialised"]


@pytest.mark.parametrize(("first", "second", "races"), [
    (lambda t: t[0:64], lambda t: t[64:128], False),
    (lambda t: t[0:65], lambda t: t[64:128], True),
    (lambda t: t[:, 0:24], lambda t: t[:, 24:48], False),
    (lambda t: t[:, 0:48:2], lambda t: t[:, 1:48:2], False),
    (lambda t: t[:, 0:48:2], lambda t: t[:, 0:48:3], True),
    (lambda t: t[0:128:2], lambda t: t[1:128:2], False),
    (lambda t: t[0:128:2, 0:10], lambda t: t[0:128:2, 10:20], False),
    (lambda t: t[0:128:2, 0:11], lambda t: t[0:128:2, 10:20], True),
])  # fmt: skip
def test_races_are_exact(first, second, races):
    def write(x):
        tile = nl.full((128, 48), float(nl.program_id(0)), dtype=nl.float32)
        shared = nl.ndarray((128, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        view = (first, second)[nl.program_id(0)](shared)
        nisa.dma_copy(dst=view, src=tile[0 : view.shape[0], 0 : view.shape[1]])
        return x

    assert ("memory.race" in found(write, X)) == races


@pytest.mark.parametrize(("rows", "columns", "races"), [
    (([0, 2], [1, 3]), (0, 0), False),
    (([0, 2], [2, 5]), (0, 0), True),
    (([0, 2], [2, 5]), (0, 24), False),
    (([0, 2], [2, 5]), (0, 23), True),
    (([0, 2], [5, 1]), (0, 40), True),  # columns past the end of row 1 are those of row 2
    (([0, 8], [8, 5]), (0, 0), False),  # rows that do not exist are not transferred
    (([8, 9], [8, 9]), (0, 0), False),
])  # fmt: skip
def test_races_of_scatters_are_exact(rows, columns, races):
    def scatter(x, index):
        core = nl.program_id(0)
        shared = nl.ndarray((8, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        at = nl.load(index[2 * core : 2 * core + 2])
        view = shared.ap(pattern=[[48, 2], [1, 24]], offset=columns[core], vector_offset=at, indirect_dim=0)
        tile = nl.full((2, 24), float(core), dtype=nl.float32)
        nisa.dma_copy(dst=view, src=tile, oob_mode=nisa.oob_mode.skip)
        return x

    index = np.array([*rows[0], *rows[1]], np.int32).reshape(4, 1)
    assert ("memory.race" in found(scatter, X, index)) == races


@pytest.mark.parametrize(("rows", "races"), [((2, 4), True), ((3, 5), False), ((1, 3), True), ((5, 8), True)])
def test_a_scatter_races_with_what_is_written_without_an_index(rows, races):
    def both(x, index):
        shared = nl.ndarray((8, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            view = shared.ap(pattern=[[48, 2], [1, 48]], offset=0, vector_offset=nl.load(index), indirect_dim=0)
            nisa.dma_copy(dst=view, src=nl.full((2, 48), 1.0, dtype=nl.float32))
        else:
            first, end = rows
            nisa.dma_copy(dst=shared[first:end], src=nl.full((end - first, 48), 2.0, dtype=nl.float32))
        return x

    assert ("memory.race" in found(both, X, np.array([[2], [5]], np.int32))) == races


ROWS, COLUMNS = 12, 10
parts = some.tuples(some.integers(0, COLUMNS - 2), some.integers(1, COLUMNS), some.integers(1, 3))
"""First column, columns at most, and step of an access."""
accesses = some.one_of(
    some.tuples(some.lists(some.integers(0, ROWS - 1), min_size=2, max_size=5, unique=True), parts),
    some.tuples(some.tuples(some.integers(0, 5), some.integers(2, 5), some.integers(1, 2)), parts),
)
"""Rows picked by an index, or first, how many and step; and of each row a part."""


@given(accesses, accesses)
@settings(max_examples=80, deadline=None)
def test_races_are_those_of_the_elements_themselves(first, second):
    """Scatters and plain accesses of two cores, against sets of elements."""

    def access(which):
        rows, (column, columns, step) = which
        picked = range(rows[0], min(rows[0] + rows[1] * rows[2], ROWS), rows[2]) if isinstance(rows, tuple) else rows
        return picked, range(column, min(column + columns * step, COLUMNS), step)

    def both(x, *indices):
        shared = nl.ndarray((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.shared_hbm)
        which = (first, second)[nl.program_id(0)]
        rows, columns = access(which)
        tile = nl.full((len(rows), len(columns)), 1.0 + nl.program_id(0), dtype=nl.float32)
        if isinstance(which[0], tuple):
            view = shared[rows.start : rows.stop : rows.step, columns.start : columns.stop : columns.step]
        else:
            pattern = [[COLUMNS, len(rows)], [columns.step, len(columns)]]
            at = nl.load(indices[nl.program_id(0)])
            view = shared.ap(pattern=pattern, offset=columns.start, vector_offset=at, indirect_dim=0)
        nisa.dma_copy(dst=view, src=tile)
        return x

    touched = [{(r, c) for r in access(which)[0] for c in access(which)[1]} for which in (first, second)]
    indices = [np.array(access(which)[0], np.int32).reshape(-1, 1) for which in (first, second)]
    assert ("memory.race" in found(both, X, *indices)) == bool(touched[0] & touched[1])


def test_a_write_after_a_read_of_another_core_is_a_race():
    def late(x):
        if nl.program_id(0) == 0:
            nl.load(x)
        else:
            nisa.dma_copy(dst=x[0:64], src=nl.zeros((64, 48), dtype=nl.float32))

    assert found(late, X.copy()) == ["memory.race"]


def test_an_exchange_orders_too():
    def ordered(x):
        i, other = me()
        shared = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        tile, got = nl.zeros((64, 1), dtype=nl.float32), nl.ndarray((64, 1), dtype=nl.float32)
        if i == 0:
            nisa.dma_copy(dst=shared, src=x[0:64])
        nisa.sendrecv(src=tile, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        if i == 1:
            nl.load(shared)
        return x

    assert found(ordered, X) == []


def named(x, names):
    """Both cores write halves of two shared tensors and read the other halves, after a barrier for each of ``names``."""
    i, other = me()
    shared = {name: nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name=name) for name in "ab"}
    for tensor in shared.values():
        nisa.dma_copy(dst=tensor[half(i)], src=x[half(i)])
    for name in names:
        nisa.core_barrier(data=shared[name], cores=(0, 1))
    for tensor in shared.values():
        nl.load(tensor[half(other)])
    return x


@TARGETS
@pytest.mark.parametrize(("names", "races"), [("ab", []), ("ba", []), ("a", ["b"]), ("b", ["a"]), ("aa", ["b"])])
def test_a_barrier_orders_the_tensor_that_it_names(names, races, target):
    findings = on_two(named, X, names, target=target).findings
    assert [f.rule.id for f in findings] == ["memory.race"] * len(races)
    line = named.__code__.co_firstlineno
    for finding in findings:
        assert finding.line == line + 9
        assert f"reads {races[0]} on core" in finding.headline and f"wrote at line {line + 5}" in finding.headline
        assert f"the core_barrier at line {line + 7} is for {names[0]} only" in finding.notes
    spec = nki_sim.TensorSpec(X.shape, "float32")
    dry = kernel(named).run((spec, names), {}, nki_sim.RunOptions(target=target, dry=True, watch=True)).findings
    assert [d.headline for d in dry] == [d.headline for d in findings]


@pytest.mark.parametrize("seed", range(4))
def test_which_tensor_a_barrier_names_counts_whatever_the_interleaving(seed):
    with interleaved(random.Random(seed).choice):
        assert "memory.race" in found(named, X, "a")
        assert found(named, X, "ab") == []


def chained(x, before, after):
    """Core 0 writes a and then b, and core 1 writes a after the barrier for b: by what core 0 computed, or not."""
    i, _ = me()
    a, b = (nl.ndarray((64, 48), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    if i == 0:
        nl.store(a, nl.load(x[0:64]))
        nl.store(b, nl.add(nl.load(a if before else x[0:64]), 1.0))
    nisa.core_barrier(data=b, cores=(0, 1))
    if i == 1:
        nl.store(a, nl.load(b if after else x[64:128]))
    return x


@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True), (False, False)])
def test_dependencies_order_what_hangs_together_with_the_tensor_of_a_barrier(before, after):
    assert found(chained, X, before, after) == ([] if before and after else ["memory.race"])


def test_what_is_done_again_after_a_barrier_for_another_tensor_is_not_behind_it():
    def again(x):
        i, _ = me()
        a, b = (nl.ndarray((64, 48), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        for first in (True, False):
            if i == 0:
                nl.store(a, nl.load(x[0:64]))
            if first:
                nisa.core_barrier(data=b, cores=(0, 1))
        if i == 1:
            nl.load(a)
        return x

    (race,) = on_two(again, X).findings
    assert race.rule.id == "memory.race" and "core 0 wrote" in race.headline
    assert not any("core_barrier" in note for note in race.notes)


def test_what_is_read_again_after_a_barrier_for_another_tensor_is_not_behind_it():
    """The first read is ordered with the write, by what was computed of it; the second one is not."""

    def again(x, twice):
        i, _ = me()
        b = nl.ndarray((64, 48), dtype=x.dtype, buffer=nl.shared_hbm)
        if i == 0:
            nl.store(b, nl.load(x[0:64]))
        nisa.core_barrier(data=b, cores=(0, 1))
        if i == 0 and twice:
            nl.load(x[0:64])
        if i == 1:
            nl.store(x[0:64], nl.add(nl.load(b), 1.0))
        return x

    assert found(again, X.copy(), False) == []
    (race,) = on_two(again, X.copy(), True).findings
    assert race.rule.id == "memory.race" and f"core 0 read at line {again.__code__.co_firstlineno + 7}" in race.headline


def test_what_one_core_does_to_shared_memory_is_no_race():
    def again(x):
        shared = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            for _ in range(3):
                nisa.dma_copy(dst=shared, src=x[0:64])
                nl.load(shared)
        return x

    assert found(again, X) == []


def test_the_same_values_written_by_both_are_work_done_twice():
    def twice(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(x), 2.0))
        return out

    run = on_two(twice, X)
    np.testing.assert_array_equal(run.result, 2 * X)
    assert [f.rule.id for f in run.findings] == ["memory.written_twice"]


def both_write(x, then=""):
    """Both cores write the same to a shared tensor, and each reads it back."""
    i, _ = me()
    shared, out = (nl.ndarray((n, 48), dtype=x.dtype, buffer=nl.shared_hbm) for n in (64, 48))
    if then == "core 1 reads first" and i == 1:
        nl.load(shared[0:32])
    nl.store(shared[0:32], nl.load(x[0:32]))
    if then == "core 0 writes again" and i == 0:
        nl.store(shared[0:32], nl.load(x[32:64]))
    if then == "core 0 writes more" and i == 0:
        nl.store(shared[32:64], nl.load(x[32:64]))
    rows = slice(8, 40) if then == "core 0 writes more" else slice(8, 32)
    nl.store(out[24 * i : 24 * i + 24], nl.load(shared[rows])[0:24])
    return out


@pytest.mark.parametrize("dry", [False, True])
def test_what_both_wrote_alike_either_may_read(dry):
    run = kernel(both_write).run((X,), {}, nki_sim.RunOptions(dry=dry, watch=dry))
    assert [f.rule.id for f in run.findings] == ([] if dry else ["memory.written_twice"])


@pytest.mark.parametrize(
    ("then", "access"), [("core 1 reads first", "reads"), ("core 0 writes again", "writes"), ("core 0 writes more", "reads")]
)
def test_what_both_wrote_alike_excuses_no_other_access(then, access):
    races = [f.headline for f in on_two(both_write, X, then).findings if f.rule.id == "memory.race"]
    assert any(access in headline for headline in races)


# --- deadlocks ---------------------------------------------------------------------------------------------------------


@TARGETS
def test_a_barrier_that_one_core_does_not_come_to(target):
    def alone(x):
        nl.load(x)
        if nl.program_id(0) == 1:
            nisa.core_barrier(data=x, cores=(0, 1))
        return x

    diagnosis = refused(alone, X, target=target)
    first = alone.__code__.co_firstlineno
    assert diagnosis.rule.id == "core_barrier.answered"
    assert diagnosis.line == first + 3
    assert "core 1 waits" in diagnosis.headline
    assert f"core 0 ended; its last instruction is dma_copy at line {first + 1}" in diagnosis.notes


def test_a_receive_that_nobody_answers():
    def alone(x):
        i, other = me()
        tile = nl.load(x[half(i)])
        if i == 0:
            nisa.sendrecv(
                src=tile, dst=nl.zeros((64, 48), dtype=nl.float32), send_to_rank=other, recv_from_rank=other, pipe_id=3
            )
        return x

    diagnosis = refused(alone, X)
    assert diagnosis.rule.id == "sendrecv.answered"
    assert "deadlock" in diagnosis.headline


def test_cores_that_wait_for_different_things():
    def apart(x):
        i, other = me()
        tile = nl.load(x[half(i)])
        if i == 0:
            nisa.core_barrier(data=x, cores=(0, 1))
        else:
            nisa.sendrecv(
                src=tile, dst=nl.zeros((64, 48), dtype=nl.float32), send_to_rank=other, recv_from_rank=other, pipe_id=0
            )
        return x

    diagnosis = refused(apart, X)
    assert diagnosis.rule.id == "core_barrier.answered"
    assert any("core 1 waits at line" in note and "sendrecv (pipe_id 0)" in note for note in diagnosis.notes)


@TARGETS
@pytest.mark.parametrize("pipes", [((0, 1), (1, 0)), ((7,), (8,))])
def test_pipes_that_are_crossed(pipes, target):
    def crossed(x):
        i, other = me()
        tile, got = nl.load(x[half(i)]), nl.ndarray((64, 48), dtype=nl.float32)
        if i == 0:
            for pipe in pipes[0]:
                nisa.sendrecv(src=tile, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=pipe)
        else:
            for pipe in pipes[1]:
                nisa.sendrecv(src=tile, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=pipe)
        return x

    diagnosis = refused(crossed, X, target=target)
    first = crossed.__code__.co_firstlineno
    assert (diagnosis.rule.id, diagnosis.line) == ("sendrecv.same_pipe", first + 5)
    lines = (
        f"core 0 waits on pipe_id {pipes[0][0]} at line {first + 5}, core 1 waits on pipe_id {pipes[1][0]} at line {first + 8}"
    )
    assert lines in diagnosis.headline
    assert any(f"line {first + 8}" in note and "core 1" in note for note in diagnosis.notes)
    assert "same order on both cores" in diagnosis.text()


def test_a_receive_from_one_who_sends_elsewhere():
    def crossed(x):
        i, other = me()
        tile, got = nl.load(x[half(i)]), nl.ndarray((64, 48), dtype=nl.float32)
        nisa.sendrecv(src=tile, dst=got, send_to_rank=i, recv_from_rank=other, pipe_id=0)
        return x

    assert refused(crossed, X).rule.id == "sendrecv.answered"


def test_what_is_sent_is_what_is_received():
    def unlike(x):
        i, other = me()
        n = 24 + i
        tile, got = nl.load(x[0:64, 0:n]), nl.ndarray((64, n), dtype=nl.float32)
        nisa.sendrecv(src=tile, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        return x

    diagnosis = refused(unlike, X)
    assert diagnosis.rule.id == "sendrecv.agree"
    assert "[64 × 25]" in diagnosis.headline


# --- one program on both -------------------------------------------------------------------------------------------------


def test_shared_tensors_have_one_shape():
    def unlike(x):
        nl.ndarray((64, 48 + nl.program_id(0)), dtype=nl.float32, buffer=nl.shared_hbm)
        return x

    assert refused(unlike, X).rule.id == "kernel.lnc2_same_tensor"


def test_cores_return_the_same():
    def unlike(x):
        out = nl.ndarray((128, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[half(nl.program_id(0))], src=x[half(nl.program_id(0))])
        return out if nl.program_id(0) else x

    assert refused(unlike, X).rule.id == "kernel.lnc2_same_output"


def test_shared_constants_are_the_same():
    def constants(x, apart):
        nl.shared_constant(np.full((4, 4), apart * nl.program_id(0), np.float32))
        return x

    assert found(constants, X, 0) == []
    assert found(constants, X, 1) == ["shared_constant.lnc2_same"]


def test_a_barrier_on_different_tensors():
    def unlike(x):
        a, b = (nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2))
        nisa.core_barrier(data=(a, b)[nl.program_id(0)], cores=(0, 1))
        return x

    assert found(unlike, X) == ["core_barrier.same_data"]


def test_loops_go_round_equally_often():
    def loops(x, apart):
        acc = nl.zeros((64, 1), dtype=nl.float32)

        def body(_):
            nisa.tensor_scalar(dst=acc, data=acc, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, 2 + apart * nl.program_id(0), body)
        return x

    assert found(loops, X, 0) == []
    assert found(loops, X, 1) == ["kernel.lnc2_same_control_flow"]
    assert "2 rounds on core 0, 3 on core 1" in on_two(loops, X, 1).findings[0].headline


def test_the_environment_and_the_call_agree(monkeypatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    assert refused(doubled, X).rule.id == "kernel.lnc_matches_runtime"
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "3")
    assert refused(doubled, X).rule.id == "kernel.lnc_values"
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert refused(doubled, X, target="trn1").rule.id == "kernel.lnc_values"


# --- arguments, on one core and on two ------------------------------------------------------------------------------------


def rule_of(call, cores, target):
    def calling(x):
        call(x)
        return x

    with pytest.raises(nki_sim.NkiValidationError) as caught:
        nki_sim.run(nki.jit(calling)[cores], X, target=target)
    assert caught.value.diagnosis.line
    return caught.value.diagnosis.rule.id


def barrier(data=None, cores=(0, 1), where=nl.shared_hbm):
    nisa.core_barrier(data=nl.ndarray((16, 8), dtype=nl.float32, buffer=where) if data is None else data, cores=cores)


def swap(src=None, dst=None, **changed):
    given = {"send_to_rank": 1, "recv_from_rank": 0, "pipe_id": 0, **changed}
    nisa.sendrecv(src=sb(16, 8) if src is None else src, dst=sb(16, 8) if dst is None else dst, **given)


GPSIMD = {"dma_engine": nisa.dma_engine.gpsimd_dma}


@pytest.mark.parametrize(("call", "rule"), [
    (lambda x: barrier(), "core_barrier.lnc2"),
    (lambda x: barrier(cores=[0, 1]), "core_barrier.lnc2"),
    (lambda x: swap(), "sendrecv.lnc2"),
    (lambda x: swap(sb(16, 256), sb(16, 256), **GPSIMD), "sendrecv.gpsimd_dma_lnc2"),
    (lambda x: swap(sb(16, 256, dt=nl.uint8), sb(16, 256, dt=nl.uint8), **GPSIMD), "sendrecv.gpsimd_dma_lnc2"),
])  # fmt: skip
@TARGETS
def test_one_core_has_none_to_meet(call, rule, target):
    assert rule_of(call, 1, target) == rule


@TARGETS
@pytest.mark.parametrize(("call", "rule"), [
    (lambda me: barrier(), "core_barrier.lnc2"),
    (lambda me: swap(send_to_rank=1 - me, recv_from_rank=1 - me), "sendrecv.lnc2"),
])  # fmt: skip
def test_one_core_has_none_to_meet_after_two_have_met(call, rule, target):
    def calling(x):
        call(nl.program_id(0))
        return x

    nki_sim.run(nki.jit(calling)[2], X, target=target)
    assert rule_of(lambda x: call(0), 1, target) == rule


@pytest.mark.parametrize(("call", "rule"), [
    (lambda x: barrier(cores=(0,)), "core_barrier.cores"),
    (lambda x: barrier(cores=(1, 0)), "core_barrier.cores"),
    (lambda x: barrier(cores=2), "core_barrier.cores"),
    (lambda x: barrier(where=nl.private_hbm), "core_barrier.shared_hbm"),
    (lambda x: barrier(where=nl.sbuf), "core_barrier.shared_hbm"),
    (lambda x: barrier(where=nl.psum), "core_barrier.buffers"),
    (lambda x: swap(send_to_rank=2), "sendrecv.ranks"),
    (lambda x: swap(recv_from_rank=-1), "sendrecv.ranks"),
    (lambda x: swap(recv_from_rank=True), "sendrecv.ranks"),
    (lambda x: swap(src=ps(16, 8)), "sendrecv.buffers"),
    (lambda x: swap(dst=hb(16, 8)), "sendrecv.buffers"),
    (lambda x: swap(dst=sb(16, 8, dt=nl.int32)), "sendrecv.same_dtype"),
    (lambda x: swap(dst=sb(16, 2, 4)), "sendrecv.same_shape"),
    (lambda x: swap(sb(16, 257), sb(16, 257), **GPSIMD), "sendrecv.gpsimd_dma_size"),
    (lambda x: swap(sb(16, 257, dt=nl.bfloat16), sb(16, 257, dt=nl.bfloat16), **GPSIMD), "sendrecv.gpsimd_dma_size"),
    (lambda x: swap(sb(16, 257, dt=nl.uint8), sb(16, 257, dt=nl.uint8), **GPSIMD), "sendrecv.gpsimd_dma_size"),
    (lambda x: swap(use_gpsimd_dma=True), "kernel.unexpected_kwargs"),
])  # fmt: skip
@pytest.mark.parametrize("cores", [1, 2])
@TARGETS
def test_arguments(call, rule, cores, target):
    assert rule_of(call, cores, target) == rule


def test_trn1_has_neither():
    assert rule_of(lambda x: barrier(), 1, "trn1") == "core_barrier.gen3"
    assert rule_of(lambda x: swap(), 1, "trn1") == "sendrecv.gen3"


# --- without data --------------------------------------------------------------------------------------------------------


def unordered(x):
    """Core 1 reads what core 0 writes, and nothing orders the two."""
    shared = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine, other = (half(i) for i in me())
    nl.store(shared[mine], nl.load(x[mine]))
    nl.store(out[mine], nl.load(shared[other]))
    return out


def both_the_same(x):
    """Both cores do all of the work."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


@TARGETS
@pytest.mark.parametrize("function", [doubled, unordered])
def test_a_dry_run_that_watches_finds_the_races_of_a_run(function, target):
    spec = nki_sim.TensorSpec(X.shape, "float32")
    dry = kernel(function).run((spec,), {}, nki_sim.RunOptions(target=target, dry=True, watch=True)).findings
    data = on_two(function, X, target=target).findings
    assert [(d.rule.id, d.line) for d in dry] == [(d.rule.id, d.line) for d in data]
    assert bool(dry) == (function is unordered)


def test_whether_work_is_done_twice_only_values_tell():
    spec = nki_sim.TensorSpec(X.shape, "float32")
    assert kernel(both_the_same).run((spec,), {}, nki_sim.RunOptions(dry=True, watch=True)).findings == []
    assert len(found(both_the_same, X)) == 1


@pytest.mark.parametrize("data", [False, True])
def test_races_on_all_generations(data):
    verification = nki_sim.verify(kernel(unordered), X, data=data)
    rules = {(f.rule.id, f.targets) for f in verification.findings}
    assert ("kernel.lnc_values", ("trn1",)) in rules
    races = [f for f in verification.findings if f.rule.id == "memory.race"]
    assert [(f.targets, f.level) for f in races] == [(("trn2", "trn3"), "warning")] * 2
