"""The timeline as a picture: what is merged, how large it gets, and that it says what the run's timeline says."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from nki_sim.api import nki
from nki_sim.api.nki import isa as nisa
from nki_sim.api.nki import language as nl
from nki_sim.timing.profile import format_time
from runs import long, matmul_run, run
from session import Notebook
from sources import MATMUL

from nki_nb.bars import bars, grain, lanes
from nki_nb.timeline_view import path_spans, ticks, timeline, unit_of

COLUMN = np.ones((32, 40), np.float32)


@nki.jit
def idle(x: Any) -> Any:
    """Nothing to do."""
    return x


@nki.jit
def copies(x: Any, rounds: int) -> Any:
    """As many DMA queues as there are."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in range(rounds):
        nisa.dma_copy(dst=out, src=nl.load(x))
    return out


def titles(drawn: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawn).iter() if element.tag.endswith("title")]


def test_each_instruction_is_a_bar_with_its_line_and_times() -> None:
    report = matmul_run()
    line, found = report.timeline(), titles(timeline(report))
    for i, step in enumerate(report.program):
        times = f"{format_time(float(line.start[i]))} to {format_time(float(line.end[i]))}"
        assert f"step {i}, line {step.line}: {step.instruction}, {times}" in found


def test_the_words_are_those_of_the_profile() -> None:
    report = matmul_run()
    label = ET.fromstring(timeline(report)).attrib["aria-label"]
    assert label.startswith("timeline of matmul, an estimate: total ")
    assert format_time(report.timeline().total) in label and "critical path is" in label


def test_the_critical_path_has_no_gaps() -> None:
    line = matmul_run().timeline()
    spans = list(path_spans(line))
    assert [end for _, _, end in spans[:-1]] == [start for _, start, _ in spans[1:]]
    assert spans[-1][2] == line.total
    assert spans[0][1] == line.start[line.critical_path()[0]]


def test_waits_say_for_whom() -> None:
    found = titles(timeline(matmul_run()))
    assert any("waits for step" in text and "dma_copy" in text for text in found)


@pytest.mark.parametrize(("kernel", "rounds"), [(long, 50_000), (copies, 5_000), (copies, 200), (long, 199)])
def test_long_programs_stay_small(kernel: Any, rounds: int) -> None:
    report = run(kernel, COLUMN, rounds)
    drawn = timeline(report)
    assert len(drawn.encode()) < 200_000
    ET.fromstring(drawn)
    merged = len(report.program) > 400
    assert ("are drawn as one bar" in drawn) == merged


def test_merged_bars_hold_every_step_once() -> None:
    line = run(long, COLUMN, 1000).timeline()
    used = lanes(line)
    width = grain(line, used, 720, (100, 300))
    assert width > 0 == grain(line, used, 720, (5000, 300))
    for lane in used:
        found = list(bars(line, lane.steps, width))
        assert sum(bar.count for bar in found) == len(lane.steps)
        assert all(a.end <= b.start for a, b in pairwise(found))
        busy = float((line.end - line.begin)[lane.steps].sum())
        assert sum(bar.active for bar in found) == pytest.approx(busy)
        assert all(0 < bar.share <= 1 for bar in found)


def test_a_kernel_that_does_nothing() -> None:
    assert "no instruction was issued" in timeline(run(idle, COLUMN))


@pytest.mark.parametrize(
    ("total", "unit", "last"), [(950.0, "ns", 800), (22_940.0, "µs", 20_000), (4.4e6, "ms", 4e6), (1.0, "ns", 1)]
)
def test_axes_have_round_times(total: float, unit: str, last: float) -> None:
    assert unit_of(total).name == unit
    found = list(ticks(total))
    assert found[0] == 0 and found[-1] == pytest.approx(last) and 2 <= len(found) <= 9


def test_in_a_cell(notebook: Notebook) -> None:
    shown = notebook.run("%%nki c = matmul(lhsT, rhs) --view timeline\n" + MATMUL)
    assert shown.error is None
    (picture,) = shown.mime("image/svg+xml")
    assert 'role="img"' in picture and "timeline of matmul" in picture
