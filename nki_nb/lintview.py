"""What a ``%%nki`` cell without a call says: the kernels it defines, and what a look at their source finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nki_sim.errors import Diagnosis
from nki_sim.lint import kernel_names, lint

from nki_nb.markup import escape


@dataclass(frozen=True)
class LintReport:
    """Kernels of a cell and the linter's findings; displays as text or HTML."""

    kernels: tuple[str, ...]
    findings: tuple[Diagnosis, ...]

    @classmethod
    def of(cls, source: str, filename: str) -> LintReport:
        return cls(tuple(kernel_names(source)), tuple(lint(source, filename)))

    @property
    def lines(self) -> list[str]:
        """The report, line by line."""
        head = f"defined {', '.join(self.kernels)}" if self.kernels else "no kernel defined: mark one with @nki.jit"
        return [f"{head} · {_findings(len(self.findings))}", *(line for f in self.findings for line in _said(f))]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        head, *rest = self.lines
        body = "".join(f'<div style="white-space:pre-wrap;font-family:monospace">{escape(line)}</div>' for line in rest)
        return f'<div style="font-size:13px"><b>{escape(head)}</b>{body}</div>'


def _findings(count: int) -> str:
    return {0: "nothing found", 1: "1 finding"}.get(count, f"{count} findings")


def _said(finding: Diagnosis) -> Iterator[str]:
    line = f"line {finding.line}: " if finding.line else ""
    subject = f"{finding.instruction}: " if finding.instruction else ""
    yield f"  {line}{subject}{finding.headline}"
    fix = finding.fix or (finding.rule.fix if finding.rule else "")
    if fix:
        yield f"    fix: {fix}"
