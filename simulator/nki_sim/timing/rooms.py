"""SBUF and PSUM as rooms: a tile without an address comes in when those that died before it leave enough bytes.

Which bytes it gets is the compiler's choice; that there must be enough is not. The tiles that die first leave first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from operator import attrgetter

from nki_sim.hw import NeuronCore
from nki_sim.memory import Allocation, MemoryRegion

NUMBER = 32


def leaving(allocations: Iterable[Allocation], core: NeuronCore, steps: int) -> tuple[list[int], list[int]]:
    """Steps whose tiles find no room, and the allocations that must leave before each."""
    tiles = [a for a in allocations if a.region.on_chip and a.last >= a.born]
    bank = core.psum_bank_bytes
    usable = {MemoryRegion.sbuf: core.sbuf_usable_bytes, MemoryRegion.psum: core.psum_usable_bytes}
    rooms: dict[tuple[int, MemoryRegion], _Room] = {}
    entering: list[int] = []
    gone: list[int] = []
    sizes: dict[int, int] = {}
    """What the tiles inside take; a dictionary of numbers, like the heaps, is nothing that the garbage collector walks."""
    for tile in tiles:
        if (room := rooms.get((tile.core, tile.region))) is None:
            room = rooms[tile.core, tile.region] = _Room(usable[tile.region])
        if tile.address is not None:
            room.free -= tile.row_bytes
    for tile in sorted((a for a in tiles if a.address is None), key=attrgetter("born")):
        born, size = tile.born, tile.row_bytes
        if born >= steps:
            break
        if size > bank and tile.region is MemoryRegion.psum:
            size = -(-size // bank) * bank
        room = rooms[tile.core, tile.region]
        inside, free = room.inside, room.free
        while free < size and inside and inside[0] >> NUMBER < born:
            number = heapq.heappop(inside) & (1 << NUMBER) - 1
            free += sizes[number]
            entering.append(born)
            gone.append(number)
        room.free = free - size
        heapq.heappush(inside, tile.last << NUMBER | tile.id)
        sizes[tile.id] = size
    return entering, gone


class _Room:
    """Free bytes per partition, and the tiles inside: last use, shifted by ``NUMBER`` bits, and number."""

    __slots__ = ("free", "inside")

    def __init__(self, free: int):
        self.free = free
        self.inside: list[int] = []
