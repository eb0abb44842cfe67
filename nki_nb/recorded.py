"""The instructions of a profile one by one, with what exports say of each: texts, places, bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from nki_sim.program import Plan, Step
from nki_sim.run import Run
from nki_sim.source import CELL_PREFIX, Site
from nki_sim.timing import Profile

Bytes = dict[str, int]
"""Bytes by memory and access: ``hbm_read_bytes`` … ``psum_write_bytes``."""

NO_BYTES: Bytes = {f"{memory}_{access}_bytes": 0 for memory in ("hbm", "sbuf", "psum") for access in ("read", "write")}

SHORT = 64.0
"""Cycles that every instruction takes at least."""


def as_profile(run: Run | Profile) -> Profile:
    """A profile itself; of a run its profile, in the order that a compiler may choose.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(run, Profile):
        return run
    if isinstance(run, Run):
        return run.profile()
    raise TypeError(f"a run or a profile is needed, not {type(run).__name__}")


def source_location(site: Site | None) -> str:
    """``file.py:42``, without the folder: the same on every machine. Empty where it is not known."""
    if site is None:
        return ""
    name = site.filename
    where = "%%nki cell" if name.startswith(CELL_PREFIX) else name if name.startswith("<") else Path(name).name
    return f"{where}:{site.line}"


@dataclass
class Recorded:
    """A profile's instructions, decoded when they are asked for; what plans and lines share is found once."""

    profile: Profile
    _bytes: dict[int, Bytes] = field(default_factory=dict)
    _places: dict[int, str] = field(default_factory=dict)

    def step(self, index: int) -> Step:
        return self.profile.program[index]

    def bytes(self, step: Step) -> Bytes:
        """The bytes that an instruction reads and writes in each memory."""
        number = self.profile.program.plan_number(step.index)
        if number not in self._bytes:
            self._bytes[number] = _bytes_of(step)
        return self._bytes[number]

    def place(self, step: Step) -> str:
        """Where in the source it is: see :func:`source_location`."""
        number = self.profile.program.site_number(step.index)
        if number not in self._places:
            self._places[number] = source_location(step.site)
        return self._places[number]


def _bytes_of(step: Step) -> Bytes:
    found = dict(NO_BYTES)
    for operands, access in ((step.reads(), "read"), (step.writes(), "write")):
        for operand in operands:
            if operand.allocation is not None:
                region = operand.allocation.region
                found[f"{region.value if region.on_chip else 'hbm'}_{access}_bytes"] += operand.bytes
    return found


def performance_mode(plan: Plan) -> str | None:
    """``2x`` or ``4x`` where an instruction of the Vector Engine takes so many elements per cycle, as far as its cycles
    tell: of short instructions they do not."""
    if plan.engine != "vector" or plan.cost.cycles <= SHORT:
        return None
    longest = max((math.prod(slot.shape[1:]) for slot in plan.slots), default=0)
    return {4: "4x", 2: "2x"}.get(round(longest / plan.cost.cycles))
