"""What a viewer asks of a run: an overview once, then the details of one step, one tile or one element at a time.

Everything is plain data (JSON, arrays packed by :mod:`nki_nb.stepper.packing`), so that the same viewer works on a live
kernel and on a saved page. Nothing is computed before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from nki_sim import dtypes, mx
from nki_sim.dtypes import Array
from nki_sim.errors import Diagnosis
from nki_sim.memory import Allocation
from nki_sim.placement import MemoryMap
from nki_sim.program import Operand, Plan, Program, Step, format_value
from nki_sim.regions import Box, operand_box
from nki_sim.run import Run
from nki_sim.timing import Timeline, dma_shape
from nki_sim.trace import Replay
from threadpoolctl import ThreadpoolController

from nki_nb.stepper.folding import folds
from nki_nb.stepper.moves import moves
from nki_nb.stepper.packing import pack, pack_counts
from nki_nb.stepper.places import Places
from nki_nb.stepper.touches import Touches

LARGEST_TILE = 1 << 20
"""Elements of the largest tensor whose values are sent whole; of larger ones a window."""

MOST_TEXTS = 512
"""Program lines sent in one answer."""

MATMULS = ("nc_matmul", "nc_matmul_mx")
"""Instructions that are drawn as sums in PSUM."""


class Feed:
    """The data of one run, for viewers.

    Args:
        run: a finished run, or the part of one before a failure.
        failure: the diagnosis that ended it, if one did.
    """

    def __init__(self, run: Run, failure: Diagnosis | None = None):
        self.run = run
        self.failure = failure
        self._threads = ThreadpoolController()

    @cached_property
    def replay(self) -> Replay:
        return self.run.replay()

    @cached_property
    def timeline(self) -> Timeline:
        return self.run.timeline()

    # -- once --------------------------------------------------------------------------------------------------------

    def overview(self) -> dict[str, Any]:
        """Everything that is small: source, plans, allocations, and one packed number per step and fact."""
        run, program, line = self.run, self.run.program, self.timeline
        steps = range(len(program))
        plans = np.array([program.plan_number(i) for i in steps], np.int32)
        places = Places(program)
        touches = Touches(program)
        return {
            "kernel": run.name,
            "target": str(run.core),
            "cores": list(run.names),
            "steps": len(program),
            "plans": [_plan(p) for p in program.plans],
            "plan": pack_counts(plans),
            "site": pack_counts(places.site + 1),
            "sites": places.sites,
            "files": places.files,
            "folds": [[f.start, f.length, f.times] for f in folds(plans, places.lines)],
            "allocations": [_allocation(a) for a in program.allocations],
            "touch": pack_counts(touches.flat),
            "grids": touches.grids(),
            "memory": self._memory(),
            "time": {
                "lanes": list(line.lanes),
                "lane": pack_counts(line.lane),
                "start": pack(line.start, "f8"),
                "held": pack(line.end - line.start, "f4"),
                "after": pack(line.done - line.end, "f4"),
                "blocker": pack(line.blocker, "i4"),
                "waited": pack(line.waited, "f4"),
                "total": line.total,
                "estimate": True,
            },
            "findings": [_finding(d) for d in run.findings],
            "failure": {**_finding(self.failure), "tile": self._refused(self.failure)} if self.failure else None,
            "start": self.opening,
        }

    def _refused(self, failure: Diagnosis) -> int | None:
        """The tile that a refused instruction was about: the last one of the name in the call, or described alike."""
        if not failure.operand:
            return None
        given = failure.site.argument_text(failure.operand) if failure.site else ""
        name = given.partition("[")[0].partition(".")[0]
        latest = list(reversed(self.run.program.allocations))
        named = [a.id for a in latest if a.label == name]
        alike = [a.id for a in latest if failure.operand_words.startswith(a.words())]
        both = [number for number in named if number in alike]
        return next(iter(both or named or alike), None)

    @property
    def opening(self) -> int:
        """The step to show first: the one that failed or was found fault with, else the first."""
        last = max(len(self.run.program) - 1, 0)
        for diagnosis in [self.failure, *self.run.findings]:
            if diagnosis is not None and diagnosis.step is not None:
                return min(diagnosis.step, last)
        return 0

    def _memory(self) -> dict[str, Any]:
        core = self.run.core
        return {
            "each": [_sizes(memory) for memory in self.run.memories],
            "banks": core.psum_banks,
            "bank_bytes": core.psum_bank_bytes,
            "partitions": core.partitions,
        }

    # -- one step ----------------------------------------------------------------------------------------------------

    def step(self, index: int) -> dict[str, Any]:
        """One instruction: its operands and the boxes they touch, what kind of picture it makes, who it waited for."""
        step = self.run.program[index]
        return {
            "index": index,
            "instruction": step.instruction,
            "engine": step.engine,
            "line": step.line,
            "place": step.site.place if step.site else "",
            "lane": self.timeline.lanes[int(self.timeline.lane[index])],
            "text": step.text,
            "operands": [_operand(o, step) for o in step.operands],
            "params": {k: format_value(v) for k, v in step.plan.params.items()},
            "dma": _dma(step) if step.engine == "dma" else None,
            "matmul": self._matmul(step) if step.instruction in MATMULS else None,
            "cycles": step.plan.cycles,
        }

    def moves(self, index: int) -> list[dict[str, Any]]:
        """What a step gathers, scatters, shuffles, scans or selects."""
        return moves(self.run.program[index], self.replay)

    def look(self, index: int, element: Any = None) -> dict[str, Any]:
        """One instruction with all that its picture needs, in one answer.

        Args:
            index: the step.
            element: row and column of a matmul's result whose contributions are wanted; the middle where it has none.
        """
        plan = self.run.program.plan_at(index)
        wanted = [(k, False) for k, slot in enumerate(plan.slots) if slot.shape] + [(k, True) for k in plan.writes]
        values: list[dict[str, Any]] = [
            {"operand": k, "after": after, "matrix": self.operand(index, k, after=after)} for k, after in wanted
        ]
        found = {**self.step(index), "moves": self.moves(index), "values": values}
        if plan.instruction in MATMULS:
            rows, columns = next(v["matrix"]["shown"] for v in values if v["after"])
            row, column = element or (rows, columns)
            row, column = (row, column) if 0 <= row < rows and 0 <= column < columns else (rows // 2, columns // 2)
            found["element"] = {"row": row, "column": column, "answer": self.contributions(index, row, column)}
        return found

    def _matmul(self, step: Step) -> dict[str, Any]:
        group = self._group(step)
        return {
            "mode": step.plan.decided.get("mode", "overwrite"),
            "group": group,
            "position": group.index(step.index),
            "evicted": self._eviction(step, group[-1]),
        }

    def _group(self, step: Step) -> list[int]:
        """The steps of the accumulation group that a matmul belongs to: same destination, from overwrite to overwrite."""
        program, target = self.run.program, _destination(step)
        assert target.allocation is not None
        first = step.index
        while not self._overwrites(first) and first > target.allocation.born:
            first = next((i for i in range(first - 1, target.allocation.born - 1, -1) if self._adds_to(i, target)), -1)
            if first < 0:
                return [step.index]
        members = [first]
        for i in range(first + 1, target.allocation.last + 1):
            if self._adds_to(i, target):
                if self._overwrites(i):
                    break
                members.append(i)
            elif i > step.index and target.allocation.id in _written(program, i):
                break
        return members

    def _adds_to(self, index: int, target: Operand) -> bool:
        """Whether a step is a matmul into the same place as ``target``."""
        program = self.run.program
        plan = program.plan_at(index)
        assert target.allocation is not None
        if plan.instruction not in MATMULS or program.raw(index)[plan.writes[0]][0] != target.allocation.id:
            return False
        return operand_box(_destination(program[index])) == operand_box(target)

    def _overwrites(self, index: int) -> bool:
        return bool(self.run.program.plan_at(index).decided.get("mode", "overwrite") == "overwrite")

    def _eviction(self, step: Step, last: int) -> int | None:
        """The first step after the group that reads its result."""
        program, target = self.run.program, _destination(step)
        assert target.allocation is not None
        for i in range(last + 1, target.allocation.last + 1):
            plan = program.plan_at(i)
            if any(program.raw(i)[k][0] == target.allocation.id for k in plan.reads):
                return i
        return None

    def contributions(self, index: int, row: int, column: int) -> dict[str, Any]:
        """What each matmul of the group adds to element (row, column) of its destination, and the sum after it."""
        step = self.run.program[index]
        group = self._group(step)
        overwrite = [self._overwrites(i) for i in group]
        pairs = [[self._element(i, row, column, after=a) for a in (False, True)] for i in group]  # forward, once
        before, after = np.array(pairs).T
        with np.errstate(all="ignore"):
            added = np.where(overwrite, after, after - before)
        return {"steps": group, "overwrite": overwrite, "added": pack(added, "f8"), "sum": pack(after, "f8")}

    def _element(self, index: int, row: int, column: int, *, after: bool) -> float:
        plan = self.run.program.plan_at(index)
        values = self.replay.operand(index, plan.writes[0], after=after)
        assert values is not None
        return float(values.reshape(values.shape[0], -1)[row, column])

    def texts(self, start: int, stop: int) -> list[str]:
        """What each of some steps does, in a line."""
        return [self.run.program[i].text for i in range(max(start, 0), min(stop, len(self.run.program)))]

    # -- values ------------------------------------------------------------------------------------------------------

    def operand(self, index: int, number: int, *, after: bool = False) -> dict[str, Any] | None:
        """The values of an operand of a step, before or after it, as a matrix."""
        values = self.replay.operand(index, number, after=after)
        slot = self.run.program.plan_at(index).slots[number]
        return None if values is None else matrix(values, slot.dtype)

    def tensor(self, allocation: int, index: int) -> dict[str, Any]:
        """The values of a whole tensor before a step, as a matrix."""
        tensor = self.run.program.allocations[allocation]
        return matrix(self.replay.values(tensor, index), tensor.dtype.name)

    def first_nan(self) -> int | None:
        """The first step whose result holds a NaN that its inputs did not hold."""
        for i in range(len(self.run.program)):
            plan = self.run.program.plan_at(i)
            for number in plan.writes:
                if not dtypes.TABLE[plan.slots[number].dtype].is_float:
                    continue
                values = self.replay.operand(i, number, after=True)
                if values is not None and np.isnan(values.astype(np.float32)).any():
                    return i
        return None

    # -- requests ----------------------------------------------------------------------------------------------------

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Answer one request of the viewer.

        Raises:
            ValueError: the request is none of those above.
        """
        # Steps are answered one small product at a time, where BLAS threads cost more than they give.
        with self._threads.limit(limits=1, user_api="blas"):
            return self._answer(request)

    def _answer(self, request: Mapping[str, Any]) -> Any:
        kind = request.get("kind")
        if kind == "overview":
            return self.overview()
        if kind == "step":
            return self.look(self._step_of(request), request.get("element"))
        if kind == "texts":
            return self.texts(int(request["start"]), min(int(request["stop"]), int(request["start"]) + MOST_TEXTS))
        if kind == "operand":
            return self.operand(self._step_of(request), int(request["operand"]), after=bool(request.get("after")))
        if kind == "tensor":
            return self.tensor(int(request["allocation"]), self._step_of(request))
        if kind == "contributions":
            return self.contributions(self._step_of(request), int(request["row"]), int(request["column"]))
        if kind == "first_nan":
            return self.first_nan()
        raise ValueError(f"unknown request {kind!r}")

    def _step_of(self, request: Mapping[str, Any]) -> int:
        index = int(request["step"])
        if not 0 <= index < len(self.run.program):
            raise ValueError(f"step {index} of {len(self.run.program)}")
        return index


