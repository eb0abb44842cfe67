"""Findings as text, and a table of what holds on which generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from nki_sim.source import Site
from nki_sim.verify import Finding, Outcome

from nki_nb.lint.locations import location
from nki_nb.lint.results import Lint
from nki_nb.sizes import kib, plural


def as_text(lint: Lint, root: Path | None = None) -> str:
    """The whole report, the same on every machine: files by their path below ``root``, else by their name."""
    return "\n".join([*(line for finding in lint.findings for line in _finding(finding, lint, root)), *summary(lint)])


def summary(lint: Lint) -> list[str]:
    """The table, where kernels were traced, and the count."""
    counts = f"{plural(lint.errors, 'error')}, {plural(lint.warnings, 'warning')}"
    if lint.verification is None:
        what = ", ".join(lint.kernels) or "no kernel: mark one with @nki.jit"
        return [f"{lint.subject}: {what} · {counts}"]
    return [f"{lint.subject} · {counts}", *_table(lint)]


def said(finding: Finding) -> str:
    """Instruction and headline."""
    subject = finding.diagnosis.instruction
    return f"{subject}: {finding.diagnosis.headline}" if subject else finding.diagnosis.headline


def where_it_holds(finding: Finding, lint: Lint) -> str:
    """The generations of a finding, where they are not all that were looked at; as `` (trn1)``."""
    return f" ({', '.join(finding.targets)})" if finding.targets and finding.targets != lint.targets else ""


def _finding(finding: Finding, lint: Lint, root: Path | None) -> Iterator[str]:
    diagnosis = finding.diagnosis
    site = diagnosis.site
    place = f"{_place(site, root)}: " if site else ""
    yield f"{place}{finding.level}: {said(finding)} [{finding.rule.id}]{where_it_holds(finding, lint)}"
    yield from site.excerpt(before=0, argument=diagnosis.operand or None) if site else ()
    yield from (f"    called from {outer.place}" for outer in diagnosis.sites[1:3])
    yield from (f"    {note}" for note in diagnosis.notes)
    fix = diagnosis.fix or finding.rule.fix
    if fix:
        yield f"    fix: {fix}"


def _place(site: Site, root: Path | None) -> str:
    where = location(site, root or Path(site.filename).parent)
    name = site.place.partition(",")[0] if site.filename.startswith("<") else where.file if where.inside else where.path.name
    return f"{name}:{where.line}" + (f":{where.column}" if where.column else "")


# -- the table -------------------------------------------------------------------------------------------------------------


def _table(lint: Lint) -> list[str]:
    assert lint.verification is not None
    outcomes = lint.verification.outcomes
    rows = [("", [outcome.target for outcome in outcomes])]
    cells: tuple[tuple[str, Callable[[Outcome], str]], ...] = (
        ("kernel", lambda outcome: "holds" if outcome.ok else "refused"),
        ("SBUF per partition", _sbuf),
        ("PSUM", _psum),
    )
    rows += [(label, [cell(outcome) for outcome in outcomes]) for label, cell in cells]
    for rule in dict.fromkeys(finding.rule.id for finding in lint.findings):
        rows.append((rule, [_verdict(rule, outcome, lint) for outcome in outcomes]))
    widths = [max(len(row[0]) for row in rows), *(max(len(row[1][i]) for row in rows) for i in range(len(outcomes)))]
    return ["  " + "  ".join(f"{c:<{w}}" for c, w in zip((label, *row), widths, strict=True)).rstrip() for label, row in rows]


def _verdict(rule: str, outcome: Outcome, lint: Lint) -> str:
    """Of a rule that is broken somewhere: what it is here; a trace that was refused says nothing of the others."""
    levels = [f.level for f in lint.findings if f.rule.id == rule and (not f.targets or outcome.target in f.targets)]
    if levels:
        return min(levels)
    return "ok" if outcome.ok else "?"


def _sbuf(outcome: Outcome) -> str:
    if outcome.run is None:
        return "-"
    return f"{_at_least(outcome)}{kib(outcome.run.memory.sbuf.peak)} of {kib(outcome.run.memory.sbuf.limit)} KiB"


def _psum(outcome: Outcome) -> str:
    if outcome.run is None:
        return "-"
    return f"{_at_least(outcome)}{outcome.run.memory.peak_banks} of {outcome.run.memory.banks} banks"


def _at_least(outcome: Outcome) -> str:
    """What a kernel needs that was refused is known up to there."""
    return "" if outcome.ok else "≥ "
