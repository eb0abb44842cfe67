"""The widget where people use it: JupyterLab 4 and Notebook 7 in a real browser, on a server of their own on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest
from viewing import absent, colours_in, eventually, lines_of, row_of, step_of, title_of, written_tiles

CELL = """\
%%nki c = matmul(lhsT, rhs) --target trn2 --view step
@nki.jit
def matmul(lhsT, rhs):
    K, M = lhsT.shape
    N = rhs.shape[1]
    acc = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
    for k in range(0, K, 128):
        w = nl.load(lhsT[k:k + 128, :])
        x = nl.load(rhs[k:k + 128, :])
        nisa.nc_matmul(dst=acc, stationary=w, moving=x, accumulate=(k > 0))
    y = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=y, src=acc)
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out
"""
BROKEN = CELL.replace("dst=y, src=acc", "dst=y[:, 0:8], src=acc")
SETUP = """\
%load_ext nki_nb
import numpy as np
lhsT, rhs = np.ones((256, 72), np.float32), np.ones((256, 200), np.float32)
"""


TUTORIAL = Path(__file__).parents[2] / "tutorials" / "04_watch_a_matmul.ipynb"
WORKSPACE = Path(__file__).parents[2] / "binder" / "workspace.json"
HOUSES = {"jupyterlab": "lab/tree/{name}", "notebook": "notebooks/{name}"}
"""Module that serves notebooks, and where it shows one."""


@pytest.fixture(scope="module", params=HOUSES)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server with its own settings; the address of its files, and the folder that they are in."""
    module = request.param
    if importlib.util.find_spec(module) is None:
        absent(f"{module}: pip install {module}")
    home = tmp_path_factory.mktemp("lab")
    folder = home / "notebooks"
    folder.mkdir()
    settings = home / "config_dir/lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    token, port = secrets.token_hex(16), _free_port()
    kinds = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    own = {f"JUPYTER_{kind}": str(home / kind.lower()) for kind in kinds} | {"IPYTHONDIR": str(home / "ipython")}
    command = [sys.executable, "-m", module, "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
               "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]  # fmt: skip
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | own)
    try:
        root = f"http://127.0.0.1:{port}"
        assert eventually(lambda: _answers(f"{root}/api/status?token={token}"), 30), (home / "log").read_text()
        yield f"{root}/{HOUSES[module]}?token={token}&reset", folder
    finally:
        server.terminate()
        server.wait(20)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        time.sleep(0.1)
        return False


