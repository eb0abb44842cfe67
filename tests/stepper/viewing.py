"""What a page of the viewer shows, read from its DOM."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Skip a test for what this machine lacks, saying so; fail where ``NKI_NB_BROWSER=required`` promises that all is there."""
    if os.environ.get("NKI_NB_BROWSER") == "required":
        pytest.fail(f"needs {what}")
    pytest.skip(f"needs {what}")


def step_of(page: Any) -> int:
    """The step that the bar names."""
    words = page.inner_text(".nki-stepper .where")
    return int(words.split()[1].replace(",", ""))


def row_of(page: Any) -> int:
    """The program row that is current."""
    return int(page.get_attribute(".nki-stepper .row.now", "data-step"))


def lines_of(page: Any) -> list[int]:
    """The source lines that are current."""
    numbers = page.eval_on_selector_all(".nki-stepper .line.now", "rows => rows.map(r => r.dataset.line)")
    return [int(number) for number in numbers]


def written_tiles(page: Any) -> list[str]:
    """Names of tiles on chip that the current step writes."""
    return list(page.eval_on_selector_all(".nki-stepper .tile.write", "tiles => tiles.map(t => t.ariaLabel.split(':')[0])"))


def title_of(page: Any) -> str:
    """The instruction that the right pane shows, once it has come."""
    page.wait_for_selector(".nki-stepper .instruction .body:not(.stale)")
    return str(page.inner_text(".nki-stepper .instruction h3"))


def eventually(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether something comes to hold in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


def colours_in(page: Any, selector: str) -> int:
    """How many different colours a picture of an element has."""
    shot = page.locator(selector).first.screenshot()
    script = """async (data) => {
        const image = await createImageBitmap(new Blob([new Uint8Array(data)], {type: "image/png"}));
        const canvas = new OffscreenCanvas(image.width, image.height);
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
        return new Set(pixels).size;
    }"""
    return int(page.evaluate(script, list(shot)))
