"""The viewer's modules under node's own test runner, and what Python and JavaScript must agree on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from samples import matmul_run, softmax_run
from viewing import absent

from nki_nb.program_listing import ENGINES
from nki_nb.stepper.bundle import STATIC
from nki_nb.stepper.feed import Feed
from nki_nb.stepper.packing import as_text, pack

TESTS = Path(__file__).parent / "js"


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        absent("node")
    return found


@pytest.mark.parametrize("test", sorted(TESTS.glob("*.test.mjs")), ids=lambda path: path.name)
def test_module(node: str, test: Path, tmp_path: Path) -> None:
    """A package.json beside copies of the modules tells node that they are ES modules."""
    shutil.copytree(STATIC, tmp_path / "static")
    shutil.copy(test, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    feed = Feed(matmul_run())
    example = {"overview": feed.overview(), "step": feed.step(6), "operand": feed.operand(6, 0, after=True),
               "packed": pack([0.5, -1, 3e38], "f4"), "critical": feed.timeline.critical_path(),
               "softmax": Feed(softmax_run()).overview()}  # fmt: skip
    (tmp_path / "example.json").write_text(json.dumps(as_text(example)))
    ran = subprocess.run([node, "--test", test.name], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=os.environ)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_engines_have_the_colours_of_the_still_pictures(node: str, tmp_path: Path) -> None:
    shutil.copy(STATIC / "engines.js", tmp_path / "engines.mjs")
    script = "import('./engines.mjs').then((m) => console.log(JSON.stringify(m.ENGINES)))"
    out = subprocess.run([node, "-e", script], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {name: (e["name"], e["fill"], e["ink"]) for name, e in json.loads(out).items()} == ENGINES
