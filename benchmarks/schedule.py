"""How fast programs are traced and scheduled, and what their record takes, from 10 000 to 1 000 000 instructions.

Shapes only, no data.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from itertools import pairwise
from typing import Any

import nki_sim
from nki_sim.timing import dependencies, schedule

from benchmarks.found import Found
from benchmarks.kernels import nisa, nki, nl

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
FEW = 5


@nki.jit
def tiles(x: Any, rounds: int) -> Any:
    """Four instructions a round: load, scale, add in PSUM, and every eighth time a store."""
    out = nl.ndarray((rounds // 8 + 1, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = nl.load(x)
    for i in range(rounds // 8):
        total = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        for k in range(8):
            tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
            nisa.nc_matmul(dst=total, stationary=weights, moving=tile, accumulate=(k > 0))
        result = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[i], src=result)
    return out


def measure(steps: int) -> dict[str, float]:
    """Microseconds per instruction, bytes per instruction."""
    rounds = steps // 26 * 8
    began = time.perf_counter()
    run = nki_sim.trace(tiles, ((128, 128), "bfloat16"), rounds)
    traced = time.perf_counter()
    n = len(run.program)
    known = dependencies(run.program, run.core)
    found = time.perf_counter()
    schedule(run.program, run.core, known)
    program = time.perf_counter()
    schedule(run.program, run.core, known, order="compiler")
    compiler = time.perf_counter()
    marks = (began, traced, found, program, compiler)
    times = zip(("trace", "dependencies", "program", "compiler"), (b - a for a, b in pairwise(marks)), strict=True)
    return {"steps": n, **{name: 1e6 * seconds / n for name, seconds in times}}


def held(steps: int) -> float:
    """Bytes that the record and a timeline take, per instruction, beside the input's array."""
    gc.collect()
    tracemalloc.start()
    run = nki_sim.trace(tiles, ((128, 128), "bfloat16"), steps // 26 * 8)
    run.timeline()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arrays = sum(a.row_bytes for a in run.program.allocations if a.role == "input")
    return (size - arrays) / len(run.program)


def schedules(repeat: int) -> list[Found]:
    """Per instruction and size: tracing, dependencies, both orders; few repetitions mean up to 100 000 instructions."""
    found = []
    for steps in SIZES[: 3 if repeat <= FEW else None]:
        row = measure(steps)
        size = f"{row['steps']:,.0f}".replace(",", " ") + " instructions"
        found += [Found(f"{size}, {name}", row[name], None, "µs") for name in ("trace", "dependencies")]
        for order in ("program", "compiler"):
            rate = 1e6 / (row["dependencies"] + row[order])
            found.append(Found(f"{size}, order of the {order}", row[order], None, "µs", medians={"scheduled per second": rate}))
    return [*found, Found("memory of record and timeline per instruction", held(30_000), None, "B")]
