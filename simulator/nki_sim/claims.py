"""Explicit placements: which bytes tensors claim by ``address=``, and which of them share bytes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nki_sim.memory import Allocation


class Place(NamedTuple):
    """Bytes in some partitions: first and end of each, the ends not included."""

    partition: int
    partitions: int
    byte: int
    bytes: int

    def meets(self, other: Place) -> bool:
        """Whether two places share a byte."""
        return (self.partition < other.partitions and other.partition < self.partitions
                and self.byte < other.bytes and other.byte < self.bytes)  # fmt: skip

    def covers(self, other: Place) -> bool:
        """Whether the other place lies inside this one."""
        return (self.partition <= other.partition and other.partitions <= self.partitions
                and self.byte <= other.byte and other.bytes <= self.bytes)  # fmt: skip

    def around(self, other: Place) -> Place:
        """The smallest place that holds both."""
        return Place(min(self.partition, other.partition), max(self.partitions, other.partitions),
                     min(self.byte, other.byte), max(self.bytes, other.bytes))  # fmt: skip

    def without(self, other: Place) -> list[Place]:
        """What another place that meets this one leaves of it: at most four."""
        first, last = max(self.partition, other.partition), min(self.partitions, other.partitions)
        sides = [Place(first, last, self.byte, other.byte)] if self.byte < other.byte else []
        if other.bytes < self.bytes:
            sides.append(Place(first, last, other.bytes, self.bytes))
        if self.partition < first:
            sides.append(Place(self.partition, first, self.byte, self.bytes))
        if last < self.partitions:
            sides.append(Place(last, self.partitions, self.byte, self.bytes))
        return sides


class Write(NamedTuple):
    """Bytes that were written under a tensor's name, and when: a number that grows."""

    by: Allocation
    place: Place
    time: int

    def without(self, place: Place) -> list[Write]:
        """What is left of it when a place that meets it is written over."""
        return [Write(self.by, left, self.time) for left in self.place.without(place)]


class Patch:
    """Bytes that tensors are placed at, one after the other or at once.

    Attributes:
        near: the patches that share bytes with it, itself too.
        shared: whether more than one tensor was placed on any of these bytes.
        writes: under the names of its tensors, since somebody last wrote over them.
        by, since: who wrote last in any of ``near``, and since when nobody else has.
    """

    __slots__ = ("by", "near", "place", "shared", "since", "writes")

    def __init__(self, place: Place):
        self.place = place
        self.near = [self]
        self.shared = False
        self.writes: list[Write] = []
        self.by: Allocation | None = None
        self.since = 0

    def share(self) -> None:
        """Another tensor is placed on some of its bytes: from now on it matters which of them are written."""
        if not self.shared and self.by is not None:
            self.writes.append(Write(self.by, self.place, self.since))
        self.shared = True


class Claim:
    """What one tensor needs to know of its place.

    Attributes:
        since: when it was first written; 0 before.
        under: what others wrote there, and it has since written over with gaps.
        told: times of writes of others that were reported.
    """

    __slots__ = ("patch", "since", "told", "under")

    def __init__(self, patch: Patch):
        self.patch = patch
        self.since = 0
        self.under: list[Write] = []
        self.told: set[int] = set()

    @property
    def disturbed(self) -> bool:
        """Whether somebody else may have written there since the tensor was first written."""
        return 0 < self.since < self.patch.since


CHUNK = 2048
"""Bytes of a partition whose patches are looked at together."""


class Claims:
    """The patches of one memory. A kernel has few, however often its loops place tensors there."""

    def __init__(self) -> None:
        self._patches: dict[Place, Patch] = {}
        self._chunks: defaultdict[int, list[Patch]] = defaultdict(list)

    def add(self, place: Place) -> Claim:
        """That of one more tensor."""
        patch = self._patches.get(place)
        if patch is not None:
            patch.share()
            return Claim(patch)
        patch = self._patches[place] = Patch(place)
        chunks = [self._chunks[n] for n in range(place.byte // CHUNK, (place.bytes - 1) // CHUNK + 1)]
        for other in {id(other): other for chunk in chunks for other in chunk if other.place.meets(place)}.values():
            other.share()
            patch.share()
            other.near.append(patch)
            patch.near.append(other)
        for chunk in chunks:
            chunk.append(patch)
        return Claim(patch)


__all__ = ["Claim", "Claims", "Patch", "Place", "Write"]