def _write(folder: Path, name: str, *cells: str) -> None:
    made = [{"cell_type": "code", "id": f"cell{i}", "metadata": {}, "source": text, "outputs": [], "execution_count": None}
            for i, text in enumerate(cells)]  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    (folder / name).write_text(json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


def _runs(page: Any, cell: int = 0) -> bool:
    """Run the first code cell; false while its kernel is not ready and JupyterLab drops the request."""
    question = page.locator(".jp-Dialog .jp-mod-accept")
    if question.count():  # which kernel?
        question.first.click()
    page.click(f".jp-Notebook .jp-Cell >> nth={cell} >> .cm-content")
    page.keyboard.press("Shift+Enter")
    prompt = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").first
    return eventually(lambda: bool(set(prompt.inner_text()) & set("*123456789")), 1.5)


def _run(browser: Any, lab: tuple[str, Path], name: str, *cells: str) -> Any:
    """Write a notebook, open it, and run its cells one after another."""
    _write(lab[1], name, *cells)
    return _open(browser, lab, name, range(len(cells)))


def _open(browser: Any, lab: tuple[str, Path], name: str, cells: range) -> Any:
    """Open a notebook that is there, and run some of its cells one after another, of which the first is code."""
    page = browser.new_page(viewport={"width": 1500, "height": 950})
    page.set_default_timeout(20_000)
    page.goto(lab[0].format(name=name))
    page.wait_for_selector(".jp-Notebook .jp-CodeCell .cm-content")
    assert eventually(lambda: _runs(page, cells.start), 20), "the kernel does not run the first cell"
    for _ in cells[1:]:
        page.keyboard.press("Shift+Enter")
    try:
        page.wait_for_selector(".nki-stepper .row.now")
    finally:
        save_picture(page, name)
    return page


def test_stepping(browser: Any, lab: tuple[str, Path]) -> None:
    page = _run(browser, lab, "step.ipynb", SETUP, CELL)
    root = page.locator(".nki-stepper")
    assert root.count() == 1 and step_of(page) == 0
    root.focus()
    for step in (1, 2):
        page.keyboard.press("ArrowRight")
        assert step_of(page) == row_of(page) == step
    assert eventually(lambda: title_of(page) == "nc_matmul")
    assert lines_of(page) == [10]
    assert written_tiles(page) == ["acc"]
    page.wait_for_selector(".bar.now")
    page.wait_for_timeout(200)
    assert colours_in(page, ".timeline") > 8
    assert colours_in(page, ".memory .psum") > 3
    assert page.evaluate("getComputedStyle(document.querySelector('.nki-stepper .panes')).display") == "grid"
    save_picture(page, "lab-light")
    page.keyboard.press("Home")
    assert step_of(page) == 0
    page.keyboard.press("b")  # would insert a cell, if the notebook heard it
    assert page.locator(".jp-Notebook .jp-Cell").count() == 3
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    assert page.get_attribute(".nki-stepper", "data-theme") == "dark"
    page.close()


def test_the_tutorial_steps(browser: Any, lab: tuple[str, Path]) -> None:
    tutorial = nbformat.read(TUTORIAL, as_version=4)
    for cell in tutorial.cells:
        if cell.cell_type == "code":  # as after "clear all outputs": numbers that appear are those of this run
            cell.outputs, cell.execution_count = [], None
    nbformat.write(tutorial, lab[1] / TUTORIAL.name)
    page = _open(browser, lab, TUTORIAL.name, range(1, 5))
    root = page.locator(".nki-stepper")
    root.scroll_into_view_if_needed()
    root.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert step_of(page) == row_of(page) == 5
    assert eventually(lambda: title_of(page) == "nc_matmul")
    assert page.locator(".nki-stepper .instruction", has_text="2 of 3").count() == 1
    page.wait_for_timeout(200)
    save_picture(page, "tutorial")
    page.keyboard.press("ArrowLeft")
    assert step_of(page) == 4
    page.close()


def test_a_failure_opens_the_stepper_where_it_happened(browser: Any, lab: tuple[str, Path]) -> None:
    page = _run(browser, lab, "failure.ipynb", SETUP, BROKEN)
    assert page.locator(".nki-stepper .banner.fault").count() == 1
    assert step_of(page) == 5
    assert page.locator(".line.fault[data-line='12']").count() == 1
    page.close()


def test_the_course_opens_with_its_first_notebook(browser: Any, lab: tuple[str, Path]) -> None:
    """On Binder, whose images serve ``/lab`` with ``jupyter notebook``, and in JupyterLab."""
    address, folder = urlsplit(lab[0]), lab[1]
    shutil.copytree(TUTORIAL.parent, folder / "tutorials", ignore=shutil.ignore_patterns(".*"))
    command = [sys.executable, "-m", "jupyterlab", "workspaces", "import", str(WORKSPACE)]
    subprocess.run(command, check=True, env=os.environ | {"JUPYTER_CONFIG_DIR": str(folder.parent / "config_dir")}, timeout=60)
    page = browser.new_page(viewport={"width": 1500, "height": 950})
    page.goto(f"{address.scheme}://{address.netloc}/lab?{address.query.removesuffix('&reset')}")
    try:
        page.wait_for_selector(".jp-NotebookPanel .jp-MarkdownOutput h1", timeout=20_000)
        page.wait_for_selector(".jp-DirListing-item >> text=puzzles.ipynb", timeout=20_000)
    finally:
        save_picture(page, "course.ipynb")
    assert page.locator(".jp-NotebookPanel h1").first.inner_text().startswith("Your first kernel")
    assert page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab").count() == 1


def save_picture(page: Any, name: str) -> None:
    """Keep a screenshot to look at, where the environment names a folder for them."""
    folder = os.environ.get("NKI_NB_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png")
