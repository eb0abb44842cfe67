"""Kernels of large tiles run at their end, fused; nobody can tell but by the time it takes."""

from __future__ import annotations

import warnings

import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from kernels import ld, ps, sb, st
from nki_sim import NkiWarning
from nki_sim.kernel import RunOptions, as_kernel

RANDOM = np.random.default_rng(5)
ROWS, COLUMNS = 128, 512
X = RANDOM.standard_normal((ROWS, COLUMNS), dtype=np.float32)
Y = RANDOM.standard_normal((ROWS, COLUMNS), dtype=np.float32)


def at_once(kernel, *args):
    """The result when each instruction runs at its line, and its run."""
    from nki_sim.machine import Machine

    waits = Machine.wait
    Machine.wait = lambda self: None
    try:
        run = nki_sim.run(kernel, *[a.copy() if isinstance(a, np.ndarray) else a for a in args])
    finally:
        Machine.wait = waits
    return run


def test_products_are_one_and_close():
    def kernel(a, b):
        total = ps(128, 512)
        for i in range(0, 512, 128):
            nisa.nc_matmul(dst=total, stationary=ld(a[i : i + 128, :]), moving=ld(b[i : i + 128, :]), accumulate=i > 0)
        return st(total)

    a, b = RANDOM.standard_normal((512, 128), dtype=np.float32), RANDOM.standard_normal((512, 512), dtype=np.float32)
    together, single = nki_sim.run(kernel, a, b), at_once(kernel, a, b)
    np.testing.assert_allclose(together.result, single.result, rtol=1e-5, atol=1e-4)
    assert together.counts == single.counts and together.program.listing() == single.program.listing()


def test_elementwise_results_are_the_same_bits():
    def kernel(x, y):
        t, u = ld(x), ld(y)
        nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.multiply)
        nisa.activation(dst=u, op=nl.exp, data=t, scale=0.5)
        return st(u)

    assert nki_sim.run(kernel, X, Y).result.tobytes() == at_once(kernel, X, Y).result.tobytes()


def test_a_tile_that_is_looked_at_has_its_values(capsys):
    seen = []

    def kernel(x, y):
        t = ld(x)
        nisa.tensor_tensor(dst=t, data1=t, data2=ld(y), op=nl.add)
        seen.append(t.numpy())
        print(t)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        return st(t)

    result = nki_sim.run(kernel, X, Y).result
    assert seen[0].tobytes() == (X + Y).tobytes() and result.tobytes() == ((X + Y) * 2).tobytes()
    assert f"{(X + Y)[0, 0]:.4f}"[:5] in capsys.readouterr().out


def test_a_register_decides_and_the_rest_is_right():
    def kernel(x, count):
        t = ld(x)
        rounds = nisa.register_alloc()
        nisa.register_load(rounds, ld(count))
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        for _ in nl.dynamic_range(0, rounds):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        return st(t)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NkiWarning)
        result = nki_sim.run(kernel, X, np.array([[3]], np.int32)).result
    assert result.tobytes() == ((X + np.float32(1)) * 8).tobytes()


def test_values_are_reported_at_the_line_that_made_them():
    def root(t):
        nisa.activation(dst=t, op=nl.sqrt, data=t)

    def kernel(x):
        t = ld(x)
        root(t)
        return st(t)

    with pytest.warns(NkiWarning):
        run = nki_sim.run(kernel, X)
    with pytest.warns(NkiWarning):
        single = at_once(kernel, X)
    (finding,), (other,) = run.findings, single.findings
    assert [(s.code, s.lasti) for s in finding.sites] == [(s.code, s.lasti) for s in other.sites]
    assert len(finding.sites) == 2 and finding.step == other.step == 1
    assert np.array_equal(run.result, single.result, equal_nan=True)


def test_uninitialised_elements_are_nan():
    def kernel(x):
        t = sb(ROWS, COLUMNS)
        nisa.dma_copy(dst=t[:, 0:256], src=x[:, 0:256])
        return st(t)

    with pytest.warns(NkiWarning, match="never written"):
        result = nki_sim.run(kernel, X).result
    assert np.array_equal(result[:, :256], X[:, :256]) and np.isnan(result[:, 256:]).all()


def test_an_input_that_is_written_is_written_at_the_end():
    def kernel(x):
        t = ld(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=x, src=t)

    given = X.copy()
    run = nki_sim.run(kernel, given)
    assert given.tobytes() == (X * 2).tobytes()
    assert next(iter(run.inputs.values())).tobytes() == X.tobytes()


def test_a_kernel_that_fails_leaves_inputs_and_keeps_the_program():
    def kernel(x):
        t = ld(x)
        nisa.dma_copy(dst=x, src=t)
        nisa.tensor_tensor(dst=t, data1=t, data2=sb(64, COLUMNS), op=nl.add)

    given = X.copy()
    with pytest.raises(nki_sim.NkiValidationError) as raised:
        nki_sim.run(kernel, given)
    assert given.tobytes() == X.tobytes() and len(raised.value.run.program) == 2


def test_results_do_not_share_memory_with_inputs_or_each_other():
    @nki.jit
    def kernel(x):
        return st(ld(x))

    first, second = kernel(X), kernel(X)
    assert not np.shares_memory(first, X) and not np.shares_memory(first, second)
    first[...] = 0
    assert second.tobytes() == X.tobytes()


def test_the_record_steps_through_as_ever():
    def kernel(x, y):
        t = ld(x)
        nisa.tensor_tensor(dst=t, data1=t, data2=ld(y), op=nl.subtract)
        return st(t)

    run = nki_sim.run(kernel, X, Y)
    replay = run.replay()
    for step in range(len(run.program)):
        replay.seek(step)
    assert run.result.tobytes() == (X - Y).tobytes()


def test_many_small_instructions_run_at_their_lines(monkeypatch):
    caught = []
    from nki_sim.machine import Machine

    before = Machine.catch_up
    monkeypatch.setattr(Machine, "catch_up", lambda self: (caught.append(len(self.program)), before(self)))

    def kernel(x):
        t = ld(x)
        for _ in range(100):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        return st(t)

    result = as_kernel(kernel).run((np.zeros((8, 8), np.float32),), {}, RunOptions()).result
    assert (result == 100).all() and caught[0] < 50


def test_strict_runs_stop_at_the_line():
    def kernel(x):
        t = ld(x)
        nisa.activation(dst=t, op=nl.sqrt, data=t)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        return st(t)

    with pytest.raises(nki_sim.NkiValidationError) as raised:
        as_kernel(kernel).run((X,), {}, RunOptions(strict=True))
    assert len(raised.value.run.program) == 1
