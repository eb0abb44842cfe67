"""Estimates without data, and profiles: exact counts, times that are those of a run."""

from __future__ import annotations

import json

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nki_sim import NkiValidationError, TensorSpec
from nki_sim.timing import ENGINES
from nki_sim.timing.profile import union


def scaled(x, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, x.shape[0], 128):
        stop = min(start + 128, x.shape[0])
        tile = nl.load(x[start:stop])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        nl.store(out[start:stop], tile)
    return out


def matmul(a, b):
    total = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=nl.load(a), moving=nl.load(b))
    out = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(total))
    return out


def test_an_estimate_is_the_profile_of_a_run():
    x = np.ones((200, 48), np.float32)
    run, told = nki_sim.run(scaled, x), nki_sim.estimate(scaled, ((200, 48), "float32"))
    assert told.as_dict() == run.profile().as_dict()
    assert json.loads(json.dumps(told.as_dict())) == told.as_dict()
    assert nki_sim.estimate(scaled, x).as_dict() == told.as_dict()
    assert nki_sim.estimate(scaled, x=TensorSpec((200, 48), nl.float32), factor=3.0).steps == 6


def test_counts_are_exact():
    told = nki_sim.estimate(matmul, ((96, 40), "bfloat16"), ((96, 200), "bfloat16"))
    assert told.model_flops == 2 * 96 * 40 * 200 and told.transpose_flops == 0 and told.matmul_count == 1
    assert told.hbm_read_bytes == 96 * (40 + 200) * 2 and told.hbm_write_bytes == 40 * 200 * 4
    assert told.psum_write_bytes == 40 * 200 * 4 == told.psum_read_bytes
    assert told.dma_transfer_count == 3 and told.engines["tensor"].instruction_count == 1
    assert told.mfu == pytest.approx(told.model_flops / 78.6432e12 / (told.total_time * 1e-9))
    assert told.arithmetic_intensity == told.model_flops / (told.hbm_read_bytes + told.hbm_write_bytes)
    assert told.spill_save_bytes == told.spill_reload_bytes == 0


def test_fp32_is_two_matmul_instructions_of_two_passes_each():
    told = [nki_sim.estimate(matmul, ((96, 40), d), ((96, 200), d), target="trn1") for d in ("bfloat16", "float32")]
    assert [t.matmul_count for t in told] == [1, 2]
    narrow, wide = [(t.timeline.end - t.timeline.start)[t.timeline.lane == 0] for t in told]
    assert wide == pytest.approx(4 * narrow)


def test_limits_hold_without_data():
    with pytest.raises(NkiValidationError, match="moving free size 700 > 512"):
        nki_sim.estimate(matmul, ((96, 40), "bfloat16"), ((96, 700), "bfloat16"))


def test_large_arrays_take_no_room():
    told = nki_sim.estimate(scaled, ((1 << 20, 512), "float32"))  # 2 GiB in, 2 GiB out
    assert told.hbm_read_bytes == told.hbm_write_bytes == 1 << 31
    assert told.steps == 3 * 8192


def test_a_course_that_data_decides_cannot_be_estimated():
    def kernel(x, n):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.fori_loop(0, nisa.scalar_load(nl.load(n)), lambda i: nisa.tensor_scalar(tile, tile, nl.add, 1.0) and None)
        nl.store(out, tile)
        return out

    with pytest.raises(NkiValidationError, match="an estimate knows shapes, not data") as caught:
        nki_sim.estimate(kernel, ((8, 16), "float32"), ((1, 1), "int32"))
    assert "nki_sim.run" in str(caught.value) and "estimate.needs_data" in str(caught.value)


def test_numbers_that_python_gave_are_known():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile, end = nl.load(x), nisa.register_alloc()
        nisa.register_move(dst=end, src=3)

        def add(i):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, end, add)
        nl.store(out, tile)
        return out

    x = np.ones((8, 16), np.float32)
    assert nki_sim.estimate(kernel, x).as_dict() == nki_sim.run(kernel, x).profile().as_dict()


@pytest.mark.parametrize("spec", [((0, 4), "float32"), ((), "float32"), ((4, 2.5), "float32")])
def test_a_wrong_shape_is_refused(spec):
    with pytest.raises(ValueError, match="positive whole numbers"):
        TensorSpec(*spec)


