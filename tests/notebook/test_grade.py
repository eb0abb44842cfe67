"""Grading: what counts, what is reported, and notebooks that hang, eat memory, raise, end the process or cheat."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from puzzle_solutions import sources

from nki_nb import cli
from nki_nb.exercise.grading import Graded, Limits, NotebookError, code_cells, grade

SETUP = """\
%load_ext nki_nb
import nki
import nki.isa as nisa
import nki.language as nl
from nki_nb.exercise import ___, Exercise, puzzles"""
SOLUTIONS = sources()
SOLVED = {name: f"{source}\nputs = puzzles.{name}.check({name})" for name, source in SOLUTIONS.items()}
SHEET = Path(__file__).parents[2] / "tutorials" / "puzzles.ipynb"
OWN = 'own = Exercise("own", spec=lambda x: x, inputs=[["randn:3x5"], ["randn:4x7"]])'


def written(path: Path, *cells: str) -> Path:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (SETUP, *cells)])
    nbformat.write(notebook, path)
    return path


def rows(graded: Graded) -> dict[str, tuple[bool, str]]:
    return {row["name"]: (row["passed"], row["reason"]) for row in graded.exercises}


def test_right_wrong_blank_and_raising(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(
        tmp_path / "mixed.ipynb",
        SOLVED["copy_a_tile"],
        SOLVED["scale_and_shift"].replace("operand0=3.0", "operand0=0.3"),
        SOLVED["scale_rows"].replace("operand0=column", "operand0=___"),
        "print(undefined)\n" + SOLVED["row_sum"],
        SOLVED["add_a_row"].replace("src=bias.broadcast(dim=0, size=rows)", "src=bias"),
        "def broken(:\n    puzzles.tall_and_odd.check(broken)",
        "raise SystemExit",
        OWN,
        "own.check(copy_a_tile)",
    )
    assert cli.main(["grade", str(path), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    found = {row["name"]: row for row in said["exercises"]}
    assert said["total"] == 7 and said["passed"] == 2
    assert found["copy_a_tile"]["passed"] and found["copy_a_tile"]["cost"] == found["copy_a_tile"]["par"]
    assert found["copy_a_tile"]["cost"] == {"instructions": 2, "dma_bytes": 99840, "cycles": 0}
    assert found["scale_and_shift"]["reason"].startswith("first wrong element result[0, 0]")
    assert found["scale_rows"]["reason"] == "1 blank to fill in"
    assert found["row_sum"]["reason"] == found["tall_and_odd"]["reason"] == "no kernel was handed in"
    assert found["add_a_row"]["rule"] == "dma_copy.elem_count"
    assert found["own"]["passed"] and found["own"]["par"] is None
    assert said["notes"][0] == "code cell 5: NameError: name 'undefined' is not defined"
    assert str(tmp_path) not in json.dumps(said)


def test_all_right_exits_0_and_the_last_kernel_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong_first = SOLVED["row_sum"].replace("op=nl.add", "op=nl.maximum")
    path = written(tmp_path / "right.ipynb", wrong_first, SOLVED["row_sum"], SOLVED["attention_tile"])
    assert cli.main(["grade", str(path)]) == 0
    out = capsys.readouterr().out
    assert out == "right  row_sum         at par\nright  attention_tile  at par\n2 of 2 right\n"


def test_the_sheet_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grade", str(SHEET), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["passed"], said["total"], said["notes"]) == (0, 20, [])
    assert all(row["outcome"] == "blank" for row in said["exercises"])


def test_the_sheet_solved(tmp_path: Path) -> None:
    notebook = nbformat.read(SHEET, as_version=4)
    for cell in notebook.cells:
        name = cell.source.rpartition(".check(")[2].rstrip(")")
        if cell.cell_type == "code" and name in SOLVED:
            cell.source = SOLVED[name]
    nbformat.write(notebook, tmp_path / "solved.ipynb")
    graded = grade(tmp_path / "solved.ipynb")
    assert graded.ok and graded.passed == 20 and not graded.notes


def test_hanging_kernels_and_cells_do_not_take_the_others_along(tmp_path: Path) -> None:
    hanging = SOLVED["scale_rows"].replace("    tile = nl.load(x)\n", "    tile = nl.load(x)\n    while True:\n        pass\n")
    stubborn = "while True:\n    try:\n        while True: pass\n    except Exception: pass"
    path = written(tmp_path / "hanging.ipynb", hanging, stubborn, SOLVED["row_sum"])
    began = time.monotonic()
    graded = grade(path, Limits(seconds=6))
    assert rows(graded) == {"scale_rows": (False, "interrupted after 1.5 s"), "row_sum": (True, "at par")}
    assert graded.notes == ("code cell 2: interrupted after 1.5 s", "code cell 3: interrupted after 1.5 s")
    assert time.monotonic() - began < 7


def test_what_cannot_be_interrupted_is_ended_with_all_it_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    cell = f"""
import signal, subprocess
signal.signal(signal.SIGALRM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "60"])
open({str(started)!r}, "w").write(str(child.pid))
while True: pass"""
    path = written(tmp_path / "stubborn.ipynb", SOLVED["row_sum"], cell, SOLVED["scale_rows"])
    graded = grade(path, Limits(seconds=4))
    assert rows(graded)["row_sum"] == (True, "at par")
    assert rows(graded)["scale_rows"] == (False, "the notebook was ended after 4 s")
    pid = int(started.read_text())
    for _ in range(50):
        if not alive(pid):
            break
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if Path("/proc/self").exists() else _exists(pid)
    except OSError:
        return False


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only Linux keeps to RLIMIT_AS")
def test_memory_is_limited(tmp_path: Path) -> None:
    hungry = SOLVED["scale_rows"].replace("    tile = nl.load(x)\n", "    tile = nl.load(x)\n    lost = bytearray(3 << 30)\n")
    path = written(tmp_path / "hungry.ipynb", "lost = bytearray(3 << 30)", hungry, SOLVED["row_sum"])
    graded = grade(path, Limits(seconds=30, megabytes=2000))
    assert rows(graded) == {"scale_rows": (False, "MemoryError"), "row_sum": (True, "at par")}
    assert graded.notes == ("code cell 2: MemoryError",)


def test_a_process_that_ends_itself(tmp_path: Path) -> None:
    path = written(tmp_path / "gone.ipynb", SOLVED["row_sum"], "import os; os._exit(0)", SOLVED["scale_rows"])
    assert rows(grade(path)) == {"row_sum": (True, "at par"), "scale_rows": (False, "no kernel was handed in")}


def test_cheats_that_do_not_work(tmp_path: Path) -> None:
    wrong = SOLUTIONS["row_sum"].replace("op=nl.add", "op=nl.maximum") + "\npuzzles.row_sum.check(row_sum)"
    same_name = """
