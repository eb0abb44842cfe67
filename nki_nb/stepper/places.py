"""Where in the user's source each step came from."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
from nki_sim.program import Program
from nki_sim.source import CELL_PREFIX


class Places:
    """The call sites of a program as plain data.

    Attributes:
        site: per step an index into ``sites``; -1 where there is none.
        sites: first and last line of the statement, the file it is in, and the place in words.
        files: name and lines of each source file, without this machine's folders.
        lines: per step the line number, 0 where there is none.
    """

    def __init__(self, program: Program):
        names: list[str] = []
        self.sites: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = []
        numbers: dict[int, int] = {}
        self.site = np.full(len(program), -1, np.int32)
        for step in range(len(program)):
            site = program.site_at(step)
            if site is None:
                continue
            number = numbers.get(id(site))
            if number is None:
                if site.filename not in names:
                    names.append(site.filename)
                    self.files.append({"name": site.place.partition(",")[0], "lines": source_lines(site.filename)})
                number = numbers[id(site)] = len(self.sites)
                first, last, *_ = site.span
                place = {"line": first, "last": max(first, last), "file": names.index(site.filename), "place": site.place}
                self.sites.append(place)
            self.site[step] = number
        by_site = np.array([*(s["line"] for s in self.sites), 0], np.int32)
        self.lines = by_site[self.site]


def source_lines(filename: str) -> list[str]:
    """The lines of a source file, those of a cell as the notebook shows them."""
    lines = [text.rstrip("\n") for text in linecache.getlines(filename)]
    if lines and filename.startswith(CELL_PREFIX):
        lines[0] = lines[0].removeprefix("# ")
    return lines
