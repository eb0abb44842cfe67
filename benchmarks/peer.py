"""Beside triton-viz's NKI interpreter, which was measured once, by hand, together with NumPy: ``peer.json``.

Its figures were taken on another day and perhaps another machine, so both are compared through NumPy's time for the same
product: (peer / NumPy, as noted) over (ours / NumPy, now). Of the processors it was measured on this one counts, or the last.
"""

from __future__ import annotations

import json
import statistics
from functools import partial
from pathlib import Path

from benchmarks import bare, kernels
from benchmarks.found import Found
from benchmarks.measuring import Work, agree, alternately, blas_threads, processor, recorded, replayed
from benchmarks.work import normal

RECORDED, REPLAYED = {"without": 1.8, "with": 12.0}, {"without": 2.4, "with": 16.0}
BARS = {"recorded first": RECORDED, "recorded again": RECORDED, "replayed": REPLAYED}


def noted(threads: int) -> dict[str, float]:
    """The medians of the measurement by hand, in ms, with as many threads of BLAS, or the nearest number below."""
    measured = json.loads(Path(__file__).with_name("peer.json").read_text(encoding="utf-8"))["measured"]
    here = next((one for one in measured if one["processor"] == processor()), measured[-1])
    known: dict[str, dict[str, float]] = here["medians ms by threads of BLAS"]
    return known[str(max((int(n) for n in known if int(n) <= threads), default=1))]


def peer(repeat: int) -> list[Found]:
    a, b = normal(2, 1024, 1024)
    works: dict[str, Work] = {
        "numpy": partial(bare.matmul, a, b),
        "recorded first": recorded(kernels.tiled_matmul, (a, b), first=True),
        "recorded again": recorded(kernels.tiled_matmul, (a, b)),
    }
    agree("matmul", works["recorded first"]().result, works["numpy"](), 1e-4)
    again = replayed(kernels.tiled_matmul, (a, b))
    if again is not None:
        works["replayed"] = again
    times = dict(zip(works, alternately(list(works.values()), repeat), strict=True))
    medians = {name: statistics.median(kept) * 1e3 for name, kept in times.items()}
    found = []
    for how, bars in BARS.items():
        for tracer, bar in bars.items():
            name = f"matmul 1024³ fp32, faster than triton-viz {tracer} its tracer, {how}"
            found.append(_row(name, bar, how, noted(blas_threads()), f"triton-viz {tracer} tracer", medians))
    return found


def _row(name: str, bar: float, how: str, noted: dict[str, float], peer: str, now: dict[str, float]) -> Found:
    raw = {f"{peer} ms, noted": noted[peer], "numpy ms, noted": noted["numpy"], "numpy ms": now["numpy"]}
    if how not in now:
        return Found(name, None, bar, at_least=True, medians=raw)
    factor = noted[peer] / noted["numpy"] * now["numpy"] / now[how]
    return Found(name, factor, bar, at_least=True, medians={**raw, f"{how} ms": now[how]})
