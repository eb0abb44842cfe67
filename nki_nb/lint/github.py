"""Findings as workflow commands of GitHub Actions, which show them beside the lines of a change.

The format and its escaping: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nki_sim.verify import Finding

from nki_nb.lint.locations import locations
from nki_nb.lint.results import Lint
from nki_nb.lint.text import said, summary, where_it_holds

_MESSAGE = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY = (*_MESSAGE, (":", "%3A"), (",", "%2C"))


def as_github(lint: Lint, root: Path) -> str:
    """A command per finding, then the summary as plain lines."""
    return "\n".join([*(command(finding, lint, root) for finding in lint.findings), *summary(lint)])


def command(finding: Finding, lint: Lint, root: Path) -> str:
    """``::error file=…,line=…,col=…,title=…::message``."""
    title = finding.rule.id + where_it_holds(finding, lint)
    properties = [*_place(finding, root), ("title", title)]
    given = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties)
    return f"::{finding.level} {given}::{_escaped(_message(finding), _MESSAGE)}"


def _place(finding: Finding, root: Path) -> Iterator[tuple[str, str]]:
    places = locations(finding, root)
    if not places:
        return
    place = places[0]
    yield "file", place.file
    yield "line", str(place.line)
    yield "endLine", str(place.end_line)
    if place.column is not None and place.line == place.end_line:  # columns are of one line
        yield "col", str(place.column)
        if place.end_column is not None:
            yield "endColumn", str(place.end_column)


def _message(finding: Finding) -> str:
    rule, fix = finding.rule, finding.diagnosis.fix or finding.rule.fix
    lines = [said(finding), *finding.diagnosis.notes]
    lines += [f"{label}: {words}" for label, words in (("limit", rule.words), ("fix", fix), ("page", rule.page)) if words]
    return "\n".join(lines)


def _escaped(text: str, table: tuple[tuple[str, str], ...]) -> str:
    for char, code in table:
        text = text.replace(char, code)
    return text
