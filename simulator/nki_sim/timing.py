"""When each instruction runs: a pure function of the recorded program and the NeuronCore.

The simplest honest schedule: every engine and every DMA queue takes its instructions in program order; an instruction
starts when its engine is free and everything it depends on is done; it occupies its engine for its documented cycles.
Dependencies are true ones: read after write, write after read and write after write on overlapping accesses, plus
``depends_on``. Constants that the documents do not state are fits and marked as estimates; so is every result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nki_sim.hw import NeuronCore
from nki_sim.memory import Allocation, overlaps
from nki_sim.program import Plan, Program
from nki_sim.regions import Box, box_of

ENGINES = ("tensor", "vector", "scalar", "gpsimd")

# Read off profiler screenshots in the public documents (trn2); none is stated in their prose: estimates.
PIPELINE_NS = {"tensor": 164.0, "vector": 155.0, "scalar": 296.0, "gpsimd": 155.0}
"""From the last cycle of an instruction to its result."""
SEMAPHORE_NS = 28.0
"""From a result to the start of an instruction on another engine that waits for it."""
# The DMA overview and bandwidth guide: about 1300 ns from semaphore to start, about 600 ns per descriptor generation.
DMA_ISSUE_NS = 600.0
DMA_FIXED_NS = 1300.0
# A fit to measured packet times (32 KiB, 8 KiB, 4 KiB runs): an estimate.
DESCRIPTOR_NS = 9.0
DESCRIPTOR_BYTES_PER_NS = 24.5
PARTITIONS_PER_ENGINE = 8

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass
class Timeline:
    """The schedule of one program; times in ns from the kernel's start, one entry per step.

    Attributes:
        lanes: lane names: the engines, then the DMA queues.
        lane: index into ``lanes``.
        start, end: when the lane is occupied.
        done: when the result is there.
        blocker: the step that the start waited for, -1 for none; ``waited`` is how long the lane stood idle for it.
    """

    lanes: tuple[str, ...]
    lane: Ints
    start: Floats
    end: Floats
    done: Floats
    blocker: Ints
    waited: Floats
    edges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def total(self) -> float:
        """ns from the first start to the last result."""
        return float(self.done.max()) if len(self.done) else 0.0

    def busy(self) -> dict[str, float]:
        """ns each lane is occupied."""
        sums = np.bincount(self.lane, self.end - self.start, len(self.lanes)) if len(self.lane) else np.zeros(len(self.lanes))
        return {name: float(n) for name, n in zip(self.lanes, sums, strict=True)}

    def critical_path(self) -> list[int]:
        """The chain of steps that decides the total, first to last."""
        if not len(self.done):
            return []
        step, path = int(self.done.argmax()), []
        while step >= 0:
            path.append(step)
            step = int(self.blocker[step])
        return path[::-1]


def schedule(program: Program, core: NeuronCore, dependencies: list[tuple[int, tuple[int, ...]]] | None = None) -> Timeline:
    """Schedule a program in program order."""
    n = len(program)
    lanes = (*ENGINES, *(f"DMA q{i}" for i in range(core.dma_queues)))
    line = Timeline(lanes, np.zeros(n, np.int32), np.zeros(n), np.zeros(n), np.zeros(n), np.full(n, -1, np.int32), np.zeros(n))
    explicit: dict[int, tuple[int, ...]] = {}
    for consumer, producers in dependencies or ():
        explicit[consumer] = (*explicit.get(consumer, ()), *producers)
    lane_free, lane_last = [0.0] * len(lanes), [-1] * len(lanes)
    issue_free, issue_last = 0.0, -1
    history = _History(program.allocations)
    clocks = {name: getattr(core.clocks, name) for name in ENGINES}
    costs: dict[int, tuple[float, float]] = {}
    transfers = 0
    for step in range(n):
        number = program.plan_number(step)
        plan = program.plans[number]
        is_dma = plan.engine == "dma"
        if is_dma:
            lane = len(ENGINES) + transfers % core.dma_queues
            transfers += 1
        else:
            lane = ENGINES.index(plan.engine)
        if number not in costs:
            costs[number] = _cost(plan, clocks)
        held, after = costs[number]
        ready, blocker = lane_free[lane], lane_last[lane]
        for producer in [*history.producers(step, plan, program.raw(step)), *explicit.get(step, ())]:
            crossing = SEMAPHORE_NS if line.lane[producer] != lane else 0.0
            if line.done[producer] + crossing > ready:
                ready, blocker = line.done[producer] + crossing, producer
            line.edges.append((producer, step))
        if is_dma and issue_free > ready:
            ready, blocker = issue_free, issue_last
        line.lane[step], line.blocker[step] = lane, blocker
        line.waited[step] = ready - lane_free[lane]
        line.start[step], line.end[step] = ready, ready + held
        line.done[step] = ready + held + after
        lane_free[lane], lane_last[lane] = ready + held, step
        if is_dma:
            issue_free, issue_last = ready + DMA_ISSUE_NS, step
    return line


def _cost(plan: Plan, clocks: dict[str, float]) -> tuple[float, float]:
    """``(ns the lane is occupied, ns from then to the result)``."""
    if plan.engine != "dma":
        return plan.cycles / clocks[plan.engine], PIPELINE_NS[plan.engine]
    shape = dma_shape(plan)
    engines = min(16, -(-shape.descriptors // PARTITIONS_PER_ENGINE))
    each = -(-shape.descriptors // engines)
    moving = each * (DESCRIPTOR_NS + shape.descriptor_bytes / DESCRIPTOR_BYTES_PER_NS)
    return DMA_FIXED_NS + moving, 0.0


@dataclass(frozen=True)
class DmaShape:
    """How a DMA instruction falls into descriptors: one per contiguous run of bytes on both sides."""

    bytes: int
    descriptors: int
    descriptor_bytes: int


def dma_shape(plan: Plan) -> DmaShape:
    """The descriptors of a DMA plan."""
    tensors = [plan.slots[i] for i in (*plan.writes, *plan.reads) if plan.slots[i].name in ("dst", "src")]
    total, runs = 0, []
    for slot in tensors:
        size = slot.itemsize
        for n in slot.shape:
            size *= n
        total = max(total, size)
        run = slot.itemsize
        skip_first = 1 if slot.on_chip else 0
        for n, stride in reversed(list(zip(slot.shape[skip_first:], slot.strides[skip_first:], strict=True))):
            if n != 1 and stride * slot.itemsize != run:
                break
            run *= n
        runs.append(run)
    run = max(1, min(runs, default=1))
    return DmaShape(total, -(-total // run), run)


class _History:
    """Who touched what last, per allocation: enough to find the true dependencies of the next step."""

    def __init__(self, allocations: Sequence[Allocation]):
        self._allocations = list(allocations)
        self._writes: dict[int, list[tuple[Box, int]]] = {}
        self._reads: dict[int, list[tuple[Box, int]]] = {}
        self._shared = _aliases(self._allocations)

    def producers(self, step: int, plan: Plan, operands: list[tuple[int, int]]) -> set[int]:
        """Steps that must be done before this one; notes this step's own accesses."""
        found: set[int] = set()
        touched = [(i, *operands[i]) for i in (*plan.reads, *plan.writes) if operands[i][0] >= 0]
        boxes = {i: box_of(self._allocations[a], plan.slots[i], offset) for i, a, offset in touched}
        for i, a, _ in touched:
            writes = i in plan.writes
            for other in (a, *self._shared.get(a, ())):
                found.update(self._conflicts(other, boxes[i] if other == a else None, writes))
        for i, a, _ in touched:
            if i in plan.writes:
                box = boxes[i]
                keep = i in plan.updates
                self._writes[a] = [(b, s) for b, s in self._writes.get(a, ()) if keep or not box.contains(b)]
                self._writes[a].append((box, step))
                self._reads[a] = [(b, s) for b, s in self._reads.get(a, ()) if not box.contains(b)]
            else:
                self._note_read(a, boxes[i], step)
        found.discard(step)
        return found

    def _note_read(self, allocation: int, box: Box, step: int) -> None:
        reads = self._reads.setdefault(allocation, [])
        if len(reads) > 64:  # an input read all over: only the latest reader of a box can matter
            reads[:] = [(b, s) for b, s in reads if b != box]
        reads.append((box, step))

    def _conflicts(self, allocation: int, box: Box | None, writes: bool) -> Iterator[int]:
        for b, s in self._writes.get(allocation, ()):
            if box is None or b.overlaps(box):
                yield s
        if writes:
            for b, s in self._reads.get(allocation, ()):
                if box is None or b.overlaps(box):
                    yield s


def _aliases(allocations: list[Allocation]) -> dict[int, tuple[int, ...]]:
    """Explicit placements that share bytes with each other."""
    pinned = [a for a in allocations if a.address is not None]
    shared: dict[int, tuple[int, ...]] = {}
    for a in pinned:
        others = tuple(b.id for b in pinned if b is not a and b.region is a.region and overlaps(a, b))
        if others:
            shared[a.id] = others
    return shared
