"""Values at a step are what was there when the kernel ran, however memory was used since.

While a kernel runs, every instruction's operands are copied out of the running machine; the viewer's answers, which come
from running the record again, must be the same bits at steps visited in any order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nki_sim.machine import Machine
from nki_sim.tensor import NkiTensor
from samples import matmul_run, moves_run, reuse_run, softmax_run

from nki_nb.stepper.feed import Feed
from nki_nb.stepper.packing import unpack

Snapshots = list[dict[int, Any]]


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> Snapshots:
    """What every operand of every step holds after it, copied while the kernel runs."""
    taken: Snapshots = []
    record = Machine._record

    def recording(self: Machine, ins: Any, number: int, values: tuple[Any, ...], step: int) -> None:
        record(self, ins, number, values, step)
        taken.append({k: _copy(v) for k, v in enumerate(values) if type(v) is NkiTensor})

    monkeypatch.setattr(Machine, "_record", recording)
    monkeypatch.setattr(Machine, "plays", lambda self, plan: False)
    return taken


def _copy(tensor: NkiTensor) -> Any:
    return np.array(tensor.array)


@pytest.mark.parametrize("run", [matmul_run, softmax_run, moves_run, reuse_run])
def test_values_are_those_of_the_running_kernel(run: Callable[[], Any], snapshots: Snapshots) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = run()
    feed = Feed(report)
    program = report.program
    assert len(snapshots) == len(program)
    random = np.random.default_rng(0)
    compared = 0
    for i in random.integers(0, len(program), 120):
        plan = program.plan_at(int(i))
        for k, expected in snapshots[i].items():
            if plan.slots[k].gathers:
                continue
            shown = feed.operand(int(i), k, after=True)
            assert shown is not None
            assert _bits(shown).tobytes() == np.ascontiguousarray(expected).tobytes(), (i, plan.slots[k].name)
            compared += 1
    assert compared > 100


def test_before_is_after_the_last_write(snapshots: Snapshots) -> None:
    report = matmul_run()
    feed = Feed(report)
    for earlier, later in [(4, 6), (6, 8)]:
        before, after = feed.operand(later, 0), feed.operand(earlier, 0, after=True)
        assert before is not None and after is not None
        assert before["values"] == after["values"]
        assert _bits(before).tobytes() == snapshots[earlier][0].tobytes()


def _bits(sent: dict[str, Any]) -> Any:
    return unpack(sent["values"] if sent["bits"] is None else sent["bits"])
