"""``--view step`` in a real IPython shell, without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from samples import wave
from traitlets.config import Config

WIDGET = "application/vnd.jupyter.widget-view+json"
DOUBLE = """\
@nki.jit
def double(x):
    tile = nl.load(x)
    y = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=y, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out
"""
BROKEN = DOUBLE.replace("dst=out, src=y", "dst=out, src=y[:, 0:8]")
UNWRITTEN = DOUBLE.replace("data=tile,", "data=y,")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A fresh shell with the extension loaded and an array ``x``."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance(config=config)
    made.run_line_magic("load_ext", "nki_nb")
    made.user_ns["x"] = wave(32, 40, 3)
    yield made
    made.run_line_magic("unload_ext", "nki_nb")
    InteractiveShell.clear_instance()


def shown(shell: InteractiveShell, line: str, body: str) -> list[dict[str, Any]]:
    """What running a cell displays."""
    with capture_output() as captured:
        shell.run_cell(f"%%nki {line}\n{body}")
    return [output.data for output in captured.outputs]


def test_the_stepper_comes_under_the_report(shell: InteractiveShell) -> None:
    report, stepper = shown(shell, "d = double(x) --view step", DOUBLE)
    assert "text/html" in report and WIDGET in stepper
    assert stepper["image/svg+xml"].startswith("<svg") and "%%nki d = double(x)" in stepper["image/svg+xml"]
    assert stepper["text/plain"].startswith("double on trn2")


@pytest.mark.parametrize(("body", "step"), [(BROKEN, 1), (UNWRITTEN, 0)])
def test_under_a_diagnosis_it_opens_where_it_happened(shell: InteractiveShell, body: str, step: int) -> None:
    diagnosis, stepper = shown(shell, "d = double(x) --view step --strict", body)
    assert "text/html" in diagnosis and WIDGET in stepper
    assert "stopped: " in stepper["text/plain"] and f"step {step} of {step}" in stepper["text/plain"]


def test_a_diagnosis_alone_stays_alone(shell: InteractiveShell) -> None:
    assert [WIDGET in data for data in shown(shell, "d = double(x)", BROKEN)] == [False]
