"""The timeline of a run as a picture: a lane for each engine and DMA queue in use, waits, and the critical path.

What is drawn is :meth:`nki_sim.Run.timeline`, in program order, as the stepper's time pane draws it: an estimate.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from nki_sim.program import Program
from nki_sim.run import Run
from nki_sim.timing import Profile, Timeline, advise
from nki_sim.timing.profile import format_time

from nki_nb.bars import Bar, Lane, bars, grain, lanes
from nki_nb.markup import clip
from nki_nb.program_listing import ENGINES
from nki_nb.svg import INK, MARGIN, MONO_WIDTH, MUTED, NOW, WIDTH, Drawing

LABELS = 66.0
LEFT, ACROSS = MARGIN + LABELS, WIDTH - 2 * MARGIN - LABELS
TALL, SQUEEZED, MOST_TALL = 24.0, 17.0, 8
"""Height of a lane; of more than ``MOST_TALL`` lanes, the second."""

MOST_SINGLE, MOST_MERGED, MOST_SPANS, MOST_WAITS, MOST_TURNS = 400, 800, 300, 120, 60
"""What a picture holds, so that it stays below 200 kB."""
SHORTEST_WAIT = 2.0
"""Pixels."""
SHADES = 8

Span = tuple[int, float, float]
"""A lane's number, and a time from and to."""


class Unit(NamedTuple):
    """A unit of time and its ns."""

    name: str
    ns: float


def timeline(run: Run) -> str:
    """The timeline of a run: lanes, waits, the critical path, the total, and what bounds it."""
    told = run.profile("program")
    words = _words(told)
    drawing = Drawing(WIDTH, 0, f"timeline of {run.name}, an estimate: {'; '.join(words)}")
    drawing.text(MARGIN, 26, clip(f"{run.name}: timeline (estimate)", 60), size=13, weight="bold")
    drawing.text(WIDTH - MARGIN, 26, f"{run.core} · program order", fill=MUTED, anchor="end")
    rows = [row for text in words for row in textwrap.wrap(text, 126)]
    for i, row in enumerate(rows):
        drawing.text(MARGIN, 46 + 15 * i, row, fill=MUTED)
    top = 46 + 15 * len(rows) + 4
    drawing.height = top
    if told.steps:
        _Chart(drawing, told, top).draw()
    return drawing.render()


def _words(told: Profile) -> list[str]:
    if not told.steps:
        return ["no instruction was issued"]
    work = f"total {format_time(told.timeline.total)}, and {format_time(told.launch_time)} to launch"
    return [work, *(found.text for found in advise(told)[:1])]


def unit_of(total: float) -> Unit:
    """The unit of an axis that ends at ``total`` ns."""
    return Unit("ns", 1.0) if total < 2e3 else Unit("µs", 1e3) if total < 2e6 else Unit("ms", 1e6)


def ticks(total: float, most: int = 8) -> Iterator[float]:
    """Round times from 0 to ``total``, at most ``most`` steps of 1, 2 or 5."""
    power = 10.0 ** np.floor(np.log10(total / most)) if total > 0 else 1.0
    each = next(power * factor for factor in (1, 2, 5, 10) if total / (power * factor) <= most)
    return (i * each for i in range(int(total / each) + 1))


