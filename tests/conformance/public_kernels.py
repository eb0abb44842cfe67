"""What the runners of public kernels share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest


def checkout(variable: str) -> Path:
    """The checkout that an environment variable names; the module's tests are skipped, saying so, where it is not set."""
    root = os.environ.get(variable)
    if not root:
        pytest.skip(f"{variable} is not set: no checkout to run", allow_module_level=True)
    return Path(root)


def largest_error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest absolute difference, relative to the largest magnitude of the reference."""
    got64, want64 = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got64.shape == want64.shape
    return float(np.max(np.abs(got64 - want64)) / max(np.max(np.abs(want64)), 1e-30))
