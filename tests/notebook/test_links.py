"""``binder/links.py`` on copies: badges in README.md, a launch line in every notebook, and nothing else changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
README = "# A project\n\n<!-- launch:begin -->\n<!-- launch:end -->\n\nMore.\n"
ADDRESS = "octocat/hello-world"

Links = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A README.md without an address, the script, and two notebooks."""
    (tmp_path / "binder").mkdir()
    shutil.copy(ROOT / "binder" / "links.py", tmp_path / "binder")
    (tmp_path / "tutorials").mkdir()
    for name in ("01_first_kernel.ipynb", "puzzles.ipynb"):
        shutil.copy(ROOT / "tutorials" / name, tmp_path / "tutorials")
    (tmp_path / "README.md").write_text(README)
    return tmp_path


@pytest.fixture
def links(copy: Path) -> Links:
    """Run the script of the copy."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", str(copy / "binder" / "links.py"), *words]
        return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.suffix in (".md", ".ipynb")}


def test_the_checkout_is_as_the_script_writes_it() -> None:
    command = [sys.executable, "-B", str(ROOT / "binder" / "links.py"), "--check"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_address_links_the_readme_and_every_notebook(copy: Path, links: Links) -> None:
    assert links(ADDRESS, "--ref", "v1/x").returncode == 0
    readme = (copy / "README.md").read_text()
    assert readme.startswith("# A project\n\n<!-- launch:begin octocat/hello-world@v1/x -->\n[![") and readme.endswith(
        "\n\nMore.\n"
    )
    first = "01_first_kernel.ipynb"
    assert f"(https://mybinder.org/v2/gh/{ADDRESS}/v1%2Fx?labpath=tutorials%2F{first})" in readme
    assert f"(https://colab.research.google.com/github/{ADDRESS}/blob/v1/x/tutorials/{first})" in readme
    for name in (first, "puzzles.ipynb"):
        _, _, line, _, heading, *_ = nbformat.read(copy / "tutorials" / name, as_version=4).cells[0].source.splitlines()
        assert f"(https://mybinder.org/v2/gh/{ADDRESS}/v1%2Fx?labpath=tutorials%2F{name})" in line
        assert f"(https://colab.research.google.com/github/{ADDRESS}/blob/v1/x/tutorials/{name})" in line
        assert f'`%pip install "git+https://github.com/{ADDRESS}@v1/x"`' in line and f"`nki-nb lab {name}`" in line
        assert heading == "## What you will do"


def test_back_and_forth_loses_nothing(copy: Path, links: Links) -> None:
    links("--no-address")
    without = contents(copy)
    links(ADDRESS)
    linked = contents(copy)
    assert linked.keys() == without.keys() and not [name for name in linked if linked[name] == without[name]]
    assert (links().stdout, contents(copy)) == ("", linked)
    links("someone/else", "--ref", "dev")
    links("--no-address")
    assert contents(copy) == without


def test_only_the_launch_line_changes(copy: Path, links: Links) -> None:
    path = copy / "tutorials" / "01_first_kernel.ipynb"
    links("--no-address")
    before = path.read_text(encoding="utf-8").splitlines()
    links(ADDRESS)
    after = path.read_text(encoding="utf-8").splitlines()
    differ = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert len(differ) == 1 and "*Launch:* " in differ[0][1]


def test_check_writes_nothing(copy: Path, links: Links) -> None:
    links(ADDRESS)
    notebook = copy / "tutorials" / "puzzles.ipynb"
    notebook.write_text(
        notebook.read_text(encoding="utf-8").replace("*Launch:* [Binder]", "*Launch:* [Blinder]"), encoding="utf-8"
    )
    before = contents(copy)
    done = links("--check")
    assert (done.returncode, done.stdout.split()) == (1, ["out", "of", "date:", "tutorials/puzzles.ipynb"])
    assert contents(copy) == before


@pytest.mark.parametrize(
    "words", [["hello-world"], ["https://example.com/a/b"], ["a/b c"], ["a/b", "--ref", "x y"], ["a/b)", "--check"]]
)
def test_what_is_no_address_is_refused(copy: Path, links: Links, words: list[str]) -> None:
    before = contents(copy)
    done = links(*words)
    assert done.returncode == 2 and "octocat/hello-world" in done.stderr
    assert contents(copy) == before


@pytest.mark.parametrize("readme", ["# A project\n", README + README])
def test_a_readme_without_its_block_is_refused(copy: Path, links: Links, readme: str) -> None:
    (copy / "README.md").write_text(readme)
    before = contents(copy)
    done = links(ADDRESS)
    assert done.returncode == 2 and "<!-- launch:begin -->" in done.stderr
    assert contents(copy) == before


def test_a_notebook_without_a_title_is_refused(copy: Path, links: Links) -> None:
    path = copy / "tutorials" / "puzzles.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("# Puzzles", "Puzzles"), encoding="utf-8")
    done = links(ADDRESS)
    assert done.returncode == 2 and "puzzles.ipynb begins with 'Puzzles'" in done.stderr
