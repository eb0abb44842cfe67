"""Kernels of large tiles on two cores run at their end, fused as one record; nobody can tell but by the time it takes."""

from __future__ import annotations

import tracemalloc
import warnings

import kernels_on_two as two
import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from nki_sim import NkiValidationError, NkiWarning, replay
from nki_sim.cores import interleaved
from nki_sim.cores.machine import CoreMachine
from nki_sim.replay import PROGRAMS

RANDOM = np.random.default_rng(29)
X = RANDOM.standard_normal((128, 4096), dtype=np.float32)
MATRICES = [RANDOM.standard_normal((256, size), dtype=np.float32) for size in (512, 1024)]
KERNELS = {name: (kernel, (X, *args[1:])) for name, (kernel, args, _) in two.KERNELS.items() if name != "gathered"}
KERNELS["matmul"] = two.matmul, tuple(MATRICES)
del KERNELS["exchanged by gpsimd"]  # which moves small tiles
pytestmark = pytest.mark.usefixtures("nothing_kept")


@pytest.fixture
def late(monkeypatch):
    """How many instructions that had waited ran one by one; a list that grows."""
    found: list[int] = []
    before = CoreMachine.run_late

    def counted(self, waiting):
        waiting = list(waiting)
        found.append(len(waiting))
        before(self, waiting)

    monkeypatch.setattr(CoreMachine, "run_late", counted)
    return found


def run(kernel, *args, **options):
    return nki_sim.run(nki.jit(kernel)[2], *[a.copy() if isinstance(a, np.ndarray) else a for a in args], **options)


def at_once(kernel, *args):
    """The run in which each instruction runs at its line."""
    waits = CoreMachine.wait
    CoreMachine.wait = lambda self: None
    try:
        return run(kernel, *args)
    finally:
        CoreMachine.wait = waits


def half(i):
    return slice(64 * i, 64 * (i + 1))


@pytest.mark.parametrize("name", KERNELS)
def test_the_same_results_and_the_same_record(name, late):
    kernel, args = KERNELS[name]
    together = run(kernel, *args)
    assert late == [] and len(PROGRAMS) == 1
    single = at_once(kernel, *args)
    if name == "matmul":
        np.testing.assert_allclose(together.result, single.result, rtol=1e-4, atol=1e-3)
    else:
        assert together.result.tobytes() == single.result.tobytes()
    assert together.program.listing() == single.program.listing()
    assert {step.plan.core for step in together.program} == {0, 1}


def work(x, kinds):
    """Each core does some things to its half, one after the other; some of them with the other core."""
    i, other = two.me()
    out, tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), nl.load(x[half(i)])
    kept = tile
    for number, kind in enumerate(kinds):
        got = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        if kind == "exchange":
            nisa.sendrecv(src=tile, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        elif kind == "memory":
            between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(between[half(i)], tile)
            nisa.core_barrier(data=between, cores=(0, 1))
            nisa.dma_copy(dst=got, src=between[half(other)])
        elif kind == "in part":
            nisa.tensor_copy(dst=got, src=tile)
            nisa.dma_copy(dst=got[:, 0:256], src=x[half(i), 256:512])
        elif kind == "alone":
            nisa.tensor_scalar(dst=got, data=tile, op0=nl.add, operand0=1.0)
            if number % 2 == i:
                nisa.tensor_scalar(dst=got, data=got, op0=nl.multiply, operand0=float(i + 2))
        else:
            nisa.tensor_tensor(dst=got, data1=tile, data2=kept, op=nl.subtract)
            kept = tile
        tile = got
    nl.store(out[half(i)], tile)
    return out


@settings(max_examples=40, deadline=None)
@given(kinds=some.lists(some.sampled_from(["exchange", "memory", "in part", "alone", "both"]), max_size=8))
def test_whatever_cores_do_with_each_other_no_bit_differs(kinds):
    """Fused at first, by an earlier record, as a replay; one by one; and with cores that take turns in another order."""
    single = at_once(work, X[:, :512], tuple(kinds)).result.tobytes()
    kernel = nki.jit(work)[2]
    for _ in range(2):
        assert run(work, X[:, :512], tuple(kinds)).result.tobytes() == single
        assert kernel(X[:, :512], tuple(kinds)).tobytes() == single
    with interleaved(lambda ready: ready[-1]):
        assert run(work, X[:, :512], tuple(kinds)).result.tobytes() == single


@pytest.mark.parametrize("name", KERNELS)
def test_a_record_is_bound_once_whatever_the_values(name):
    kernel, args = KERNELS[name]
    run(kernel, *args)
    others = [a * 3 if isinstance(a, np.ndarray) else a for a in args]
    again = run(kernel, *others).result
    assert len(PROGRAMS) == 1
    replay.forget()
    assert again.tobytes() == run(kernel, *others).result.tobytes()


def test_who_does_it_counts_and_what_core_0_does_alone_is_what_one_core_does():
    def kernel(x, who):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == who:
            nl.store(out, nl.multiply(nl.load(x), 2.0))
        return out

    for cores, who in ((1, 0), (2, 0), (2, 1)):
        made = nki_sim.run(nki.jit(kernel)[cores], X, who)
        assert made.result.tobytes() == (2 * X).tobytes()
    assert len(PROGRAMS) == 2


def test_a_tile_that_is_looked_at_has_its_values_on_either_core():
    seen = {}

    def kernel(x):
        i, other = two.me()
        out, tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), nl.load(x[half(i)])
        got = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.sendrecv(src=tile, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        seen[i] = got.numpy()
        nl.store(out[half(i)], got)
        return out

    result = run(kernel, X).result
    assert result.tobytes() == np.roll(X, 64, axis=0).tobytes()
    assert all(seen[i].tobytes() == X[half(1 - i)].tobytes() for i in (0, 1))


def test_a_register_on_one_core_decides_and_the_rest_is_right():
    def kernel(x, count):
        i, _ = two.me()
        out, tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), nl.load(x[half(i)])
        rounds = nisa.register_alloc()
        nisa.register_load(rounds, nl.load(count))
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(i))

        def doubled(_):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)

        nl.fori_loop(0, rounds, doubled)
        nl.store(out[half(i)], tile)
        return out

    result = run(kernel, X, np.array([[3]], np.int32)).result
    assert result.tobytes() == ((X + two.ONES) * 8).tobytes()