def test_a_wrong_order_is_refused():
    with pytest.raises(ValueError, match="'program' or 'compiler'"):
        nki_sim.run(scaled, np.ones((8, 8), np.float32)).timeline("fast")


def test_engines_take_what_is_ready_in_the_compilers_order():
    run = nki_sim.run(two_chains, np.ones((64, 32), np.float32))
    program, compiler = run.timeline("program"), run.timeline("compiler")
    assert compiler.total < program.total
    for line in (program, compiler):
        for lane in range(len(ENGINES)):
            mine = np.flatnonzero(line.lane == lane)
            mine = mine[np.argsort(line.start[mine], kind="stable")]
            assert (line.start[mine][1:] >= line.end[mine][:-1]).all()
    mine = np.flatnonzero(program.lane == 2)
    assert (np.diff(program.start[mine]) > 0).all()


def two_chains(x):
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(2):
        tile = nl.load(x)
        for _ in range(4):
            nisa.activation(dst=tile, op=nl.exp, data=tile)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.1)
        nl.store(out[i], tile)
    return out


def two_chains_in_order(x):
    with nl.no_reorder():
        return two_chains(x)


def test_no_reorder_keeps_the_order_of_each_engine():
    free, kept = (nki_sim.trace(k, ((64, 32), "float32")) for k in (two_chains, two_chains_in_order))
    assert kept.timeline("program").total == free.timeline("program").total
    assert free.timeline("compiler").total < kept.timeline("compiler").total
    line = kept.timeline("compiler")
    for lane in range(len(ENGINES)):
        mine = np.flatnonzero(line.lane == lane)
        assert (np.diff(line.start[mine]) > 0).all()
    dma = np.flatnonzero(line.lane >= len(ENGINES))
    assert (np.diff(line.start[dma]) > 0).all()


def test_a_later_instruction_may_be_waited_for():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.load(x)
        first = nisa.tensor_scalar(dst=a, data=a, op0=nl.add, operand0=1.0)
        second = nisa.activation(dst=b, op=nl.copy, data=b)
        first.depends_on(second, kind=nisa.dependency.runtime)
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nl.store(out, a)
        return out

    line = nki_sim.run(kernel, np.ones((8, 16), np.float32)).timeline()
    assert line.start[2] >= line.done[3]


def test_waiting_in_a_circle_is_refused_and_the_circle_named():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        a = nl.load(x)
        first = nisa.tensor_scalar(dst=a, data=a, op0=nl.add, operand0=1.0)
        second = nisa.activation(dst=a, op=nl.copy, data=a)
        first.depends_on(second, kind=nisa.dependency.runtime)
        nl.store(out, a)
        return out

    with pytest.raises(NkiValidationError) as caught:
        nki_sim.run(kernel, np.ones((8, 16), np.float32))
    assert "step 1 (tensor_scalar, line" in str(caught.value) and "waits for step 2 (activation, line" in str(caught.value)
    assert "sched.depends_on_cycle" in str(caught.value)


def test_tiles_come_in_when_others_have_left():
    """Eight PSUM banks: the ninth accumulator waits until the first was read."""

    def kernel(x):
        out = nl.ndarray((10, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        left, right = nl.load(x[:, :128]), nl.load(x)
        for i in range(10):
            total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=total, stationary=left, moving=right)
            nl.store(out[i], nl.copy(total))
        return out

    run = nki_sim.run(kernel, np.ones((128, 512), np.float32))
    matmuls = [i for i in range(len(run.program)) if run.program[i].instruction == "nc_matmul"]
    copies = [i for i in range(len(run.program)) if run.program[i].instruction == "tensor_copy"]
    known = run.timeline().dependencies
    assert [m for m in matmuls if set(copies) & set(known.of(m))] == matmuls[8:]


def test_a_cut_short_run_has_a_profile():
    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.nc_matmul(dst=tile, stationary=tile, moving=tile)

    with pytest.raises(NkiValidationError) as caught:
        nki_sim.run(kernel, np.ones((8, 16), np.float32))
    assert caught.value.run.profile().steps == 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12))
@settings(max_examples=100)
def test_union_of_intervals(pairs):
    start = np.array([a for a, _ in pairs], float)
    end = np.array([a + n for a, n in pairs], float)
    open_ = {t for a, n in pairs for t in range(a, a + n)}
    assert union(start, end) == len(open_)
