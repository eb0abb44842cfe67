"""``nki-nb lint``: its options, and what it prints and writes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from nki_sim.hw import ALIASES, core
from nki_sim.verify import TARGETS

from nki_nb.files import add_fit, add_lnc
from nki_nb.lint.github import as_github
from nki_nb.lint.results import Lint, lint_file, lint_kernel
from nki_nb.lint.sarif import as_sarif
from nki_nb.lint.text import as_text
from nki_nb.specs import SHAPE_FORMS, read_either

FORMATS: dict[str, Callable[[Lint, Path], str]] = {
    "text": as_text,
    "github": as_github,
    "sarif": as_sarif,
}


class OutputError(ValueError):
    """The report cannot be written."""


def add_lint(parser: argparse.ArgumentParser) -> None:
    """The options of ``nki-nb lint``."""
    parser.add_argument("kernel", metavar="FILE.py[::kernel]", help="without a kernel: read the file, run nothing")
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE",
        help=f"{SHAPE_FORMS}; with values for every array the kernel is computed as well; may be repeated",
    )  # fmt: skip
    add_lnc(parser)
    add_fit(parser)
    parser.add_argument("--target", dest="targets", action="append", choices=list(ALIASES), metavar="GEN",
                        help="trn1, trn2 or trn3; may be repeated; default: all of them")  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="fail at warnings too")
    parser.add_argument("--format", choices=list(FORMATS), default="text", help="default: %(default)s")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the format there, and print the text")
    parser.add_argument("--seed", type=int, default=0, help="of randn, rand and ints; default: %(default)s")


def run_lint(options: argparse.Namespace) -> bool:
    """Lint, print and write; whether it is to count as passed.

    Raises:
        SpecError, KernelNotFoundError, OutputError: the command cannot be understood, or FILE not be written.
    """
    with redirect_stdout(sys.stderr):  # what kernels print is not the report
        found = _look(options)
    root = Path.cwd()
    text = FORMATS[options.format](found, root)
    if options.output is None:
        print(text)
    else:
        try:
            options.output.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot write {options.output}: {error.strerror}") from None
        print(as_text(found, root))
    return not found.fails(options.strict)


def _look(options: argparse.Namespace) -> Lint:
    if "::" not in options.kernel and not options.arg:
        return lint_file(options.kernel)
    arguments, data = read_either(options.arg, options.seed)
    targets = list(dict.fromkeys(core(name).target for name in options.targets or TARGETS))
    return lint_kernel(options.kernel, arguments, data, targets, options.lnc, fit=options.fit)
