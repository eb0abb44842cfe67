"""Which tensors each step touches, and into which tiles a program cuts the tensors in HBM."""

from __future__ import annotations

from typing import Any

import numpy as np
from nki_sim.program import Program
from nki_sim.regions import box_of

MOST_CUTS = 256
"""Grid lines per dimension of a tensor; a finer grid is not drawn."""


class Touches:
    """The accesses of a program as plain data.

    Attributes:
        flat: step after step, twice the allocation's number, plus one when it is written; as many to a step as its plan
            has tensors.
    """

    def __init__(self, program: Program):
        self._program = program
        self._hbm: dict[int, set[tuple[int, int, int]]] = {a.id: set() for a in program.allocations if not a.region.on_chip}
        written = [frozenset(plan.writes) for plan in program.plans]
        flat = []
        for step in range(len(program)):
            plan = program.plan_number(step)
            for slot, (allocation, offset) in enumerate(program.raw(step)):
                if allocation < 0:
                    continue
                flat.append(2 * allocation + (slot in written[plan]))
                if allocation in self._hbm:
                    self._hbm[allocation].add((plan, slot, offset))
        self.flat = np.array(flat, np.int32)

    def grids(self) -> dict[str, Any]:
        """Per tensor in HBM and dimension, the indices at which a tile of it begins."""
        found = {}
        for number, accesses in self._hbm.items():
            allocation = self._program.allocations[number]
            cuts: list[set[int]] = [set() for _ in allocation.shape]
            for plan, slot, offset in accesses:
                box = box_of(allocation, self._program.plans[plan].slots[slot], offset)
                for cut, low, high in zip(cuts, box.first, box.last, strict=True):
                    cut.update((low, high + 1))
            inner = [sorted(c - {0, n}) for c, n in zip(cuts, allocation.shape, strict=True)]
            found[str(number)] = [c if len(c) <= MOST_CUTS else [] for c in inner]
        return found