@pytest.mark.parametrize("core", [0, 1])
def test_values_are_reported_at_the_line_and_on_the_core_that_made_them(core):
    def root(tile):
        nisa.activation(dst=tile, op=nl.sqrt, data=tile)

    def kernel(x):
        i, _ = two.me()
        out, tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), nl.load(x[half(i)])
        root(tile)
        nl.store(out[half(i)], tile)
        return out

    given = np.abs(X)
    given[64 * core] = -1
    with pytest.warns(NkiWarning):
        together = run(kernel, given)
    with pytest.warns(NkiWarning):
        single = at_once(kernel, given)
    (finding,), (other,) = together.findings, single.findings
    assert [(s.code, s.lasti) for s in finding.sites] == [(s.code, s.lasti) for s in other.sites]
    assert len(finding.sites) == 2 and finding.step == other.step
    assert together.program[finding.step].plan.core == core
    assert np.array_equal(together.result, single.result, equal_nan=True)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_what_both_cores_write_is_compared_by_its_values(same, whole, first):
    """Also where it is the caller's array, whose values are those that it had until the run is over."""

    def kernel(x, y):
        i, _ = two.me()
        tile, other = nl.load(y), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.0 if same else float(i))
        for turn in range(2):
            if (first + turn) % 2 == i:
                nisa.dma_copy(dst=x if whole else x[0:128, 0:2048], src=tile if whole else tile[:, 0:2048])
            nisa.core_barrier(data=other, cores=(0, 1))
        return x

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = run(kernel, np.zeros_like(X), X)
    assert [d.rule.id for d in found.findings] == ["memory.written_twice" if same else "memory.race"]
    assert len(caught) == 1
    wanted = X if same else X + np.float32(1 - first)
    np.testing.assert_array_equal(found.result[:, :2048], wanted[:, :2048])
    np.testing.assert_array_equal(found.result[:, 2048:], wanted[:, 2048:] if whole else 0)


def test_a_core_that_fails_leaves_inputs_and_keeps_the_program():
    def kernel(x):
        i, _ = two.me()
        tile = nl.load(x[half(i)])
        nl.store(x[half(i)], nl.multiply(tile, 2.0))
        if i == 1:
            nisa.tensor_tensor(dst=tile, data1=tile, data2=nl.ndarray((64, 8), dtype=x.dtype, buffer=nl.sbuf), op=nl.add)
        return x

    given = X.copy()
    with pytest.raises(NkiValidationError) as raised:
        nki_sim.run(nki.jit(kernel)[2], given)
    assert given.tobytes() == X.tobytes() and len(raised.value.run.program) == 6


def test_small_tiles_run_at_their_lines(late):
    kernel, args, expected = two.KERNELS["back and forth"]
    np.testing.assert_array_equal(run(kernel, *args).result, expected)
    assert sum(late) > 0 and len(PROGRAMS) == 0


@pytest.mark.parametrize("cores", [1, 2])
def test_what_waited_runs_in_the_memory_of_the_tiles_that_are_alive_together(cores):
    def kernel(x, count):
        i = nl.program_id(0)
        out, total = (
            nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm),
            nl.zeros((64, 4096), dtype=x.dtype, buffer=nl.sbuf),
        )
        for _ in range(64):
            nisa.tensor_tensor(dst=total, data1=total, data2=nl.load(x[half(i)]), op=nl.add)
        nisa.register_load(nisa.register_alloc(), nl.load(count))  # from here on nothing waits
        if i == 0:
            nl.store(out[half(0)], total)
            nl.store(out[half(1)], total)
        return out

    tile = X.nbytes // 2
    tracemalloc.start()
    try:
        result = nki_sim.run(nki.jit(kernel)[cores], X, np.array([[3]], np.int32)).result
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(result[half(0)], 64 * X[half(0)], rtol=1e-5)
    assert peak < 16 * tile


def test_the_record_steps_through_as_ever():
    made = run(two.through_memory, X)
    steps = made.replay()
    for step in range(len(made.program)):
        steps.seek(step)
    last = len(made.program) - 1
    np.testing.assert_array_equal(steps.operand(last, 0, after=True), made.result[half(made.program[last].plan.core)])
