"""Bytes per partition that SBUF and PSUM hold, step by step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nki_sim.memory import Allocation, MemoryRegion
from nki_sim.placement import covered
from nki_sim.program import Program
from nki_sim.timing import Timeline

Counts = npt.NDArray[np.int64]


def bytes_alive(program: Program, region: MemoryRegion) -> Counts:
    """The bytes alive at each step: a tile from its allocation to its last use, one with an address at all steps."""
    steps = len(program)
    change = np.zeros(steps + 1, np.int64)
    fixed: list[Allocation] = []
    for tile in program.allocations:
        if tile.region is not region:
            continue
        if tile.address is not None:
            fixed.append(tile)
        elif tile.last >= tile.born:
            change[tile.born] += tile.row_bytes
            change[min(tile.last + 1, steps)] -= tile.row_bytes
    found: Counts = np.cumsum(change[:-1]) + covered(fixed)
    return found


def over_time(alive: Counts, line: Timeline) -> tuple[npt.NDArray[np.float64], Counts]:
    """Times at which the bytes change, and the bytes from then on.

    A step counts from when it and all before it have started. Of steps that start together the largest count stands, so that
    the highest value is the peak of the run.
    """
    if not len(alive):
        return np.zeros(0), np.zeros(0, np.int64)
    started = np.maximum.accumulate(line.start)
    firsts = np.flatnonzero(np.diff(started, prepend=-1.0))
    most: Counts = np.maximum.reduceat(alive, firsts)
    changed = np.flatnonzero(np.diff(most, prepend=-1))
    return started[firsts][changed], most[changed]
