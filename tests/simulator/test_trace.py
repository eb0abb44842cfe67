"""Values at step N are those of that step: reused tiles, aliased addresses, in-place updates, accumulation."""

from __future__ import annotations

import random

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from nki_sim.machine import Machine
from nki_sim.trace import alive

rng = np.random.default_rng(3)


def accumulate_in_place(a, b):
    out = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
    for k in range(3):
        w = nl.load(a[k])
        x = nl.load(b[k])
        nisa.activation(dst=x, op=nl.exp, data=x)
        nisa.nc_matmul(dst=acc, stationary=w, moving=x)
    y = nl.copy(acc)
    for _ in range(4):
        nisa.tensor_scalar(dst=y, data=y, op0=nl.multiply, operand0=0.5)
    nl.store(out, y)
    return out


def shared_bytes(a, b):
    out = nl.ndarray((2, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range(2):
        t = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, address=(0, 1024))
        nisa.dma_copy(dst=t, src=a[i])
        half = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.sbuf, address=(0, 1024 + 128))
        nisa.memset(half, float(i))
        whole = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(whole[:, 0:32], t[:, 0:32])
        nisa.tensor_copy(whole[:, 32:64], half)
        nisa.dma_copy(dst=out[i], src=whole)
    return out


def registers_and_inputs(a, b):
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for k in range(3):
        t = nl.load(a[k])
        command = nisa.reduce_cmd.reset_reduce if k == 0 else nisa.reduce_cmd.reduce
        nisa.tensor_scalar_reduce(dst=t, data=t, op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_cmd=command,
                                  reduce_res=total if k == 2 else None)  # fmt: skip
        nisa.dma_copy(dst=a[k], src=t)
    nisa.dma_copy(dst=b[0, :, 0:1], src=total)


def low_precision(a, b):
    out = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(t, 0.0)
    for k in range(3):
        nisa.tensor_tensor(dst=t, data1=t, data2=nl.load(a[k], dtype=nl.bfloat16), op=nl.add)
    nl.store(out, t)
    return out


def searches_and_gathers(a, b):
    x = nl.load(a[0], dtype=nl.bfloat16)
    top = nl.ndarray((128, 8), dtype=nl.bfloat16, buffer=nl.sbuf)
    at = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.max8(dst=top, src=x)
    nisa.nc_find_index8(dst=at, data=x, vals=top)
    nisa.nc_n_gather(dst=top, data=x, indices=at)
    nisa.nc_match_replace8(dst=x, data=x, vals=top, imm=0.0, dst_idx=at)
    near = nl.ndarray((128, 1), dtype=nl.uint16, buffer=nl.sbuf)
    nisa.iota(dst=near, pattern=[[1, 1]], offset=0, channel_multiplier=0)
    taken = nl.ndarray((128, 16), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.local_gather(dst=taken, src_buffer=x, index=near)
    found = nl.ndarray((128, 65), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=found, value=0)
    nisa.nonzero_with_count(dst=found, src=nl.load(a[1]))
    low, total = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf), nl.ndarray((1, 64), dtype=nl.float32, buffer=nl.sbuf)
    for k in range(2):
        nisa.range_select(x, x, nl.greater_equal, nl.greater, low, low, range_start=k)
        nisa.tensor_scalar_cumulative(x, x, nl.maximum, nl.add, -1.0)
    nisa.tensor_partition_reduce(dst=total, op=nl.add, data=x)
    ids, ends = nl.zeros((1, 8), dtype=nl.int32, buffer=nl.sbuf), nl.ndarray((1, 2, 8), dtype=nl.int32, buffer=nl.sbuf)
    nisa.sequence_bounds(dst=ends, segment_ids=ids)
    rows = nl.ndarray((16, 1), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.iota(dst=rows, pattern=[[1, 1]], offset=3, channel_multiplier=2)
    out = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nisa.dma_compute(dst=out, srcs=[x, a[1], x], reduce_op=nl.add)
    chosen = out.ap(pattern=[[64, 16], [1, 64]], vector_offset=rows, indirect_dim=0)
    nisa.dma_compute(dst=chosen, srcs=[chosen, x[0:16, :]], reduce_op=nl.add)
    nisa.dma_compute(dst=x[0:16, :], srcs=[x[0:16, :], chosen], reduce_op=nl.add)
    return out


CASES = [accumulate_in_place, shared_bytes, registers_and_inputs, low_precision, searches_and_gathers]


def recorded(monkeypatch, kernel, **options):
    """Run a kernel with every operand's values copied after each step, without the replay's help."""
    seen = {}
    record = Machine._record

    def spy(self, ins, number, values, step):
        record(self, ins, number, values, step)
        seen[step] = [v.array.copy() if hasattr(v, "array") else None for v in values]

    monkeypatch.setattr(Machine, "_record", spy)
    monkeypatch.setattr(Machine, "plays", lambda self, plan: False)
    a = rng.standard_normal((3, 128, 64)).astype(np.float32)
    b = rng.standard_normal((3, 128, 96)).astype(np.float32)
    run = nki_sim.run(kernel, a, b, **options)
    monkeypatch.undo()
    return run, seen


@pytest.mark.parametrize("precise", [True, False])
@pytest.mark.parametrize("kernel", CASES)
def test_values_at_random_steps_are_those_of_the_run(monkeypatch, kernel, precise):
    run, seen = recorded(monkeypatch, kernel, precise=precise)
    replay = run.replay()
    slots = {s: run.program.plan_at(s).slots for s in seen}  # of rows chosen by an index the replay shows the whole tensor
    visits = [(s, i) for s, operands in seen.items() for i in range(len(operands)) if not slots[s][i].gathers]
    random.Random(7).shuffle(visits)
    for step, number in visits:
        want, got = seen[step][number], replay.operand(step, number, after=True)
        assert (want is None) == (got is None)
        if want is not None:
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("budget", [0, 1 << 16, 1 << 30])
def test_any_budget_gives_the_same_values(monkeypatch, budget):
    run, seen = recorded(monkeypatch, accumulate_in_place)
    replay = run.replay()
    replay.budget = budget
    for step in [*range(len(run.program)), *reversed(range(len(run.program)))]:
        np.testing.assert_array_equal(replay.operand(step, 0, after=True), seen[step][0])


def test_before_and_after():
    x = np.full((128, 8), 3.0, np.float32)

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nl.store(out, t)
        return out

    replay = nki_sim.run(kernel, x).replay()
    assert (replay.operand(1, 0) == 3).all() and (replay.operand(1, 0, after=True) == 6).all()
    assert np.isnan(replay.operand(0, 0)).all()  # never written before its first step
    assert replay.operand(1, 2) is None  # a scalar


def test_the_callers_later_changes_do_not_matter():
    x = np.ones((128, 8), np.float32)

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    run = nki_sim.run(kernel, x)
    x[:] = 9
    assert (run.replay().values(0, 1) == 1).all()


def test_an_exchanged_input_keeps_its_first_values():
    x = np.ones((128, 8), ml_dtypes.bfloat16)

    def kernel(x):
        t = nl.load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=x, src=t)

    replay = nki_sim.run(kernel, x).replay()
    assert (x == 2).all()
    assert (replay.values(0, 3) == 2).all() and (replay.values(0, 0) == 1).all()


