"""The command line, called in this process and as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sources import DOUBLE, GREEDY, HOARDER

from nki_nb import cli

IMPORTS = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n"


@pytest.fixture(autouse=True)
def default_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with two kernels; what loading it changes in this process is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    path = tmp_path / "my_kernels.py"
    path.write_text("\n\n".join([IMPORTS.rstrip() + "\n", DOUBLE, GREEDY, HOARDER]))
    monkeypatch.delitem(sys.modules, "my_kernels", raising=False)
    return path


def run(*words: object) -> int:
    return cli.main(["run", *map(str, words)])


def test_run_prints_the_report(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{kernels}::double", "--arg", "x=randn:96x130:bf16", "--target", "trn3") == 0
    out = capsys.readouterr().out
    assert "double · trn3 (NeuronCore-v4) · lnc 1" in out and "bfloat16 [96 × 130]" in out


def test_run_is_the_same_every_time(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for _ in range(2):
        assert run(f"{kernels}::double", "--arg", "x=rand:3x5", "--json") == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_a_broken_limit_exits_1(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{kernels}::double", "--arg", "x=ones:300x40") == 1
    out = capsys.readouterr().out
    assert "NkiValidationError" in out and "my_kernels.py, line 8, in double" in out
    assert str(kernels.parent) not in out


@pytest.mark.parametrize(("array", "code"), [("ones:3x5", 0), ("ones:300x40", 1)])
def test_html_is_a_page_to_step_through(kernels: Path, tmp_path: Path, array: str, code: int) -> None:
    page = tmp_path / "run.html"
    assert run(f"{kernels}::double", "--arg", f"x={array}", "--html", str(page)) == code
    text = page.read_text(encoding="utf-8")
    assert "double, step by step" in text and "http://" not in text.replace("http://www.w3.org/", "")


def test_json_has_report_and_diagnosis(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{kernels}::double", "--arg", "x=arange:3x5", "--json") == 0
    fine = json.loads(capsys.readouterr().out)
    assert fine["diagnosis"] is None and fine["report"]["outputs"][0]["shape"] == [3, 5]
    assert run(f"{kernels}::double", "--arg", "x=ones:300x40", "--json") == 1
    broken = json.loads(capsys.readouterr().out)
    assert broken["report"] is None
    assert broken["diagnosis"]["rule"] == "nl.load_partition_le_128" and broken["diagnosis"]["line"] == 8


def test_findings_and_strict(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"{kernels}::matmul", "--arg", "lhsT=ints:96x20", "--arg", "rhs=ints:96x30"]
    assert run(*words) == 0
    captured = capsys.readouterr()
    assert "first_must_overwrite" in captured.out and captured.err == ""
    assert run(*words, "--strict") == 1


@pytest.mark.parametrize(
    ("command", "array", "told"),
    [("run", "x=ones:128x8", "SBUF overflow as written; the tiles fit with dma_copy"), ("profile", "x=128x8", "total time")],
)
def test_fit(kernels: Path, capsys: pytest.CaptureFixture[str], command: str, array: str, told: str) -> None:
    words = [command, f"{kernels}::hoarder", "--arg", array]
    assert cli.main(words) == 1
    assert "SBUF overflow: 3 tiles alive need 240000 bytes" in (said := capsys.readouterr().out) and "--fit compiler" in said
    assert cli.main([*words, "--fit", "compiler"]) == 0
    assert told in capsys.readouterr().out


def test_fp32(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{kernels}::double", "--arg", "x=randn:3x5:bf16", "--fp32") == 0
    assert "float32 [3 × 5]" in capsys.readouterr().out


def test_arrays_from_files(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(kernels.parent / "x.npy", np.ones((7, 9), np.float16))
    assert run(f"{kernels}::double", "--arg", f"x={kernels.parent / 'x.npy'}") == 0
    assert "float16 [7 × 9]" in capsys.readouterr().out
    np.save(kernels.parent / "o.npy", np.array([{}], dtype=object))
    assert run(f"{kernels}::double", "--arg", f"x={kernels.parent / 'o.npy'}") == 2
    assert "allow_pickle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "arg", "said"),
    [
        ("nowhere.py::double", "x=ones:3x5", "no file nowhere.py"),
        ("{}::halve", "x=ones:3x5", "my_kernels.py has double, matmul"),
        ("{}", "x=ones:3x5", "which kernel?"),
        ("{}::double", "x", "expected NAME="),
        ("{}::double", "x=ones:3by5", "no shape"),
        ("{}::double", "x=ones:3x5:float99", "float99 is not an NKI data type"),
        ("{}::double", "x=lots of", "expected NAME="),
        ("{}::double", "x=gone.npy", "cannot load gone.npy"),
    ],
)
def test_misuse_exits_2(kernels: Path, capsys: pytest.CaptureFixture[str], where: str, arg: str, said: str) -> None:
    assert run(where.format(kernels), "--arg", arg) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.out == ""


def test_an_argument_given_twice_exits_2(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{kernels}::double", "--arg", "x=ones:3x5", "--arg", "x=ones:3x5") == 2
    assert "given twice" in capsys.readouterr().err


TWO = """\
@nki.jit
def halves(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs()
    mine = slice(rows * nl.program_id(0), rows * nl.program_id(0) + rows)
    nl.store(out[mine], nl.load(x[mine]))
    return out
"""


@pytest.fixture
def halves(kernels: Path) -> str:
    """A kernel for one core or two."""
    kernels.write_text(IMPORTS + TWO)
    return f"{kernels}::halves"


@pytest.mark.parametrize(("words", "lnc"), [([], 1), (["--lnc", "1"], 1), (["--lnc", "2"], 2)])
def test_logical_cores(halves: str, capsys: pytest.CaptureFixture[str], words: list[str], lnc: int) -> None:
    assert run(halves, "--arg", "x=randn:64x8", *words) == 0
    assert f"lnc {lnc}" in capsys.readouterr().out
    assert cli.main(["profile", halves, "--arg", "x=64x8", "--json", *words]) == 0
    assert len(json.loads(capsys.readouterr().out)["profile"].get("cores", [0])) == lnc


@pytest.mark.parametrize("command", ["run", "profile", "lint"])
@pytest.mark.parametrize("given", ["3", "0", "-1", "two", "", "2.0"])
def test_a_number_of_cores_that_there_is_not(capsys: pytest.CaptureFixture[str], command: str, given: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "kernels.py::halves", f"--lnc={given}"])
    assert stopped.value.code == 2
    said = f"argument --lnc: {given!r} is no number of logical cores; a kernel runs on 1 (trn1, trn2, trn3) or 2 (trn2, trn3)"
    assert said in " ".join(capsys.readouterr().err.split())


def test_cores_that_the_generation_or_the_environment_does_not_have(
    halves: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(halves, "--arg", "x=randn:64x8", "--lnc", "2", "--target", "trn1") == 1
    out = capsys.readouterr().out
    assert "kernel[2] on trn1" in out and "kernel.lnc_values" in out
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    assert run(halves, "--arg", "x=randn:64x8", "--lnc", "2") == 1
    assert "kernel[2] with NEURON_LOGICAL_NC_CONFIG=1" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["fly"], ["tour", "--target", "trn9"]])
def test_unknown_words_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert "usage: nki-nb" in capsys.readouterr().err


def test_a_target_of_the_environment_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    assert cli.main(["info"]) == 2
    assert "from NEURON_PLATFORM_TARGET_OVERRIDE" in capsys.readouterr().err


def test_a_way_to_fit_of_the_environment_that_does_not_exist(
    kernels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NKI_SIM_FIT", "tight")
    assert run(f"{kernels}::double", "--arg", "x=ones:4x4") == 2
    assert capsys.readouterr().err == "nki-nb: NKI_SIM_FIT is 'tight': it is 'program' or 'compiler'\n"


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--target", "trn1"]) == 0
    assert "trn1 (current)" in capsys.readouterr().out


def test_tour_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nki_nb.cli", "tour", "--output", "page.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", env=_utf8(), timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": ok   max abs") == 2
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_output_that_nobody_reads_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nki_nb.cli", "info"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_utf8()) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_lab_without_jupyterlab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["lab"]) == 2
    assert "pip install" in capsys.readouterr().err


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that would have been started, where JupyterLab is installed."""
    commands: list[list[str]] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("subprocess.call", lambda command: commands.append(command) or 0)
    return commands


def test_lab_opens_the_tutorials(started: list[list[str]]) -> None:
    assert cli.main(["lab"]) == 0
    assert (Path(started[0][-1]) / "01_first_kernel.ipynb").is_file()


@pytest.mark.parametrize("name", ["02_memory_and_tiles.ipynb", "02_memory_and_tiles", "tutorials/02_memory_and_tiles.ipynb"])
def test_lab_opens_one_tutorial(started: list[list[str]], name: str) -> None:
    assert cli.main(["lab", name]) == 0
    opened = Path(started[0][-1])
    assert opened.is_file() and opened.name == "02_memory_and_tiles.ipynb"


def test_lab_lists_the_tutorials_for_an_unknown_name(started: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "99_more.ipynb"]) == 2
    said = capsys.readouterr().err
    assert "no tutorial 99_more.ipynb" in said and "01_first_kernel.ipynb" in said and "puzzles.ipynb" in said
    assert started == []


def _utf8() -> dict[str, str]:
    return {**os.environ, "PYTHONIOENCODING": "utf-8"}
