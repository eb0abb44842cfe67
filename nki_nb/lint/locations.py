"""Where a finding is, as CI systems want it: a file below the root, lines and columns that count from 1."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nki_sim.source import Site
from nki_sim.verify import Finding


@dataclass(frozen=True)
class Location:
    """A place in a file. Columns are of characters, the last one exclusive; ``None`` where they are not known."""

    path: Path
    inside: bool
    """Whether ``path`` is relative, to the root."""
    line: int
    end_line: int
    column: int | None = None
    end_column: int | None = None
    function: str = ""

    @property
    def file(self) -> str:
        return self.path.as_posix()


def location(site: Site, root: Path) -> Location:
    """Where a site is, seen from a folder."""
    path = Path(site.filename)
    inside = path.is_relative_to(root)
    first, last, start, end = site.span
    return Location(
        path.relative_to(root) if inside else path,
        inside,
        first,
        max(first, last),
        _column(site.filename, first, start),
        _column(site.filename, max(first, last), end),
        site.function,
    )


def locations(finding: Finding, root: Path) -> list[Location]:
    """The places of a finding: first the innermost that is below the root, then the others, innermost first."""
    found = [location(site, root) for site in _files(finding)]
    return sorted(found, key=lambda place: not place.inside)


def _files(finding: Finding) -> Iterator[Site]:
    return (site for site in finding.diagnosis.sites if not site.filename.startswith("<"))


def _column(filename: str, line: int, offset: int) -> int | None:
    """The column of a byte offset in a line."""
    if offset < 0:
        return None
    text = linecache.getline(filename, line).encode()
    return len(text[:offset].decode(errors="replace")) + 1
