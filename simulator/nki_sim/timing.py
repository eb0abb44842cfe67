"""When each instruction runs: a pure function of the recorded program and the NeuronCore.

The simplest honest schedule: every engine and every DMA queue takes its instructions in program order; an instruction
starts when its engine is free and everything it depends on is done; it occupies its engine for its documented cycles.
Dependencies are true ones: read after write, write after read and write after write on overlapping accesses, plus
``depends_on``. Constants that the documents do not state are fits and marked as estimates; so is every result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nki_sim.hw import NeuronCore
from nki_sim.memory import Allocation, overlaps
from nki_sim.program import Plan, Program, Slot
from nki_sim.regions import Box, box_of

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")

# Read off profiler screenshots in the public documents (trn2); none is stated in their prose: estimates.
PIPELINE_NS = {"tensor": 164.0, "vector": 155.0, "scalar": 296.0, "gpsimd": 155.0, "sync": 0.0}
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
    explicit: dict[int, tuple[int, ...]] = {}
    for consumer, named in dependencies or ():
        explicit[consumer] = (*explicit.get(consumer, ()), *named)
    clock = _Clock(core)
    history = _History(program)
    for step in range(len(program)):
        number = program.plan_number(step)
        producers = history.producers(step, number)
        if step in explicit:
            producers.update(explicit[step])
        clock.issue(step, number, program.plans[number], producers)
    return clock.timeline()


class _Clock:
    """Lanes and when each is free. Lists, not arrays: one step at a time is what Python's are faster at."""

    def __init__(self, core: NeuronCore):
        self._core = core
        self._lanes = (*ENGINES, *(f"DMA q{i}" for i in range(core.dma_queues)))
        self._clocks = {name: getattr(core.clocks, name, core.clocks.scalar) for name in ENGINES}
        self._costs: dict[int, tuple[int, float, float]] = {}
        self._free = [0.0] * len(self._lanes)
        self._last = [-1] * len(self._lanes)
        self._issued: tuple[float, int] = (0.0, -1)
        self._transfers = 0
        self._lane: list[int] = []
        self._start: list[float] = []
        self._end: list[float] = []
        self._done: list[float] = []
        self._blocker: list[int] = []
        self._waited: list[float] = []
        self._edges: list[tuple[int, int]] = []

    def issue(self, step: int, number: int, plan: Plan, producers: set[int]) -> None:
        """Put the next step on its lane, after what it depends on."""
        cost = self._costs.get(number)
        if cost is None:
            cost = self._costs[number] = self._cost(plan)
        lane, held, after = cost
        is_dma = lane < 0
        if is_dma:
            lane = len(ENGINES) + self._transfers % self._core.dma_queues
            self._transfers += 1
        free = self._free[lane]
        ready, blocker = free, self._last[lane]
        done, lanes = self._done, self._lane
        for producer in sorted(producers):
            there = done[producer] if lanes[producer] == lane else done[producer] + SEMAPHORE_NS
            if there > ready:
                ready, blocker = there, producer
            self._edges.append((producer, step))
        if is_dma:
            if self._issued[0] > ready:
                ready, blocker = self._issued
            self._issued = (ready + DMA_ISSUE_NS, step)
        end = ready + held
        lanes.append(lane)
        self._start.append(ready)
        self._end.append(end)
        done.append(end + after)
        self._blocker.append(blocker)
        self._waited.append(ready - free)
        self._free[lane], self._last[lane] = end, step

    def _cost(self, plan: Plan) -> tuple[int, float, float]:
        if plan.engine == "dma":
            return -1, *_cost(plan, self._clocks)
        return ENGINES.index(plan.engine), *_cost(plan, self._clocks)

    def timeline(self) -> Timeline:
        """All that was issued."""
        ints = [np.array(values, np.int32) for values in (self._lane, self._blocker)]
        floats = [np.array(values, np.float64) for values in (self._start, self._end, self._done, self._waited)]
        start, end, done, waited = floats
        return Timeline(self._lanes, ints[0], start, end, done, ints[1], waited, self._edges)


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
    slots = [plan.slots[i] for i in (*plan.writes, *plan.reads)]
    tensors = [slot for slot in slots if slot.name.rstrip("0123456789") in ("dst", "src")]  # one, or src0, src1 …; no index
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

    def __init__(self, program: Program):
        self._program = program
        allocations = program.allocations
        self._writes: list[list[tuple[Box, int]]] = [[] for _ in allocations]
        self._reads: list[list[tuple[Box, int]]] = [[] for _ in allocations]
        self._shared = _aliases(list(allocations))
        self._accesses: dict[int, tuple[tuple[int, Slot, bool, bool], ...]] = {}
        self._boxes: dict[tuple[int, int, int, int], Box] = {}

    def producers(self, step: int, number: int) -> set[int]:
        """Steps that must be done before this one; notes this step's own accesses."""
        operands = self._program.raw(step)
        touched = []
        for i, slot, writes, keeps in self._accesses_of(number):
            a, offset = operands[i]
            if a < 0:
                continue
            key = (number, i, a, offset)
            box = self._boxes.get(key)
            if box is None:
                box = self._boxes[key] = box_of(self._program.allocations[a], slot, offset)
            touched.append((a, box, writes, keeps))
        found: set[int] = set()
        for a, box, writes, _ in touched:
            found.update([s for b, s in self._writes[a] if b is box or b.overlaps(box)])
            if writes:
                found.update([s for b, s in self._reads[a] if b is box or b.overlaps(box)])
            for other in self._shared.get(a, ()):
                found.update([s for _, s in self._writes[other]])
                if writes:
                    found.update([s for _, s in self._reads[other]])
        for a, box, writes, keeps in touched:
            self._note(a, (box, step), writes, keeps)
        return found

    def _accesses_of(self, number: int) -> tuple[tuple[int, Slot, bool, bool], ...]:
        """Per operand of a plan: its place, its slot, whether it is written, and whether its old value counts too."""
        found = self._accesses.get(number)
        if found is None:
            plan = self._program.plans[number]
            order = (*plan.reads, *plan.writes)
            found = tuple((i, plan.slots[i], i in plan.writes, i in plan.updates) for i in order)
            self._accesses[number] = found
        return found

    def _note(self, allocation: int, access: tuple[Box, int], writes: bool, keeps: bool) -> None:
        box = access[0]
        reads = self._reads[allocation]
        if writes:
            if not keeps:
                self._writes[allocation] = [w for w in self._writes[allocation] if w[0] is not box and not box.contains(w[0])]
            self._writes[allocation].append(access)
            if reads:
                self._reads[allocation] = [r for r in reads if r[0] is not box and not box.contains(r[0])]
            return
        if len(reads) > 64:  # an input read all over: only the latest reader of a box can matter
            reads[:] = [r for r in reads if r[0] != box]
        reads.append(access)


def _aliases(allocations: list[Allocation]) -> dict[int, tuple[int, ...]]:
    """Explicit placements that share bytes with each other."""
    pinned = [a for a in allocations if a.address is not None]
    shared: dict[int, tuple[int, ...]] = {}
    for a in pinned:
        others = tuple(b.id for b in pinned if b is not a and b.region is a.region and overlaps(a, b))
        if others:
            shared[a.id] = others
    return shared
