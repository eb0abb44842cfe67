"""One step as a still picture: source, program, memory, instruction and time lanes, for readers without a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nki_sim.memory import Allocation
from nki_sim.program import Step
from nki_sim.trace import alive

from nki_nb.bars import lanes as lanes_of
from nki_nb.markup import clip
from nki_nb.memory_map import TILE_EDGE, TILE_FILL
from nki_nb.program_listing import ENGINES
from nki_nb.sizes import human_bytes, kib
from nki_nb.stepper.feed import Feed
from nki_nb.stepper.places import source_lines
from nki_nb.svg import INK, MARGIN, MONO_WIDTH, MUTED, NOW, RULE, WIDTH, Drawing

HIGHLIGHT = "#fdf3d8"
ROW = 16.0
ROWS = 11
HALF = (WIDTH - 3 * MARGIN) / 2
MOST_LANES = 8
NEIGHBOURS = 24
"""Steps before and after whose bars the time lanes show."""

Box = tuple[float, float, float, float]


def still(feed: Feed, step: int) -> str:
    """The picture of one step of a run."""
    run = feed.run
    drawing = Drawing(WIDTH, 590, f"step {step} of {run.name}")
    drawing.text(MARGIN, 26, f"{run.name}, step by step", size=13, weight="bold")
    count = len(run.program)
    drawing.text(WIDTH - MARGIN, 26, f"{run.core} · step {step} of {max(count - 1, 0)}", fill=MUTED, anchor="end")
    if feed.failure:
        drawing.text(MARGIN, 44, clip(f"stopped: {feed.failure.headline}", 118), fill=NOW)
    if not count:
        drawing.text(MARGIN, 70, "no instruction was issued", fill=MUTED)
        return drawing.render()
    now = run.program[min(max(step, 0), count - 1)]
    _source(drawing, now, 66)
    _program(drawing, feed, now, 66)
    _instruction(drawing, feed, now, 280)
    _memory(drawing, feed, now, 352)
    _time(drawing, feed, now, 498)
    return drawing.render()


def still_text(feed: Feed, step: int) -> str:
    """The same in a few lines of text, for a terminal."""
    program = feed.run.program
    head = f"{feed.run.name} on {feed.run.core}: step {step} of {max(len(program) - 1, 0)}"
    stopped = [f"stopped: {feed.failure.headline}"] if feed.failure else []
    first = min(max(0, step - 3), max(len(program) - 1, 0))
    rows = program.listing(first, first + 7).splitlines()
    marked = [f"{'→' if first + i == step else ' '} {row}" for i, row in enumerate(rows)]
    return "\n".join([head, *stopped, *marked])


# -- source and program ----------------------------------------------------------------------------------------------


def _heading(drawing: Drawing, x: float, y: float, words: str, note: str = "", right: float = 0) -> None:
    drawing.text(x, y, words, size=12, weight="bold", fill=MUTED)
    drawing.text(right, y, note, size=10, fill=MUTED, anchor="end")


def _source(drawing: Drawing, now: Step, top: float) -> None:
    place = now.site.place.partition(",")[0] if now.site else ""
    _heading(drawing, MARGIN, top, "Source", place, MARGIN + HALF)
    for i, (number, text, here) in enumerate(_lines(now)):
        y = top + 18 + ROW * i
        if here:
            drawing.rect((MARGIN, y - 12, HALF, ROW), fill=HIGHLIGHT)
        drawing.text(MARGIN + 26, y, str(number), size=10, fill=MUTED, anchor="end", mono=True)
        weight = "bold" if here else None
        drawing.text(MARGIN + 36, y, clip(text, int((HALF - 40) / (10 * MONO_WIDTH))), size=10, mono=True, weight=weight)


def _lines(now: Step) -> Iterable[tuple[int, str, bool]]:
    """Numbered source lines around the statement, and whether each belongs to it."""
    if now.site is None:
        return
    first, last, *_ = now.site.span
    lines = source_lines(now.site.filename)
    start = max(1, min(first - ROWS // 2, len(lines) - ROWS + 1))
    for number in range(start, min(start + ROWS, len(lines) + 1)):
        yield number, lines[number - 1], first <= number <= last


def _program(drawing: Drawing, feed: Feed, now: Step, top: float) -> None:
    program, left = feed.run.program, 2 * MARGIN + HALF
    _heading(drawing, left, top, "Program", f"{len(program)} instructions", left + HALF)
    start = max(0, min(now.index - ROWS // 2, len(program) - ROWS))
    for i in range(start, min(start + ROWS, len(program))):
        step, y = program[i], top + 18 + ROW * (i - start)
        engine, fill, ink = ENGINES.get(step.engine, (step.engine, "#999999", INK))
        if i == now.index:
            drawing.rect((left, y - 12, HALF, ROW), fill=HIGHLIGHT)
        drawing.text(left + 34, y, str(i), size=10, fill=MUTED, anchor="end", mono=True)
        drawing.rect((left + 42, y - 10, 46, 13), fill=fill, radius=3)
        drawing.text(left + 65, y, engine, size=9, fill=ink, anchor="middle")
        name = clip(step.instruction, 18)
        drawing.text(left + 96, y, name, size=10, mono=True, weight="bold")
        x = left + 96 + (len(name) + 1.5) * 10 * MONO_WIDTH
        words = clip(step.text, int((left + HALF - x) / (10 * MONO_WIDTH)))
        drawing.text(x, y, words, size=10, fill=MUTED, mono=True)


# -- instruction -----------------------------------------------------------------------------------------------------


def _instruction(drawing: Drawing, feed: Feed, now: Step, top: float) -> None:
    detail = feed.step(now.index)
    engine = ENGINES.get(now.engine, (now.engine,))[0]
    _heading(drawing, MARGIN, top, now.instruction, f"{engine} engine{_cost(now)}", WIDTH - MARGIN)
    drawing.text(MARGIN, top + 18, clip(now.text, 128), size=10, mono=True)
    drawing.text(MARGIN, top + 36, clip(_summary(detail), 130), size=11, fill=MUTED)


def _cost(now: Step) -> str:
    return f" · {round(now.plan.cycles)} cycles" if now.plan.cycles else ""


def _summary(detail: dict[str, object]) -> str:
    dma, matmul = detail["dma"], detail["matmul"]
    if isinstance(dma, dict):
        share = round(dma["efficiency"] * 100)
        size = f"{dma['descriptors']} descriptors of {_few_bytes(dma['descriptor_bytes'])}, {share} % of a full 2 KiB row"
        return f"{', '.join(dma['kinds'])} · {human_bytes(dma['bytes'])} in {size} · {detail['lane']}"
    if isinstance(matmul, dict):
        does = "overwrites" if matmul["mode"] == "overwrite" else "adds"
        read = "never read" if matmul["evicted"] is None else f"read at step {matmul['evicted']}"
        return f"{does} · {matmul['position'] + 1} of {len(matmul['group'])} in this sum · {read}"
    operands = detail["operands"]
    assert isinstance(operands, list)
    tensors = [f"{o['name']} {o['dtype']} [{' × '.join(map(str, o['shape']))}]" for o in operands if "allocation" in o]
    return " · ".join(tensors)


def _few_bytes(size: int) -> str:
    """Bytes exactly where they are few: 1040 bytes and 1 KiB are not the same transfer."""
    return f"{size} bytes" if 1 < size < 10 << 10 else human_bytes(size)


# -- memory ----------------------------------------------------------------------------------------------------------


def _memory(drawing: Drawing, feed: Feed, now: Step, top: float) -> None:
    run, core = feed.run, now.plan.core
    memory, whose = run.memories[core], f" of {run.names[core]}" if len(run.names) > 1 else ""
    sbuf, psum = memory.sbuf, memory.psum
    here = [a for a in alive(run.program.allocations, now.index) if a.core == core]
    note = f"now {kib(_used(here, 'sbuf'))} · peak {kib(sbuf.peak)} of {kib(sbuf.limit)} KiB per partition"
    _heading(drawing, MARGIN, top, f"SBUF{whose}", note, MARGIN + HALF)
    shown = max(sbuf.high_water, sbuf.peak, 64)
    _chip(drawing, now, [a for a in here if a.region.value == "sbuf"], (MARGIN, top + 8, HALF, 100), shown)
    drawing.text(MARGIN, top + 122, f"0 to {kib(shown)} KiB; partition 0 at the top", size=10, fill=MUTED)
    left = 2 * MARGIN + HALF
    banks = memory.banks
    _heading(drawing, left, top, f"PSUM{whose}", f"peak {memory.peak_banks} of {banks} banks", left + HALF)
    frame = (left, top + 8, HALF, 100.0)
    _chip(drawing, now, [a for a in here if a.region.value == "psum"], frame, psum.limit)
    for i in range(banks):
        x = left + HALF * i / banks
        if i:
            drawing.line((x, top + 8), (x, top + 108))
        drawing.text(x + HALF / banks / 2, top + 122, f"bank {i}", size=10, fill=MUTED, anchor="middle")


def _used(tiles: Sequence[Allocation], region: str) -> int:
    return sum(a.row_bytes for a in tiles if a.region.value == region)


def _chip(drawing: Drawing, now: Step, tiles: Sequence[Allocation], frame: Box, size: int) -> None:
    """One memory: partitions down, bytes across; what the step reads is blue, what it writes is warm."""
    left, top, width, height = frame
    drawing.rect(frame, fill="#ffffff", stroke=RULE)
    writes = {o.allocation.id for o in now.writes() if o.allocation}
    reads = {o.allocation.id for o in now.reads() if o.allocation}
    for tile in tiles:
        fill = NOW if tile.id in writes else TILE_EDGE if tile.id in reads else TILE_FILL
        x, wide = left + width * (tile.placed or 0) / size, max(1.5, width * tile.row_bytes / size)
        first = tile.address[0] if tile.address else 0
        box = (x, top + height * first / 128, wide, max(1.5, height * tile.partitions / 128))
        edge = NOW if tile.id in writes else TILE_EDGE
        drawing.rect(box, fill=fill, stroke=edge, title=f"{tile.label}: {tile.words()}")
        _name(drawing, tile.label, box, "#ffffff" if tile.id in writes | reads else INK)


def _name(drawing: Drawing, words: str, box: Box, fill: str) -> None:
    x, y, width, height = box
    across, along = int((width - 4) / (10 * MONO_WIDTH)), int((height - 4) / (10 * MONO_WIDTH))
    if across >= min(len(words), 4) and height > 11:
        drawing.text(x + width / 2, y + height / 2 + 4, clip(words, across), size=10, fill=fill, anchor="middle", mono=True)
    elif along >= min(len(words), 4) and width > 11:
        drawing.text(x + width / 2 + 4, y + height / 2, clip(words, along), size=10, fill=fill, anchor="middle", mono=True,
                     upright=True)  # fmt: skip


# -- time ------------------------------------------------------------------------------------------------------------


def _time(drawing: Drawing, feed: Feed, now: Step, top: float) -> None:
    line = feed.timeline
    steps = range(max(0, now.index - NEIGHBOURS), min(len(line.start), now.index + NEIGHBOURS + 1))
    lanes = sorted({int(line.lane[i]) for i in steps})
    mine = int(line.lane[now.index])
    lanes = sorted({*lanes[: MOST_LANES - 1], mine})
    first, last = min(float(line.start[i]) for i in steps), max(float(line.end[i]) for i in steps)
    left, width = MARGIN + 66, WIDTH - 2 * MARGIN - 66
    scale = width / max(last - first, 1.0)
    span = f"{first / 1000:.1f} to {last / 1000:.1f} of {line.total / 1000:.1f} µs"
    _heading(drawing, MARGIN, top, "Time (estimate)", span, WIDTH - MARGIN)
    drawing.height = max(drawing.height, top + 24 + ROW * len(lanes))
    labels = {lane.number: lane for lane in lanes_of(line)}
    for row, lane in enumerate(lanes):
        y = top + 10 + ROW * row
        named = labels[lane]
        fill = ENGINES[named.engine][1]
        drawing.text(MARGIN, y + 10, named.label, size=10, fill=MUTED)
        drawing.line((left, y + 13), (left + width, y + 13))
        for i in steps:
            if int(line.lane[i]) == lane:
                x, wide = left + (float(line.start[i]) - first) * scale, (float(line.end[i]) - float(line.start[i])) * scale
                words = f"step {i}: {feed.run.program.plan_at(i).instruction}"
                drawing.rect((x, y, max(1.0, wide - 0.5), 11), fill=fill, stroke=NOW if i == now.index else "none", title=words)
    x = left + (float(line.start[now.index]) - first) * scale
    drawing.line((x, top + 6), (x, top + 12 + ROW * len(lanes)), stroke=NOW)
