"""The memory map of a run: SBUF by partitions and bytes, PSUM by banks.

What is alive at the peak is solid, what lived at another time is dashed, and one warm colour marks the peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nki_sim.memory import Allocation
from nki_sim.placement import MemoryMap, Occupancy
from nki_sim.run import Run

from nki_nb.markup import clip
from nki_nb.sizes import kib
from nki_nb.svg import INK, MARGIN, MONO_WIDTH, MUTED, NOW, RULE, WIDTH, Drawing, stacked

TILE_FILL, TILE_EDGE = "#d6e6f2", "#0072b2"
BANK_FILL, BANK_EDGE = "#fbe3cf", "#b45309"

MAP_TOP, MAP_HEIGHT = 84.0, 190.0
MOST_CORES = 8
"""Of whose memory maps are drawn."""
AXIS = 46.0
"""Room for the partition numbers left of the map."""


@dataclass(frozen=True)
class Tile:
    """One rectangle of a map: tiles alike in name, place and size are drawn once."""

    label: str
    words: str
    place: tuple[int, int]
    size: tuple[int, int]
    alive: bool
    count: int

    @property
    def title(self) -> str:
        start, (partitions, size) = self.place[1], self.size
        times = f", {self.count} in turn" if self.count > 1 else ""
        when = "alive at the peak" if self.alive else "not alive at the peak"
        return f"{self.label}: {self.words}, bytes {start} to {start + size} of {partitions} partitions, {when}{times}"


def memory_map(run: Run) -> str:
    """SBUF by partitions and bytes, PSUM by banks; names, the peak, and the limit."""
    if len(run.memories) < 2:
        return _map(run, run.memory, "").render()
    each = [_map(run, memory, f", {name}") for name, memory in zip(run.names, run.memories, strict=True)]
    return stacked(each[:MOST_CORES], f"memory maps of {run.name}").render()


def _map(run: Run, memory: MemoryMap, whose: str) -> Drawing:
    drawing = Drawing(WIDTH, MAP_TOP + MAP_HEIGHT + 262, f"memory map of {run.name}{whose}")
    drawing.text(MARGIN, 26, f"{run.name}: memory on {run.core}{whose}", size=13, weight="bold")
    _legend(drawing)
    _sbuf(drawing, memory.sbuf, run)
    _psum(drawing, memory, MAP_TOP + MAP_HEIGHT + 84)
    return drawing


def _legend(drawing: Drawing) -> None:
    x = WIDTH - MARGIN - 296
    drawing.rect((x, 17, 14, 11), fill=TILE_FILL, stroke=TILE_EDGE)
    drawing.text(x + 20, 26, "alive at the peak", fill=MUTED)
    drawing.rect((x + 140, 17, 14, 11), stroke=TILE_EDGE, dashed=True)
    drawing.text(x + 160, 26, "alive at another time", fill=MUTED)


def _sbuf(drawing: Drawing, sbuf: Occupancy, run: Run) -> None:
    left, width = MARGIN + AXIS, WIDTH - 2 * MARGIN - AXIS
    shown = max(sbuf.high_water, sbuf.peak, 64)
    line = f", line {sbuf.peak_line}" if sbuf.peak_line else ""
    drawing.text(MARGIN, 56, "SBUF", size=12, weight="bold", fill=MUTED)
    limit = " (unverified)" if "sbuf_usable_bytes" in run.core.unverified else ""
    words = f"peak {kib(sbuf.peak)} of {kib(sbuf.limit)} KiB per partition{limit}{line}"
    drawing.text(WIDTH - MARGIN, 56, words, anchor="end", fill=MUTED)
    _share(drawing, sbuf, (left, 64, width, 7))
    frame = (left, MAP_TOP, width, MAP_HEIGHT)
    drawing.rect(frame, fill="#ffffff", stroke=RULE)
    _partition_axis(drawing, MAP_TOP, MAP_HEIGHT)
    for tile in tiles(sbuf):
        _tile(drawing, tile, frame, width / shown, (TILE_FILL, TILE_EDGE))
    if not sbuf.tiles:
        drawing.text(left + 12, MAP_TOP + 24, "no SBUF tile was used", fill=MUTED)
    foot = MAP_TOP + MAP_HEIGHT + 15
    drawing.text(left, foot, "0", fill=MUTED, size=10)
    drawing.text(left + width, foot, f"{kib(shown)} KiB", fill=MUTED, size=10, anchor="end")
    drawing.text(left + width / 2, foot, "bytes in each partition →", fill=MUTED, size=10, anchor="middle")
    drawing.text(left, foot + 18, clip(_elsewhen(sbuf), 118), fill=MUTED, size=10)


def _elsewhen(occupancy: Occupancy) -> str:
    """Names of the tiles that the peak does not show, and the bytes they take."""
    alive = {tile.label for tile in occupancy.peak_tiles}
    others = {t.label: t for t in reversed(occupancy.tiles) if t.label not in alive}
    named = (f"{t.label} (bytes {t.placed or 0} to {(t.placed or 0) + t.row_bytes})" for t in reversed(others.values()))
    said = ", ".join(named)
    return f"at another time: {said}" if said else ""


def _share(drawing: Drawing, sbuf: Occupancy, box: tuple[float, float, float, float]) -> None:
    """A bar of the whole partition: what the map below magnifies, with the peak marked."""
    x, y, width, height = box
    drawing.rect(box, fill="#ffffff", stroke=RULE, radius=2)
    if sbuf.peak:
        used = max(2.0, width * sbuf.peak / sbuf.limit)
        drawing.rect((x, y, used, height), fill=NOW, radius=2, title=f"{sbuf.peak} of {sbuf.limit} bytes")


def _partition_axis(drawing: Drawing, top: float, height: float) -> None:
    for partition in (0, 32, 64, 96, 127):
        y = top + height * (0.5 if partition == 127 else 0) / 128 + height * partition / 128
        drawing.line((MARGIN + AXIS - 5, y), (MARGIN + AXIS, y))
        drawing.text(MARGIN + AXIS - 8, y + (8 if partition == 0 else 3), str(partition), size=10, fill=MUTED, anchor="end")
    drawing.text(MARGIN + 8, top + height / 2, "partition", size=10, fill=MUTED, anchor="middle", upright=True)


def tiles(occupancy: Occupancy, most: int = 300) -> list[Tile]:
    """The rectangles of one memory, those alive at the peak last so that they lie on top."""
    peak = {tile.id for tile in occupancy.peak_tiles}
    groups: dict[tuple[Any, ...], list[Allocation]] = {}
    for a in occupancy.tiles:
        key = (a.id in peak, a.label, a.address[0] if a.address else 0, a.placed or 0, a.partitions, a.row_bytes)
        groups.setdefault(key, []).append(a)
    found = [
        Tile(label, members[0].words(), (partition, start), (partitions, size), alive, len(members))
        for (alive, label, partition, start, partitions, size), members in groups.items()
    ]
    peak_tiles = [t for t in found if t.alive]
    found = peak_tiles + [t for t in found if not t.alive and not _hidden(t, peak_tiles)]
    return sorted(found, key=lambda t: (t.alive, t.place, t.size, t.label))[-most:]


def _hidden(tile: Tile, alive: Sequence[Tile]) -> bool:
    """Whether tiles alive at the peak lie over all of the tile's bytes: the line under the map names it."""
    reached, end = tile.place[1], tile.place[1] + tile.size[1]
    for other in sorted(alive, key=lambda t: t.place[1]):
        if other.place[1] <= reached and other.size[0] >= tile.size[0]:
            reached = max(reached, other.place[1] + other.size[1])
    return reached >= end


