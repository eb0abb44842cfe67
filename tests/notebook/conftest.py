"""A real IPython shell with the extension loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from session import Notebook
from traitlets.config import Config


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A fresh shell with ``%load_ext nki_nb`` done and two arrays, ``lhsT`` [320 × 72] and ``rhs`` [320 × 200]."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    shell.colors = "nocolor"
    shell.run_line_magic("load_ext", "nki_nb")
    random = np.random.default_rng(1)
    shell.user_ns["lhsT"] = random.integers(-3, 4, (320, 72)).astype(np.float32)
    shell.user_ns["rhs"] = random.integers(-3, 4, (320, 200)).astype(np.float32)
    yield Notebook(shell)
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()  # else it looks for what it compiled when the shell's names are gone
    shell.run_line_magic("unload_ext", "nki_nb")
    InteractiveShell.clear_instance()
