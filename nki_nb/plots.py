"""Plots for matplotlib: the timeline, the roofline, and the memory of runs. Each draws on the axes it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from nki_sim.hw import NeuronCore
from nki_sim.memory import MemoryRegion
from nki_sim.placement import Occupancy
from nki_sim.run import Run
from nki_sim.timing import Profile

from nki_nb.bars import lanes
from nki_nb.memory_map import BANK_EDGE, TILE_EDGE
from nki_nb.memory_use import bytes_alive, over_time
from nki_nb.program_listing import ENGINES
from nki_nb.recorded import as_profile
from nki_nb.svg import INK, MUTED, NOW
from nki_nb.timeline_view import path_spans, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR = 0.64
FP32_PASSES = 4
"""Of the tensor engine, for one fp32 matmul."""


def plot_timeline(run: Run | Profile, ax: Axes | None = None) -> Axes:
    """Draw when each engine and DMA queue works, and under it the critical path. Times are estimates.

    Args:
        run: a run, of which ``run.profile()`` is taken, or a profile.
        ax: axes to draw on; without them a new figure's.
    """
    profile, target = as_profile(run), _axes(ax)
    line, used = profile.timeline, lanes(profile.timeline)
    unit = unit_of(line.total)
    rows = {lane.number: i for i, lane in enumerate(used)}
    for lane in used:
        colour, y = ENGINES[lane.engine][1], rows[lane.number] - BAR / 2
        start, begin, end = (times[lane.steps] / unit.ns for times in (line.start, line.begin, line.end))
        if lane.engine == "dma":
            target.broken_barh(list(zip(start, begin - start, strict=True)), (y, BAR), facecolor=colour, alpha=0.3)
        target.broken_barh(list(zip(begin, end - begin, strict=True)), (y, BAR), facecolor=colour, rasterized=True)
    spans = [(rows[lane], start / unit.ns, end / unit.ns) for lane, start, end in path_spans(line)]
    y_path, first, last = (np.array([span[i] for span in spans], float) for i in range(3))
    target.hlines(y_path + BAR / 2 + 0.08, first, last, color=NOW, linewidth=2, label="critical path")
    target.set_yticks(range(len(used)), [lane.label for lane in used])
    target.set_ylim(len(used) - 0.4, -0.6)
    target.set_xlim(0, max(line.total / unit.ns, 1e-9))
    target.set_xlabel(f"time ({unit.name}), an estimate")
    target.set_title(f"{_quiet(profile.kernel)} on {profile.target}, {profile.order} order")
    if spans:
        target.legend(loc="lower left")
    return target


def plot_roofline(*runs: Run | Profile, ax: Axes | None = None) -> Axes:
    """Draw what the tensor engine and HBM allow, and where runs are. Times are estimates, and include the launch.

    Args:
        runs: runs, of which ``run.profile()`` is taken, or profiles.
        ax: axes to draw on; without them a new figure's.

    Raises:
        ValueError: nothing is given, or a kernel that has no matmul or moves no data: it has no place there.
    """
    profiles = [as_profile(run) for run in runs]
    if not profiles:
        raise ValueError("plot_roofline needs at least one run or profile")
    for profile in profiles:
        if not profile.arithmetic_intensity:
            raise ValueError(f"{profile.kernel} multiplies no matrices, or moves no data: it has no place in a roofline")
    target = _axes(ax)
    cores = {profile.target: profile.core for profile in profiles}
    for core in cores.values():
        _roof(target, core, [profile.arithmetic_intensity for profile in profiles])
    for profile in profiles:
        reached = profile.model_flops / profile.total_time / 1e3
        words = f"{_quiet(profile.kernel)}, {profile.target}, {profile.order} order: {reached:.3g} TFLOP/s"
        target.plot([profile.arithmetic_intensity], [reached], "o", label=words)
    target.set_xscale("log")
    target.set_yscale("log")
    target.set_xlabel("arithmetic intensity (FLOP per byte of HBM traffic)")
    target.set_ylabel("TFLOP/s, an estimate")
    target.set_title("roofline of one core")
    target.legend(loc="lower right", fontsize="small")
    return target


def _roof(target: Axes, core: NeuronCore, points: list[float]) -> None:
    """HBM's slope, the bf16 and the fp32 peak, and the ridge of one core."""
    peak, slope = core.peak_flops / 1e12, core.hbm_gb_s / 1e3
    ridge = peak / slope
    x = np.geomspace(min(ridge / 100, *points, ridge) / 2, max(ridge * 10, *points) * 2, 200)
    words = f"{core.target}: bf16 peak {peak:.3g} TFLOP/s, HBM {core.hbm_gb_s:g} GB/s, ridge {ridge:.0f} FLOP/byte"
    (roof,) = target.plot(x, np.minimum(slope * x, peak), label=words)
    low = peak / FP32_PASSES
    style: dict[str, Any] = {"color": roof.get_color(), "linestyle": "--"}
    target.plot(x, np.minimum(slope * x, low), label=f"{core.target}: fp32 peak {low:.3g} TFLOP/s", **style)
    target.axvline(ridge, color=MUTED, linewidth=0.8, linestyle=":")


