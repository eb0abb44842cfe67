"""Every exercise of the course can be solved with what the notebook has taught, and its check says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from exercise_solutions import FOUR_MISTAKES, SOLUTIONS
from needs import missing
from nki_sim import NkiError
from session import Notebook

from nki_nb.check import CheckError

pytestmark = pytest.mark.filterwarnings("always::nki_sim.NkiWarning")  # as in a notebook: shown, not raised
TUTORIALS = Path(__file__).parents[2] / "tutorials"


def cells(stem: str) -> list[Any]:
    return [c for c in nbformat.read(TUTORIALS / f"{stem}.ipynb", as_version=4).cells if c.cell_type == "code"]


def with_blanks() -> list[tuple[str, int]]:
    """Notebook and index of the cell for every exercise with a blank."""
    found = []
    for path in sorted(TUTORIALS.glob("[0-9]*.ipynb")):
        found += [(path.stem, i) for i, cell in enumerate(cells(path.stem)) if "--no-run" in cell.source]
    return found


def set_up(notebook: Notebook, earlier: list[Any]) -> None:
    for cell in earlier:
        shown = notebook.run(cell.source)
        assert (shown.error is not None) == ("raises-exception" in cell.metadata.get("tags", []))


@pytest.mark.parametrize(("stem", "index"), with_blanks(), ids=lambda value: str(value))
def test_is_to_be_solved_and_can_be(notebook: Notebook, stem: str, index: int) -> None:
    if reason := missing(TUTORIALS / f"{stem}.ipynb"):
        pytest.skip(reason)
    code = cells(stem)
    set_up(notebook, code[:index])
    blank = code[index].source.replace(" --no-run", "")
    assert isinstance(notebook.run(blank).error, NkiError | CheckError)
    kernel = blank.split("def ")[1].split("(")[0]
    dots = next(line + "\n" for line in blank.splitlines() if line.strip() == "...")
    shown = notebook.run(blank.replace(dots, SOLUTIONS[kernel].removeprefix("\n")))
    assert shown.error is None
    assert ": ok" in shown.text


def test_four_mistakes_are_found_one_after_the_other(notebook: Notebook) -> None:
    code = cells("08_limits_and_diagnoses")
    index = next(i for i, cell in enumerate(code) if "four_mistakes" in cell.source)
    set_up(notebook, code[:index])
    source = code[index].source
    for wrong, right in FOUR_MISTAKES:
        assert notebook.run(source).error is not None
        source = source.replace(wrong, right)
    shown = notebook.run(source)
    assert shown.error is None
    assert ": ok" in shown.text
