"""``python -m benchmarks [--json] [--quick] [--threads N] [NAME …]``: the table of what the simulator takes, beside its bars.

Without names everything that has a bar; ``stepper`` (stepping through a run) and ``schedule`` (the timing model) by name.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import loading, memory, peer, schedule, stepper, work
from benchmarks.found import Found
from benchmarks.measuring import blas_threads, processor

TABLE: dict[str, Callable[[int], list[Found]]] = {
    "overhead": work.overhead,
    "matmul": work.matmuls,
    "attention": work.attention,
    "softmax": work.softmax,
    "rmsnorm": work.rmsnorm,
    "layernorm": work.layernorm,
    "peer": peer.peer,
    "load_ext": loading.load_ext,
    "memory": memory.memory,
}
BY_NAME = {"stepper": stepper.stepper, "schedule": schedule.schedules}
REPEAT, QUICK = 15, 5


def load() -> str:
    """How busy the machine was before: one that runs other work slows small products with several threads most."""
    return f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""


def heading() -> str:
    return (
        f"{datetime.date.today().isoformat()}, {processor()}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, threads of BLAS: {blas_threads()}{load()}\n\n"
        "| work | measured | bar | |\n|---|---|---|---|"
    )


def number(value: float, unit: str) -> str:
    """Three digits, or all before the point, and the unit."""
    return (f"{value:.3g}" if value < 1000 else f"{value:,.0f}") + (f" {unit}" if unit else "×")


def line(row: Found) -> str:
    """A line of a Markdown table, misses in bold."""
    measured = "not there yet" if row.ratio is None else number(row.ratio, row.unit)
    bar = "" if row.bar is None else ("≥ " if row.at_least else "") + number(row.bar, row.unit)
    raw = ", ".join(f"{name} {value:,.4g}" if value < 1e4 else f"{name} {value:,.0f}" for name, value in row.medians.items())
    return f"| {row.name} | {f'**{measured}**' if row.missed else measured} | {bar} | {raw} |"


def as_object(row: Found) -> dict[str, object]:
    made: dict[str, object] = {"name": row.name, "ratio": row.ratio, "bar": row.bar, "medians": row.medians}
    if row.unit:
        made["unit"] = row.unit
    if row.bar is not None and row.ratio is not None:
        made["missed"] = row.missed
    return made


def main() -> None:
    known = {**TABLE, **BY_NAME}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--json", action="store_true", help="one object a row")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    threads = "threads of BLAS, for the simulator and for NumPy: 1 unless given, 0 for as many as there are"
    parser.add_argument("--threads", type=int, default=1, metavar="N", help=threads)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no {', '.join(unknown)}: choose from {', '.join(known)}")
    threadpool_limits(options.threads or None, "blas")
    if not options.json:
        print(heading(), flush=True)
    for name in options.names or TABLE:
        for row in known[name](QUICK if options.quick else REPEAT):
            print(json.dumps(as_object(row), ensure_ascii=False) if options.json else line(row), flush=True)


if __name__ == "__main__":
    main()
