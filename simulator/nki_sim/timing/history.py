"""Dependencies access by access, for what cells do not fit: placements that share bytes, and boxes that cut very finely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from nki_sim.claims import Patch
from nki_sim.memory import Allocation
from nki_sim.regions import Box, Boxes, box_of
from nki_sim.timing.cells import ANTI, OUTPUT, TRUE, Edges
from nki_sim.timing.touched import Touched

Found = dict[int, int]
"""The steps that one must wait for, and the strongest reason."""


class _Accesses:
    """The accesses to one allocation that a later one may have to wait for."""

    __slots__ = ("all_reads", "all_writes", "before", "reads", "writes")

    def __init__(self) -> None:
        self.all_writes = -1
        """The last step that wrote all of it."""
        self.all_reads: list[int] = []
        self.writes: Boxes | None = None
        """Steps that wrote a part of it since; ``reads``: that read a part of it."""
        self.reads: Boxes | None = None
        self.before: tuple[list[int], list[int]] = ([], [])
        """Steps that wrote, and that read, what had its bytes before: who waits for its writes waits for them."""

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
            self.before = [], []
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

    def follow(self, other: _Accesses) -> None:
        """What was at its bytes before is not looked at any more: only by who touches this one."""
        found: Found = {}
        other.pending(found, OUTPUT)
        for step, kind in found.items():
            self.before[kind != OUTPUT].append(step)

    def wait_for_before(self, found: Found, writes: bool) -> None:
        """Add the steps of what was at its bytes before."""
        writers, readers = self.before
        kind = OUTPUT if writes else TRUE
        for step in writers:
            if found.get(step, -1) < kind:
                found[step] = kind
        for step in readers if writes else ():
            found.setdefault(step, ANTI)


class History:
    """Who touched what, per allocation, and who waits for whom because of it."""

    def __init__(self, accesses: Touched, allocations: list[Allocation], shared: Mapping[int, Patch]):
        self._of: dict[int, _Accesses] = {}
        self._shared = shared
        self._at: defaultdict[Patch, dict[int, _Accesses]] = defaultdict(dict)
        """Per patch, which is of one memory, the tensors there whose accesses others may have to wait for."""
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
        mine.wait_for_before(found, writes)
        (mine.write if writes else mine.read)(box, step, found)
        patch = self._shared.get(allocation)
        if patch is not None:
            self._wait_for_others(allocation, patch, found, writes, all_of_it=box is None)
        self._keep(step, found)

    def _wait_for_others(self, allocation: int, patch: Patch, found: Found, writes: bool, all_of_it: bool) -> None:
        mine = self._of[allocation]
        for near in patch.near:
            there = self._at[near]
            others = [other for other in there if other != allocation]
            for other in others:
                there[other].pending(found, OUTPUT if writes else TRUE, reads=writes)
            if writes and others and patch.place.covers(near.place):
                for other in others:  # whoever comes to these bytes comes to this one's, and waits for this write
                    gone = there.pop(other)
                    if not all_of_it:
                        mine.follow(gone)
        self._at[patch][allocation] = mine

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
