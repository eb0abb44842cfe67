"""``refresh.py`` on a copy: it shows what comes out differently, and writes notebooks as they are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / "tutorials" / "02_memory_and_tiles.ipynb"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / KEPT.name
    path.write_bytes(KEPT.read_bytes())
    return path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def refresh(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "refresh.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300)


def test_the_same_as_kept(copy: Path) -> None:
    done = refresh(copy)
    assert (done.returncode, done.stdout) == (0, "02_memory_and_tiles.ipynb: same\n"), done.stderr


def test_a_different_output_is_shown_and_mended(copy: Path) -> None:
    edit(copy, '"[(128, 96), (72, 96)]"', '"[(128, 96), (71, 96)]"')
    done = refresh(copy)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "--- 02_memory_and_tiles.ipynb cell 3, kept",
        "+++ new",
        "@@ -1,2 +1,2 @@",
        " [text/plain]",
        "-[(128, 96), (71, 96)]",
        "+[(128, 96), (72, 96)]",
    ]
    assert refresh(copy, "--write").returncode == 0
    assert copy.read_bytes() == KEPT.read_bytes()


def test_what_says_nothing_about_the_kernel_is_no_difference(copy: Path) -> None:
    text = copy.read_text(encoding="utf-8")
    assert "max abs 0 " in text
    copy.write_text(text.replace("max abs 0 ", "max abs 1e-09 "), encoding="utf-8")
    before = copy.read_bytes()
    done = refresh(copy, "--write")
    assert (done.returncode, done.stdout) == (0, "02_memory_and_tiles.ipynb: same\n")
    assert copy.read_bytes() == before


def test_other_metadata_is_a_difference(copy: Path) -> None:
    edit(copy, '"name": "python"\n', '"name": "python",\n   "version": "3.99"\n')
    done = refresh(copy, "--write")
    assert done.returncode == 0 and "metadata, execution counts or format differ" in done.stdout
    assert copy.read_bytes() == KEPT.read_bytes()


def test_a_cell_that_fails_unannounced_stops_it(copy: Path) -> None:
    edit(copy, '"import numpy as np', '"import numpy as np, numpie')
    before = copy.read_bytes()
    done = refresh(copy, "--write")
    assert done.returncode == 1 and "nothing written" in done.stdout and "numpie" in done.stdout
    assert copy.read_bytes() == before


def test_an_unknown_name_is_refused() -> None:
    done = refresh("99_more.ipynb")
    assert done.returncode == 2 and "no notebook 99_more.ipynb" in done.stderr and "puzzles.ipynb" in done.stderr
