"""The tour: a tiled matmul and a softmax, run, checked against NumPy, and drawn."""

from __future__ import annotations

from collections.abc import Sequence

import nki_sim
import numpy as np
import numpy.typing as npt

from nki_nb import kernels
from nki_nb.check import Tolerance, compare_all
from nki_nb.page import page
from nki_nb.report import Report

Floats = npt.NDArray[np.float32]


def run(target: str | None = None) -> list[Report]:
    """Run both kernels on arrays that are the same every time."""
    random = np.random.default_rng(0)
    lhs_t = random.integers(-4, 5, (384, 200)).astype(np.float32)  # whole numbers: sums are exact in any order
    rhs = random.integers(-4, 5, (384, 700)).astype(np.float32)
    x = random.standard_normal((300, 640)).astype(np.float32)
    return [
        _checked(nki_sim.run(kernels.matmul, lhs_t, rhs, target=target), lhs_t.T @ rhs, "lhs_t.T @ rhs"),
        _checked(nki_sim.run(kernels.softmax, x, target=target), softmax(x), "softmax(x)"),
    ]


def _checked(run: nki_sim.Run, expected: Floats, expression: str) -> Report:
    return Report.of(run, ("out",), compare_all(run.outputs, expected, expression, ("out",), Tolerance()))


def softmax(x: Floats) -> Floats:
    """Softmax of each row in NumPy."""
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


def page_of(reports: Sequence[Report]) -> str:
    """The tour's page."""
    intro = (
        "Two kernels, run on a simulated NeuronCore and compared with NumPy. The maps show where each tile lay in SBUF and "
        "PSUM; the listings show every instruction, its engine and the line it is from."
    )
    return page("A tour of NKI on a simulated NeuronCore", intro, reports)
