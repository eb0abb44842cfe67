"""The pictures: the same bytes every time, presentation attributes only, text escaped.

``NKI_NB_UPDATE_GOLDEN=1 python -m pytest tests/notebook/test_drawing.py`` writes the pictures anew; look at them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from runs import HOSTILE, long, matmul_run, named, placed, run, softmax_run

from nki_nb.drawing import VIEWS, Picture
from nki_nb.memory_map import memory_map, tiles
from nki_nb.program_listing import program_listing
from nki_nb.report import Report
from nki_nb.timeline_view import timeline

GOLDEN = Path(__file__).parent / "golden"
COLUMN = np.ones((32, 40), np.float32)

PICTURES: dict[str, Callable[[], str]] = {
    "matmul_memory": lambda: memory_map(matmul_run()),
    "matmul_program": lambda: program_listing(matmul_run()),
    "matmul_report": lambda: matmul_run().svg(),
    "softmax_memory": lambda: memory_map(softmax_run()),
    "softmax_program": lambda: program_listing(softmax_run()),
    "placed_memory": lambda: memory_map(run(placed, COLUMN)),
    "long_program": lambda: program_listing(run(long, COLUMN, 40)),
    "matmul_timeline": lambda: timeline(matmul_run()),
    "softmax_timeline": lambda: timeline(softmax_run()),
}
ATTRIBUTES = {
    *("x", "y", "x1", "x2", "y1", "y2", "width", "height", "rx", "viewBox", "role", "aria-label", "fill", "stroke"),
    *("stroke-dasharray", "font-family", "font-size", "font-weight", "text-anchor", "transform"),
    "{http://www.w3.org/XML/1998/namespace}space",
}


@pytest.mark.parametrize("name", PICTURES)
def test_golden(name: str, same_as_golden: Callable[[Path, str], None]) -> None:
    same_as_golden(GOLDEN / f"{name}.svg", PICTURES[name]())


@pytest.mark.parametrize("name", PICTURES)
def test_only_presentation_attributes(name: str) -> None:
    for element in ET.fromstring(PICTURES[name]()).iter():
        assert element.tag.rpartition("}")[2] in {"svg", "rect", "line", "text", "title"}
        assert set(element.attrib) <= ATTRIBUTES


@pytest.mark.parametrize("draw", [*VIEWS.values(), Report.svg], ids=[*VIEWS, "report"])
def test_users_text_is_escaped(draw: Callable[[Report], str]) -> None:
    drawn = draw(run(named, COLUMN))
    assert "<script" not in drawn and "\x01" not in drawn
    ET.fromstring(drawn)


def test_tiles_alike_are_one_rectangle() -> None:
    (tile,) = tiles(run(long, COLUMN, 3).memory.sbuf)
    assert (tile.label, tile.place, tile.size, tile.alive) == ("tile", (0, 0), (32, 160), True)
    names = [t.label for t in tiles(run(placed, COLUMN).memory.sbuf)]
    assert sorted(names) == ["far", "high", "low"]


def test_partitions_and_bytes_are_where_the_tiles_are() -> None:
    found = {t.label: t for t in tiles(run(placed, COLUMN).memory.sbuf)}
    assert found["high"].place == (64, 0) and found["high"].size == (32, 160)
    assert found["far"].place == (0, 1024) and found["far"].size == (128, 1200)


def test_long_programs_are_cut_with_a_count() -> None:
    drawn = program_listing(run(long, COLUMN, 40))
    assert "… 46 more instructions" in drawn
    assert "… 1966 more instructions" in program_listing(run(long, COLUMN, 1000))


def test_a_picture_is_svg_or_a_line_of_text() -> None:
    picture = Picture.of(matmul_run(), "memory")
    assert picture._repr_svg_().startswith("<svg ")
    assert str(picture) == "[memory of matmul: a picture]"
    assert HOSTILE not in picture.svg
