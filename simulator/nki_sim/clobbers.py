"""Explicit placements that share bytes: which bytes of a tensor were last written under the name of another one."""

from __future__ import annotations

from typing import NamedTuple

from nki_sim.memory import NONE, Allocation, Storage
from nki_sim.tensor import NkiTensor, span

MOST = 16
"""Places kept of one tensor's writes over another; further ones make the last of them larger."""


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


def place_of(tile: NkiTensor) -> Place:
    """The bytes that a view spans; of an irregular one more than it touches, never fewer."""
    first, start = tile.start_partition, tile.start_byte
    end = start + (span(tile.shape[1:], tile.strides[1:]) + 1) * tile.info.itemsize
    return Place(first, first + tile.shape[0], start, end)


def _whole(allocation: Allocation) -> Place:
    assert allocation.address is not None
    first, start = allocation.address
    return Place(first, first + allocation.partitions, start, start + allocation.row_bytes)


def write(tile: NkiTensor) -> None:
    """Note that a view is written: what shares its bytes is clobbered there, and what clobbered it is written over."""
    storage, place = tile.storage, place_of(tile)
    for other in storage.neighbours:
        if other.state != NONE and place.meets(_whole(other.allocation)):
            _clobber(other, storage, place)
    dense = tile.size * tile.info.itemsize == (place.partitions - place.partition) * (place.bytes - place.byte)
    if dense and storage.clobbers:
        storage.clobbers = [(by, where) for by, where in storage.clobbers if not place.covers(where)]


def _clobber(storage: Storage, by: Storage, place: Place) -> None:
    known = [where for other, where in storage.clobbers if other is by]
    if any(where.covers(place) for where in known):
        return
    if len(known) >= MOST:
        storage.clobbers.remove((by, known[-1]))
        place = place.around(known[-1])
    storage.clobbers.append((by, place))


def read(tile: NkiTensor) -> list[Storage]:
    """The tensors whose writes a read of a view finds; each is said once."""
    place = place_of(tile)
    hit = [(by, where) for by, where in tile.storage.clobbers if place.meets(where)]
    tile.storage.clobbers = [pair for pair in tile.storage.clobbers if pair not in hit]
    return list(dict.fromkeys(by for by, _ in hit))
