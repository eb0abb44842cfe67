"""Where tiles without an address lie, and whether they fit: liveness and placement after a run.

A tile is alive from its allocation to its last use; one with an explicit address keeps its bytes for the whole kernel. Where
tiles would not fit so, all of them are alive from their first use to their last (:mod:`nki_sim.fitting`): ``nl.ndarray`` is no
instruction, kernels list tiles ahead, and public ones mix tiles with addresses and without.
Tiles lie at partition 0 and take their bytes in every partition. PSUM tiles of a bank or more start at a bank; smaller
ones share a bank but never straddle two. Overflow is an error; what a compiler may do about it: :mod:`nki_sim.fitting`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nki_sim.errors import Broken, Diagnosis, NkiCapacityError, Rule, page, violation
from nki_sim.hw import NeuronCore
from nki_sim.memory import PSUM_CAPACITY, SBUF_CAPACITY, Allocation, MemoryRegion
from nki_sim.source import Site

FRAGMENTED = Rule(
    "memory.fragmented",
    "the live tiles fit by size, but first-fit placement leaves holes that are too small",
    fix="allocate long-lived tiles first",
    page=page("get-started/about/memory-hierarchy-overview.html"),
    enforce="warn",
)

ALIGNED = 4
"""Bytes of a partition to whose multiples tiles are placed."""
Room = tuple[int, MemoryRegion]
"""An on-chip memory of a core."""


@dataclass
class Occupancy:
    """One on-chip memory over the whole run; sizes in bytes per partition."""

    region: MemoryRegion
    limit: int
    tiles: list[Allocation] = field(default_factory=list)
    peak: int = 0
    peak_step: int = -1
    peak_tiles: list[Allocation] = field(default_factory=list)
    high_water: int = 0
    """End of the highest placed byte."""
    fragmented: bool = False
    pinned: bool = True
    """Whether tiles with an explicit address keep their bytes for the whole kernel."""

    @property
    def peak_line(self) -> int | None:
        """The line of the allocation that set the peak."""
        return self.peak_tiles[-1].line if self.peak_tiles else None


@dataclass
class MemoryMap:
    """SBUF and PSUM of one run."""

    sbuf: Occupancy
    psum: Occupancy
    bank_bytes: int
    banks: int

    @property
    def peak_banks(self) -> int:
        """PSUM banks in use at the peak."""
        used: set[int] = set()
        for tile in self.psum.peak_tiles:
            first = tile.placed or 0
            used.update(range(first // self.bank_bytes, -(-(first + tile.row_bytes) // self.bank_bytes)))
        return len(used)


def place(
    allocations: Sequence[Allocation], core: NeuronCore, *, enforce: bool = True, pinned: bool = True
) -> tuple[MemoryMap, list[Diagnosis]]:
    """Place every tile; return the map and what is to be reported. Without ``enforce`` an overflow is drawn, not raised.

    Args:
        pinned: tiles with an explicit address keep their bytes for the whole kernel.

    Raises:
        NkiCapacityError: the tiles alive at one time are larger than the memory.
    """
    findings: list[Diagnosis] = []
    maps = {}
    for region, limit, rule in (
        (MemoryRegion.sbuf, core.sbuf_usable_bytes, SBUF_CAPACITY),
        (MemoryRegion.psum, core.psum_usable_bytes, PSUM_CAPACITY),
    ):
        used = [a for a in allocations if a.region is region and (a.last >= a.born or a.address is not None)]
        found = maps[region] = Occupancy(region, limit, used, pinned=pinned)
        _measure(found, core, rule, enforce)
        grain = core.psum_bank_bytes if region is MemoryRegion.psum else 0
        found.fragmented = not _place(found, grain)
        if found.fragmented:
            broken = Broken(f"{region.value.upper()} tiles fit by size ({found.peak} of {limit} bytes) but not in place")
            findings.append(violation(FRAGMENTED, broken, target=core.target, sites=_sites(found.peak_tiles[-1:])))
    return MemoryMap(maps[MemoryRegion.sbuf], maps[MemoryRegion.psum], core.psum_bank_bytes, core.psum_banks), findings


def _sites(tiles: Iterable[Allocation]) -> tuple[Site, ...]:
    return tuple(t.site for t in tiles if t.site is not None)


def _measure(found: Occupancy, core: NeuronCore, rule: Rule, enforce: bool) -> None:
    """Sweep over births: bytes alive, the peak, and the first birth that does not fit."""
    fixed = [a for a in found.tiles if a.address is not None and found.pinned]
    floor = covered(fixed)
    found.peak, found.peak_tiles = floor, list(fixed)
    ends: list[tuple[int, int]] = []
    placed: list[Allocation] = []
    free, at, pinned = 0, -1, found.pinned
    for i, tile in enumerate(found.tiles):
        if tile.address is None:
            free += tile.row_bytes
            heapq.heappush(ends, (tile.last, tile.row_bytes))
        elif pinned:
            continue
        born = tile.born
        while ends and ends[0][0] < born:
            free -= heapq.heappop(ends)[1]
        if not pinned:
            placed = [other for other in (*placed, tile) if other.address is not None and other.last >= born]
            floor = covered(placed)
        total = free + floor
        if total > found.limit and enforce:
            alive = [t for t in found.tiles[: i + 1] if t.last >= born and (t.address is None or not pinned)]
            raise NkiCapacityError(_overflow(found, core, rule, [*fixed, *alive], total))
        if total > found.peak:
            found.peak, found.peak_step, at = total, born, i
    if at >= 0:
        others = (t for t in found.tiles[: at + 1] if t.address is None or not found.pinned)
        found.peak_tiles = [*fixed, *(t for t in others if t.last >= found.peak_step)]


def covered(tiles: Iterable[Allocation]) -> int:
    """Bytes per partition that explicit placements cover, counted once where they share."""
    total = end = 0
    for first, size in sorted((t.address[1], t.row_bytes) for t in tiles if t.address is not None):
        total += max(0, first + size - max(end, first))
        end = max(end, first + size)
    return total


def free_bytes(allocations: Iterable[Allocation], core: NeuronCore) -> dict[Room, int]:
    """Bytes per partition for tiles without an address; those with one keep theirs for the whole kernel."""
    usable = {MemoryRegion.sbuf: core.sbuf_usable_bytes, MemoryRegion.psum: core.psum_usable_bytes}
    placed: dict[Room, list[Allocation]] = {}
    for tile in allocations:
        if tile.region.on_chip:
            placed.setdefault((tile.core, tile.region), []).append(tile)
    return {room: usable[room[1]] - covered(tiles) for room, tiles in placed.items()}


def _overflow(found: Occupancy, core: NeuronCore, rule: Rule, alive: list[Allocation], total: int) -> Diagnosis:
    label = found.region.value.upper()
    alike: dict[tuple[str, str, int | None], list[Allocation]] = {}
    for a in alive:
        alike.setdefault((a.label, a.words(), a.line), []).append(a)
    largest = sorted(alike.items(), key=lambda item: (-sum(a.row_bytes for a in item[1]), item[1][0].id))
    notes = [_held(*named, tiles) for named, tiles in largest[:10]]
    if len(largest) > 10:
        rest = [a for _, tiles in largest[10:] for a in tiles]
        notes.append(f"{sum(a.row_bytes for a in rest):>7} bytes  in {len(rest)} more tiles")
    what = f"{label} overflow: {len(alive)} tiles alive need {total} bytes per partition > {found.limit}"
    sites = _sites([alive[-1]])
    return violation(rule, Broken(what), target=core.target, instruction="nl.ndarray", notes=tuple(notes), sites=sites)


def _held(label: str, words: str, line: int | None, tiles: list[Allocation]) -> str:
    """What tiles that are alike hold, in one line."""
    size, count = tiles[0].row_bytes, len(tiles)
    each = f", {count} tiles of {size} bytes" if count > 1 else ""
    return f"{size * count:>7} bytes  {label}: {words}{each}" + (f", line {line}" if line else "")


def _place(found: Occupancy, bank: int) -> bool:
    """First fit in order of birth; where that fails, largest first. True when every tile found a place."""
    tiles = [t for t in found.tiles if t.address is None]
    first = _first_fit(found, tiles, bank) if found.pinned else _in_turn(found, tiles, bank, by_birth=True)
    if not (first or (len(tiles) <= 3000 and _in_turn(found, sorted(tiles, key=lambda t: (-t.row_bytes, t.id)), bank))):
        for tile in tiles:
            tile.placed = tile.placed if tile.placed is not None else 0
        found.high_water = found.peak
        return False
    found.high_water = max(((t.placed or 0) + t.row_bytes for t in found.tiles), default=0)
    return True


def _room(first: int, end: int, size: int, bank: int) -> int | None:
    """Where ``size`` bytes fit in the hole [first, end), or ``None``."""
    start = -(-first // ALIGNED) * ALIGNED
    if bank:
        offset = start % bank
        if offset and (size >= bank or offset + size > bank):
            start += bank - offset
    return start if start + size <= end else None


def _first_fit(found: Occupancy, tiles: list[Allocation], bank: int) -> bool:
    holes: list[tuple[int, int]] = []
    end = 0
    for a in sorted((t for t in found.tiles if t.address is not None), key=lambda t: t.placed or 0):
        if (a.placed or 0) > end:
            holes.append((end, a.placed or 0))
        end = max(end, (a.placed or 0) + a.row_bytes)
    holes.append((end, found.limit))
    busy: list[tuple[int, int, int]] = []
    for tile in tiles:
        while busy and busy[0][0] < tile.born:
            _, first, last = heapq.heappop(busy)
            _free(holes, first, last)
        size = tile.row_bytes
        for i, (first, last) in enumerate(holes):
            if last - first < size:
                continue
            start = _room(first, last, size, bank) if bank or first % ALIGNED else first
            if start is None:
                continue
            tile.placed, stop = start, start + size
            if start == first and stop < last:
                holes[i] = (stop, last)
            else:
                holes[i : i + 1] = ((first, start),) * (first < start) + ((stop, last),) * (stop < last)
            heapq.heappush(busy, (tile.last, start, stop))
            break
        else:
            return False
    return True


def _free(holes: list[tuple[int, int]], first: int, last: int) -> None:
    """Give [first, last) back, merged with its neighbours."""
    at = bisect_left(holes, (first, last))
    if at < len(holes) and holes[at][0] == last:
        last = holes.pop(at)[1]
    if at > 0 and holes[at - 1][1] == first:
        first = holes.pop(at - 1)[0]
    insort(holes, (first, last))


def _in_turn(found: Occupancy, tiles: Iterable[Allocation], bank: int, *, by_birth: bool = False) -> bool:
    """Each where it fits among those before it that are alive at some time when it is."""
    done = [t for t in found.tiles if t.address is not None]
    always = {t.id for t in done} if found.pinned else set()
    for tile in tiles:
        if by_birth:  # who is gone by now is no rival of any later one
            done = [d for d in done if d.last >= tile.born or d.id in always]
        rivals = [d for d in done if d.id in always or (d.born <= tile.last and tile.born <= d.last)]
        taken = sorted((d.placed or 0, (d.placed or 0) + d.row_bytes) for d in rivals)
        end, where = 0, None
        for first, last in [*taken, (found.limit, found.limit)]:
            where = _room(end, first, tile.row_bytes, bank)
            if where is not None:
                break
            end = max(end, last)
        if where is None:
            return False
        tile.placed = where
        done.append(tile)
    return True