def plot_memory(run: Run, ax: Axes | None = None, over: Literal["step", "time"] = "step") -> Axes:
    """Draw the bytes alive in each partition: SBUF on the left axis, PSUM on the right, both up to their limits.

    Args:
        run: a run.
        ax: axes to draw on; without them a new figure's.
        over: ``step``, or ``time``: the estimated time by which a step and all before it have started, in program order.

    Raises:
        ValueError: another ``over``.
    """
    if not isinstance(run, Run):
        raise TypeError(f"a run is needed, not {type(run).__name__}")
    if over not in ("step", "time"):
        raise ValueError(f"over is {over!r}: it is 'step' or 'time'")
    target = _axes(ax)
    other = target.twinx()
    for axes, used, colour in ((target, run.memory.sbuf, TILE_EDGE), (other, run.memory.psum, BANK_EDGE)):
        _occupied(axes, run, used, colour, over)
    unit = unit_of(run.timeline().total)
    target.set_xlabel("step" if over == "step" else f"time ({unit.name}), an estimate")
    target.set_title(f"{_quiet(run.name)} on {run.core.target}: memory")
    handles = [*target.get_legend_handles_labels()[0], *other.get_legend_handles_labels()[0]]
    target.legend(handles=handles, loc="upper right", fontsize="small")
    return target


def _occupied(axes: Axes, run: Run, used: Occupancy, colour: str, over: str) -> None:
    """One memory on its own axis: bytes alive, high-water mark, limit."""
    x, alive = _alive(run, used.region, over)
    name = used.region.value.upper()
    axes.fill_between(x, alive, step="post", color=colour, alpha=0.25)
    axes.step(x, alive, where="post", color=colour, label=f"{name}, peak {used.peak / 1024:.1f} KiB")
    mark = used.high_water / 1024
    axes.axhline(mark, color=colour, linestyle=":", label=f"{name} high-water mark {mark:.1f} KiB")
    limit = used.limit / 1024
    axes.axhline(limit, color=INK, linestyle="--", label=f"{name} limit {limit:.1f} KiB")
    axes.set_ylim(0, limit * 1.08)
    axes.set_ylabel(f"{name} (KiB per partition)", color=colour)


def _alive(run: Run, region: MemoryRegion, over: str) -> tuple[Any, Any]:
    """Where a memory's bytes change, to the end, and the KiB from there on."""
    steps = len(run.program)
    alive = bytes_alive(run.program, region)
    x: Any = np.arange(steps)
    end: float = steps
    if over == "time":
        line = run.timeline()
        unit = unit_of(line.total)
        times, alive = over_time(alive, line)
        x, end = times / unit.ns, line.total / unit.ns
    return np.append(x, end), np.append(alive, alive[-1:] if len(alive) else 0) / 1024


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _quiet(text: str) -> str:
    """Text that is not read as a formula."""
    return text.replace("$", r"\$")
