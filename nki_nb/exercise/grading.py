"""Grading a notebook that strangers wrote: its cells run in a process of their own, with limits.

The parent reads the notebook as data and evaluates nothing of it. The child (:mod:`nki_nb.exercise.child`) gets the cells
on its standard input, runs them, checks each kernel that was handed in again with the exercise itself, and writes one line
for each to a file that the cells are not told of. The lines are numbered and signed with a key that only the two know.

What this protects against: kernels that hang, eat memory, raise, end the process or leave others behind; cells that print
results or write to the file, put another ``check`` in place of the exercise's, change the exercise or define another one of
its name. What it does not: the cells are Python in the process that judges them, with the rights of this account. Code that
sets out to find the key in memory, to patch this package or the simulator, to compute with NumPy inside a kernel, to read
files, fill the disk, start processes in sessions of their own or use the network, can. Run strangers' notebooks in a container
or under an account that has nothing to lose, and read the kernels of those who excel.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nki_sim

from nki_nb.exercise.signing import opened
from nki_nb.markup import clip

LARGEST_NOTEBOOK = 20_000_000
"""Bytes of a notebook that is read, and of what its child says."""
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "SYSTEMROOT", "NEURON_PLATFORM_TARGET_OVERRIDE")
"""What the child sees of the environment; whatever else is there may be a secret."""
_CHECKED = re.compile(r"\b(\w+)\s*\.\s*check\s*\(")


class NotebookError(ValueError):
    """A notebook, or a file of exercises, cannot be read; the message says why."""


@dataclass(frozen=True)
class Limits:
    """What a notebook may take.

    Attributes:
        seconds: from start to end. One cell, or checking one kernel, may take a quarter of it.
        megabytes: of address space, where the system enforces it.

    Raises:
        ValueError: a limit that nothing can keep to, or none.
    """

    seconds: float = 120.0
    megabytes: int = 4096

    def __post_init__(self) -> None:
        if not (0 < self.seconds < 1e6 and 0 < self.megabytes < 1e9):
            raise ValueError("a time limit is a number of seconds, a memory limit one of megabytes, both positive")


@dataclass(frozen=True)
class Graded:
    """What became of a notebook.

    Attributes:
        exercises: per exercise its name, whether it passed, why not, cost and par: see :meth:`Result.as_dict`.
        notes: what else happened: cells that raised, limits that were reached.
    """

    exercises: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> int:
        return sum(1 for exercise in self.exercises if exercise["passed"])

    @property
    def ok(self) -> bool:
        """Whether there was anything to grade, and all of it is right."""
        return bool(self.exercises) and self.passed == len(self.exercises)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for ``--json``."""
        return {
            "exercises": list(self.exercises),
            "passed": self.passed,
            "total": len(self.exercises),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        told = [("right" if e["passed"] else "no", _printable(e["name"]), _printable(e["reason"])) for e in self.exercises]
        width = max((len(name) for _, name, _ in told), default=0)
        rows = [f"{verdict:<6} {name:<{width}}  {reason}".rstrip() for verdict, name, reason in told]
        total = f"{self.passed} of {len(self.exercises)} right" if self.exercises else "no exercise is checked in this notebook"
        return "\n".join([*rows, total, *(f"note: {_printable(note)}" for note in self.notes)])


def _printable(text: object) -> str:
    """One line for a terminal: a notebook's own words do not move its cursor."""
    return "".join(c if c.isprintable() else "\ufffd" for c in clip(str(text), 300))


def grade(notebook: Path, limits: Limits = Limits(), exercises: str | None = None, seed: int = 0) -> Graded:
    """Run a notebook and check every kernel that it hands in.

    Args:
        notebook: the file.
        limits: what it may take.
        exercises: a Python file, or an importable module, whose exercises are the ones that count: all of them, and as
            defined there. Without it, those count that the notebook checks or holds under a name.
        seed: of the inputs.

    Raises:
        NotebookError: the file is no notebook, or there are no such exercises.
    """
    cells = code_cells(notebook)
    key = secrets.token_hex(32)
    with tempfile.TemporaryDirectory(prefix="nki-nb-grade-") as room:
        work, outcome = Path(room, "work"), Path(room, secrets.token_hex(8))
        work.mkdir()
        job = {
            "cells": cells,
            "key": key,
            "outcome": str(outcome),
            "exercises": _where(exercises),
            "seed": seed,
            "seconds": limits.seconds,
            "megabytes": limits.megabytes,
        }
        ended = _run(job, work, limits.seconds)
        said = _read(outcome, key)
    refused = next((line["refused"] for line in said if "refused" in line), None)
    if refused is not None:
        raise NotebookError(refused)
    return _gathered(cells, said, ended)


def code_cells(notebook: Path) -> list[str]:
    """The source of each code cell.

    Raises:
        NotebookError: the file is not there, too large, or no notebook of format 4.
    """
    try:
        if notebook.stat().st_size > LARGEST_NOTEBOOK:
            raise NotebookError(f"{notebook.name} is larger than {LARGEST_NOTEBOOK // 1_000_000} MB")
        content = json.loads(notebook.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotebookError(f"cannot read {notebook.name}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise NotebookError(f"{notebook.name} is no notebook: not JSON") from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotebookError(f"{notebook.name} is no notebook: it has no cells of format 4")
    sources = [cell.get("source", "") for cell in cells if cell.get("cell_type") == "code"]
    joined = ["".join(source) if _is_texts(source) else source for source in sources]
    if not all(isinstance(source, str) for source in joined):
        raise NotebookError(f"{notebook.name} is no notebook: a cell's source is no text")
    return joined


def _is_texts(source: Any) -> bool:
    return isinstance(source, list) and all(isinstance(line, str) for line in source)


def _where(exercises: str | None) -> str | None:
    """The file of exercises as an absolute path, since the child runs elsewhere; a module's name as it is."""
    if exercises is None:
        return None
    path = Path(exercises)
    if path.is_file():
        return str(path.resolve())
    if path.suffix == ".py" or not all(part.isidentifier() for part in exercises.split(".")):
        raise NotebookError(f"no file {exercises}")
    return exercises


# -- the child -----------------------------------------------------------------------------------------------------------


def _run(job: dict[str, Any], work: Path, seconds: float) -> str:
    """Run the child to its end, or end it with all that it started; how it ended, in words, or nothing when well."""
    child = subprocess.Popen(
        [sys.executable, "-m", "nki_nb.exercise.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=work,
        env=_environment(work),
        start_new_session=True,
    )
    try:
        child.communicate(json.dumps(job).encode(), timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"the notebook was ended after {seconds:g} s"
    finally:
        _end_group(child)
    if child.returncode == 0:
        return ""
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        return f"the process was ended by {name}" + (": too much CPU time" if name == "SIGXCPU" else "")
    return f"the process ended itself with code {child.returncode}"


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End whatever is left of the child's process group."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
            os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    child.wait()


def _environment(home: Path) -> dict[str, str]:
    """Little: the way to Python and its packages, one thread, and a home that is empty."""
    packages = (Path(module.__file__ or "").parents[1] for module in (sys.modules["nki_nb"], nki_sim))
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        **kept,
        **threads,
        "HOME": str(home),
        "TMPDIR": str(home),
        "IPYTHONDIR": str(home / ".ipython"),
        "MPLCONFIGDIR": str(home / ".matplotlib"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, packages))),
        "PYTHONUSERBASE": site.getuserbase(),
    }


def _read(outcome: Path, key: str) -> list[dict[str, Any]]:
    """What the child wrote, in its order; a line that is cut short, said twice or signed with another key is not its own."""
    try:
        with outcome.open("rb") as file:
            text = file.read(LARGEST_NOTEBOOK).decode("utf-8", "replace")
    except OSError:
        return []
    said: list[dict[str, Any]] = []
    for line in text.splitlines():
        what = opened(key, len(said), line)
        if what is not None:
            said.append(json.loads(what))
    return said


def _gathered(cells: Sequence[str], said: list[dict[str, Any]], ended: str) -> Graded:
    """One row per exercise: what was found last, or that it was not reached."""
    results = {line["result"]["name"]: line["result"] for line in said if "result" in line}
    exact_names: list[str] | None = next((line["exact"] for line in said if "exact" in line), None)
    if exact_names is not None:
        names = exact_names
    else:
        held: list[str] | None = next((line["held"] for line in said if "held" in line), None)
        known = {name for line in said for name in line.get("known", ())}
        mentioned = [name for cell in cells for name in _CHECKED.findall(cell)]
        if held is not None:  # else it did not come to its end, and what the cells mention is all there is to go by
            mentioned = [name for name in mentioned if name in known]
        names = list(dict.fromkeys([*mentioned, *results, *(held or ())]))
    why = ended or "no kernel was handed in"
    missing = {"passed": False, "outcome": "missing", "reason": why, "rule": "", "cost": None, "par": None}
    rows = tuple(results.get(name, {"name": name, **missing}) for name in names)
    notes = [note for line in said for note in line.get("notes", ())]
    return Graded(rows, tuple([*notes, ended] if ended else notes))
