"""The process in which a notebook is graded: ``python -m nki_nb.exercise.child``, a job as JSON on its standard input.

Everything it needs later is bound before the first cell runs.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from nki_nb.exercise import puzzles
from nki_nb.exercise.exercise import Exercise
from nki_nb.exercise.registry import REGISTRY
from nki_nb.exercise.result import Result
from nki_nb.exercise.signing import signed
from nki_nb.files import load

LARGEST_FILE = 64 << 20
"""Bytes of a file that the cells may write."""


class TimeUpError(BaseException):
    """A cell, or a kernel, took its share of the time. Not an ``Exception``: the cells' own handlers are not for it."""


def main() -> None:
    """Run one job."""
    job = json.loads(sys.stdin.buffer.read())
    key, numbers = job.pop("key"), count()
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    outcome = os.open(job.pop("outcome"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(**what: Any) -> None:
        os.write(outcome, f"{signed(key, next(numbers), json.dumps(what))}\n".encode())

    try:
        trusted, exact = exercises_that_count(job["exercises"])
    except Exception as error:  # noqa: BLE001 - the teacher's own file; the parent says what is wrong with it
        say(refused=f"no exercises in {Path(job['exercises']).name}: {type(error).__name__}: {error}")
        return
    if exact:
        say(exact=list(trusted))
    limit(job["seconds"], job["megabytes"])
    Session(job["cells"], trusted, job["seconds"] / 4, job["seed"], say).run()


def exercises_that_count(where: str | None) -> tuple[dict[str, Exercise], bool]:
    """The exercises that are taken as they are defined here, by name, and whether they are all that count.

    Copies, since cells can change what the modules hold.

    Raises:
        ValueError: there are none.
    """
    if where is None:
        return {puzzle.name: copy(puzzle) for puzzle in puzzles.PUZZLES}, False
    if where.endswith(".py"):
        found = vars(load(Path(where))).values()
    else:
        found = vars(importlib.import_module(where)).values()
    exercises = {value.name: copy(value) for value in found if isinstance(value, Exercise)}
    if not exercises:
        raise ValueError("it defines none")
    return exercises, True


def limit(seconds: float, megabytes: int) -> None:
    """Limit this process and those it starts, for good; nothing where the system has no such limits."""
    try:
        import resource
    except ImportError:
        return
    wanted = (
        ("RLIMIT_AS", megabytes << 20),
        ("RLIMIT_CPU", int(seconds) + 1),
        ("RLIMIT_FSIZE", LARGEST_FILE),
        ("RLIMIT_CORE", 0),
    )
    for name, most in wanted:
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (allowed, allowed))
        except (OSError, ValueError):  # a system that knows the limit and does not set it
            continue


def handed_in() -> dict[str, tuple[Exercise, Any]]:
    """From now on, the kernels that are handed in, by exercise, of several the last. The listener leads to nothing else."""
    kept: dict[str, tuple[Exercise, Any]] = {}

    def keep(exercise: Exercise, kernel: Any) -> None:
        kept[str(exercise.name)] = (exercise, kernel)

    REGISTRY.listeners.append(keep)
    return kept


class Session:
    """The cells of one notebook, run in order; after each, the kernels that it handed in are checked.

    Args:
        cells: their sources.
        trusted: exercises by name that no cell can replace.
        share: seconds that a cell, or a check, may take.
        seed: of the inputs.
        say: writes one line to the parent.
    """

    def __init__(
        self, cells: list[str], trusted: dict[str, Exercise], share: float, seed: int, say: Callable[..., None]
    ) -> None:
        self._cells, self._trusted, self._share, self._seed, self._say = cells, trusted, share, seed, say
        self._handed_in = handed_in()
        self._judge, self._is_exercise = Exercise.judge, Exercise

    def run(self) -> None:
        """Run every cell, whatever the ones before did."""
        names, run_cell = shell()
        self._say(known=list(self._trusted))
        for number, source in enumerate(self._cells, 1):
            self._handed_in.clear()
            error = self._in_time(partial(run_cell, source))
            if error is not None:
                self._say(notes=[f"code cell {number}: {self._words(error)}"])
            for exercise, kernel in list(self._handed_in.values()):
                self._say(result=self._checked(exercise, kernel, error))
        held = [value for value in list(names.values()) if type(value) is self._is_exercise]
        self._say(held=list(dict.fromkeys(exercise.name for exercise in held)))

    def _checked(self, exercise: Exercise, kernel: Any, error: BaseException | None) -> dict[str, Any]:
        name = str(exercise.name)
        judge = self._trusted.get(name, exercise)
        if judge.spec is not exercise.spec:
            self._say(notes=[f"{name} is not the exercise of that name: judged as the one that is"])
        if isinstance(error, TimeUpError):  # once is enough
            return self._failed(name, "timeout", self._words(error))
        found: list[Result] = []
        error = self._in_time(lambda: found.append(self._judge(judge, kernel, self._seed)))
        if error is not None:
            return self._failed(name, "timeout" if isinstance(error, TimeUpError) else "raised", self._words(error))
        return found[0].as_dict()

    @staticmethod
    def _failed(name: str, outcome: str, reason: str) -> dict[str, Any]:
        return {"name": name, "passed": False, "outcome": outcome, "reason": reason, "rule": "", "cost": None, "par": None}

    def _words(self, error: BaseException) -> str:
        if isinstance(error, TimeUpError):
            return f"interrupted after {self._share:g} s"
        return f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")

    def _in_time(self, act: Callable[[], Any]) -> BaseException | None:
        """Do something within a share of the time; what it raised, or was made to raise."""
        try:
            with _alarm(self._share):
                returned = act()
        except BaseException as error:  # noqa: BLE001 - whatever strangers' code raises, the next cell has its turn
            return error
        return returned if isinstance(returned, BaseException) else None


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    if not hasattr(signal, "setitimer"):  # the parent's limit holds
        yield
        return

    def up(*_: Any) -> NoReturn:
        raise TimeUpError

    before = signal.signal(signal.SIGALRM, up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def shell() -> tuple[dict[str, Any], Callable[[str], BaseException | None]]:
    """A notebook session without a notebook: its names, and what runs a cell and gives the error it raised."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    made: Any = InteractiveShell.instance(config=config)

    def run_cell(source: str) -> BaseException | None:
        result = made.run_cell(source, store_history=False)
        error: BaseException | None = result.error_in_exec or result.error_before_exec
        return error

    return made.user_ns, run_cell


if __name__ == "__main__":
    main()
