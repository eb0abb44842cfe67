"""The rows that compare a kernel with NumPy: matmul, attention, softmax and the norms, and the overhead per instruction."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from nki_sim.kernel import Kernel

from benchmarks import bare, kernels
from benchmarks.found import Found
from benchmarks.measuring import Work, agree, alternately, ratio, recorded, replayed

ROUNDS, A_ROUND = 4000, 5
SIZES = (
    (1024, "fp32", 1, (1.6, 1.25)),
    (1024, "fp32", 2, (1.6, 1.25)),
    (1024, "bf16", 1, (1.6, 1.25)),
    (2048, "bf16", 1, (1.5, 1.2)),
)
"""Of the matmuls: size, data type, logical cores, and what recording and replaying are held to."""
Times = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Comparison:
    """A kernel, its arguments, the same work in NumPy, and what recording and replaying are held to.

    Attributes:
        fused: whether recorded instructions run fused, for which programs are kept from run to run: both are measured, the
            first run of a record and a further one.
    """

    name: str
    kernel: Kernel
    args: Sequence[Any]
    bare: Work
    bars: tuple[float | None, float | None]
    tolerance: float = 1e-4
    fused: bool = True

    def works(self) -> dict[str, Work | None]:
        """What is measured, by name, checked first; ``None`` where nothing replays yet."""
        run = recorded(self.kernel, self.args)
        agree(self.name, run().result, self.bare(), self.tolerance)
        again = replayed(self.kernel, self.args)
        if again is not None:
            agree(self.name, again(), self.bare(), self.tolerance)
        if not self.fused:
            return {"recorded": run, "replayed": again}
        return {"recorded first": recorded(self.kernel, self.args, first=True), "recorded again": run, "replayed": again}


def pairs(made: Comparison, repeat: int, clock: Callable[[], float]) -> Iterator[tuple[str, float | None, Times | None]]:
    """For all ways to run it: the name, the bar, and the seconds of both sides; ``None`` where nothing replays yet."""
    works = made.works()
    there = {how: work for how, work in works.items() if work is not None}
    times = alternately([each for work in there.values() for each in (work, made.bare)], repeat, clock)
    measured = dict(zip(there, zip(times[::2], times[1::2], strict=True), strict=True))
    for how in works:
        yield how, made.bars[how == "replayed"], measured.get(how)


def rows(repeat: int, made: Comparison) -> list[Found]:
    """Ratios to NumPy: a line for each way to run it."""
    found = []
    for how, bar, times in pairs(made, repeat, time.perf_counter):
        if times is None:
            found.append(Found(f"{made.name}, {how}", None, bar))
            continue
        medians = {f"{how} ms": statistics.median(times[0]) * 1e3, "numpy ms": statistics.median(times[1]) * 1e3}
        found.append(Found(f"{made.name}, {how}", ratio(*times), bar, medians=medians))
    return found


def normal(*shape: int) -> Any:
    """The same standard normal float32 numbers each time."""
    return np.random.default_rng(len(shape) + shape[-1]).standard_normal(shape, np.float32)


def matmuls(repeat: int) -> list[Found]:
    found = []
    for size, dtype, cores, bars in SIZES:
        a, b = normal(2, size, size)
        args, tolerance = ((a, b), 1e-4) if dtype == "fp32" else ([v.astype(ml_dtypes.bfloat16) for v in (a, b)], 2e-2)
        name = f"matmul {size}³ {dtype}" + (f" on {cores} cores" if cores > 1 else "")
        made = Comparison(name, kernels.matmul[cores], args, partial(bare.matmul, a, b), bars, tolerance)
        found += rows(repeat, made)
    return found


def attention(repeat: int) -> list[Found]:
    q, k, v = normal(3, 2048, 128)
    args = (np.ascontiguousarray(q.T), np.ascontiguousarray(k.T), v)
    mask = bare.causal_mask(2048)
    made = Comparison("attention 2048×128, causal", kernels.attention, args, partial(bare.attention, *args, mask), (1.5, None))
    return rows(repeat, made)


def softmax(repeat: int) -> list[Found]:
    return _by_rows(repeat, "softmax", 0)


def rmsnorm(repeat: int) -> list[Found]:
    return _by_rows(repeat, "rmsnorm", 1)


def layernorm(repeat: int) -> list[Found]:
    return _by_rows(repeat, "layernorm", 2)


def _by_rows(repeat: int, name: str, vectors: int) -> list[Found]:
    args = (normal(4096, 4096), *normal(vectors, 1, 4096))
    kernel, plain = getattr(kernels, name), getattr(bare, name)
    return rows(repeat, Comparison(f"{name} 4096×4096", kernel, args, partial(plain, *args), (None, 1.3)))


def overhead(repeat: int) -> list[Found]:
    """Microseconds per instruction above the bare NumPy call, from the first line of the kernel to the finished run."""
    found = []
    for name, x in (("whole_tiles", normal(32, 32)), ("fresh_slices", normal(32, 64))):
        title = f"overhead per instruction, {name.replace('_', ' ')}"
        args = (x, ROUNDS)
        made = Comparison(title, getattr(kernels, name), args, partial(getattr(bare, name), *args), (5.0, 1.0), fused=False)
        found += _above(repeat, made, A_ROUND * ROUNDS)
    return found


def _above(repeat: int, made: Comparison, steps: int) -> list[Found]:
    found = []
    for how, bar, times in pairs(made, repeat, time.thread_time):
        if times is None:
            found.append(Found(f"{made.name}, {how}", None, bar, "µs"))
            continue
        scale = 1e6 / steps
        above = statistics.median(a - b for a, b in zip(*times, strict=True)) * scale
        medians = {f"{how} µs": statistics.median(times[0]) * scale, "numpy µs": statistics.median(times[1]) * scale}
        found.append(Found(f"{made.name}, {how}", above, bar, "µs", medians=medians))
    return found
