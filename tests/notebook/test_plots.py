"""Plots draw on the axes they are given, with units, and say that times are estimates."""

from __future__ import annotations

import sys

import matplotlib as mpl
import nki_sim
import numpy as np
import pytest
from matplotlib.figure import Figure
from runs import long, matmul_run, placed, run, softmax_run

import nki_nb
from nki_nb import kernels


@pytest.fixture
def no_pyplot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)


def drawn(ax) -> list[str]:
    """All texts of some axes, after drawing them."""
    ax.figure.savefig("/dev/null", format="png")
    legend = ax.get_legend()
    return [ax.get_title(), ax.get_xlabel(), ax.get_ylabel(), *(t.get_text() for t in legend.get_texts())]


def axes():
    return Figure(layout="constrained").subplots()


@pytest.mark.usefixtures("no_pyplot")
@pytest.mark.parametrize("order", ["compiler", "program"])
def test_timeline(order: str) -> None:
    ax, told = axes(), matmul_run().profile(order)
    assert nki_nb.plot_timeline(told, ax) is ax
    assert f"matmul on trn2, {order} order" in drawn(ax) and "time (µs), an estimate" in drawn(ax)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[:3] == ["Tensor", "Vector", "DMA q0"]
    assert ax.get_xlim() == pytest.approx((0, told.timeline.total / 1e3))


@pytest.mark.usefixtures("no_pyplot")
def test_roofline() -> None:
    ax, report = axes(), matmul_run()
    told = nki_sim.estimate(kernels.matmul, ((512, 128), "bfloat16"), ((512, 512), "bfloat16"), target="trn1")
    assert nki_nb.plot_roofline(report, report.profile("program"), told, ax=ax) is ax
    texts = drawn(ax)
    assert any("trn2: bf16 peak 78.6 TFLOP/s, HBM 716 GB/s, ridge 110" in text for text in texts)
    assert sum(text.startswith("matmul, trn") for text in texts) == 3
    points = [line for line in ax.get_lines() if line.get_marker() == "o"]
    for line, profile in zip(points, (report.profile(), report.profile("program"), told), strict=True):
        assert line.get_xdata()[0] == profile.arithmetic_intensity
        assert line.get_ydata()[0] == pytest.approx(profile.mfu * profile.core.peak_flops / 1e12)


def test_what_has_no_place_in_a_roofline() -> None:
    with pytest.raises(ValueError, match="softmax multiplies no matrices"):
        nki_nb.plot_roofline(softmax_run(), ax=axes())
    with pytest.raises(ValueError, match="at least one"):
        nki_nb.plot_roofline()
    with pytest.raises(TypeError, match="a run or a profile is needed, not int"):
        nki_nb.plot_timeline(7)  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_pyplot")
@pytest.mark.parametrize("over", ["step", "time"])
@pytest.mark.parametrize("make", [matmul_run, softmax_run, lambda: run(placed, np.ones((32, 40), np.float32))])
def test_memory(over, make) -> None:
    ax, report = axes(), make()
    assert nki_nb.plot_memory(report, ax, over) is ax
    sbuf, psum = report.memory.sbuf, report.memory.psum
    texts = drawn(ax)
    assert f"SBUF high-water mark {sbuf.high_water / 1024:.1f} KiB" in texts and "SBUF limit 208.0 KiB" in texts
    assert ("step" if over == "step" else "time (µs), an estimate") in texts
    for shown, used in zip(ax.figure.axes, (sbuf, psum), strict=True):
        assert max(shown.get_lines()[0].get_ydata()) * 1024 == used.peak


def test_memory_takes_a_run_and_two_ways() -> None:
    with pytest.raises(ValueError, match="'step' or 'time'"):
        nki_nb.plot_memory(matmul_run(), axes(), "line")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a run is needed, not Profile"):
        nki_nb.plot_memory(matmul_run().profile(), axes())  # type: ignore[arg-type]


def test_a_figure_of_its_own() -> None:
    from matplotlib import pyplot

    with mpl.rc_context({"backend": "agg"}):
        ax = nki_nb.plot_timeline(run(long, np.ones((32, 40), np.float32), 3))
        pyplot.close(ax.figure)
