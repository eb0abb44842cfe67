"""What some tutorials need beside nki-nb; without it they are skipped, saying so."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

NEEDS_TORCH = ("16_pytorch.ipynb",)


def missing(notebook: Path) -> str:
    """Why a notebook cannot run here; empty when it can."""
    if notebook.name in NEEDS_TORCH and find_spec("torch") is None:
        return f'{notebook.name}: PyTorch is not installed: pip install "nki-nb[torch]"'
    return ""
