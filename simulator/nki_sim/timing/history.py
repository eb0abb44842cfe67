"""Dependencies access by access, for what cells do not fit: placements that share bytes, and boxes that cut very finely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from nki_sim.memory import Allocation
from nki_sim.regions import Box, Boxes, box_of
from nki_sim.timing.cells import ANTI, OUTPUT, TRUE, Edges
from nki_sim.timing.touched import Touched

Found = dict[int, int]
"""The steps that one must wait for, and the strongest reason."""


class _Accesses:
    """The accesses to one allocation that a later one may have to wait for."""

    __slots__ = ("all_reads", "all_writes", "reads", "writes")

    def __init__(self) -> None:
        self.all_writes = -1
        """The last step that wrote all of it."""
        self.all_reads: list[int] = []
        self.writes: Boxes | None = None
        """Steps that wrote a part of it since; ``reads``: that read a part of it."""
        self.reads: Boxes | None = None

    def read(self, box: Box | None, step: int, found: Found) -> None:
        if self.all_writes >= 0:
            found[self.all_writes] = TRUE
        if self.writes:
            self.writes.find(box, found, TRUE)
        if box is None:
            self.all_reads.append(step)
            return
        if self.reads is None:
            self.reads = Boxes()
        self.reads.add(box, step)

    def write(self, box: Box | None, step: int, found: Found) -> None:
        for reader in self.all_reads:
            found.setdefault(reader, ANTI)
        if self.reads:
            self.reads.find(box, found, ANTI)
        if self.all_writes >= 0 and found.get(self.all_writes, ANTI) < OUTPUT:
            found[self.all_writes] = OUTPUT
        if self.writes:
            self.writes.find(box, found, OUTPUT)
        if box is None:  # whoever waits for this step waits for all of them
            self.all_writes, self.all_reads = step, []
            self.writes = self.reads = None
            return
        if self.writes is None:
            self.writes = Boxes()
        self.writes.cover(box)
        self.writes.add(box, step)
        if self.reads:
            self.reads.cover(box)

    def pending(self, found: Found, kind: int, reads: bool = True) -> None:
        """Add the steps that write its bytes, and that read them."""
        if self.all_writes >= 0 and found.get(self.all_writes, -1) < kind:
            found[self.all_writes] = kind
        if self.writes:
            self.writes.find(None, found, kind)
        for reader in self.all_reads if reads else ():
            found.setdefault(reader, ANTI)
        if reads and self.reads:
            self.reads.find(None, found, ANTI)


class History:
    """Who touched what, per allocation, and who waits for whom because of it."""

    def __init__(self, accesses: Touched, allocations: list[Allocation], shared: Mapping[int, tuple[int, ...]]):
        self._of: dict[int, _Accesses] = {}
        self._shared = shared
        self._allocations = allocations
        self._edges: list[tuple[int, int, int]] = []
        self._boxes: dict[tuple[int, int, int], Box] = {}
        rows = zip(*(column.tolist() for column in (accesses.step, accesses.allocation, accesses.offset, accesses.slot,
                                                    accesses.writes, accesses.whole)), strict=True)  # fmt: skip
        for step, allocation, offset, slot, writes, whole in rows:
            box = None if whole else self._box(accesses, allocation, slot, offset)
            self._access(step, allocation, box, writes)

    def _access(self, step: int, allocation: int, box: Box | None, writes: bool) -> None:
        found: Found = {}
        mine = self._of.get(allocation)
        if mine is None:
            mine = self._of[allocation] = _Accesses()
        (mine.write if writes else mine.read)(box, step, found)
        for other in self._shared.get(allocation, ()):
            if other in self._of:
                self._of[other].pending(found, OUTPUT if writes else TRUE, reads=writes)
        self._keep(step, found)

    def _keep(self, step: int, found: Found) -> None:
        self._edges.extend((step, producer, kind) for producer, kind in found.items() if producer != step)

    def _box(self, accesses: Touched, allocation: int, slot: int, offset: int) -> Box:
        key = (allocation, slot, offset)
        box = self._boxes.get(key)
        if box is None:
            box = self._boxes[key] = box_of(self._allocations[allocation], accesses.slots[slot], offset)
        return box

    def edges(self, leaving: Iterable[tuple[int, int]]) -> Edges:
        """Who waits for whom; and the steps that wait for the end of an allocation's use."""
        for step, allocation in leaving:
            if allocation in self._of:
                found: Found = {}
                self._of[allocation].pending(found, ANTI)
                self._keep(step, found)
        columns = np.array(self._edges, np.int64).reshape(-1, 3).T
        return Edges(*columns)
