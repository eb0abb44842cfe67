"""How figures are taken: alternately, after a warm-up, with garbage collected between, as medians."""

from __future__ import annotations

import gc
import itertools
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nki_sim
import numpy as np
from nki_sim.kernel import Kernel, jit
from nki_sim.replay import PROGRAMS
from threadpoolctl import threadpool_info

Work = Callable[[], Any]


def alternately(works: Sequence[Work], repeat: int, clock: Callable[[], float] = time.perf_counter) -> list[list[float]]:
    """Seconds of each work, each time, taken in turns so that a machine that slows down slows all."""
    times: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for _ in range(repeat):
        for kept, work in zip(times, works, strict=True):
            gc.collect()
            began = clock()
            result = work()
            kept.append(clock() - began)
            del result
    return times


def ratio(ours: Sequence[float], bare: Sequence[float]) -> float:
    """The median of the ratios of neighbours in time."""
    return statistics.median(a / b for a, b in zip(ours, bare, strict=True))


def recorded(kernel: Kernel, args: Sequence[Any], *, first: bool = False) -> Work:
    """A run of the kernel's Python, with all checks and the record; ``first``: as no earlier run has recorded it.

    Raises:
        RuntimeError: it was remembered.
    """

    def run() -> Any:
        if first:
            PROGRAMS.clear()
        made = jit(kernel.function)
        return nki_sim.run(made if kernel.lnc is None else made[kernel.lnc], *args)

    run()
    if not runs_python(run, kernel.function.__code__):
        raise RuntimeError(f"{kernel.name}: nki_sim.run did not run the kernel")
    return run


def replayed(kernel: Kernel, args: Sequence[Any]) -> Work | None:
    """The recorded program on other inputs of the same shapes; ``None`` while calling a kernel again runs its Python again."""
    sets = [args, [a.copy() if isinstance(a, np.ndarray) else a for a in args]]
    kernel(*sets[0])
    if runs_python(lambda: kernel(*sets[1]), kernel.function.__code__):
        return None
    turns = itertools.cycle(sets)
    return lambda: kernel(*next(turns))


def runs_python(work: Work, code: Any) -> bool:
    """Whether a function's Python runs meanwhile."""
    entered: list[Any] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            entered.append(code)

    before, in_threads = sys.getprofile(), threading.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)  # each core has a thread of its own
    try:
        work()
    finally:
        sys.setprofile(before)
        threading.setprofile(in_threads)
    return bool(entered)


def agree(name: str, result: Any, expected: Any, tolerance: float) -> None:
    """What is measured computes the right thing.

    Raises:
        ArithmeticError: the largest difference is more than ``tolerance`` of the largest element.
    """
    ours, other = (np.asarray(a).astype(np.float32) for a in (result, expected))
    error = float(np.abs(ours - other).max() / np.abs(other).max())
    if not error <= tolerance:
        raise ArithmeticError(f"{name}: differs from NumPy by {error:.1e} of the largest element")


def blas_threads() -> int:
    """How many threads one matmul of NumPy may take, in the simulator and beside it."""
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)


def processor() -> str:
    """The processor's name, as its maker gives it."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"
