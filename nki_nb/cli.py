"""The command line: ``nki-nb tour``, ``lab [NOTEBOOK]``, ``run``, ``profile`` and ``lint FILE.py::kernel``, ``grade NOTEBOOK``,
``info``, ``help NAME``.

Exit codes: 0 fine, 1 the kernel broke a limit or a check failed, 2 the command cannot be understood.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import nki_sim
from nki_sim.errors import NkiError, NkiWarning
from nki_sim.hw import ALIASES, core
from nki_sim.kernel import as_kernel

from nki_nb import __version__, save_html, tour
from nki_nb.exercise.grading import Limits, NotebookError, grade
from nki_nb.extras import MissingExtraError
from nki_nb.files import KernelNotFoundError, add_fit, add_lnc, find_kernel
from nki_nb.help import look_up
from nki_nb.info import Info
from nki_nb.lint.command import OutputError, add_lint, run_lint
from nki_nb.profile_view import ProfileView, add_order, export
from nki_nb.report import Report
from nki_nb.specs import FORMS, SHAPE_FORMS, SpecError, read_arguments, read_shapes

FINE, BROKEN, USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    options = _parser().parse_args(argv)
    commands = {
        "tour": _tour,
        "lab": _lab,
        "run": _run,
        "profile": _profile,
        "lint": _lint,
        "grade": _grade,
        "info": _info,
        "help": _help,
    }
    try:
        core(getattr(options, "target", None))
        _ = nki_sim.RunOptions(fit=getattr(options, "fit", None)).fits
    except ValueError as error:
        return _misused(error)
    try:
        return commands[options.command](options)
    except (SpecError, KernelNotFoundError, NotebookError, OutputError) as error:
        return _misused(error)
    except BrokenPipeError:  # nobody reads on, as with `nki-nb tour | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN


def _misused(error: Exception | str) -> int:
    print(f"nki-nb: {error}", file=sys.stderr)
    return USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nki-nb", description="NKI kernels on a simulated NeuronCore.")
    parser.add_argument("--version", action="version", version=f"nki-nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shown = commands.add_parser("tour", help="run two kernels, print their reports, write a page with the pictures")
    shown.add_argument("--output", type=Path, default=Path("nki-tour.html"), metavar="FILE", help="default: %(default)s")
    _add_target(shown)
    opened = commands.add_parser("lab", help="open JupyterLab on the tutorials, or on one of them")
    opened.add_argument("notebook", nargs="?", metavar="NAME.ipynb", help="a tutorial; default: the folder with all of them")
    _add_run(commands.add_parser("run", help="run a kernel of a file and print its report"))
    _add_profile(commands.add_parser("profile", help="estimate a kernel's time from the shapes of its arguments"))
    add_lint(commands.add_parser("lint", help="what a file or a kernel breaks on which generation, for CI"))
    _add_grade(commands.add_parser("grade", help="run a notebook of exercises with limits, and check its kernels"))
    _add_target(commands.add_parser("info", help="what is simulated: generations, memories, limits"))
    told = commands.add_parser("help", help="an instruction, a function, a rule, or what a word finds")
    told.add_argument("name", nargs="+", metavar="NAME", help="nc_matmul, nl.load, nc_matmul.k_equal, transpose")
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", choices=list(ALIASES), metavar="GEN", help="trn1, trn2 (default) or trn3")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE.py::kernel")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help=f"{FORMS}; may be repeated")
    add_lnc(parser)
    parser.add_argument("--seed", type=int, default=0, help="of randn, rand and ints; default: %(default)s")
    parser.add_argument("--strict", action="store_true", help="findings are errors")
    add_fit(parser)
    parser.add_argument("--fp32", action="store_true", help="store low-precision floats as fp32")
    parser.add_argument("--json", action="store_true", help="print report and diagnosis as one JSON object")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page on which the run is stepped through")
    _add_target(parser)


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE.py::kernel")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help=f"{SHAPE_FORMS}; may be repeated")
    add_lnc(parser)
    add_order(parser)
    add_fit(parser)
    parser.add_argument("--json", action="store_true", help="print profile, findings and diagnosis as one JSON object")
    for name, what in (("perfetto", "a trace for ui.perfetto.dev"), ("csv", "all instructions"), ("parquet", "the same")):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"also write {what}")
    _add_target(parser)


def _add_grade(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebook", type=Path, metavar="NOTEBOOK.ipynb")
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object")
    parser.add_argument("--exercises", metavar="FILE.py", help="a file or module: all of its exercises count, and no others")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs; default: %(default)s")
    parser.add_argument("--time-limit", type=float, default=Limits.seconds, metavar="S", help="seconds; default: %(default)s")
    parser.add_argument("--memory-limit", type=int, default=Limits.megabytes, metavar="MB", help="default: %(default)s")


# -- commands --------------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    nki_sim.install()
    arguments = read_arguments(options.arg, options.seed)
    precise = False if options.fp32 else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NkiWarning)  # the report has them
            kernel = find_kernel(options.kernel, options.lnc)
            chosen = nki_sim.RunOptions(target=options.target, strict=options.strict, precise=precise, fit=options.fit)
            run = as_kernel(kernel).run((), arguments, chosen)
    except NkiError as error:
        found = {"report": None, "diagnosis": {"error": type(error).__name__, **error.diagnosis.as_dict()}}
        print(json.dumps(found, indent=2) if options.json else f"{type(error).__name__}: {error}")
        if options.html is not None and error.run is not None:
            save_html(error, options.html)
        return BROKEN
    if options.html is not None:
        save_html(run, options.html)
    report = Report.of(run)
    print(json.dumps({"report": report.as_dict(), "diagnosis": None}, indent=2) if options.json else report)
    return FINE


def _profile(options: argparse.Namespace) -> int:
    nki_sim.install()
    shapes = read_shapes(options.arg)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NkiWarning)
            chosen = nki_sim.RunOptions(target=options.target, keep_inputs=False, dry=True, fit=options.fit)
            told = as_kernel(find_kernel(options.kernel, options.lnc)).run((), shapes, chosen).profile(options.order)
    except NkiError as error:
        diagnosis = {"error": type(error).__name__, **error.diagnosis.as_dict()}
        broken = json.dumps({"profile": None, "findings": [], "diagnosis": diagnosis}, indent=2)
        print(broken if options.json else f"{type(error).__name__}: {error}")
        return BROKEN
    try:
        export(told, options.perfetto, options.csv, options.parquet)
    except MissingExtraError as error:
        return _misused(error)
    except OSError as error:
        return _misused(f"cannot write {error.filename}: {error.strerror}")
    view = ProfileView(told)
    print(json.dumps({**view.as_dict(), "diagnosis": None}, indent=2) if options.json else view)
    return FINE


def _lint(options: argparse.Namespace) -> int:
    nki_sim.install()
    return FINE if run_lint(options) else BROKEN


def _grade(options: argparse.Namespace) -> int:
    try:
        limits = Limits(options.time_limit, options.memory_limit)
    except ValueError as error:
        return _misused(error)
    graded = grade(options.notebook, limits, options.exercises, options.seed)
    print(json.dumps(graded.as_dict(), indent=2) if options.json else graded)
    return FINE if graded.ok else BROKEN


def _tour(options: argparse.Namespace) -> int:
    reports = tour.run(options.target)
    for report in reports:
        print(report, end="\n\n")
    options.output.write_text(tour.page_of(reports), encoding="utf-8")
    print(f"wrote {options.output}: open it in a browser to see where the tiles lay and what each engine did")
    return FINE if all(report.ok for report in reports) else BROKEN


def _lab(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        print('nki-nb: JupyterLab is not installed: python -m pip install "nki-nb[lab]"', file=sys.stderr)
        return USAGE
    opened = folder = tutorials()
    if options.notebook is not None:
        opened = folder / f"{Path(options.notebook).stem}.ipynb"
        if not opened.is_file():
            known = ", ".join(sorted(path.name for path in folder.glob("*.ipynb")))
            print(f"nki-nb: no tutorial {options.notebook}: one of {known}", file=sys.stderr)
            return USAGE
    return subprocess.call([sys.executable, "-m", "jupyterlab", str(opened)])


def _info(options: argparse.Namespace) -> int:
    print(Info(core(options.target)))
    return FINE


def _help(options: argparse.Namespace) -> int:
    try:
        print(look_up(" ".join(options.name)))
    except LookupError as error:
        print(f"nki-nb: {error.args[0]}", file=sys.stderr)
        return BROKEN
    return FINE


def tutorials(copy: Path = Path("nki-tutorials")) -> Path:
    """The folder with the notebooks: the checkout's own, or where a wheel is installed, a copy that may be edited."""
    package = Path(__file__).parent
    installed = package / "tutorials"
    if not installed.is_dir():
        return package.parent / "tutorials"
    if not copy.exists():
        shutil.copytree(installed, copy)
    return copy


if __name__ == "__main__":
    sys.exit(main())
