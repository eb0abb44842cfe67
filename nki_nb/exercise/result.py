"""What a check says: right, or the one thing that is wrong first; then what it cost.

The same rows are text, HTML and plain data. Nothing in them depends on the machine or the moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from nki_sim.errors import Diagnosis, NkiError
from nki_sim.run import Run
from nki_sim.source import Site, StaticSite

from nki_nb.diagnosis import as_html as diagnosis_html
from nki_nb.exercise.cost import Cost
from nki_nb.markup import escape

Outcome = Literal["right", "wrong", "blank", "limit", "raised"]

LABEL_WIDTH = 14
_TABLE = "border-collapse:collapse;font-size:13px;line-height:1.45;margin:4px 0"
_CELL = "text-align:left;vertical-align:top;padding:1px 14px 1px 0;border:none;background:none"
_MONO = "font-family:monospace;white-space:pre-wrap"


@dataclass(frozen=True)
class Result:
    """One check of one kernel; displays as a table.

    Attributes:
        exercise: its name.
        outcome: ``right``; ``wrong``: an element is; ``blank``: one is left; ``limit``: the simulator refused the kernel;
            ``raised``: the kernel's own Python did.
        reason: why it is not right, in one line; of one that is right, the verdict on its cost.
        rule: id of the limit, if one was broken.
        rows: label and lines of what is said besides.
        cost, par: of a kernel that is right; par where the exercise has one.
        diagnosis: the simulator's, of a limit.
        error: the kind of exception that ended the run.
        run: the run, as far as it came.
    """

    exercise: str
    outcome: Outcome
    reason: str
    rule: str = ""
    rows: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cost: Cost | None = None
    par: Cost | None = None
    diagnosis: Diagnosis | None = field(default=None, repr=False)
    error: str = ""
    run: Run | None = field(default=None, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """Whether the kernel is right, whatever it costs."""
        return self.outcome == "right"

    @property
    def headline(self) -> str:
        """What it comes to, in one line."""
        said = {"right": "right, ", "limit": "breaks a limit: " if self.rule else "stopped: "}.get(self.outcome, "")
        return f"{self.exercise}: {said}{self.reason}".removesuffix(", ")

    def __str__(self) -> str:
        out = [self.headline]
        for label, lines in self.rows:
            out.append(f"  {label:<{LABEL_WIDTH}}{lines[0]}".rstrip())
            out += [f"  {'':<{LABEL_WIDTH}}{line}".rstrip() for line in lines[1:]]
        if self.diagnosis is not None:
            out += [f"  {line}".rstrip() for line in f"{self.error}: {self.diagnosis.text()}".splitlines()]
        return "\n".join(out)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        head = f'<tr style="background:none"><td colspan="2" style="{_CELL}"><b>{escape(self.headline)}</b></td></tr>'
        body = "".join(_html_row(label, lines) for label, lines in self.rows)
        table = f'<table style="{_TABLE}"><tbody>{head}{body}</tbody></table>'
        return table + (diagnosis_html(self.error, self.diagnosis) if self.diagnosis is not None else "")

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for ``nki-nb grade --json``."""
        return {
            "name": self.exercise,
            "passed": self.passed,
            "outcome": self.outcome,
            "reason": self.reason,
            "rule": self.rule,
            "cost": self.cost.as_dict() if self.cost else None,
            "par": self.par.as_dict() if self.par else None,
        }


def _html_row(label: str, lines: tuple[str, ...]) -> str:
    words = "<br>".join(escape(line) for line in lines)
    return (
        f'<tr style="background:none"><td style="{_CELL};opacity:.65">{escape(label)}</td>'
        f'<td style="{_CELL};{_MONO}">{words}</td></tr>'
    )


# -- exceptions of a kernel --------------------------------------------------------------------------------------------


class CellSite(StaticSite):
    """A place in a plain notebook cell: its file has a name that only the kernel knows."""

    __slots__ = ()

    @property
    def place(self) -> str:
        inside = "" if self.function == "<module>" else f", in {self.function}"
        return f"cell, line {self.line}{inside}"


def in_words(site: Site) -> Site:
    """The place, with a notebook cell called a cell."""
    name = site.filename
    is_cell = name.startswith("<ipython-input-") or Path(name).parent.name.startswith("ipykernel_")
    return CellSite(name, site.function, site.span) if is_cell else site


def stopped(exercise: str, error: NkiError, rows: tuple[tuple[str, tuple[str, ...]], ...]) -> Result:
    """The result of a kernel that the simulator refused."""
    found = replace(error.diagnosis, sites=tuple(map(in_words, error.diagnosis.sites)))
    rule = found.rule.id if found.rule else ""
    reason = f"{rule}: {found.headline}" if rule else found.headline
    return Result(exercise, "limit", reason, rule, rows, diagnosis=found, error=type(error).__name__, run=error.run)


def raised(exercise: str, error: BaseException, rows: tuple[tuple[str, tuple[str, ...]], ...]) -> Result:
    """The result of a kernel whose Python raised, at the last line that is the user's own."""
    reason = f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")
    site = _last_site(error.__traceback__)
    where = (("at", (site.place, *site.excerpt())),) if site is not None else ()
    return Result(exercise, "raised", reason, rows=(*where, *rows), error=type(error).__name__)


def _last_site(traceback: TracebackType | None) -> Site | None:
    found: Site | None = None
    while traceback is not None:
        code, module = traceback.tb_frame.f_code, str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("nki_sim", "nki_nb") and "site-packages" not in code.co_filename:
            found = Site(code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return None if found is None else in_words(found)
