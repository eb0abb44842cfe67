"""The pytest plugin, in a test run of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sources import DOUBLE

TEST = f"""\
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


{DOUBLE}

def test_double():
    x = np.ones((5, 7), np.float32)
    np.testing.assert_array_equal(double(x), x * 2)
"""


def test_tests_of_kernels_import_nki(tmp_path: Path) -> None:
    (tmp_path / "test_kernel.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_kernel.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
