"""aws-neuron/nki-samples: the matrix multiplication tutorial. NKI_SAMPLES_ROOT names a checkout."""

from __future__ import annotations

import nki_sim
import numpy as np
import pytest
from public_kernels import checkout, largest_error

FILE = checkout("NKI_SAMPLES_ROOT") / "src/nki_samples/tutorials/matrix_multiplication/matrix_multiplication_nki_kernels.py"
pytestmark = [
    pytest.mark.filterwarnings("ignore:nl.affine_range:DeprecationWarning", "ignore:nl.sequential_range:DeprecationWarning"),
    pytest.mark.usefixtures("nothing_is_wasted"),
]
RUN = {
    "nki_matmul_block_free_dimension_": (512, 512, 2048),
    "nki_matmul_fully_optimized_": (1024, 2048, 1024),
}
OLD_ARGUMENT = {
    "nki_matmul_basic_": (128, 64, 512),
    "nki_matmul_tiled_": (256, 128, 512),
    "nki_matmul_hoist_load_": (256, 128, 512),
}


def operands(shape):
    k, m, n = shape
    rng = np.random.default_rng(1)
    return rng.standard_normal((k, m)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)


@pytest.mark.parametrize("name", RUN)
def test_runs(name, module, note):
    a, b = operands(RUN[name])
    error = largest_error(getattr(module(FILE), name)(a, b), a.astype(np.float64).T @ b)
    note(f"{error:.1e} of the largest element")
    assert error < 2e-6


@pytest.mark.parametrize("name", OLD_ARGUMENT)
def test_passes_an_argument_that_the_api_no_longer_has(name, module, note):
    """Three kernels call tensor_copy(dtype=), which NKI removed: refused with the line and what to write."""
    a, b = operands(OLD_ARGUMENT[name])
    with pytest.raises(nki_sim.NkiError) as caught:
        getattr(module(FILE), name)(a, b)
    diagnosis = caught.value.diagnosis
    note(f"refused: {diagnosis.headline} of {diagnosis.instruction}, line {diagnosis.line}")
    assert diagnosis.rule.id == "kernel.unexpected_kwargs"
    assert "nisa.tensor_copy" in diagnosis.site.text
