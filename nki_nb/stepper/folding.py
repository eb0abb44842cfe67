"""Loops in a program: repeated runs of steps folded into "×16".

A step is alike another when plan and line are equal. A fold is a block of steps that repeats right after itself; the
shortest block that repeats longest is folded first, and a block may hold folds of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LONGEST = 64
"""Steps in the longest block that is looked for."""


@dataclass(frozen=True)
class Fold:
    """``times`` repetitions of ``length`` steps from ``start``."""

    start: int
    length: int
    times: int

    @property
    def stop(self) -> int:
        """The step after the last one."""
        return self.start + self.length * self.times


def folds(plans: npt.NDArray[np.int32], lines: npt.NDArray[np.int32]) -> list[Fold]:
    """The outermost folds of a program, in order."""
    keys = plans.astype(np.int64) * (int(lines.max(initial=0)) + 2) + lines
    runs = {length: _repeats(keys, length) for length in range(1, min(LONGEST, len(keys) // 2) + 1)}
    return list(_walk(len(keys), runs))


def _repeats(keys: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """For each step, how many steps from it on equal the one ``length`` later."""
    same = np.zeros(len(keys) + 1, bool)
    same[: len(keys) - length] = keys[:-length] == keys[length:]
    breaks = np.flatnonzero(~same)
    following = breaks[np.searchsorted(breaks, np.arange(len(keys)))]
    return np.asarray(following - np.arange(len(keys)))


def _walk(count: int, runs: dict[int, npt.NDArray[np.int64]]) -> Iterator[Fold]:
    step = 0
    while step < count:
        best = None
        for length, run in runs.items():
            times = int(run[step]) // length + 1
            covered = times * length
            if times > 1 and (best is None or covered > best.length * best.times):
                best = Fold(step, length, times)
        if best is None:
            step += 1
        else:
            yield best
            step = best.stop
