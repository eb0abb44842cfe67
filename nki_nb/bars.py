"""The bars of a timeline, with neighbours merged as far as a picture needs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from nki_sim.timing import Timeline, core_of

from nki_nb.program_listing import ENGINES

Steps = npt.NDArray[np.intp]

PIXELS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Widths of the columns in which bars are merged."""


@dataclass(frozen=True)
class Bar:
    """Instructions of one lane that follow each other, drawn as one; times in ns.

    Attributes:
        first, last: steps; ``count`` is how many.
        start, end: from the first start to the last end.
        begin: of a single DMA, its first byte; else ``start``.
        active: how long the lane works in it; for DMA, how long bytes move.
    """

    first: int
    last: int
    count: int
    start: float
    end: float
    begin: float
    active: float

    @property
    def share(self) -> float:
        """Of the bar's time in which the lane works."""
        return min(1.0, self.active / (self.end - self.start)) if self.end > self.start else 1.0


@dataclass(frozen=True)
class Lane:
    """One lane that a timeline uses: its number, its name on its core, and its steps by their start.

    Attributes:
        core: its core's number, where there are several.
    """

    number: int
    name: str
    steps: Steps
    core: int | None = None

    @property
    def engine(self) -> str:
        """The engine's name; ``dma`` for a queue."""
        return "dma" if self.name.startswith("DMA") else self.name

    @property
    def label(self) -> str:
        """The engine or the queue as pictures name it, after its core's number where there are several."""
        name = self.name if self.engine == "dma" else ENGINES[self.engine][0]
        return name if self.core is None else f"{self.core} {name}"


def lanes(line: Timeline) -> list[Lane]:
    """The lanes in use, engines first."""
    order = np.lexsort((line.start, line.lane))
    bounds = np.searchsorted(line.lane[order], np.arange(len(line.lanes) + 1))
    several = line.lanes_per_core < len(line.lanes)
    found = []
    for i, (core, name) in enumerate(map(core_of, line.lanes)):
        steps = order[bounds[i] : bounds[i + 1]]
        if len(steps):
            found.append(Lane(i, name, steps, core if several else None))
    return found


def grain(line: Timeline, used: Sequence[Lane], pixels: float, most: tuple[int, int]) -> float:
    """The width in ns of the columns in which bars are merged.

    Args:
        pixels: of the whole timeline.
        most: how many bars may be drawn one by one, and how many merged ones.
    """
    if sum(len(lane.steps) for lane in used) <= most[0]:
        return 0.0
    pixel = line.total / pixels
    for size in PIXELS:
        if sum(len(np.unique(_columns(line, lane.steps, size * pixel))) for lane in used) <= most[1]:
            break
    return size * pixel


def bars(line: Timeline, steps: Steps, width: float) -> Iterator[Bar]:
    """The bars of some steps of one lane, in the order of their start; those that start in one column are one bar, unless
    ``width`` is 0."""
    columns = _columns(line, steps, width) if width else np.arange(len(steps))
    firsts = np.flatnonzero(np.diff(columns, prepend=-1))
    active = np.add.reduceat(line.end[steps] - line.begin[steps], firsts) if len(steps) else np.zeros(0)
    for i, at in enumerate(firsts):
        until = int(firsts[i + 1]) if i + 1 < len(firsts) else len(steps)
        first, last = int(steps[at]), int(steps[until - 1])
        start, count = float(line.start[first]), until - int(at)
        begin = float(line.begin[first]) if count == 1 else start
        yield Bar(first, last, count, start, float(line.end[last]), begin, float(active[i]))


def _columns(line: Timeline, steps: Steps, width: float) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = np.floor(line.start[steps] / width).astype(np.int64)
    return found
