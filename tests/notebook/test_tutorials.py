"""House rules of the tutorials; that they run and show what they show is nbval's part."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
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


def headings(text: str) -> list[tuple[int, str]]:
    """Level and words of each heading, without what is in fences."""
    outside = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.M | re.S)
    return [(len(marks), words) for marks, words in re.findall(r"^(#+) +(.+?)(?: +#+)?$", outside, re.M)]


def anchors(tutorial: Any) -> list[str]:
    """What JupyterLab calls the headings in links."""
    return [words.replace(" ", "-") for _, words in headings(prose(tutorial))]


def drawings(data: dict[str, str]) -> list[ET.Element]:
    """Pictures of one output, in whichever form it has them."""
    texts = [data.get("image/svg+xml", ""), *re.findall(r"<svg\b.*?</svg>", data.get("text/html", ""), re.S)]
    return [ET.fromstring(text) for text in texts if text]


def test_is_small_and_valid(path: Path, tutorial: Any) -> None:
    nbformat.validate(tutorial)
    assert path.stat().st_size < 500_000
    assert set(tutorial.metadata) == {"kernelspec", "language_info"}, "no widgets: their state is of a kernel that is gone"
    assert tutorial.metadata.language_info == {"name": "python"}


def test_opens_and_closes_as_all_do(path: Path, tutorial: Any) -> None:
    second = [words for level, words in headings(prose(tutorial)) if level == 2]
    assert second[:3] == ["What you will do", "What you will learn", "What you need"]
    assert second[-1] == "Further reading" and ("Exercise" in second or path.stem == "puzzles")


def test_headings_are_an_outline(tutorial: Any) -> None:
    found = headings(prose(tutorial))
    levels = [level for level, _ in found]
    assert tutorial.cells[0].cell_type == "markdown" and tutorial.cells[0].source.startswith("# ")
    assert levels.count(1) == 1 and levels[0] == 1
    assert not [found[i] for i in range(1, len(found)) if levels[i] > levels[i - 1] + 1], "a level is skipped"
    assert not [words for _, words in found if re.search(r" [A-Z][a-z]", words) or words[:1].islower()], "sentence case"
    assert len(set(anchors(tutorial))) == len(found), "two headings alike cannot both be linked to"
    assert not re.search(r"^(=+|-+)$", prose(tutorial), re.M), "headings begin with #"


def test_pictures_are_not_pasted_into_text(tutorial: Any) -> None:
    assert "base64" not in prose(tutorial) and "![" not in prose(tutorial)


def test_every_picture_is_there_without_a_kernel(tutorial: Any) -> None:
    shown = [output.data for cell in code(tutorial) for output in cell.outputs if "data" in output]
    assert shown and not [data for data in shown if any("widget" in kind for kind in data)]
    assert all("text/plain" in data for data in shown)


def test_pictures_can_be_read_aloud(tutorial: Any) -> None:
    for output in (o for cell in code(tutorial) for o in cell.outputs if "data" in o):
        assert not {"image/png", "image/jpeg", "image/gif"} & set(output.data), "no accessible name"
        for drawing in drawings(output.data):
            name = drawing.get("aria-label") or drawing.findtext("{http://www.w3.org/2000/svg}title") or ""
            assert drawing.get("role") == "img" and len(name.split()) > 2
            text = re.findall(r"\w+", output.data["text/plain"])
            same = {"a", "memory", "of", "picture", "program", "timeline"}
            assert set(re.findall(r"\w+", name)) & set(text) - same and len(text) > 2, "the kernel's name is in both"


def test_links_lead_somewhere(path: Path, tutorial: Any) -> None:
    for target in re.findall(r"\]\((?!https://)([^)]+)\)", prose(tutorial)):
        name, _, anchor = target.partition("#")
        linked = path.parent / name if name else path
        assert linked.is_file() and linked.parent == path.parent, target
        assert not anchor or anchor in anchors(nbformat.read(linked, as_version=4)), target


def test_was_run_from_the_top_in_one_go(tutorial: Any) -> None:
    assert [cell.execution_count for cell in code(tutorial)] == list(range(1, len(code(tutorial)) + 1))


def test_errors_are_announced_and_only_they(tutorial: Any) -> None:
    for cell in code(tutorial):
        failed = any(output.output_type == "error" for output in cell.outputs)
        assert failed == ("raises-exception" in cell.metadata.get("tags", [])), cell.source


def test_shows_nothing_of_the_machine_it_ran_on(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|Users|root|usr|opt|tmp)/|site-packages|0x[0-9a-f]{8}", text)
