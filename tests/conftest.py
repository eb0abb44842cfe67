"""What the tests of pictures share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("NKI_ENABLE_TRACE_CACHE", "0")  # PyTorch would turn it on: tests keep nothing in the user's home


@pytest.fixture
def same_as_golden() -> Callable[[Path, str], None]:
    """Compare a picture with the one that is kept, byte for byte; ``NKI_NB_UPDATE_GOLDEN=1`` keeps the new one instead."""

    def compare(path: Path, drawn: str) -> None:
        if os.environ.get("NKI_NB_UPDATE_GOLDEN"):
            path.write_text(drawn + "\n", encoding="utf-8")
        assert drawn + "\n" == path.read_text(encoding="utf-8")

    return compare
