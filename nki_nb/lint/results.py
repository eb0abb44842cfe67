"""What was found of a file, or of one of its kernels on several generations."""

from __future__ import annotations

import os
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from nki_sim import verify
from nki_sim.context import core
from nki_sim.errors import Diagnosis, NkiError
from nki_sim.lint import kernel_names, lint, syntax_error
from nki_sim.program import Order
from nki_sim.source import Site, StaticSite
from nki_sim.verify import Finding, Verification, level_of, merged, raised

from nki_nb.files import KernelNotFoundError, find_kernel
from nki_nb.markup import escape


@dataclass(frozen=True)
class Lint:
    """Findings in the order of the source; reads as a report.

    Attributes:
        subject: the file, ``file.py::kernel``, or the kernel's name.
        kernels: what was looked at.
        verification: the kernel on each generation; ``None`` where only the source was read.
    """

    subject: str
    kernels: tuple[str, ...]
    findings: tuple[Finding, ...]
    verification: Verification | None = None

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors

    @property
    def targets(self) -> tuple[str, ...]:
        """The generations that it was traced on."""
        return tuple(outcome.target for outcome in self.verification.outcomes) if self.verification else ()

    def fails(self, strict: bool) -> bool:
        """Whether CI should stop: at an error, and where it is strict, at anything."""
        return bool(self.errors or (strict and self.findings))

    def __str__(self) -> str:
        from nki_nb.lint.text import as_text

        return as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return f'<pre style="font-size:13px;line-height:1.45;white-space:pre-wrap">{escape(str(self))}</pre>'


def lint_file(filename: str) -> Lint:
    """Read all kernels of a file, without running it.

    Raises:
        KernelNotFoundError: there is no such file, or it is no text.
    """
    path, source = _read(filename)
    try:
        names = kernel_names(source)
    except SyntaxError as error:
        return Lint(path.name, (), _static([syntax_error(error, str(path))]))
    return Lint(path.name, tuple(names), _static(lint(source, str(path))))


def lint_kernel(
    where: str,
    arguments: dict[str, Any],
    data: bool,
    targets: Sequence[str],
    lnc: int | None = None,
    *,
    fit: Order | None = None,
) -> Lint:
    """Read a kernel of a file, and trace it on each generation.

    Args:
        where: ``FILE.py::kernel``, or a file with one kernel.
        arguments: arrays, :class:`nki_sim.TensorSpec` or compile-time values, by name.
        data: compute as well.
        targets: generations.
        lnc: logical cores, as ``kernel[lnc]``; ``None``: as the environment says.
        fit: how its tiles have to fit in memory, as of :class:`nki_sim.RunOptions`.

    Raises:
        KernelNotFoundError: there is no such file or kernel.
    """
    filename, separator, name = where.partition("::")
    read = lint_file(filename)
    path = Path(os.path.abspath(filename))
    if any(finding.rule.id == "kernel.python_syntax" for finding in read.findings):
        return read
    try:
        kernel = find_kernel(where, lnc)
    except KernelNotFoundError:
        raise
    except NkiError as error:
        return _with(read, path.name + separator + name, error.diagnosis)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the file raises is said of the file
        return _with(read, path.name + separator + name, _unloadable(error, path))
    return _join(read, path.name, lint_call(kernel, (), arguments, data, targets, fit=fit))


def lint_call(
    kernel: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    data: bool,
    targets: Sequence[str],
    *,
    fit: Order | None = None,
) -> Lint:
    """Trace a kernel on each generation."""
    verification = verify(kernel, *args, targets=targets, data=data, fit=fit, **kwargs)
    return Lint(verification.name, (verification.name,), tuple(verification.findings), verification)


def _read(filename: str) -> tuple[Path, str]:
    path = Path(os.path.abspath(filename))
    if not path.is_file():
        raise KernelNotFoundError(f"no file {filename}; expected FILE.py or FILE.py::kernel")
    try:
        with tokenize.open(path) as file:
            return path, file.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise KernelNotFoundError(f"{filename} is no Python text: {error}") from None


def _static(diagnoses: Sequence[Diagnosis]) -> tuple[Finding, ...]:
    return tuple(merged(Finding(diagnosis, (), level_of(diagnosis.rule)) for diagnosis in diagnoses))


def _join(read: Lint, filename: str, traced: Lint) -> Lint:
    """What the source says of one kernel, or of the whole file, with what its traces say; the same thing once."""
    name = traced.kernels[0]
    static = [f for f in read.findings if _function(f) in (name, "<module>")]
    said = {finding.key[:3] for finding in traced.findings}
    columns = {f.key: f.diagnosis for f in static}
    found = [
        Finding(columns[f.key], f.targets, f.level) if f.key in columns and _column(f.diagnosis) < 0 else f
        for f in traced.findings
    ]
    found += [f for f in static if f.key[:3] not in said]
    return Lint(f"{filename}::{name}", (name,), tuple(merged(found)), traced.verification)


def _column(diagnosis: Diagnosis) -> int:
    return diagnosis.site.span[2] if diagnosis.site else -1


def _with(read: Lint, subject: str, failure: Diagnosis) -> Lint:
    """What the source says of a file that cannot be imported."""
    return Lint(subject, read.kernels, tuple(merged([*read.findings, Finding(failure, (), "error")])))


def _function(finding: Finding) -> str:
    return finding.diagnosis.site.function if finding.diagnosis.site else ""


def _unloadable(error: BaseException, path: Path) -> Diagnosis:
    """The finding about a file that raises when it is imported."""
    sites = _frames(error.__traceback__, path) or (StaticSite(str(path), "<module>", (1, 1, -1, -1)),)
    return raised(error, sites, core().target)


def _frames(trace: TracebackType | None, path: Path) -> tuple[Site, ...]:
    """The frames of a traceback from the file on, innermost first."""
    sites: list[Site] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if (sites or code.co_filename == str(path)) and not code.co_filename.startswith("<frozen"):
            sites.append(Site(code, trace.tb_lasti))
        trace = trace.tb_next
    return tuple(reversed(sites))