from types import SimpleNamespace
fake = Exercise("scale_rows", spec=lambda x: x, inputs=[["randn:3x5"], ["randn:4x7"]])
fake.check(copy_a_tile)"""
    loosened = """
object.__setattr__(puzzles.add_a_row, "spec", lambda x, bias: x)
puzzles.add_a_row.check(lambda x, bias: copy_a_tile(x))"""
    printed = """
import json, os, pathlib, sys
line = json.dumps({"result": {"name": "row_sum", "passed": True, "reason": "", "cost": None, "par": None}})
print(line)
for path in pathlib.Path("..").iterdir():
    if path.is_file():
        said = path.read_text().splitlines()
        right = next(old for old in said if "copy_a_tile" in old and '"passed": true' in old)
        renamed = right.replace("copy_a_tile", "turn_by_matmul")
        path.write_text("\\n".join([*said, right, renamed, right.split()[0] + " " + line, ""]))
        found_the_file = True
assert found_the_file
assert not [word for word in os.environ if "SECRET" in word] and len(sys.argv) == 1"""
    patched = """
from nki_nb.exercise import REGISTRY, Result
assert not [listener for listener in REGISTRY.listeners if hasattr(listener, "__self__")]
right = Result("row_sum", "right", "at par")
Exercise.judge = Exercise.check = lambda self, kernel, *seed: right
puzzles.row_sum.check(row_sum)
puzzles.turn_by_dma.check(row_sum)"""
    path = written(tmp_path / "cheat.ipynb", SOLVED["copy_a_tile"], same_name, loosened, printed, wrong, patched)
    os.environ["A_SECRET"] = "x"
    try:
        graded = grade(path)
    finally:
        del os.environ["A_SECRET"]
    found = rows(graded)
    assert {name for name, (passed, _) in found.items() if passed} == {"copy_a_tile"}
    assert found["row_sum"][1].startswith("first wrong element")
    assert found["turn_by_dma"][1] == "no kernel was handed in"
    assert [note for note in graded.notes if "scale_rows is not the exercise of that name" in note]
    assert len(graded.notes) == 2, graded.notes


def test_a_teachers_file_says_what_counts(tmp_path: Path) -> None:
    homework = tmp_path / "homework.py"
    homework.write_text(
        f"from nki_nb.exercise import Exercise\n{OWN}\nother = Exercise('other', lambda x: x, [['ones:3x5']])\n"
    )
    path = written(tmp_path / "hers.ipynb", SOLVED["copy_a_tile"], "import homework", "homework.own.check(copy_a_tile)")
    graded = grade(path, exercises=str(homework))
    assert rows(graded) == {"own": (True, ""), "other": (False, "no kernel was handed in")}
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(NotebookError, match=r"no exercises in empty\.py: ValueError: it defines none"):
        grade(path, exercises=str(tmp_path / "empty.py"))
    with pytest.raises(NotebookError, match=r"no file nowhere\.py"):
        grade(path, exercises="nowhere.py")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no cells"),
        ('{"worksheets": []}', "no cells"),
        ('{"cells": [1]}', "no cells"),
        ('{"cells": [{"cell_type": "code", "source": 3}]}', "no text"),
        ('{"cells": [{"cell_type": "code", "source": ["a", 3]}]}', "no text"),
    ],
)
def test_what_is_no_notebook_exits_2(tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.ipynb"
    path.write_text(text)
    assert cli.main(["grade", str(path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--time-limit", "0"), ("--time-limit", "inf"), ("--memory-limit", "-1")])
def test_limits_that_are_none_exit_2(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grade", str(SHEET), f"{option}={value}"]) == 2
    assert "both positive" in capsys.readouterr().err


def test_no_such_notebook_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grade", str(tmp_path / "none.ipynb")]) == 2
    assert "cannot read none.ipynb" in capsys.readouterr().err


def test_reading_evaluates_nothing_and_skips_prose(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": "x.check(y)"},
        {"cell_type": "code", "source": ["a = 1\n", "b = 2"]},
    ]
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    assert code_cells(path) == ["a = 1\nb = 2"]


def test_a_notebook_without_exercises_is_not_right() -> None:
    graded = Graded(())
    assert not graded.ok and "no exercise" in str(graded)


def test_a_table_does_not_move_the_cursor() -> None:
    row = {"name": "\x1b[2Ja", "passed": False, "reason": "x\ny"}
    assert "\x1b" not in str(Graded((row,))) and len(str(Graded((row,))).splitlines()) == 2