def _tile(drawing: Drawing, tile: Tile, frame: tuple[float, float, float, float], scale: float, paint: tuple[str, str]) -> None:
    left, top, _, height = frame
    fill, edge = paint
    x, width = left + tile.place[1] * scale, max(1.5, tile.size[1] * scale)
    y, tall = top + height * tile.place[0] / 128, max(1.5, height * tile.size[0] / 128)
    box = (x, y, width, tall)
    drawing.rect(box, fill=fill if tile.alive else "none", stroke=edge, dashed=not tile.alive, title=tile.title)
    _label(drawing, tile.label, box, INK if tile.alive else MUTED)


def _label(drawing: Drawing, words: str, box: tuple[float, float, float, float], fill: str) -> None:
    """The tile's name where it fits: across, upright, shortened, or not at all."""
    x, y, width, height = box
    size = 11.0
    across, along = int((width - 6) / (size * MONO_WIDTH)), int((height - 6) / (size * MONO_WIDTH))
    middle = (x + width / 2, y + height / 2)
    if height >= size + 2 and across >= min(len(words), 4):
        drawing.text(middle[0], middle[1] + 4, clip(words, across), fill=fill, anchor="middle", mono=True, size=size)
    elif width >= size + 1 and along >= min(len(words), 4):
        drawing.text(middle[0] + 4, middle[1], clip(words, along), fill=fill, anchor="middle", mono=True, size=size,
                     upright=True)  # fmt: skip


def _psum(drawing: Drawing, memory: MemoryMap, top: float) -> None:
    psum, height = memory.psum, 120.0
    left, width = MARGIN + AXIS, WIDTH - 2 * MARGIN - AXIS
    drawing.text(MARGIN, top - 14, "PSUM", size=12, weight="bold", fill=MUTED)
    size = f"{memory.banks} banks of {memory.bank_bytes / 1024:g} KiB per partition"
    drawing.text(WIDTH - MARGIN, top - 14, f"peak {memory.peak_banks} of {size}", anchor="end", fill=MUTED)
    bank = width / memory.banks
    for i in range(memory.banks):
        drawing.rect((left + i * bank, top, bank, height), fill="#ffffff", stroke=RULE)
        drawing.text(left + (i + 0.5) * bank, top + height + 15, f"bank {i}", fill=MUTED, size=10, anchor="middle")
    _partition_axis(drawing, top, height)
    for tile in tiles(psum):
        _tile(drawing, tile, (left, top, width, height), bank / memory.bank_bytes, (BANK_FILL, BANK_EDGE))
    if psum.tiles:
        line = f"line {psum.peak_line}: " if psum.peak_line else ""
        names = ", ".join(dict.fromkeys(f"{t.label} {t.words()}" for t in psum.peak_tiles))
        drawing.text(left, top + height + 34, clip(f"at the peak, {line}{names}", 118), fill=BANK_EDGE, size=10)
