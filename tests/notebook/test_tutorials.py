"""House rules of the tutorials; that they run and show what they show is nbval's part."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

TUTORIALS = sorted((Path(__file__).parents[2] / "tutorials").glob("*.ipynb"))


@pytest.fixture(params=TUTORIALS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def tutorial(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code(tutorial: Any) -> list[Any]:
    return [cell for cell in tutorial.cells if cell.cell_type == "code"]


def prose(tutorial: Any) -> str:
    return "\n\n".join(cell.source for cell in tutorial.cells if cell.cell_type == "markdown")


def test_is_small_and_valid(path: Path, tutorial: Any) -> None:
    nbformat.validate(tutorial)
    assert path.stat().st_size < 500_000
    assert set(tutorial.metadata) <= {"kernelspec", "language_info"}


def test_opens_and_closes_as_all_do(path: Path, tutorial: Any) -> None:
    headings = re.findall(r"^## (.+)$", prose(tutorial), re.M)
    assert headings[:3] == ["What you will do", "What you will learn", "What you need"]
    assert headings[-1] == "Further reading" and ("Exercise" in headings or path.stem == "puzzles")
    assert not [h for h in headings if re.search(r" [A-Z][a-z]", h)], "sentence case"


def test_pictures_are_not_pasted_into_text(tutorial: Any) -> None:
    assert "base64" not in prose(tutorial) and "![" not in prose(tutorial)


def test_every_picture_is_there_without_a_kernel(tutorial: Any) -> None:
    shown = [output.data for cell in code(tutorial) for output in cell.outputs if "data" in output]
    assert shown and not [data for data in shown if any("widget" in kind for kind in data)]
    assert all("text/plain" in data for data in shown)


def test_links_to_other_tutorials_lead_there(path: Path, tutorial: Any) -> None:
    linked = re.findall(r"\]\((?!https://)([^)]+)\)", prose(tutorial))
    assert [name for name in linked if not (path.parent / name).is_file()] == []


def test_was_run_from_the_top_in_one_go(tutorial: Any) -> None:
    assert [cell.execution_count for cell in code(tutorial)] == list(range(1, len(code(tutorial)) + 1))


def test_errors_are_announced_and_only_they(tutorial: Any) -> None:
    for cell in code(tutorial):
        failed = any(output.output_type == "error" for output in cell.outputs)
        assert failed == ("raises-exception" in cell.metadata.get("tags", [])), cell.source


def test_shows_nothing_of_the_machine_it_ran_on(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|Users|root|usr|opt|tmp)/|site-packages|0x[0-9a-f]{8}", text)
