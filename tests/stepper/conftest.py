"""A headless browser for the viewer; tests that need one skip where there is none, saying so."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from viewing import absent

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDE = {"width": 1280, "height": 820}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    if importlib.util.find_spec("playwright") is None:
        absent("Playwright: pip install playwright")
    sync_api = importlib.import_module("playwright.sync_api")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        absent(f"a browser: one of {', '.join(BROWSERS)}")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=list(QUIET))
        yield launched
        launched.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a file in a new page; an error on any page, or a request for anything but the file, fails the test."""
    pages, troubles = [], []

    def opened(path: Path, fragment: str = "", **options: Any) -> Any:
        page = browser.new_page(viewport=WIDE, **options)
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url.startswith(("file:", "blob:")) else troubles.append(request.url))
        page.goto(f"{path.as_uri()}{fragment}")
        page.wait_for_selector(".nki-stepper .panes")
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert not troubles
