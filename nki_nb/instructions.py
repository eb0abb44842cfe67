"""The instructions of a run as a table, with the official profiler's column names: CSV or Parquet.

Columns are those of the tables ``Instruction`` and, for DMA, ``DmaPacketAggregated`` of the profile schema reference
(tools/neuron-explorer/profile-schema-reference), as far as a simulator knows them. Times are estimates.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from nki_sim import ops
from nki_sim.program import Plan
from nki_sim.run import Run
from nki_sim.timing import ENGINES, Profile, dma_shape

from nki_nb import extras
from nki_nb.atomic import whole
from nki_nb.recorded import NO_BYTES, Recorded, as_profile, performance_mode

COLUMNS: dict[str, type] = {
    "id": int, "start_ts": int, "end_ts": int, "duration_ns": int, "engine": str, "timeline_track": str, "opcode": str,
    "operands": str, "pc": int, "evt_wait_time_ns": int, "nki_source_location": str,
    **dict.fromkeys(NO_BYTES, int),
    "performance_mode": str, "tensor_instruction_type": str, "raw_flops": int, "flops_transpose": int,
    "scalar_activation_fn": str, "queue_name": str, "queue_type": str, "read_bytes": int, "write_bytes": int,
    "transfer_bytes": int, "trigger": int,
}  # fmt: skip
"""Names and types. ``id`` is the step; ``pc`` counts within an engine or queue; ``trigger`` is when a DMA was triggered."""

QUEUE_TYPES = {"static": "data", "gpsimd": "software_dynamic"}
"""Of queues whose descriptors the compiler or GpSimd makes; those of other engines are ``hardware_dynamic``."""

RISKY = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet take text for a formula."""

BATCH = 10_000

Row = dict[str, Any]


def save_instructions(run: Run | Profile, path: str | Path) -> Path:
    """Write one row per instruction: CSV or Parquet, by the file's name.

    Args:
        run: a run, of which ``run.profile()`` is taken, or a profile.
        path: the file, ``.csv`` or ``.parquet``.

    Raises:
        ValueError: the file's name ends otherwise.
        MissingExtraError: Parquet without pyarrow.
    """
    writers = {".csv": write_csv, ".parquet": write_parquet}
    target = Path(path)
    if target.suffix.lower() not in writers:
        raise ValueError(f"{target.name}: the name of an instruction table ends in .csv or .parquet")
    writers[target.suffix.lower()](as_profile(run), target)
    return target


def rows(run: Run | Profile) -> Iterator[Row]:
    """One row per instruction, in program order; ``None`` where a column does not apply."""
    profile = as_profile(run)
    line, recorded, counted = profile.timeline, Recorded(profile), _counters(profile)
    lanes = line.lane_in_core
    shared: dict[int, Row] = {}
    for index in range(profile.steps):
        step = recorded.step(index)
        number, dma = profile.program.plan_number(index), int(lanes[index]) >= len(ENGINES)
        if number not in shared:
            shared[number] = _of_plan(step.plan) | recorded.bytes(step)
        start, end = (line.begin, line.end) if dma else (line.start, line.done)
        first, last = round(float(start[index])), round(float(end[index]))
        yield {
            "id": index,
            "start_ts": first,
            "end_ts": last,
            "duration_ns": last - first,
            "timeline_track": line.lanes[int(line.lane[index])],
            "operands": step.text,
            "pc": int(counted[index]),
            "evt_wait_time_ns": round(float(line.waited[index])),
            "nki_source_location": recorded.place(step) or None,
            "trigger": round(float(line.start[index])) if dma else None,
            **shared[number],
        }


def _counters(profile: Profile) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Of each step, how many came before it on its engine; DMA queues count together."""
    line = profile.timeline
    engine = line.lane // line.lanes_per_core * (len(ENGINES) + 1) + np.minimum(line.lane_in_core, len(ENGINES))
    order = np.lexsort((np.arange(profile.steps), profile.timeline.start, engine))
    firsts = np.searchsorted(engine[order], engine[order])
    found = np.zeros(profile.steps, np.int64)
    found[order] = np.arange(profile.steps) - firsts
    return found


def _of_plan(plan: Plan) -> Row:
    """What all steps of a plan share."""
    tensor, moves = plan.engine == "tensor", plan.cost.transpose_flops > 0
    found: Row = {
        "engine": plan.engine,
        "opcode": plan.instruction,
        "performance_mode": performance_mode(plan),
        "tensor_instruction_type": ("TRANSPOSE" if moves else "REGULAR") if tensor else None,
        "raw_flops": plan.flops + plan.cost.transpose_flops if tensor else None,
        "flops_transpose": plan.cost.transpose_flops if tensor else None,
        "scalar_activation_fn": _activation(plan),
    }
    if plan.engine == "dma":
        size = [sum(_size(plan, i) for i in places) for places in (plan.reads, plan.writes)]
        found |= {
            "queue_name": plan.cost.queue,
            "queue_type": QUEUE_TYPES.get(plan.cost.queue, "hardware_dynamic"),
            "read_bytes": size[0],
            "write_bytes": size[1],
            "transfer_bytes": dma_shape(plan).bytes,
        }
    return found


def _size(plan: Plan, place: int) -> int:
    slot = plan.slots[place]
    return slot.itemsize * math.prod(slot.shape)


def _activation(plan: Plan) -> str | None:
    op = plan.params.get("op")
    return ops.lookup(op).name.upper() if plan.engine == "scalar" and op is not None else None


# -- files -----------------------------------------------------------------------------------------------------------


def write_csv(profile: Profile, path: Path) -> None:
    """Write the table as CSV."""
    with whole(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows(profile):
            writer.writerow([_cell(row.get(name)) for name in COLUMNS])
        text.detach()


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and value.startswith(RISKY) else value


def write_parquet(profile: Profile, path: Path) -> None:
    """Write the table as Parquet; its metadata say which kernel, target and order it is, and that times are estimates.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow = extras.load("pyarrow", "profile", "a Parquet file")
    parquet = extras.load("pyarrow.parquet", "profile", "a Parquet file")
    types = {int: arrow.int64(), str: arrow.string()}
    about = {"kernel": profile.kernel, "target": profile.target, "order": profile.order, "times": "estimates"}
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()], metadata=about)
    with whole(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for batch in _batches(rows(profile)):
            writer.write_batch(arrow.RecordBatch.from_pylist(batch, schema=schema))


def _batches(every: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(every)
    while batch := list(islice(iterator, BATCH)):
        yield batch
