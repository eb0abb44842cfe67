"""``%%nki`` runs a cell's kernel on the simulator; ``%nki`` is the session: target, limits, the last run, help."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from IPython.core.error import UsageError
from IPython.core.magic import Magics
from nki_sim.cache import KERNELS
from nki_sim.hw import ALIASES, TARGET_VARIABLE, NeuronCore, core
from nki_sim.program import Order
from nki_sim.verify import TARGETS

from nki_nb.cell import Cell
from nki_nb.check import raise_for
from nki_nb.diagnosis import offer, shorten
from nki_nb.drawing import STEP, VIEW_NAMES, Picture
from nki_nb.line import Call, LineError, split_words
from nki_nb.shell import argument, cell_magic, display, line_magic, magic_arguments, magics_class

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from IPython.core.interactiveshell import InteractiveShell
    from nki_sim.step import StepProfile
    from nki_sim.timing import Profile

    from nki_nb.help import Help
    from nki_nb.info import Info
    from nki_nb.lint import Lint
    from nki_nb.report import Report


@magics_class
class NkiMagics(Magics):
    """The two magics and what a session remembers: the last run and how many cells there were.

    What a command needs is loaded when it is first given: ``%load_ext`` does not wait for it.
    """

    def __init__(self, shell: InteractiveShell):
        super().__init__(shell)
        self.cells = 0
        self.last: Report | None = None
        self.views: list[str] = []
        self.target_before = os.environ.get(TARGET_VARIABLE)

    # -- %%nki -------------------------------------------------------------------------------------------------------

    @magic_arguments("%nki")
    @argument(
        "call",
        nargs="*",
        help="what to run, on the notebook's own arrays: c = kernel(a, b). Without it the cell's kernels are defined and "
        "looked over, not run.",
    )
    @argument("--target", metavar="GEN", help="NeuronCore generation: trn1, trn2 or trn3. Default: %%nki target, then trn2.")
    @argument("--lnc", type=int, help="Logical cores to run on; as kernel[n](…).")
    @argument("--check", metavar="EXPR", help='What the result should be, as a quoted expression: "lhsT.T @ rhs".')
    @argument("--rtol", type=float, help="Relative tolerance of --check. Default: fits the data type.")
    @argument("--atol", type=float, help="Absolute tolerance of --check. Default: rtol of the root mean square.")
    @argument("--view", choices=VIEW_NAMES, action="append", help="What to show under the report; may be repeated.")
    @argument("--fp32", action="store_true", help="Store low-precision floats as fp32, as NKI_PRECISE_FP=0 does.")
    @argument("--strict", action="store_true", help="Findings (undefined behaviour, soft rules) are errors.")
    @argument("--fit", choices=get_args(Order), help="How tiles have to fit in memory.")
    @argument("--no-run", action="store_true", help="Define and look over the kernels; do not run the call.")
    @cell_magic("nki")
    def run_cell(self, line: str, body: str) -> None:
        """Define the cell's NKI kernels, run one on the simulated NeuronCore, and report.

        nki, nl, nisa and np are there without imports. Kernels stay defined for later cells.
        """
        self._start(line, body)

    def _start(self, line: str, body: str) -> None:
        from nki_nb.execute import execute
        from nki_nb.lintview import LintReport

        options, call = self._read(line)
        self.cells += 1
        try:
            report = execute(Cell(line, body, self.cells), call, options, self._user)
        except LineError as error:
            raise UsageError(str(error)) from None
        except Exception as error:
            shorten(error)
            if STEP in (options.view or ()):
                offer(error)
            raise
        if isinstance(report, LintReport):
            display(report)
            return
        self.last, self.views = report, [view for view in options.view or () if view != "none"]
        display(report)
        for view in self.views:
            display(report.view() if view == STEP else Picture.of(report, view))
        raise_for(report.checks)

    def _read(self, line: str) -> tuple[Namespace, Call | None]:
        try:
            parser: ArgumentParser = self.run_cell.parser  # type: ignore[attr-defined]
            options = parser.parse_args(split_words(line))
            if options.check is not None:
                compile(options.check, "<--check>", "eval")
            if options.target is not None:
                core(options.target)
            return options, Call.read(" ".join(options.call)) if options.call else None
        except SyntaxError as error:
            raise UsageError(f"--check takes an expression, got {options.check!r}: {error.msg}") from None
        except ValueError as error:
            raise UsageError(str(error)) from None

    @property
    def _user(self) -> dict[str, Any]:
        shell: Any = self.shell
        names: dict[str, Any] = shell.user_ns
        return names

    # -- %nki --------------------------------------------------------------------------------------------------------

    @line_magic("nki")
    def command(self, line: str) -> Report | Profile | StepProfile | Lint | Info | Help | None:
        """The session: %nki target [GEN], info, last, profile, lint CALL, help NAME, reset, or a call: c = kernel(a, b).

        target  the NeuronCore generation for this session, or without GEN, which one it is
        info    what is simulated: generations, memories, limits, and which numbers are not documented
        last    the last run again; ``run = %nki last`` keeps it, with its program and memory map
        profile the last run in the profiler's terms, and what that says; --order compiler|program, --json. With a call, as in
                %nki profile train(batch), what each kernel costs that is called on the way
        lint    what a call breaks on trn1, trn2 and trn3, what is undefined there, and what it does for nothing:
                %nki lint kernel(a, b). The arrays stay as they are
        help    an instruction or function: operands, engine, cost, limits; a rule by its id; else what a word finds
        reset   forget the last run, specialised kernels and the session's target

        A call, with the options of %%nki, runs a kernel that an earlier cell has defined.
        """
        word, _, rest = line.strip().partition(" ")
        commands: dict[str, Callable[[str], Any]] = {
            "target": self._target,
            "info": self._info,
            "last": self._last,
            "profile": self._profile,
            "lint": self._lint,
            "help": self._help,
            "reset": self._reset,
        }
        if word in commands and not rest.lstrip().startswith("="):
            return commands[word](rest.strip())  # type: ignore[no-any-return]
        if "(" not in line:
            raise UsageError(f"%nki {' | '.join(commands)}, or a call; got: {line.strip() or 'nothing'}")
        self._start(line, "")
        return None

    def _target(self, name: str) -> None:
        if name:
            os.environ[TARGET_VARIABLE] = _known(name).target
        print(f"target: {core()}")

    def _info(self, _: str) -> Info:
        from nki_nb.info import Info

        return Info(core())

    def _last(self, _: str) -> Report:
        if self.last is None:
            raise UsageError("nothing has run yet: start a cell with %%nki c = kernel(a, b)")
        return self.last

    def _profile(self, line: str) -> Profile | StepProfile | None:
        from nki_sim.step import profile_step

        from nki_nb.profile_view import OptionError, ProfileView, read_options

        try:
            order, plain, call = read_options(split_words(line))
        except (OptionError, LineError) as error:
            raise UsageError(f"%nki profile: {error}") from None
        if call:
            return profile_step(lambda: self.shell.ev(call), order)  # type: ignore[union-attr]
        profile = self._last("").profile(order)
        if not plain:
            return profile
        print(json.dumps(ProfileView(profile).as_dict(), indent=2))
        return None

    def _lint(self, line: str) -> Lint:
        from nki_nb.lint import lint_call

        try:
            call = Call.read(line)
        except LineError as error:
            raise UsageError(f"%nki lint: {error}") from None
        self.cells += 1
        cell = Cell(f"lint {line}", "", self.cells)
        kernel, args, kwargs = call.evaluate(cell, cell.execute(self._user))
        return lint_call(kernel, args, kwargs, True, TARGETS)

    def _help(self, name: str) -> Help:
        from nki_nb.help import look_up

        try:
            return look_up(name)
        except LookupError as error:
            raise UsageError(str(error.args[0])) from None

    def _reset(self, _: str) -> None:
        from nki_sim import replay

        self.last, self.views = None, []
        KERNELS.clear()
        replay.forget()
        self.forget_target()
        print(f"target: {core()}")

    def forget_target(self) -> None:
        """Undo ``%nki target``."""
        os.environ.pop(TARGET_VARIABLE, None)
        if self.target_before is not None:
            os.environ[TARGET_VARIABLE] = self.target_before


def _known(name: str) -> NeuronCore:
    try:
        return core(name)
    except ValueError:
        raise UsageError(f"unknown target {name!r}; known targets are {', '.join(ALIASES)}") from None
