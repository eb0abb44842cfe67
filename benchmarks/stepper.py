"""What stepping through a run costs in the notebook's kernel: ``python benchmarks/stepper.py``.

The browser's part is measured in ``tests/stepper/test_page.py``, which prints it.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import nki_sim
import numpy as np

import nki_nb
from nki_nb.stepper.packing import apart

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


@nki.jit
def matmul(lhsT, rhs):  # noqa: N803 - the field's name for a transposed left operand
    k, m = lhsT.shape
    out = nl.ndarray((m, rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for i in range(m // 128):
        acc = nl.ndarray((128, rhs.shape[1]), dtype=nl.float32, buffer=nl.psum)
        for step in range(k // 128):
            a = nl.load(lhsT[step * 128 : (step + 1) * 128, i * 128 : (i + 1) * 128])
            b = nl.load(rhs[step * 128 : (step + 1) * 128])
            nisa.nc_matmul(dst=acc, stationary=a, moving=b, accumulate=(step > 0))
        nl.store(out[i * 128 : (i + 1) * 128], nl.copy(acc))
    return out


@nki.jit
def many(x):
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


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cost(name: str, run: nki_sim.Run, steps: list[int]) -> None:
    """Opening (widget, still picture, overview), then steps as the viewer asks for them."""
    before = peak_mb()
    opened = nki_nb.view(run)
    feed = opened.feed
    opening = seconds(lambda: (opened._repr_mimebundle_(), feed.answer({"kind": "overview"})))
    times = [seconds(lambda s=step: apart(feed.answer({"kind": "step", "step": s}))) * 1e3 for step in steps]  # type: ignore[misc]
    print(f"{name}, {len(run.program)} instructions: opens in {opening:.2f} s, {peak_mb() - before:.0f} MB more; "
          f"one step {statistics.median(times):.1f} ms, longest {max(times):.1f} ms")  # fmt: skip


if __name__ == "__main__":
    random = np.random.default_rng(0)
    cost("warm-up", nki_sim.run(matmul, *random.standard_normal((2, 128, 128), np.float32)), [0])
    small = nki_sim.run(matmul, *random.standard_normal((2, 512, 512), np.float32))
    cost("matmul 512³", small, [*range(len(small.program)), *reversed(range(len(small.program)))])
    large = nki_sim.run(many, random.standard_normal((8, 16), np.float32))
    cost("three in a loop", large, [*range(400), *range(300, 0, -1)])
