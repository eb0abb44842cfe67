"""The still pictures: the same bytes every time, presentation attributes only, text escaped.

``NKI_NB_UPDATE_GOLDEN=1 python -m pytest tests/stepper/test_still.py`` writes the pictures anew; look at them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import failed, hostile_run, matmul_run, softmax_run

from nki_nb.stepper.feed import Feed
from nki_nb.stepper.still import still, still_text

GOLDEN = Path(__file__).parent / "golden"


def _failed() -> Feed:
    error = failed()
    return Feed(error.run, error.diagnosis)


STILLS: dict[str, Callable[[], str]] = {
    "matmul_dma": lambda: still(Feed(matmul_run()), 7),
    "matmul_adds": lambda: still(Feed(matmul_run()), 6),
    "softmax_activation": lambda: still(Feed(softmax_run()), 2),
    "failed": lambda: still(_failed(), 1),
}
TAGS = {"svg", "rect", "line", "text", "title"}


@pytest.mark.parametrize("name", STILLS)
def test_golden(name: str, same_as_golden: Callable[[Path, str], None]) -> None:
    same_as_golden(GOLDEN / f"{name}.svg", STILLS[name]())


@pytest.mark.parametrize("name", STILLS)
def test_no_styles_scripts_or_ids(name: str) -> None:
    for element in ET.fromstring(STILLS[name]()).iter():
        assert element.tag.rpartition("}")[2] in TAGS
        assert not {"style", "class", "id", "href"} & set(element.attrib)
        assert not any(key.startswith("on") for key in element.attrib)


def test_users_text_is_escaped() -> None:
    drawn = still(Feed(hostile_run()), 0)
    assert "<script" not in drawn and "<img" not in drawn
    ET.fromstring(drawn)


@pytest.mark.parametrize("step", [0, 37])
def test_the_ends_of_a_program(step: int) -> None:
    assert f"step {step} of 37" in still(Feed(matmul_run()), step)


def test_as_text() -> None:
    lines = still_text(Feed(matmul_run()), 6).splitlines()
    assert lines[0] == "matmul on trn2 (NeuronCore-v3): step 6 of 37"
    assert next(line for line in lines if line.startswith("→")).split()[1] == "6"
    assert still_text(_failed(), 1).splitlines()[1].startswith("stopped: ")
