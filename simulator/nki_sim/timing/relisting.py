"""Another order of a program, in which tiles fit that do not fit as it is written.

A device's compiler schedules instructions before it places tiles. Where the next step needs a tile for which there is no room,
what ends the use of another one is taken before it, with all that this depends on, if it does not depend on the step itself.
Where that is not enough, tiles are filled only when somebody needs them.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nki_sim.hw import NeuronCore
from nki_sim.memory import MemoryRegion
from nki_sim.placement import Room, free_bytes
from nki_sim.program import Ints, Program
from nki_sim.timing.dependencies import Dependencies

FAR = 4096
"""Steps that are taken before another one, at most, to make room for it."""
EFFORT = 1_000_000
"""Steps that are looked at, after which the search is given up."""

ON_CHIP = (MemoryRegion.sbuf, MemoryRegion.psum)


@dataclass(frozen=True)
class Relisting:
    """An order in which all tiles fit.

    Attributes:
        order: the steps, in that order.
        moved: the first step that is taken earlier than the program has it, and the one it now comes before.
    """

    order: Ints
    moved: tuple[int, int]


def relist(
    program: Program, core: NeuronCore, known: Dependencies, regions: Sequence[MemoryRegion] = ON_CHIP
) -> Relisting | None:
    """An order of a program in which its tiles fit, if one is found.

    Args:
        known: its dependencies, without those of tiles that wait for room.
        regions: the memories in which they must fit.
    """
    for steps in (range(len(program)), _late_fills(program, known)):
        listing = _Listing(program, core, known, regions)
        if listing.run(steps):
            order = np.array(listing.order, np.int64)
            at = np.flatnonzero(order != np.arange(len(order)))
            return Relisting(order, (int(order[at[0]]), int(at[0]))) if len(at) else None
    return None


def _late_fills(program: Program, known: Dependencies) -> list[int]:
    """Steps in program order, but those that fill tiles from outside the chip right before the first one that needs them."""
    plans = program.plan_numbers().tolist()
    fills = [not any(plan.slots[place].on_chip for place in (*plan.reads, *plan.updates)) for plan in program.plans]
    order: list[int] = []
    late: set[int] = set()
    for step in range(len(plans)):
        if fills[plans[step]]:
            late.add(step)
            continue
        open_, needed = [step], set[int]()
        while open_:
            for producer in known.of(open_.pop()):
                if producer in late and producer not in needed:
                    needed.add(producer)
                    open_.append(producer)
        late -= needed
        order += [*sorted(needed), step]
    return order + sorted(late)


class _Listing:
    """Steps taken so far, and the rooms after them."""

    def __init__(self, program: Program, core: NeuronCore, known: Dependencies, regions: Sequence[MemoryRegion]):
        self._known = known
        tiles = {a.id: a for a in program.allocations if a.region in regions and a.address is None}
        self._size = {number: tile.row_bytes for number, tile in tiles.items()}
        self._room: dict[int, Room] = {number: (tile.core, tile.region) for number, tile in tiles.items()}
        self._users: defaultdict[int, list[int]] = defaultdict(list)
        self._used: list[tuple[int, ...]] = [()] * len(program)
        for step, tile in _uses(program, tiles):
            self._users[tile].append(step)
            self._used[step] += (tile,)
        self.free = free_bytes(program.allocations, core)
        self._left = {tile: len(steps) for tile, steps in self._users.items()}
        self._inside: defaultdict[Room, dict[int, None]] = defaultdict(dict)
        """Tiles in use, in the order in which they came."""
        self._taken = bytearray(len(program))
        self._effort = 0
        self.order = array("q")

    def run(self, steps: Iterable[int]) -> bool:
        """Take every step, in an order as near to that of ``steps`` as there is room; False where one finds none."""
        if min(self.free.values(), default=0) < 0:
            return False
        for step in steps:
            while not self._taken[step] and (room := self._lacking(step)) is not None:
                relief = self._relief(step, room)
                if relief is None:
                    return False
                for earlier in relief:
                    self._take(earlier)
            if not self._taken[step]:
                self._take(step)
        return True

    def _take(self, step: int) -> None:
        self._taken[step] = 1
        self.order.append(step)
        for tile in self._used[step]:
            room = self._room[tile]
            if tile not in self._inside[room]:
                self._inside[room][tile] = None
                self.free[room] -= self._size[tile]
        for tile in self._used[step]:
            self._left[tile] -= 1
            if not self._left[tile]:
                room = self._room[tile]
                del self._inside[room][tile]
                self.free[room] += self._size[tile]

    def _lacking(self, step: int) -> Room | None:
        """The memory that has no room for what a step begins to use."""
        need: defaultdict[Room, int] = defaultdict(int)
        for tile in self._used[step]:
            if tile not in self._inside[self._room[tile]]:
                need[self._room[tile]] += self._size[tile]
        return next((room for room, size in need.items() if size > self.free[room]), None)

    def _relief(self, step: int, room: Room) -> list[int] | None:
        """The fewest steps that end the use of a tile, and leave more room than there is."""
        best: list[int] | None = None
        for tile in self._inside[room]:
            if tile in self._used[step]:
                continue
            found = self._needed(self._users[tile], step, FAR if best is None else len(best) - 1)
            if found and self._leaves(found, room) > self.free[room]:
                best = found
                if len(best) == 1:
                    break
        return best

    def _needed(self, wanted: Iterable[int], before: int, most: int) -> list[int]:
        """Steps that are not taken yet, and all that they depend on; none where that is ``before``, or more than ``most``."""
        found: set[int] = set()
        open_ = [step for step in wanted if not self._taken[step]]
        first, producers = self._known.first, self._known.producers
        while open_:
            step = open_.pop()
            if step in found:
                continue
            found.add(step)
            self._effort += 1
            if step == before or len(found) > most or self._effort > EFFORT:
                return []
            open_.extend(p for p in producers[first[step] : first[step + 1]] if not self._taken[p])
        return sorted(found)

    def _leaves(self, steps: Sequence[int], room: Room) -> int:
        """What would be free in a room after some steps; -1 where one of them finds no room."""
        free, left, came = dict(self.free), dict[int, int](), set[int]()
        for step in steps:
            for tile in self._used[step]:
                if tile not in self._inside[self._room[tile]] and tile not in came:
                    came.add(tile)
                    free[self._room[tile]] -= self._size[tile]
            if min(free.values()) < 0:
                return -1
            for tile in self._used[step]:
                left[tile] = left.get(tile, self._left[tile]) - 1
                if not left[tile]:
                    free[self._room[tile]] += self._size[tile]
        return free[room]


def _uses(program: Program, tiles: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Steps and the tiles they use, each pair once, in the order of the steps."""
    chosen = np.zeros(len(program.allocations) + 1, bool)
    chosen[list(tiles)] = True
    steps, tensors = program.uses()
    mine = chosen[tensors]
    return dict.fromkeys(zip(steps[mine].tolist(), tensors[mine].tolist(), strict=True))