def matrix(values: Array, dtype: str) -> dict[str, Any]:
    """A tensor as rows (its first dimension) by columns (the rest), with its bits; a window of it when it is large.

    The bits of float32 are those of the values and are not sent twice. Packed elements are shown as the four they are.
    """
    if dtype in mx.ELEMENTS:
        values = mx.elements(values, dtype)
    flat = values.reshape(values.shape[0], -1) if values.ndim > 1 else values.reshape(1, -1)
    rows, columns = flat.shape
    shown = flat[: max(1, min(rows, LARGEST_TILE // max(1, columns))), :LARGEST_TILE]
    width = flat.dtype.itemsize
    same = flat.dtype == np.float32
    bits = None if same else pack(np.ascontiguousarray(shown).view(np.dtype(f"u{min(width, 4)}")), f"u{min(width, 4)}")
    return {
        "dtype": dtype,
        "shape": list(values.shape),
        "rows": rows,
        "columns": columns,
        "shown": list(shown.shape),
        "values": pack(shown.astype(np.float32), "f4"),
        "bits": bits,
        "width": width,
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {"instruction": plan.instruction, "engine": plan.engine, "cycles": plan.cycles,
            "touches": sum(1 for slot in plan.slots if slot.shape), "core": plan.core}  # fmt: skip


def _sizes(memory: MemoryMap) -> dict[str, dict[str, int]]:
    return {
        "sbuf": {"limit": memory.sbuf.limit, "peak": memory.sbuf.peak, "high": memory.sbuf.high_water},
        "psum": {"limit": memory.psum.limit, "peak": memory.psum.peak, "high": memory.psum.high_water},
    }


def _allocation(a: Allocation) -> dict[str, Any]:
    return {
        "id": a.id,
        "label": a.label,
        "region": "hbm" if not a.region.on_chip else a.region.value,
        "role": a.role,
        "shape": list(a.shape),
        "dtype": a.dtype.name,
        "partitions": a.partitions,
        "start_partition": a.address[0] if a.address else 0,
        "row_bytes": a.row_bytes,
        "placed": a.placed or 0,
        "pinned": a.address is not None,
        "born": a.born,
        "last": a.last,
        "line": a.line,
        "core": a.core,
    }


def _operand(operand: Operand, step: Step) -> dict[str, Any]:
    number = step.operands.index(operand)
    out: dict[str, Any] = {"name": operand.slot.name, "label": operand.label, "access": operand.slot.access}
    if operand.allocation is None:
        return out
    box = operand_box(operand)
    out |= {
        "number": number,
        "allocation": operand.allocation.id,
        "dtype": operand.slot.dtype,
        "shape": list(operand.slot.shape),
        "pattern": [[s, n] for s, n in zip(operand.slot.strides, operand.slot.shape, strict=True)],
        "offset": operand.offset,
        "gathers": operand.slot.gathers,
        "box": _box(box),
        "writes": number in step.plan.writes,
    }
    return out


def _box(box: Box) -> list[list[int]]:
    return [[a, b] for a, b in zip(box.first, box.last, strict=True)]


def _destination(step: Step) -> Operand:
    return step.operands[step.plan.writes[0]]


def _dma(step: Step) -> dict[str, Any]:
    shape = dma_shape(step.plan)
    kinds = []
    if step.instruction == "dma_transpose":
        kinds.append("transpose")
    if step.instruction == "sendrecv":
        kinds.append("exchange")
    for operand in step.operands:
        if operand.slot.gathers:
            kinds.append("scatter" if operand.slot.name == "dst" else "gather")
        elif operand.slot.name == "src" and any(
            s == 0 and n > 1 for s, n in zip(operand.slot.strides, operand.slot.shape, strict=True)
        ):
            kinds.append("broadcast")
    regions = {
        o.slot.name: ("hbm" if not o.allocation.region.on_chip else o.allocation.region.value)
        for o in step.operands
        if o.allocation is not None and o.slot.name in ("dst", "src")
    }
    return {
        "bytes": shape.bytes,
        "descriptors": shape.descriptors,
        "descriptor_bytes": shape.descriptor_bytes,
        "efficiency": min(1.0, shape.descriptor_bytes / 2048),
        "kinds": kinds or ["copy"],
        "regions": regions,
    }


def _finding(diagnosis: Diagnosis) -> dict[str, Any]:
    return {**diagnosis.as_dict(), "text": diagnosis.text()}


def _written(program: Program, index: int) -> set[int]:
    raw = program.raw(index)
    return {raw[i][0] for i in program.plan_at(index).writes}


__all__ = ["Feed", "matrix"]
