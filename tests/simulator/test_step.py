"""The kernels of a step: each with its calls, their times together, the costliest first."""

from __future__ import annotations

import nki_sim
import numpy as np
import pytest
from nki_sim import NkiValidationError
from test_estimate import matmul, scaled

doubled, product = nki_sim.jit(scaled), nki_sim.jit(matmul)


def step():
    x = np.ones((100, 48), np.float32)
    for _ in range(3):
        x = doubled(x, factor=2.0)
    return product(x, doubled(x, 0.5)), doubled(np.ones((400, 48), np.float32))


def test_every_call_counts_and_calls_alike_are_one_line():
    told = nki_sim.profile_step(step)
    assert {(c.kernel, c.count) for c in told.calls} == {("scaled", 3), ("scaled", 1), ("matmul", 1)}
    assert sorted(c.count for c in told.calls) == [1, 1, 1, 3]
    assert [c.time for c in told.calls] == sorted((c.time for c in told.calls), reverse=True)
    single = nki_sim.estimate(scaled, ((100, 48), "float32"), factor=2.0).total_time
    assert next(c for c in told.calls if c.count == 3).time == 3 * single
    assert told.total_time == sum(c.time for c in told.calls)
    np.testing.assert_array_equal(told.result[0], step()[0])


def test_reads_as_a_table():
    lines = str(nki_sim.profile_step(step)).splitlines()
    assert lines[0] == "kernels of one step · trn2 · compiler order · estimated"
    assert lines[1].split()[:5] == ["kernel", "calls", "together", "share", "longest"]
    assert [line.split()[:2] for line in lines[2:4]] == [["scaled", "5"], ["matmul", "1"]]
    assert len(lines) == 5 and lines[-1].startswith("6 calls: ") and "of which launch 90.00 µs" in lines[-1]
    assert repr(nki_sim.profile_step(lambda: None)).splitlines()[1].startswith("0 calls")


def test_the_order_is_passed_on():
    told = nki_sim.profile_step(step, order="program")
    assert "program order" in str(told) and {c.profile.order for c in told.calls} == {"program"}


def test_an_error_of_the_step_is_the_callers_and_nothing_is_noted_after():
    with pytest.raises(NkiValidationError, match="partition"):
        nki_sim.profile_step(lambda: product(np.ones((300, 4), np.float32), np.ones((300, 4), np.float32)))
    told = nki_sim.profile_step(lambda: doubled(np.ones((3, 4), np.float32)))
    step()
    assert sum(c.count for c in told.calls) == 1
