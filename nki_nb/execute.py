"""Running one ``%%nki`` cell: define its kernels, evaluate its call, run, compare."""

from __future__ import annotations

import os
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nki_sim
from nki_sim.errors import NkiWarning
from nki_sim.hw import TARGET_VARIABLE
from nki_sim.kernel import as_kernel
from nki_sim.run import Run

from nki_nb.cell import Cell, CellNamespace
from nki_nb.check import Comparison, Tolerance, compare_all
from nki_nb.line import Call, LineError
from nki_nb.lintview import LintReport
from nki_nb.report import Report, named_outputs


def execute(cell: Cell, call: Call | None, options: Namespace, user: dict[str, Any]) -> Report | LintReport:
    """Run a cell on the notebook's names; without a call, or with ``--no-run``, look its kernels over.

    Raises:
        LineError: the call names something that cannot run, or more names than there are outputs.
    """
    with default_target(options.target):
        namespace = cell.execute(user)
        if call is None or options.no_run:
            return LintReport.of(cell.source, cell.filename)
        function, args, kwargs = call.evaluate(cell, namespace)
        if not callable(function):
            raise LineError(f"{call.function} is no kernel but a {type(function).__name__}")
        reference = _reference(cell, namespace, options.check)
        run = _run(function, options, args, kwargs)
    call.assign(run.result, user)
    return Report.of(run, call.names, _compared(run, call.names, reference, options))


def _reference(cell: Cell, namespace: CellNamespace, expression: str | None) -> Any:
    """What should come out, taken before the kernel runs: a kernel may write its inputs."""
    if expression is None:
        return None
    return eval(compile(expression, cell.filename, "eval"), namespace)  # noqa: S307 - the notebook's own code


def _run(function: Any, options: Namespace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
    kernel = as_kernel(function)
    if options.lnc is not None:
        kernel = kernel[options.lnc]
    with findings_in_the_report():
        precise = False if options.fp32 else None
        chosen = nki_sim.RunOptions(strict=options.strict, precise=precise, fit=options.fit)
        return kernel.run(args, kwargs, chosen)


def _compared(run: Run, names: tuple[str, ...], reference: Any, options: Namespace) -> tuple[Comparison, ...]:
    if options.check is None:
        return ()
    outputs = named_outputs(run, names)
    arrays, labels = [array for _, array in outputs], [label for label, _ in outputs]
    return compare_all(arrays, reference, options.check, labels, Tolerance(options.rtol, options.atol))


@contextmanager
def default_target(name: str | None) -> Iterator[None]:
    """Make ``name`` the target inside the block, also for what a cell computes from limits while it is defined."""
    before = os.environ.get(TARGET_VARIABLE)
    if name is not None:
        os.environ[TARGET_VARIABLE] = name
    try:
        yield
    finally:
        if name is not None:
            os.environ.pop(TARGET_VARIABLE)
            if before is not None:
                os.environ[TARGET_VARIABLE] = before


@contextmanager
def findings_in_the_report() -> Iterator[None]:
    """Do not print findings a second time; filters stay in force, so ``error::NkiWarning`` still raises."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def others(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, NkiWarning):
                show(message, category, *where, **more)

        warnings.showwarning = others
        yield
