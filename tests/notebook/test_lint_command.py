"""``nki-nb lint``: what it finds, as text, as annotations, as SARIF; exit codes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nki_sim import reference
from sources import HOARDER

from nki_nb import cli
from nki_nb.specs import MAKERS, SHAPE_FORMS

HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n"

KERNELS = """\
@nki.jit
def clean(x):
    tile = nl.load(x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def hwdge(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x, dge_mode=nisa.dge_mode.hwdge)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def wasteful(x):
    "µs"; spare = nl.load(x)
    tile = nl.load(x)
    half = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[0:1], src=half[0:1])
    return out


@nki.jit
def counted(x, n):
    tile = nl.load(x)

    def body(i):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

    nl.fori_loop(0, nisa.scalar_load(nl.load(n)), body)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@nki.jit
def talkative(x):
    print("building")
    return x.shape[5]


@nki.jit
def old(x):
    for i in nl.affine_range(2):
        nisa.multiply(x, 2.0)
"""
LINE = {line.split("def ")[1].split("(")[0]: number for number, line in enumerate((HEAD + KERNELS).splitlines(), 1)
        if line.startswith("def ")}  # fmt: skip

Lint = Callable[..., int]


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    """``nki-nb lint`` in a folder with ``src/kernels.py``; what loading it changes in this process is undone."""
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kernels.py").write_text(HEAD + KERNELS, encoding="utf-8")

    def run(name: str, *words: object) -> int:
        where = f"src/kernels.py::{name}" if name else "src/kernels.py"
        return cli.main(["lint", where, *map(str, words)])

    return run


def sarif(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The only run of a SARIF log, and its rules by id: checked as far as the schema asks."""
    log = json.loads(text)
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-2.1.0.json")
    [run] = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "nki-nb" and re.fullmatch(r"\d+\.\d+\.\d+", driver["semanticVersion"])
    assert run["columnKind"] == "unicodeCodePoints"
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["id"] in reference.rules()
        for key in ("shortDescription", "fullDescription", "help"):
            assert set(rule[key]) == {"text"} and rule[key]["text"]
        assert rule["helpUri"].startswith("https://") and " " not in rule["helpUri"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning") and result["message"]["text"]
        assert len(result["locations"]) == 1
        for located in (*result["locations"], *result.get("relatedLocations", ())):
            place = located["physicalLocation"]
            check_region(place["region"])
            uri = place["artifactLocation"]
            assert (uri.get("uriBaseId") == "%SRCROOT%") != uri["uri"].startswith("file:///")
            assert not uri["uri"].startswith("/") and "\\" not in uri["uri"] and " " not in uri["uri"]
    return run, {rule["id"]: rule for rule in rules}


def check_region(region: dict[str, int]) -> None:
    assert set(region) <= {"startLine", "endLine", "startColumn", "endColumn"}
    assert all(isinstance(value, int) and value >= 1 for value in region.values())
    assert region["endLine"] >= region["startLine"]
    if region["endLine"] == region["startLine"] and "endColumn" in region:
        assert region["endColumn"] > region["startColumn"]


# -- what is found ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", ["x=4x8", "x=4x8:bf16", "x=randn:4x8", "x=ones:4x8:fp16"])
def test_a_clean_kernel(lint: Lint, capsys: pytest.CaptureFixture[str], array: str) -> None:
    assert lint("clean", "--arg", array, "--strict") == 0
    out = capsys.readouterr().out
    assert out.startswith("kernels.py::clean · 0 errors, 0 warnings\n")
    assert re.search(r"kernel +holds +holds +holds\n", out) and re.search(r"SBUF per partition +\S+ of \S+ KiB", out)


def test_a_limit_of_one_generation(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("hwdge", "--arg", "x=4x8") == 1
    out = capsys.readouterr().out
    line = LINE["hwdge"] + 2
    column = ":5" if sys.version_info >= (3, 11) else ""
    assert f"src/kernels.py:{line}{column}: error: dma_copy: dge_mode hwdge on trn1 [dma_copy.hwdge_gen3] (trn1)" in out
    assert re.search(r"\n +trn1 +trn2 +trn3\n +kernel +refused +holds +holds\n", out)
    assert re.search(r"dma_copy\.hwdge_gen3 +error +ok +ok$", out, re.M)


def test_generations_can_be_chosen(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("hwdge", "--arg", "x=4x8", "--target", "trn2", "--target", "gen4", "--target", "trn3") == 0
    out = capsys.readouterr().out
    assert re.search(r"\n +trn2 +trn3\n", out) and "trn1" not in out


@pytest.mark.parametrize("array", ["x=4x8", "x=randn:4x8"])
def test_warnings_fail_where_it_is_strict(lint: Lint, capsys: pytest.CaptureFixture[str], array: str) -> None:
    assert lint("wasteful", "--arg", array) == 0
    out, first = capsys.readouterr().out, LINE["wasteful"]
    for offset, rule in ((1, "dataflow.unused_load"), (2, "dataflow.unused_load"), (4, "kernel.output_written"),
                         (5, "ndarray.uninitialised")):  # fmt: skip
        assert re.search(rf"kernels\.py:{first + offset}(:\d+)?: warning: .* \[{rule}\]$", out, re.M), rule
    assert "kernels.py::wasteful · 0 errors, 4 warnings" in out
    assert lint("wasteful", "--arg", array, "--strict") == 1


def test_tiles_that_fit_in_another_order(lint: Lint, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "src" / "kernels.py").write_text(HEAD + HOARDER, encoding="utf-8")
    assert lint("hoarder", "--arg", "x=128x8") == 1
    assert re.search(r"error: .*SBUF overflow.* \[hw\.sbuf\.capacity_enforced\]", capsys.readouterr().out)
    assert lint("hoarder", "--arg", "x=128x8", "--fit", "compiler") == 0
    assert re.search(r"warning: .*SBUF overflow as written.* \[memory\.relisted\]", capsys.readouterr().out)


def test_a_course_that_depends_on_data_needs_values(lint: Lint, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "n.npy", np.array([[2]], np.int32))
    assert lint("counted", "--arg", "x=4x8", "--arg", "n=1x1:int32") == 1
    assert "estimate.needs_data" in capsys.readouterr().out
    assert lint("counted", "--arg", "x=4x8", "--arg", "n=n.npy") == 1  # one array is a shape only: nothing is computed
    capsys.readouterr()
    assert lint("counted", "--arg", "x=randn:4x8", "--arg", "n=n.npy", "--strict") == 0


def test_what_a_kernel_prints_and_raises(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("talkative", "--arg", "x=4x8", "--format", "sarif") == 1
    captured = capsys.readouterr()
    assert captured.err == "building\n" * 3
    run, _ = sarif(captured.out)
    [result] = run["results"]
    assert result["ruleId"] == "kernel.raises" and result["message"]["text"].startswith("IndexError: tuple index out of range")


def test_the_source_and_the_traces_say_a_thing_once(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("old", "--arg", "x=4x8") == 1
    out = capsys.readouterr().out
    assert out.count("[kernel.deprecated_name]") == 1 and out.count("[kernel.api_name]") == 1
    assert "kernels.py::old · 1 error, 1 warning" in out
    assert f"src/kernels.py:{LINE['old'] + 1}:14: warning" in out  # the trace of a warning knows no columns; the source does


def test_no_arguments(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("clean") == 1
    assert f"kernels.py:{LINE['clean'] - 1}" in (out := capsys.readouterr().out) and "[kernel.no_args_error]" in out


# -- a file without running it ---------------------------------------------------------------------------------------------


def test_a_file_is_read_and_not_run(lint: Lint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "src" / "kernels.py").open("a") as file:
        file.write("\nraise RuntimeError('this file was run')\n")
    assert lint("") == 1
    out, line = capsys.readouterr().out, LINE["old"]
    assert f"src/kernels.py:{line + 1}:14: warning: nl.affine_range is deprecated [kernel.deprecated_name]" in out
    assert f"src/kernels.py:{line + 2}:9: error: nki.isa has no multiply [kernel.api_name]" in out
    assert "kernels.py: clean, hwdge, wasteful, counted, talkative, old · 1 error, 1 warning" in out


def test_a_file_that_raises_when_it_is_imported(lint: Lint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "src" / "kernels.py"
    for text, words in (("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
                        ("raise SystemExit(0)", "SystemExit: 0"), ("nl.arange(3)", "nki.language has no arange")):  # fmt: skip
        path.write_text(HEAD + text + "\n" + KERNELS)
        assert lint("clean", "--arg", "x=4x8") == 1
        assert re.search(rf"src/kernels\.py:6(:\d+)?: error: {re.escape(words)} \[kernel\.\w+\]", capsys.readouterr().out)


def test_a_text_that_is_no_python(lint: Lint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src" / "kernels.py").write_text("import nki\ndef kernel(:\n    pass\n")
    for name in ("", "kernel"):
        assert lint(name) == 1
        assert "src/kernels.py:2:12: error: SyntaxError: invalid syntax [kernel.python_syntax]" in capsys.readouterr().out


def test_old_imports_and_launches(lint: Lint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import neuronxcc.nki as nki\n@nki.jit\ndef kernel(x):\n    return x\n\ny = kernel[2](None)\n"
    (tmp_path / "src" / "kernels.py").write_text(text)
    assert lint("", "--format", "sarif") == 1
    run, rules = sarif(capsys.readouterr().out)
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [
        ("kernel.legacy_namespace", "error"),
        ("kernel.bracket_launch", "warning"),
    ]
    assert all("migration" in rule["helpUri"] for rule in rules.values())


# -- formats ---------------------------------------------------------------------------------------------------------------


def test_sarif(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("wasteful", "--arg", "x=4x8", "--format", "sarif") == 0
    run, rules = sarif(capsys.readouterr().out)
    assert set(rules) == {"dataflow.unused_load", "kernel.output_written", "ndarray.uninitialised"}
    first = run["results"][0]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "src/kernels.py", "uriBaseId": "%SRCROOT%"}
    line = LINE["wasteful"] + 1
    if sys.version_info >= (3, 11):  # "µs" is four characters, of five bytes
        assert place["region"] == {"startLine": line, "endLine": line, "startColumn": 19, "endColumn": 29}
    else:
        assert place["region"] == {"startLine": line, "endLine": line}
    assert first["properties"]["targets"] == ["trn1", "trn2", "trn3"] == run["properties"]["targets"]
    assert run["properties"]["kernels"] == ["wasteful"]


def test_sarif_of_nothing(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("clean", "--arg", "x=4x8", "--format", "sarif") == 0
    run, rules = sarif(capsys.readouterr().out)
    assert run["results"] == [] and rules == {}


def test_sarif_is_the_same_every_time(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for _ in range(2):
        lint("wasteful", "--arg", "x=randn:4x8", "--format", "sarif")
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_places_outside_of_the_folder(lint: Lint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """A finding in a library is shown where the folder's own code calls it; without such a line, at an absolute place."""
    (tmp_path / "my lib").mkdir()
    (tmp_path / "my lib" / "parts_of_mine.py").write_text(HEAD + "def load(x):\n    nl.load(x)\n    return nl.load(x)\n")
    text = HEAD + "from parts_of_mine import load\n" + KERNELS.replace("tile = nl.load(x)", "tile = load(x[0:99])", 1)
    (tmp_path / "src" / "kernels.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "my lib"))
    monkeypatch.delitem(sys.modules, "parts_of_mine", raising=False)
    monkeypatch.chdir(tmp_path / "src")
    assert cli.main(["lint", "kernels.py::clean", "--arg", "x=4x8", "--format", "sarif"]) == 1
    run, _ = sarif(capsys.readouterr().out)
    uris = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]]
    assert uris == ["kernels.py"]
    (tmp_path / "src" / "kernels.py").write_text(text.replace("x[0:99]", "x"))
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    assert cli.main(["lint", "kernels.py::clean", "--arg", "x=4x8", "--format", "sarif"]) == 0
    run, _ = sarif(capsys.readouterr().out)
    [result] = run["results"]
    assert result["ruleId"] == "dataflow.unused_load"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/my%20lib/parts_of_mine.py")


def test_github_annotations(lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("hwdge", "--arg", "x=4x8", "--format", "github") == 1
    [command, *rest] = capsys.readouterr().out.splitlines()
    line = LINE["hwdge"] + 2
    match = re.fullmatch(r"::(\w+) (.*?)::(.*)", command)
    assert match and match[1] == "error"
    properties = dict(part.split("=", 1) for part in match[2].split(","))
    assert properties["file"] == "src/kernels.py" and properties["line"] == properties["endLine"] == str(line)
    assert properties["title"] == "dma_copy.hwdge_gen3 (trn1)"
    if sys.version_info >= (3, 11):
        assert (properties["col"], properties["endColumn"]) == ("5", "65")
    assert match[3].startswith("dma_copy: dge_mode hwdge on trn1%0Alimit: ") and "%0Apage: https://" in match[3]
    assert not any(text.startswith("::") for text in rest) and rest[0] == "kernels.py::hwdge · 1 error, 0 warnings"


def test_annotations_are_escaped(lint: Lint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "src" / "50%, a:b.py"
    path.write_text(HEAD + "@nki.jit\ndef kernel(x):\n    raise ValueError('100% of\\r::error::x')\n")
    assert cli.main(["lint", "src/50%, a:b.py::kernel", "--arg", "x=4x8", "--format", "github"]) == 1
    [command, *_] = capsys.readouterr().out.splitlines()
    assert command.startswith("::error file=src/50%25%2C a%3Ab.py,line=8,")
    assert "::ValueError: 100%25 of%0D::error::x%0Alimit: " in command


def test_output_goes_to_a_file_and_the_text_to_the_log(lint: Lint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("wasteful", "--arg", "x=4x8", "--format", "sarif", "--output", "lint.sarif") == 0
    sarif((tmp_path / "lint.sarif").read_text(encoding="utf-8"))
    assert "kernels.py::wasteful · 0 errors, 4 warnings" in capsys.readouterr().out


# -- misuse ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.py"], "no file nowhere.py"),
        (["src"], "no file src"),
        (["src/kernels.py::gone", "--arg", "x=4x8"], "no kernel 'gone'"),
        (["src/kernels.py", "--arg", "x=4x8"], "which kernel?"),
        (["src/kernels.py::clean", "--arg", "x=4by8"], f"expected {SHAPE_FORMS}"),
        (["src/kernels.py::clean", "--arg", "x=64x8", "--arg", "y=4by8"], f"expected {SHAPE_FORMS}"),
        (["src/kernels.py::clean", "--arg", "x"], f"expected {SHAPE_FORMS}"),
        (["src/kernels.py::clean", "--arg", "x=4x8:float99"], "float99 is not an NKI data type"),
        (["src/kernels.py", "--output", "no/such/folder"], "cannot write"),
    ],
)
def test_misuse_exits_2(lint: Lint, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert cli.main(["lint", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.out == ""


def test_all_forms_of_an_argument_are_listed() -> None:
    assert all(f"{maker}" in SHAPE_FORMS for maker in MAKERS)
    for form in ("NAME=4096x8192[:bf16]", "NAME=4096:fp32", "NAME=file.npy", "NAME=<Python literal>"):
        assert form in SHAPE_FORMS


RACING = """\
@nki.jit
def racing(x):
    i, other = nl.program_id(0), 1 - nl.program_id(0)
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=between[64 * i : 64 * i + 64], src=x[64 * i : 64 * i + 64])
    nisa.dma_copy(dst=x[64 * i : 64 * i + 64], src=between[64 * other : 64 * other + 64])
    return x
"""


@pytest.mark.parametrize("array", ["128x8", "randn:128x8"])
def test_two_logical_cores(lint: Lint, tmp_path: Path, capsys: pytest.CaptureFixture[str], array: str) -> None:
    (tmp_path / "racing.py").write_text(HEAD + RACING)
    words = ["lint", "racing.py::racing", "--arg", f"x={array}", "--target", "trn2"]
    assert cli.main([*words, "--lnc", "2"]) == 0
    assert "[memory.race]" in capsys.readouterr().out
    assert cli.main([*words, "--lnc", "2", "--strict"]) == 1
    assert cli.main([*words[:-1], "trn1", "--lnc", "2"]) == 1
    assert "[kernel.lnc_values]" in capsys.readouterr().out


def test_a_file_that_is_no_text(lint: Lint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    assert cli.main(["lint", "bytes.py"]) == 2
    assert "is no Python text" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--format", "xml"], ["--target", "trn9"]])
def test_unknown_words_exit_2(lint: Lint, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        lint("clean", *words)
    assert stopped.value.code == 2 and "usage: nki-nb lint" in capsys.readouterr().err
