"""The program of a run as a picture: one row per instruction, coloured by engine.

Colours are Okabe and Ito's, which colour-blind readers can tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from nki_sim.program import Step
from nki_sim.run import Run

from nki_nb.markup import clip
from nki_nb.svg import INK, MARGIN, MONO_WIDTH, MUTED, WIDTH, Drawing

ENGINES = {
    "tensor": ("Tensor", "#0072b2", "#ffffff"),
    "vector": ("Vector", "#009e73", "#ffffff"),
    "scalar": ("Scalar", "#e69f00", INK),
    "gpsimd": ("GpSimd", "#56b4e9", INK),
    "dma": ("DMA", "#cc79a7", INK),
    "sync": ("Sync", "#999999", INK),
}
"""Name, badge colour and text colour of each engine."""

ROW = 19.0
HEAD_ROWS, TAIL_ROWS = 28, 8


def program_listing(run: Run) -> str:
    """The program, one row per instruction: line, engine, instruction, operands; long programs are cut in the middle."""
    rows, hidden = _folded(run)
    at = HEAD_ROWS if hidden else len(rows)
    drawing = Drawing(WIDTH, 58 + ROW * (len(rows) + bool(hidden)) + 12, f"program of {run.name}")
    drawing.text(MARGIN, 26, f"{run.name}: program", size=13, weight="bold")
    drawing.text(WIDTH - MARGIN, 26, _per_engine(run), fill=MUTED, anchor="end")
    drawing.text(MARGIN + 34, 48, "step", size=10, fill=MUTED, anchor="end")
    drawing.text(MARGIN + 80, 48, "line", size=10, fill=MUTED, anchor="end")
    for i, steps in enumerate(rows):
        _row(drawing, steps, 62 + ROW * (i + (i >= at)))
    if hidden:
        drawing.text(MARGIN + 96, 62 + ROW * at, f"… {hidden} more instructions", fill=MUTED, size=11)
    return drawing.render()


def _per_engine(run: Run) -> str:
    counts = run.program.engines()
    names = {name: words for name, (words, *_) in ENGINES.items()}
    parts = " · ".join(f"{names.get(name, name)} {counts[name]}" for name in sorted(counts, key=lambda n: (-counts[n], n)))
    return f"{len(run.program)} instructions: {parts}" if parts else "no instructions"


def _folded(run: Run) -> tuple[list[list[Step]], int]:
    """Rows of like steps that follow each other, and how many steps the cut in the middle hides."""
    program, edge = run.program, 400
    if len(program) <= 2 * edge:
        return _cut(list(_runs(program)))
    head = list(_runs(program[i] for i in range(edge)))[:HEAD_ROWS]
    tail = list(_runs(program[i] for i in range(len(program) - edge, len(program))))[-TAIL_ROWS:]
    return [*head, *tail], len(program) - sum(map(len, head)) - sum(map(len, tail))


def _cut(rows: list[list[Step]]) -> tuple[list[list[Step]], int]:
    if len(rows) <= HEAD_ROWS + TAIL_ROWS + 4:
        return rows, 0
    middle = rows[HEAD_ROWS:-TAIL_ROWS]
    return rows[:HEAD_ROWS] + rows[-TAIL_ROWS:], sum(map(len, middle))


def _runs(steps: Iterable[Step]) -> Iterator[list[Step]]:
    for _, group in groupby(steps, key=lambda s: (s.line, s.instruction, s.engine)):
        yield list(group)


def _row(drawing: Drawing, steps: Sequence[Step], y: float) -> None:
    step = steps[0]
    engine, fill, ink = ENGINES.get(step.engine, (step.engine, "#999999", INK))
    drawing.text(MARGIN + 34, y, str(step.index), fill=MUTED, size=10, anchor="end", mono=True)
    drawing.text(MARGIN + 80, y, str(step.line or "-"), fill=MUTED, size=10, anchor="end", mono=True)
    drawing.rect((MARGIN + 96, y - 11, 54, 15), fill=fill, radius=3)
    drawing.text(MARGIN + 123, y, engine, fill=ink, size=10, anchor="middle")
    name = clip(step.instruction, 22)
    drawing.text(MARGIN + 160, y, name, mono=True, size=11, weight="bold")
    times = f"  × {len(steps)}" if len(steps) > 1 else ""
    start = MARGIN + 160 + max(118.0, (len(name) + 2) * 11 * MONO_WIDTH)
    room = int((WIDTH - MARGIN - start) / (11 * MONO_WIDTH)) - len(times)
    drawing.text(start, y, clip(step.text, room) + times, mono=True, size=11, fill=MUTED)
