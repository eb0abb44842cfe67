"""What stepping through a run costs in the notebook's kernel.

The browser's part is measured in ``tests/stepper/test_page.py``, which prints it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import nki_sim
import numpy as np

import nki_nb
from benchmarks.found import Found
from benchmarks.kernels import nisa, nki, nl, tiled_matmul
from benchmarks.memory import peak_mb
from nki_nb.stepper.packing import apart


@nki.jit
def three_in_a_loop(x: Any) -> Any:
    """300 000 instructions."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    u = nl.copy(t)
    for i in range(100_000):
        nisa.tensor_scalar(dst=u, data=t, op0=nl.add, operand0=float(i))
        nisa.activation(dst=t, op=nl.relu, data=u)
        nisa.tensor_tensor(dst=u, data1=t, data2=u, op=nl.minimum)
    nl.store(out, u)
    return out


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cost(name: str, run: nki_sim.Run, steps: list[int], bars: tuple[float, float | None]) -> list[Found]:
    """Opening (widget, still picture, overview), then steps as the viewer asks for them."""
    before = peak_mb()
    opened = nki_nb.view(run)
    feed = opened.feed
    opening = seconds(lambda: (opened._repr_mimebundle_(), feed.answer({"kind": "overview"})))
    grown = peak_mb() - before
    times = [seconds(lambda s=step: apart(feed.answer({"kind": "step", "step": s}))) * 1e3 for step in steps]  # type: ignore[misc]
    count = {"instructions": float(len(run.program))}
    return [
        Found(f"open the view of {name}", opening, bars[0], "s", medians=count),
        Found("… memory", grown, bars[1], "MB"),
        Found("… one step", statistics.median(times), None, "ms", medians={"longest ms": max(times)}),
    ]


def stepper(repeat: int) -> list[Found]:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 512, 512), np.float32)
    cost("warm-up", nki_sim.run(tiled_matmul, a[:128, :128], b[:128]), [0], (1.0, None))
    small = nki_sim.run(tiled_matmul, a, b)
    there_and_back = [*range(len(small.program)), *reversed(range(len(small.program)))]
    found = cost("a 512³ matmul", small, there_and_back, (1.0, 50.0))
    large = nki_sim.run(three_in_a_loop, random.standard_normal((8, 16), np.float32))
    return found + cost("300 000 instructions", large, [*range(400), *range(300, 0, -1)], (5.0, None))