def test_replay_says_nothing_that_the_run_said(recwarn):
    x = np.zeros((128, 8), np.float32)

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.log(nl.load(x)))
        return out

    with pytest.warns(nki_sim.NkiWarning):
        run = nki_sim.run(kernel, x)
    recwarn.clear()
    run.replay().seek(len(run.program))
    assert not recwarn.list and len(run.findings) == 1


def test_what_is_alive():
    run = nki_sim.run(accumulate_in_place, rng.random((3, 128, 64), np.float32), rng.random((3, 128, 96), np.float32))
    names = [[t.label for t in alive(run.program.allocations, step)] for step in range(len(run.program))]
    assert names[3] == ["acc", "w", "x"]
    assert names[-1] == ["y"]


def test_a_run_that_did_not_keep_its_inputs_cannot_be_stepped():
    kernel = nki_sim.jit(accumulate_in_place)
    inputs = (rng.random((3, 128, 64), np.float32), rng.random((3, 128, 96), np.float32))
    run = kernel.run(inputs, {}, nki_sim.RunOptions(keep_inputs=False))
    with pytest.raises(ValueError, match="did not keep its inputs"):
        run.replay()


def test_a_failed_run_can_be_looked_at_to_the_failure():
    def kernel(x):
        t = nl.load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        nisa.tensor_copy(dst=t[0:64, :], src=t[1:65, :])

    with pytest.raises(nki_sim.NkiValidationError) as caught:
        nki_sim.run(kernel, np.ones((128, 8), np.float32))
    run = caught.value.run
    assert caught.value.diagnosis.step == len(run.program) == 2
    assert (run.replay().operand(1, 0, after=True) == 2).all()


def test_operands_are_told_as_slices():
    def kernel(table):
        t = nl.ndarray((32, 8), dtype=table.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=table[0:64:2, 1:16:2])
        nisa.dma_copy(dst=t, src=table[64:96, 0:8])
        out = nl.ndarray((32, 8), dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=t)
        return out

    program = nki_sim.run(kernel, np.ones((96, 16), np.float32)).program
    assert [step.text for step in program] == ["t ← table[0:63:2, 1:16:2]", "t ← table[64:96, 0:8]", "out ← t"]
