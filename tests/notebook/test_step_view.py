"""``--view step`` in a real IPython shell, without a browser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from session import Notebook
from sources import DOUBLE

WIDGET = "application/vnd.jupyter.widget-view+json"
BROKEN = DOUBLE.replace("dst=out, src=y", "dst=out, src=y[:, 0:8]")
UNWRITTEN = DOUBLE.replace("data=tile,", "data=y,")


def shown(notebook: Notebook, line: str, body: str) -> list[dict[str, Any]]:
    """What running a cell displays."""
    notebook.names["x"] = np.arange(32 * 40, dtype=np.float32).reshape(32, 40)
    return notebook.run(f"%%nki {line}\n{body}").displays


def test_the_stepper_comes_under_the_report(notebook: Notebook) -> None:
    report, stepper = shown(notebook, "d = double(x) --view step", DOUBLE)
    assert "text/html" in report and WIDGET in stepper
    assert stepper["image/svg+xml"].startswith("<svg") and "%%nki d = double(x)" in stepper["image/svg+xml"]
    assert stepper["text/plain"].startswith("double on trn2")


@pytest.mark.parametrize(("body", "step"), [(BROKEN, 1), (UNWRITTEN, 0)])
def test_under_a_diagnosis_it_opens_where_it_happened(notebook: Notebook, body: str, step: int) -> None:
    diagnosis, stepper = shown(notebook, "d = double(x) --view step --strict", body)
    assert "text/html" in diagnosis and WIDGET in stepper
    assert "stopped: " in stepper["text/plain"] and f"step {step} of {step}" in stepper["text/plain"]


def test_a_diagnosis_alone_stays_alone(notebook: Notebook) -> None:
    assert [WIDGET in data for data in shown(notebook, "d = double(x)", BROKEN)] == [False]
