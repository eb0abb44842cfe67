"""Explicit placements: which bytes tensors claim by ``address=``, and which of them share bytes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nki_sim.memory import Allocation, Storage


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


class Claim:
    """The place of one tensor.

    Attributes:
        gone: who wrote there and cannot be read any more: the tensor itself, or an earlier one of the same place.
    """

    __slots__ = ("_storage", "gone", "place")

    def __init__(self, place: Place, storage: Storage):
        self.place = place
        self.gone: Allocation | None = None
        self._storage = weakref.ref(storage)

    @property
    def storage(self) -> Storage | None:
        """The tensor's; ``None`` when the kernel has let go of it, which then nobody can read."""
        return self._storage()

    @property
    def writer(self) -> Allocation | None:
        """Who wrote there."""
        storage = self._storage()
        return storage.allocation if storage is not None and storage.is_written else self.gone


class Claims:
    """Those of one memory. A loop claims the same place again and again: of what is gone, one claim a place is kept."""

    def __init__(self) -> None:
        self._all: list[Claim] = []

    def add(self, place: Place, storage: Storage) -> bool:
        """Note a tensor's place; whether it shares bytes with one before it."""
        claim = storage.claim = Claim(place, storage)
        near = [other for other in self._all if other.place.meets(place)]
        over = [other for other in near if other.place == place and other.storage is None]
        if over:
            claim.gone = next((other.gone for other in reversed(over) if other.gone is not None), None)
            self._all = [other for other in self._all if other not in over]
        storage.neighbours = [other for other in near if other not in over]
        for other in storage.neighbours:
            its = other.storage
            if its is not None:
                its.neighbours = [*(n for n in its.neighbours if n not in over), claim]
        self._all.append(claim)
        return bool(near)


__all__ = ["Claim", "Claims", "Place"]
