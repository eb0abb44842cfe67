"""Profiles where users meet them: ``%nki profile``, a cell that shows one, and ``nki-nb profile``."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import nki_sim
import numpy as np
import pytest
from nki_sim.timing import Profile, advise
from pages import read
from runs import HOSTILE, matmul_run
from session import Notebook
from sources import DOUBLE, MATMUL

from nki_nb import cli, kernels
from nki_nb.profile_view import ORDERS, ProfileView

IMPORTS = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n"


# -- %nki profile ----------------------------------------------------------------------------------------------------


def test_the_last_run_in_the_profilers_terms(notebook: Notebook) -> None:
    notebook.run("%%nki c = matmul(lhsT, rhs)\n" + MATMUL)
    shown = notebook.run("told = %nki profile\ndisplay(told)")
    told = notebook.names["told"]
    assert isinstance(told, Profile) and told.order == "compiler"
    assert str(told) in shown.text and "estimated" in shown.text and ORDERS["compiler"] in shown.text
    assert all(str(found) in shown.text for found in advise(told))
    (html,) = shown.mime("text/html")
    assert "hbm_read_bytes" in html and "active_percent" in html and "estimated" in html


def test_lines_of_findings_are_those_of_the_cell(notebook: Notebook) -> None:
    notebook.run("%%nki c = matmul(lhsT, rhs)\n" + MATMUL)
    notebook.run("told = %nki profile")
    lines = {line for found in ProfileView(notebook.names["told"]).findings for line in found.lines}
    assert lines and max(lines) <= len(MATMUL.splitlines()) + 1


def test_json_and_order(notebook: Notebook) -> None:
    notebook.run("%%nki c = matmul(lhsT, rhs)\n" + MATMUL)
    shown = notebook.run("%nki profile --json --order program")
    found = json.loads(shown.printed)
    assert found["profile"]["order"] == "program" and found["profile"]["kernel"] == "matmul"
    assert found["findings"][0]["kind"] == "bound"
    assert shown.displays == []


@pytest.mark.parametrize(
    ("line", "said"),
    [("--order best", "invalid choice"), ("--jason", "unrecognized"), ("", "nothing has run yet"),
     ("step() --json", "of the last run"), ("step(", "missing closing bracket")],
)  # fmt: skip
def test_misuse(notebook: Notebook, line: str, said: str) -> None:
    shown = notebook.run(f"%nki profile {line}")
    assert "UsageError" in shown.errors and said in shown.errors


def test_the_kernels_that_a_call_calls(notebook: Notebook) -> None:
    notebook.run("%%nki\n" + DOUBLE)
    notebook.run("def step(rows): return double(rhs[:rows]) + double(double(rhs[:rows]))")
    shown = notebook.run("told = %nki profile step(9) --order program\ndisplay(told)")
    assert [(c.kernel, c.count) for c in notebook.names["told"].calls] == [("double", 3)]
    assert shown.text.startswith("kernels of one step · trn2 · program order · estimated")
    assert notebook.names["told"].result.shape == (9, 200)


def test_profile_can_be_the_name_of_a_result(notebook: Notebook) -> None:
    notebook.run("%%nki\n" + DOUBLE)
    assert notebook.run("%nki profile = double(rhs[:9])").error is None
    assert notebook.names["profile"].shape == (9, 200)


def test_an_estimate_in_a_plain_cell_shows_the_same(notebook: Notebook) -> None:
    notebook.names["told"] = nki_sim.estimate(kernels.softmax, ((300, 640), "float32"))
    shown = notebook.run("display(told)")
    assert "softmax · trn2 · compiler order · estimated" in shown.text
    assert len(shown.mime("text/html")) == 1


def test_a_profile_is_escaped() -> None:
    told = nki_sim.Run.profile(matmul_run())
    hostile = ProfileView(type(told)(**{name: getattr(told, name) for name in told.__dataclass_fields__} | {"kernel": HOSTILE}))
    assert "script" not in read(hostile.as_html()).tags


def test_loading_the_extension_imports_none_of_it() -> None:
    code = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell as Shell; shell = Shell.instance();"
        "shell.run_line_magic('load_ext', 'nki_nb');"
        "print([m for m in ('matplotlib', 'pyarrow', 'pandas', 'perfetto', 'google.protobuf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


# -- nki-nb profile --------------------------------------------------------------------------------------------------


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with one kernel; what loading it changes in this process is undone."""
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "profiled", raising=False)
    (tmp_path / "profiled.py").write_text(IMPORTS + DOUBLE)
    np.save(tmp_path / "x.npy", np.ones((7, 9), np.float16))
    return f"{tmp_path / 'profiled.py'}::double"


def profile(*words: object) -> int:
    return cli.main(["profile", *map(str, words)])


def test_an_estimate_without_data(double: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(double, "--arg", "x=128x50000:bf16", "--target", "trn3", "--order", "program") == 0
    out = capsys.readouterr().out
    assert "double · trn3 · program order · estimated" in out and "findings\n- " in out


@pytest.mark.parametrize(
    ("arg", "read_bytes"),
    [("64x8", 64 * 8 * 4), ("randn:64x8:fp16", 64 * 8 * 2), ("64x8:bfloat16", 64 * 8 * 2), ("{}/x.npy", 7 * 9 * 2)],
)
def test_shapes(double: str, capsys: pytest.CaptureFixture[str], arg: str, read_bytes: int) -> None:
    assert profile(double, "--arg", f"x={arg.format(Path(double).parent)}", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["profile"]["hbm_read_bytes"] == read_bytes and found["diagnosis"] is None


def test_a_broken_limit_exits_1(double: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(double, "--arg", "x=300x40") == 1
    assert "profiled.py, line 8, in double" in capsys.readouterr().out
    assert profile(double, "--arg", "x=300x40", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["profile"] is None and found["diagnosis"]["rule"] == "nl.load_partition_le_128"


@pytest.mark.parametrize(
    ("arg", "said"),
    [("64by8", "expected NAME="), ("0x8", "positive"), ("64x8:float99", "float99"), ("4:", "double"), ("no.npy", "cannot load"),
     ("randn:64", "")],
)  # fmt: skip
def test_shapes_that_cannot_be_read(double: str, capsys: pytest.CaptureFixture[str], arg: str, said: str) -> None:
    assert profile(double, "--arg", f"x={arg}") in (1, 2)
    captured = capsys.readouterr()
    assert said in captured.err + captured.out


def test_files(double: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("perfetto")
    pytest.importorskip("pyarrow")
    files = {name: tmp_path / f"out.{name}" for name in ("perfetto", "csv", "parquet")}
    assert profile(double, "--arg", "x=64x8", *(word for name, path in files.items() for word in (f"--{name}", path))) == 0
    assert all(path.stat().st_size for path in files.values())
    with files["csv"].open(encoding="utf-8", newline="") as file:
        assert [row["opcode"] for row in csv.DictReader(file)] == ["dma_copy", "tensor_scalar", "dma_copy"]
    assert profile(double, "--arg", "x=64x8", "--csv", tmp_path / "gone" / "out.csv") == 2
    assert "cannot write" in capsys.readouterr().err
