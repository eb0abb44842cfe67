"""What a run says: one set of rows, as text, HTML, SVG and plain data.

Nothing in it depends on the machine or the moment: the same run reads the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nki_sim.dtypes import lookup
from nki_sim.errors import Diagnosis
from nki_sim.placement import MemoryMap
from nki_sim.run import Run

from nki_nb.check import Comparison
from nki_nb.markup import escape
from nki_nb.sizes import human_bytes, kib, plural
from nki_nb.svg import INK, MUTED, Drawing

if TYPE_CHECKING:
    from nki_nb.stepper.widget import StepperWidget

LABEL_WIDTH = 12


@dataclass(eq=False, repr=False)
class Report(Run):
    """A finished run with the names of its outputs and what they were checked against; it reads as a report."""

    arrays: tuple[tuple[str, Any], ...] = ()
    """Every output array with its name."""
    checks: tuple[Comparison, ...] = ()

    @classmethod
    def of(cls, run: Run, names: Sequence[str] = (), checks: Sequence[Comparison] = ()) -> Report:
        """The report of a run.

        Args:
            run: the finished run.
            names: names of the outputs, where the caller gave them some.
            checks: one comparison per output, or none.
        """
        known = {f.name: getattr(run, f.name) for f in fields(Run)}
        return cls(**known, arrays=tuple(named_outputs(run, names)), checks=tuple(checks))

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)

    @property
    def header(self) -> str:
        """Kernel, target and logical cores."""
        note = "" if self.precise else " · low precision stored as fp32"
        return f"{self.name} · {self.core} · lnc {self.lnc}{note}"

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Label and lines of every row under the header."""
        return list(_rows(self))

    def __str__(self) -> str:
        out = [self.header]
        for label, lines in self.rows:
            out.append(f"  {label:<{LABEL_WIDTH}}{lines[0]}".rstrip())
            out += [f"  {'':<{LABEL_WIDTH}}{line}" for line in lines[1:]]
        return "\n".join(out)

    __repr__ = __str__

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return as_html(self)

    def svg(self) -> str:
        """The report as a picture."""
        return as_svg(self)

    def view(self, step: int | None = None) -> StepperWidget:
        """Step through the run, in a notebook.

        Args:
            step: where to open; at what was found wrong, or the first step, when not given.
        """
        from nki_nb.stepper.widget import StepperWidget

        return StepperWidget(self, step)

    def save_html(self, path: str | Path, budget: int = 20_000_000) -> Path:
        """Write one self-contained page on which the run can be stepped through: see :func:`nki_nb.save_html`."""
        from nki_nb import save_html

        return save_html(self, path, budget)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for ``--json``."""
        return as_dict(self)


def as_report(run: Run) -> Report:
    """The run as a report; one that is a report already keeps its names and checks."""
    return run if isinstance(run, Report) else Report.of(run)


def flat_outputs(result: Any, name: str = "result") -> Iterator[tuple[str, Any]]:
    """Every array that a kernel returned, with its name: ``result``, ``result[0]``, ``result['a']``…"""
    if isinstance(result, (tuple, list)):
        for i, item in enumerate(result):
            yield from flat_outputs(item, f"{name}[{i}]")
    elif isinstance(result, dict):
        for key, item in result.items():
            yield from flat_outputs(item, f"{name}[{key!r}]")
    elif result is not None:
        yield name, result


def named_outputs(run: Run, names: Sequence[str] = ()) -> list[tuple[str, Any]]:
    """The run's arrays under the caller's names, where there are as many, else under names of our own."""
    found = list(flat_outputs(run.result, names[0] if len(names) == 1 else "result"))
    return [(name, value) for name, (_, value) in zip(names, found, strict=True)] if len(names) == len(found) else found


# -- rows ------------------------------------------------------------------------------------------------------------


def _rows(report: Report) -> Iterator[tuple[str, list[str]]]:
    yield from _output_rows(report)
    yield "program", [_program_line(report)]
    yield "memory", list(_memory_lines(report))
    yield "dma", [f"{human_bytes(report.program.dma_bytes())} written by {_dma_count(report)}"]
    findings = [line for finding in report.findings for line in _finding_lines(finding)]
    yield "findings", findings or ["none"]


def _output_rows(report: Report) -> Iterator[tuple[str, list[str]]]:
    checks = {check.name: check for check in report.checks}
    for name, value in report.arrays:
        lines = [describe(value)]
        check = checks.pop(name, None)
        yield name, lines + (_check_lines(check) if check else [])
    for check in checks.values():
        yield check.name, _check_lines(check)
    if not report.arrays:
        written = ", ".join(written_inputs(report)) or "nothing"
        yield "result", [f"no output; wrote {written}"]


def _check_lines(check: Comparison) -> list[str]:
    verdict = f"check {check.expression}: {check.verdict}"
    if check.ok:
        return [f"{verdict}   {check.measures}"]
    return [line for line in (verdict, check.where, check.measures) if line]


def written_inputs(run: Run) -> list[str]:
    """Names of the arguments that the kernel wrote, in order."""
    operands = (operand for step in run.program for operand in step.writes())
    written = {o.allocation.id: o.allocation for o in operands if o.allocation and o.allocation.role == "input"}
    return [written[number].label for number in sorted(written)]


def _program_line(report: Report) -> str:
    counts = report.counts
    each = " · ".join(f"{name} {n}" for name, n in list(counts.items())[:8])
    more = f" · {len(counts) - 8} more kinds" if len(counts) > 8 else ""
    return f"{plural(len(report.program), 'instruction')}: {each}{more}".removesuffix(": ")


def _memory_lines(report: Report) -> Iterator[str]:
    several = len(report.memories) > 1
    for name, memory in zip(report.names, report.memories or (report.memory,), strict=True):
        yield f"{name}: {_memory_line(report, memory)}" if several else _memory_line(report, memory)


def _memory_line(report: Report, memory: MemoryMap) -> str:
    sbuf = memory.sbuf
    line = f", line {sbuf.peak_line}" if sbuf.peak_line else ""
    doubt = "; limit unverified" if "sbuf_usable_bytes" in report.core.unverified else ""
    used = f"SBUF {kib(sbuf.peak)} of {kib(sbuf.limit)} KiB per partition (peak{line}{doubt})"
    return f"{used} · PSUM {memory.peak_banks} of {memory.banks} banks"


def _dma_count(report: Report) -> str:
    return plural(report.program.engines().get("dma", 0), "transfer")


def _finding_lines(finding: Diagnosis) -> Iterator[str]:
    subject = f"{finding.instruction}: " if finding.instruction else ""
    line = f" (line {finding.line})" if finding.line else ""
    yield f"{subject}{finding.headline}{line}"
    fix = finding.fix or (finding.rule.fix if finding.rule else "")
    if fix:
        yield f"  fix: {fix}"
    if finding.rule:
        yield f"  %nki help {finding.rule.id}"


def describe(value: Any) -> str:
    """Data type and shape of an array, as ``float32 [200 × 700]``."""
    return f"{lookup(value.dtype).name} [{' × '.join(map(str, value.shape))}]"


# -- the same rows as HTML, SVG and data -----------------------------------------------------------------------------

TABLE_STYLE = "border-collapse:collapse;font-size:13px;line-height:1.45;margin:4px 0"
CELL_STYLE = "text-align:left;vertical-align:top;padding:1px 14px 1px 0;border:none;background:none"
MONO_STYLE = "font-family:monospace;white-space:pre-wrap"


def as_html(report: Report) -> str:
    """The report as an HTML table that takes its colours from the page around it."""
    name, _, rest = report.header.partition(" · ")
    head = f'<tr style="background:none"><td colspan="2" style="{CELL_STYLE}"><b>{escape(name)}</b> · {escape(rest)}</td></tr>'
    body = "".join(_html_row(label, lines) for label, lines in report.rows)
    return f'<table style="{TABLE_STYLE}"><tbody>{head}{body}</tbody></table>'


def _html_row(label: str, lines: list[str]) -> str:
    words = "<br>".join(_html_line(line) for line in lines)
    return (
        f'<tr style="background:none"><td style="{CELL_STYLE};opacity:.65">{escape(label)}</td>'
        f'<td style="{CELL_STYLE};{MONO_STYLE}">{words}</td></tr>'
    )


def _html_line(line: str) -> str:
    text = escape(line)
    return f"<b>{text}</b>" if ": WRONG" in line else text


def as_svg(report: Report) -> str:
    """The report as a picture with its own light ground."""
    rows = [(label if i == 0 else "", line) for label, lines in report.rows for i, line in enumerate(lines)]
    longest = max([len(report.header), *(len(line) + LABEL_WIDTH for _, line in rows)])
    drawing = Drawing(max(480, 40 + round(longest * 7.3)), 52 + 18 * len(rows), f"report of {report.name}")
    drawing.text(16, 26, report.header, size=13, weight="bold")
    for i, (label, line) in enumerate(rows):
        y = 50 + 18 * i
        drawing.text(16, y, label, size=12, fill=MUTED, mono=True)
        drawing.text(16 + LABEL_WIDTH * 7.3, y, line, size=12, fill=INK, mono=True)
    return drawing.render()


def as_dict(report: Report) -> dict[str, Any]:
    """The report as plain data."""
    checks = {check.name: check.as_dict() for check in report.checks}
    sbuf, psum = report.memory.sbuf, report.memory.psum
    return {
        "kernel": report.name,
        "target": report.core.target,
        "core": report.core.name,
        "lnc": report.lnc,
        "precise": report.precise,
        "outputs": [
            {
                "name": name,
                "dtype": lookup(value.dtype).name,
                "shape": [int(n) for n in value.shape],
                "check": checks.get(name),
            }
            for name, value in report.arrays
        ],
        "program": {
            "instructions": len(report.program),
            "by_name": report.counts,
            "by_engine": report.program.engines(),
            "dma_bytes": report.program.dma_bytes(),
            "flops": report.program.flops(),
        },
        "memory": {
            "sbuf_peak_bytes": sbuf.peak,
            "sbuf_limit_bytes": sbuf.limit,
            "sbuf_peak_line": sbuf.peak_line,
            "psum_peak_bytes": psum.peak,
            "psum_peak_banks": report.memory.peak_banks,
            "psum_banks": report.memory.banks,
            "unverified": sorted(report.core.unverified),
        },
        "findings": [finding.as_dict() for finding in report.findings],
    }
