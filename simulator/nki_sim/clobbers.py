"""Explicit placements that share bytes: which bytes of a tensor were last written under the name of another one."""

from __future__ import annotations

from nki_sim.claims import Place
from nki_sim.memory import NONE, Allocation, Storage
from nki_sim.tensor import NkiTensor, span

MOST = 16
"""Places kept of one tensor's writes over another; further ones make the last of them larger."""


def place_of(tile: NkiTensor) -> Place:
    """The bytes that a view spans; of an irregular one more than it touches, never fewer."""
    first, start = tile.start_partition, tile.start_byte
    end = start + (span(tile.shape[1:], tile.strides[1:]) + 1) * tile.info.itemsize
    return Place(first, first + tile.shape[0], start, end)


def write(tile: NkiTensor) -> None:
    """Note that a view is written: what shares its bytes is clobbered there, and what clobbered it is written over."""
    storage, place = tile.storage, place_of(tile)
    for claim in storage.neighbours:
        other = claim.storage
        if other is not None and other.state != NONE and place.meets(claim.place):
            _clobber(other, storage.allocation, place)
    dense = tile.size * tile.info.itemsize == (place.partitions - place.partition) * (place.bytes - place.byte)
    if dense and storage.clobbers:
        storage.clobbers = [(by, where) for by, where in storage.clobbers if not place.covers(where)]


def _clobber(storage: Storage, by: Allocation, place: Place) -> None:
    known = [where for other, where in storage.clobbers if other is by]
    if any(where.covers(place) for where in known):
        return
    if len(known) >= MOST:
        storage.clobbers.remove((by, known[-1]))
        place = place.around(known[-1])
    storage.clobbers = [(other, where) for other, where in storage.clobbers if not place.covers(where)]
    storage.clobbers.append((by, place))


def read(tile: NkiTensor) -> list[Allocation]:
    """The tensors whose writes a read of a view finds; each is said once."""
    place = place_of(tile)
    hit = [(by, where) for by, where in tile.storage.clobbers if place.meets(where)]
    tile.storage.clobbers = [pair for pair in tile.storage.clobbers if pair not in hit]
    return list({id(by): by for by, _ in hit}.values())
