"""A notebook session for tests: run a cell, see what it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.utils.capture import capture_output


@dataclass
class Shown:
    """One executed cell: the error if it failed, what was printed, and what was displayed."""

    result: ExecutionResult
    printed: str
    errors: str
    displays: list[dict[str, Any]] = field(default_factory=list)

    @property
    def error(self) -> BaseException | None:
        return self.result.error_in_exec or self.result.error_before_exec

    @property
    def text(self) -> str:
        """Everything displayed and printed, as text."""
        return "\n".join([*(d.get("text/plain", "") for d in self.displays), self.printed, self.errors])

    def mime(self, kind: str) -> list[str]:
        return [d[kind] for d in self.displays if kind in d]


@dataclass
class Notebook:
    """A session: run cells, see what they show."""

    shell: InteractiveShell

    @property
    def names(self) -> dict[str, Any]:
        names: dict[str, Any] = self.shell.user_ns
        return names

    def run(self, source: str) -> Shown:
        with capture_output() as captured:
            result = self.shell.run_cell(source)
        return Shown(result, captured.stdout, captured.stderr, [output.data for output in captured.outputs])
