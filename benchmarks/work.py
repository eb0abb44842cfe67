"""The rows that compare a kernel with NumPy: matmul, attention, softmax and the norms, and the overhead per instruction."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from nki_sim.kernel import Kernel

from benchmarks import bare, kernels
from benchmarks.measuring import Found, Work, agree, alternately, ratio, recorded, replayed

ROUNDS, A_ROUND = 4000, 5


@dataclass(frozen=True)
class Comparison:
    """A kernel, its arguments, the same work in NumPy, and what recording and replaying are held to."""

    name: str
    kernel: Kernel
    args: Sequence[Any]
    bare: Work
    bars: tuple[float | None, float | None]
    tolerance: float = 1e-4

    def works(self) -> tuple[list[str], list[Work]]:
        """Recorded, and replayed where there is such a thing, each beside NumPy; checked first."""
        first = recorded(self.kernel, self.args)
        agree(self.name, first().result, self.bare(), self.tolerance)
        again = replayed(self.kernel, self.args)
        if again is None:
            return ["recorded", "numpy"], [first, self.bare]
        agree(self.name, again(), self.bare(), self.tolerance)
        return ["recorded", "numpy", "replayed", "numpy"], [first, self.bare, again, self.bare]


def rows(repeat: int, made: Comparison) -> list[Found]:
    """Two lines: recorded, replayed."""
    names, works = made.works()
    times = alternately(works, repeat)
    found = []
    for i, (how, bar) in enumerate(zip(("recorded", "replayed"), made.bars, strict=True)):
        if 2 * i >= len(works):
            found.append(Found(f"{made.name}, {how}", None, bar))
            continue
        pair = times[2 * i : 2 * i + 2]
        medians = {f"{n} ms": statistics.median(t) * 1e3 for n, t in zip(names[2 * i : 2 * i + 2], pair, strict=True)}
        found.append(Found(f"{made.name}, {how}", ratio(*pair), bar, medians=medians))
    return found


def normal(*shape: int) -> Any:
    """The same standard normal float32 numbers each time."""
    return np.random.default_rng(len(shape) + shape[-1]).standard_normal(shape, np.float32)


def matmuls(repeat: int) -> list[Found]:
    found = []
    for size, dtype, bars in ((1024, "fp32", (1.6, 1.25)), (1024, "bf16", (1.6, 1.25)), (2048, "bf16", (1.5, 1.2))):
        a, b = normal(2, size, size)
        args, tolerance = ((a, b), 1e-4) if dtype == "fp32" else ([v.astype(ml_dtypes.bfloat16) for v in (a, b)], 2e-2)
        name = f"matmul {size}³ {dtype}"
        made = Comparison(name, kernels.matmul, args, partial(bare.matmul, a, b), bars, tolerance)
        found += rows(repeat, made)
    return found


def attention(repeat: int) -> list[Found]:
    q, k, v = normal(3, 2048, 128)
    args = (np.ascontiguousarray(q.T), np.ascontiguousarray(k.T), v)
    mask = bare.causal_mask(2048)
    made = Comparison("attention 2048×128, causal", kernels.attention, args, partial(bare.attention, *args, mask), (1.5, None))
    return rows(repeat, made)[:1]


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
        found += _overhead(repeat, name, getattr(kernels, name), getattr(bare, name), (x, ROUNDS))
    return found


def _overhead(repeat: int, name: str, kernel: Kernel, plain: Callable[..., Any], args: tuple[Any, int]) -> list[Found]:
    title = f"overhead per instruction, {name.replace('_', ' ')}"
    made = Comparison(title, kernel, args, partial(plain, *args), (5.0, 1.0))
    _, works = made.works()
    times = alternately(works, repeat, time.thread_time)
    scale, found = 1e6 / (A_ROUND * args[1]), []
    for i, (how, bar) in enumerate(zip(("recorded", "replayed"), made.bars, strict=True)):
        if 2 * i >= len(works):
            found.append(Found(f"{title}, {how}", None, bar, "µs"))
            continue
        ours, other = times[2 * i : 2 * i + 2]
        above = statistics.median(a - b for a, b in zip(ours, other, strict=True)) * scale
        medians = {f"{how} µs": statistics.median(ours) * scale, "numpy µs": statistics.median(other) * scale}
        found.append(Found(f"{title}, {how}", above, bar, "µs", medians=medians))
    return found
