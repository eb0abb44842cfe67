"""What the tests of PyTorch share. Without PyTorch each file is skipped, and says so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nki_sim
import pytest


@pytest.fixture
def script(tmp_path: Path) -> Any:
    """A function that runs Python text in a fresh process, where nki-nb is as it is here, and gives its output."""
    import os
    import subprocess

    source = [str(Path(nki_sim.__file__).parents[1]), str(Path(__file__).parents[2])]

    def run(text: str, **environment: str) -> list[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NEURON", "NKI", "TORCH"))} | environment
        env.setdefault("NKI_TRACE_CACHE_URL", str(tmp_path / "kept"))
        env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *source])
        file = tmp_path / "script.py"
        file.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, "-W", "error", str(file)], capture_output=True, text=True, env=env, timeout=120)
        assert done.returncode == 0, done.stderr
        return (done.stdout + done.stderr).splitlines()

    return run
