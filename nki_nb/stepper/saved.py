"""One self-contained page on which a run can be stepped through: no network, no kernel.

The page holds the overview, the details of steps and the values of their operands, each matrix once, as far as the
budget goes. What does not fit is left out, values first, and the page says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nki_nb.markup import escape
from nki_nb.stepper.bundle import script, style
from nki_nb.stepper.feed import Feed
from nki_nb.stepper.packing import as_text

BUDGET = 20_000_000
"""Bytes of a saved page, about."""

MOST_STEPS = 20_000
"""Steps whose details are kept; a search for NaN replays no more than this."""

_FRAME = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; }}
.nki-stepper {{ border-radius: 0; min-height: 100vh; }}
{style}
</style></head><body>
<noscript>{title}: stepping through a kernel needs JavaScript.</noscript>
<main id="stepper"></main>
<script type="application/json" id="run">{data}</script>
<script type="module">
{script}
mountSaved(document.getElementById("stepper"), JSON.parse(document.getElementById("run").textContent));
</script>
</body></html>
"""
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def page(feed: Feed, budget: int = BUDGET) -> str:
    """The page as one string.

    Args:
        feed: the run.
        budget: how many bytes it may have; the source and one number per step and fact are always in it.
    """
    title = escape(f"{feed.run.name}, step by step")
    code = script().replace("</script", "<\\/script")
    bare = _FRAME.format(title=title, policy=_POLICY, style=style(), data="", script=code)
    data = json.dumps(contents(feed, budget - len(bare)), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _FRAME.format(title=title, policy=_POLICY, style=style(), data=_inert(data), script=code)


def write(feed: Feed, path: str | Path, budget: int = BUDGET) -> Path:
    """Write the page to a file; answers its path."""
    target = Path(path)
    target.write_text(page(feed, budget), encoding="utf-8")
    return target


def _inert(data: str) -> str:
    """JSON that HTML cannot mistake for markup; it stays the same JSON."""
    return data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def contents(feed: Feed, budget: int) -> dict[str, Any]:
    """What ``StaticSource`` in ``source.js`` answers from."""
    kept = _Kept(budget)
    overview = as_text(feed.overview())
    kept.spend(overview)
    count = len(feed.run.program)
    order = list(_from(overview["start"], min(count, MOST_STEPS), count))
    steps = _details(feed, order, kept)
    texts = _texts(feed, kept)
    _inputs(feed, kept)
    complete = _values(feed, [i for i in order if i in steps], kept)
    return {
        "overview": overview,
        "steps": steps,
        "texts": texts,
        "values": kept.values,
        "matrices": kept.matrices,
        **({"first_nan": feed.first_nan()} if count <= MOST_STEPS else {}),
        "left_out": _left_out(count, len(steps), len(complete), len(texts)),
    }


class _Kept:
    """What is on the page so far and how many bytes are left."""

    def __init__(self, budget: int):
        self.left = budget
        self.values: dict[str, int | None] = {}
        self.matrices: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}

    def spend(self, data: Any) -> bool:
        """Count what ``data`` takes; whether it fitted."""
        size = len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())
        self.left -= size + 8
        return self.left >= 0

    def matrix(self, key: str, values: dict[str, Any] | None) -> bool:
        """Keep one operand's values, unless they do not fit; equal ones once."""
        sent = as_text(values)
        if sent is None:
            self.values[key] = None
            return True
        name = hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
        if name not in self._numbers:
            size = len(sent["values"]["data"]) + len((sent["bits"] or {"data": ""})["data"]) + 300
            if size > self.left:
                return False
            self.left -= size
            self._numbers[name] = len(self.matrices)
            self.matrices.append(sent)
        self.values[key] = self._numbers[name]
        return True


def _from(start: int, most: int, count: int) -> Iterator[int]:
    """The steps around the one that the page opens at, then all others in order."""
    near = range(max(0, start - 2), min(count, start + 3))
    yield from near
    yield from (i for i in range(most) if i not in near)


def _details(feed: Feed, order: list[int], kept: _Kept) -> dict[int, dict[str, Any]]:
    """Details of steps, in at most half of what is left."""
    floor, found = kept.left // 2, {}
    for i in order:
        detail = feed.step(i) | {"moves": feed.moves(i)}
        if not kept.spend(detail) or kept.left < floor:
            break
        found[i] = detail
    return dict(sorted(found.items()))


def _texts(feed: Feed, kept: _Kept) -> list[str]:
    texts = feed.texts(0, MOST_STEPS)
    return texts if kept.spend(texts) else []


def _inputs(feed: Feed, kept: _Kept) -> None:
    """Whole inputs, in at most a quarter of what is left: what a click on them shows."""
    floor = kept.left * 3 // 4
    program = feed.run.program
    written = {program.raw(i)[k][0] for i in range(len(program)) for k in program.plan_at(i).writes}
    for a in program.allocations:
        if a.role == "input" and a.id not in written and a.row_bytes * 1.4 < kept.left - floor:
            kept.matrix(f"input.{a.id}", feed.tensor(a.id, 0))


def _values(feed: Feed, order: list[int], kept: _Kept) -> set[int]:
    """Keep the values of steps until the budget is spent; the steps that have all of theirs."""
    complete = set()
    for i in order:
        plan = feed.run.program.plan_at(i)
        wanted = [(k, False) for k in range(len(plan.slots))] + [(k, True) for k in plan.writes]
        if not all(kept.matrix(f"{i}.{k}.{'after' if a else 'before'}", feed.operand(i, k, after=a)) for k, a in wanted):
            break
        complete.add(i)
    return complete


def _left_out(count: int, steps: int, values: int, texts: int) -> str:
    """What the page does not hold, in a sentence; empty when it holds everything."""
    missing = []
    if values < count:
        missing.append(f"the values of {count - values} of {count} steps")
    if steps < count:
        missing.append(f"the details of {count - steps}")
    if texts < count:
        missing.append("some program text")
    if not missing:
        return ""
    return f"To keep this page small it was saved without {', '.join(missing)}; a notebook shows them."