@dataclass
class _Chart:
    """The lanes of a picture, and where times are in it."""

    drawing: Drawing
    told: Profile
    top: float

    def __post_init__(self) -> None:
        self.line: Timeline = self.told.timeline
        self.program: Program = self.told.program
        self.used: Sequence[Lane] = lanes(self.line)
        self.tall = TALL if len(self.used) <= MOST_TALL else SQUEEZED
        self.total = max(self.line.total, 1.0)
        self.grain = grain(self.line, self.used, ACROSS, (MOST_SINGLE, MOST_MERGED))
        self.y = {lane.number: self.top + self.tall * i for i, lane in enumerate(self.used)}
        self.bar = self.tall - 8

    def x(self, time: float) -> float:
        return LEFT + ACROSS * time / self.total

    def draw(self) -> None:
        foot = self.top + self.tall * len(self.used)
        self._axis(foot)
        for above, lane in zip([None, *self.used], self.used, strict=False):
            if above is not None and above.core != lane.core:
                self.drawing.line((MARGIN, self.y[lane.number] - 4), (LEFT + ACROSS, self.y[lane.number] - 4), dashed=True)
            self._lane(lane)
        self._waits()
        self._path()
        self._legend(foot + 36)
        self.drawing.height = foot + 36 + (30 if self.grain else 14)

    def _axis(self, foot: float) -> None:
        unit = unit_of(self.total)
        for time in ticks(self.total):
            x = self.x(time)
            self.drawing.line((x, self.top - 4), (x, foot + 2))
            words = f"{time / unit.ns:g}{' ' + unit.name if time == 0 else ''}"
            self.drawing.text(x, foot + 14, words, size=10, fill=MUTED, anchor="middle")

    # -- lanes ---------------------------------------------------------------------------------------------------------

    def _lane(self, lane: Lane) -> None:
        _, fill, ink = ENGINES[lane.engine]
        y, drawing = self.y[lane.number], self.drawing
        drawing.text(MARGIN, y + self.bar - 3, lane.label, size=10, fill=MUTED)
        drawing.line((LEFT, y + self.bar), (LEFT + ACROSS, y + self.bar))
        for bar in bars(self.line, lane.steps, self.grain):
            x, wide = self.x(bar.start), ACROSS * (bar.end - bar.start) / self.total
            wide = max(0.8, wide - (0.6 if wide > 3 else 0))
            before = ACROSS * (bar.begin - bar.start) / self.total
            if before > 0.5:
                drawing.rect((x, y, before, self.bar), fill=_mixed(fill, 0.3))
            shade = fill if bar.count == 1 else _mixed(fill, 0.3 + 0.7 * round(bar.share * SHADES) / SHADES)
            drawing.rect((x + before, y, max(0.8, wide - before), self.bar), fill=shade, title=self._title(bar))
            if bar.count == 1:
                self._label(bar, x + before, wide - before, ink)

    def _title(self, bar: Bar) -> str:
        took = f"{format_time(bar.start)} to {format_time(bar.end)}"
        if bar.count == 1:
            step = self.program[bar.first]
            line = f", line {step.line}" if step.line else ""
            return f"step {bar.first}{line}: {step.instruction}, {took}"
        return f"{bar.count} instructions, steps {bar.first} to {bar.last}, {took}, active {100 * bar.share:.0f} %"

    def _label(self, bar: Bar, x: float, wide: float, ink: str) -> None:
        """The instruction's name where it fits, else its step, else nothing."""
        for words in (self.program.plan_at(bar.first).instruction, str(bar.first)):
            if len(words) * 9 * MONO_WIDTH + 4 < wide:
                y = self.y[int(self.line.lane[bar.first])] + self.bar / 2 + 3.2
                self.drawing.text(x + wide / 2, y, words, size=9, fill=ink, anchor="middle", mono=True)
                return

    # -- waits and the critical path -----------------------------------------------------------------------------------

    def _waits(self) -> None:
        """The longest waits, as thin lines before the instructions that waited; in a merged bar, its shade tells of them."""
        line = self.line
        long = np.flatnonzero(line.waited >= max(SHORTEST_WAIT * self.total / ACROSS, self.grain))
        for step in sorted(map(int, long[np.argsort(-line.waited[long], kind="stable")][:MOST_WAITS])):
            x, wide = self.x(float(line.start[step] - line.waited[step])), ACROSS * float(line.waited[step]) / self.total
            y = self.y[int(line.lane[step])] + self.bar / 2 - 0.7
            self.drawing.rect((x, y, wide, 1.4), fill=MUTED, title=self._reason(step))

    def _reason(self, step: int) -> str:
        blocker = int(self.line.blocker[step])
        idle = f"idle for {format_time(float(self.line.waited[step]))} before step {step}"
        if blocker < 0:
            return idle
        if self.line.lane[blocker] == self.line.lane[step]:
            return f"{idle}, after step {blocker}"
        return f"{idle}, which waits for step {blocker}, {self.program.plan_at(blocker).instruction}"

    def _path(self) -> None:
        """A warm line under what decides the total, from lane to lane."""
        spans = list(path_spans(self.line))
        if len(spans) <= MOST_TURNS:
            for (one, _, at), (other, *_) in pairwise(spans):
                self.drawing.line((self.x(at), self._under(one)), (self.x(at), self._under(other)), stroke=NOW)
        for lane, start, end in _merged(spans, self.total / ACROSS):
            box = (self.x(start), self._under(lane), max(0.8, ACROSS * (end - start) / self.total), 2.0)
            self.drawing.rect(box, fill=NOW)

    def _under(self, lane: int) -> float:
        return self.y[lane] + self.bar + 1

    # -- what it means -------------------------------------------------------------------------------------------------

    def _legend(self, y: float) -> None:
        drawing, dma = self.drawing, ENGINES["dma"][1]
        entries = ["works", "idle: waits"] + ["DMA before its first byte"] * any(lane.engine == "dma" for lane in self.used)
        x = LEFT
        for words in entries:
            if words.startswith("idle"):
                drawing.rect((x, y - 4.7, 16, 1.4), fill=MUTED)
            else:
                drawing.rect((x, y - 9, 16, 10), fill=_mixed(dma, 0.3) if words.startswith("DMA") else INK)
            drawing.text(x + 22, y, words, size=10, fill=MUTED)
            x += 50 + 6 * len(words)
        drawing.rect((x, y - 5, 16, 2), fill=NOW)
        drawing.text(x + 22, y, "critical path: it decides the total", size=10, fill=MUTED)
        if self.grain:
            merged = (
                f"{self.told.steps} instructions: neighbours that start within {format_time(self.grain)} are drawn as one bar, "
            )
            drawing.text(LEFT, y + 16, merged + "the darker, the more of it works; the path likewise", size=10, fill=MUTED)


def path_spans(line: Timeline) -> Iterator[Span]:
    """The critical path without gaps: on which lane it is from when to when."""
    path = line.critical_path()
    lane, since = int(line.lane[path[0]]), float(line.start[path[0]])
    for step in path[1:]:
        if int(line.lane[step]) != lane:
            yield lane, since, float(line.start[step])
            lane, since = int(line.lane[step]), float(line.start[step])
    yield lane, since, float(line.done[path[-1]])


def _merged(spans: Sequence[Span], pixel: float) -> list[Span]:
    """Spans of each lane, those closer than some pixels as one, until few remain."""
    apart = 0.0 if len(spans) <= MOST_SPANS else pixel
    while True:
        found: dict[int, list[Span]] = {}
        for lane, start, end in spans:
            mine = found.setdefault(lane, [])
            if mine and start - mine[-1][2] < apart:
                mine[-1] = (lane, mine[-1][1], end)
            else:
                mine.append((lane, start, end))
        every = [span for mine in found.values() for span in mine]
        if len(every) <= MOST_SPANS or apart > pixel * ACROSS:
            return every
        apart *= 2


def _mixed(colour: str, share: float) -> str:
    """A colour thinned with white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - part) * share):02x}" for part in parts)
