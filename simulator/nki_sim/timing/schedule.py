"""When each instruction runs: a pure function of the recorded program and the NeuronCore.

Every engine takes its instructions in the order it is given; one starts when its engine is free and everything it depends
on is done; it occupies its engine for its cycles, and its result is there some time later. A DMA instruction is triggered
by a queue, one after the other; its bytes then take the DMA engines' time. Two orders: that of the program, and the one
a compiler may choose, in which of all instructions of an engine that could start, the first in the program does.

Every number is :class:`~nki_sim.hw.Latencies`' or the instruction's own; what comes out is an estimate.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from nki_sim.hw import NeuronCore
from nki_sim.program import Plan, Program
from nki_sim.timing.dependencies import ORDER, OUTPUT, TRUE, Dependencies, dependencies
from nki_sim.timing.descriptors import dma_shape, engine_ns

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
HALF = 0.5

Order = Literal["program", "compiler"]
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
        begin: of a DMA, its first byte; else ``start``.
        blocker: the step that the start waited for, -1 for none; ``waited`` is how long the lane stood idle for it.
        dependencies: who waits for whom.
        order: ``program`` or ``compiler``.
    """

    lanes: tuple[str, ...]
    lane: Ints
    start: Floats
    end: Floats
    done: Floats
    begin: Floats
    blocker: Ints
    waited: Floats
    dependencies: Dependencies = field(repr=False)
    order: Order = "program"

    @property
    def total(self) -> float:
        """ns from the first start to the last result."""
        return float(self.done.max()) if len(self.done) else 0.0

    @property
    def lanes_per_core(self) -> int:
        """Lanes of each core, of which the engines come first."""
        return len(self.lanes) // (1 + core_of(self.lanes[-1])[0])

    @property
    def lane_in_core(self) -> Ints:
        """Per step its lane among those of its core."""
        return self.lane % np.int32(self.lanes_per_core)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """``(producer, consumer)`` of every dependency."""
        return [(p, step) for step in range(len(self.lane)) for p in self.dependencies.of(step)]

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


def schedule(program: Program, core: NeuronCore, found: Dependencies | None = None, *, order: Order = "program") -> Timeline:
    """Schedule a program.

    Args:
        found: its dependencies, when they are known; else they are looked for.
        order: ``program``, or ``compiler``: any order within the dependencies.

    Raises:
        ValueError: another order.
    """
    if order not in ("program", "compiler"):
        raise ValueError(f"order is {order!r}: it is 'program' or 'compiler'")
    known = dependencies(program, core) if found is None else found
    clock = _Clock(program, core, known)
    for step in known.order if order == "program" else _by_readiness(clock):
        clock.issue(step)
    return clock.timeline(order)


@dataclass(frozen=True)
class _Held:
    """A plan's times in ns."""

    taker: int
    """The engine, or the queue after the engines, that takes it."""
    lane: int
    held: float
    after: float
    gap: float = 0.0
    load: float = 0.0
    table: str = ""
    ports: tuple[str, ...] = ()
    engines: int = 0
    moving: float = 0.0
    core: int = 0


class _Core:
    """What one core's instructions share beside its lanes."""

    def __init__(self, core: NeuronCore, first: int):
        self.first = first
        """Its first lane."""
        self.ports: dict[str, tuple[float, int]] = {}
        self.transfers = 0
        self.dma = _DmaEngines(core)
        self.table = ""
        self.weights = 0.0
        self.warmth = _Warmth(core.latencies.throttle)


class _Clock:
    """Lanes and when each is free. Lists, not arrays: one step at a time is what Python's are faster at."""

    def __init__(self, program: Program, core: NeuronCore, known: Dependencies):
        self.program, self.known, self._core = program, known, core
        self._latencies = core.latencies
        one = (*ENGINES, *(f"DMA q{i}" for i in range(core.dma_queues)))
        cores = 1 + max((plan.core for plan in program.plans), default=0)
        self.lanes = lane_names(one, cores)
        self._cores = [_Core(core, number * len(one)) for number in range(cores)]
        queues = sorted({plan.cost.queue for plan in program.plans if plan.engine == "dma"})
        self._takers = len(ENGINES) + len(queues)
        self.held = [self._hold(plan, queues) for plan in program.plans]
        self.free = [0.0] * (cores * self._takers)
        """When each engine, and each queue, can take its next step."""
        n, lanes = len(program), len(self.lanes)
        self._free, self._last = [0.0] * lanes, [-1] * lanes
        self._lane, self._blocker = array("i", bytes(4 * n)), array("i", bytes(4 * n))
        self._start, self._end, self.done, self._begin, self._waited = (array("d", bytes(8 * n)) for _ in range(5))
        self._sources = (known.first, known.producers, known.kinds, self.done, core.latencies.semaphore)
        self._queue_last = [-1] * len(self.free)
        self.found: dict[int, tuple[float, float, int]] = {}
        """What :meth:`ready` said of steps that are looked at before their turn."""

    def _hold(self, plan: Plan, queues: list[str]) -> _Held:
        latencies, cost, core = self._latencies, plan.cost, plan.core
        first = core * self._takers
        if plan.engine == "dma":
            engines, moving = dma_shape(plan).engines, engine_ns(plan, latencies, self._core.gen)
            if cost.link_ns:  # the links are slower than the engines that feed them
                engines, moving = 1, cost.link_ns
            taker = first + len(ENGINES) + queues.index(cost.queue)
            return _Held(taker, -1, 0.0, latencies.dma_end, engines=engines, moving=moving, core=core)
        clock = getattr(self._core.clocks, plan.engine, self._core.clocks.scalar)
        number, held = ENGINES.index(plan.engine), cost.cycles / clock
        taker, lane = first + number, self._cores[core].first + number
        if plan.engine == "tensor":
            after, load = latencies.tensor + cost.columns / clock, cost.load / clock
            return _Held(taker, lane, held, after, load=load, ports=cost.ports, core=core)
        gap = latencies.vector_gap_cycles / clock if plan.engine == "vector" else 0.0
        after = getattr(latencies, plan.engine, 0.0)
        return _Held(taker, lane, held, after, gap, table=cost.table, ports=cost.ports, core=core)

    # -- one step ----------------------------------------------------------------------------------------------------

    def ready(self, step: int, lane: int) -> tuple[float, float, int]:
        """When the data that a step reads is there for a lane, when everything it depends on is, and the step that was last."""
        first, producers, kinds, done, semaphore = self._sources
        data, ready, blocker = 0.0, 0.0, -1
        for i in range(first[step], first[step + 1]):
            producer, kind = producers[i], kinds[i]
            if kind == TRUE:
                there = done[producer] + semaphore
                if there > data:
                    data = there
            elif kind == ORDER:
                there = self._start[producer]
            elif self._lane[producer] == lane:  # its turn is enough: an engine reads and writes in order
                there = self._end[producer]
            else:
                there = (done[producer] if kind == OUTPUT else self._end[producer]) + semaphore
            if there > ready:
                ready, blocker = there, producer
        return data, ready, blocker

    def issue(self, step: int) -> None:
        """Put a step on its lane, after what it depends on."""
        held = self.held[self.program.plan_number(step)]
        if held.lane < 0:
            self._transfer(step, held)
        else:
            self._compute(step, held)

    def _compute(self, step: int, held: _Held) -> None:
        lane, core = held.lane, self._cores[held.core]
        free = self._free[lane]
        data, start, blocker = self.found.pop(step) if self.found else self.ready(step, lane)
        if held.load:  # the next weights load while the last matmul runs
            start = max(start, max(data, core.weights) + held.load)
        if held.table and held.table != core.table:
            core.table = held.table
            free += self._latencies.table_load
        if free >= start:
            start, blocker = free, self._last[lane]
        if held.ports:
            start, blocker = _at_port(core.ports, held.ports, start, blocker)
        duration = held.held
        if lane == core.first:
            duration = core.warmth.of(start, duration)
            core.weights = start
        end = start + duration
        for port in held.ports:
            core.ports[port] = (end, step)
        self._note(step, lane, (start, start, end, end + held.after), blocker)
        self._free[lane] = self.free[held.taker] = end + held.gap

    def _transfer(self, step: int, held: _Held) -> None:
        core, taker = self._cores[held.core], held.taker
        lane = core.first + len(ENGINES) + core.transfers % self._core.dma_queues
        core.transfers += 1
        _, start, blocker = self.ready(step, lane)
        for there, holder in ((self._free[lane], self._last[lane]), (self.free[taker], self._queue_last[taker])):
            if there > start:
                start, blocker = there, holder
        self.free[taker], self._queue_last[taker] = start + self._latencies.dma_issue, step
        begin, end = core.dma.move(start + self._latencies.dma_start, held.engines, held.moving)
        self._note(step, lane, (start, begin, end, end + held.after), blocker)
        self._free[lane] = end

    def _note(self, step: int, lane: int, times: tuple[float, float, float, float], blocker: int) -> None:
        self._lane[step] = lane
        self._blocker[step] = blocker
        waited = times[0] - self._free[lane]
        if waited > 0.0:
            self._waited[step] = waited
        self._start[step], self._begin[step], self._end[step], self.done[step] = times
        self._last[lane] = step

    def timeline(self, order: Order) -> Timeline:
        """All that was issued."""
        lane, blocker = (np.frombuffer(a, np.int32) if len(a) else np.zeros(0, np.int32) for a in (self._lane, self._blocker))
        start, end, done, begin, waited = (
            np.frombuffer(a, np.float64) if len(a) else np.zeros(0)
            for a in (self._start, self._end, self.done, self._begin, self._waited)
        )
        return Timeline(self.lanes, lane, start, end, done, begin, blocker, waited, self.known, order)


def lane_names(one: tuple[str, ...], cores: int) -> tuple[str, ...]:
    """The lanes of all cores: those of one where there is one, else with the core's number before each."""
    return one if cores == 1 else tuple(f"{number}: {name}" for number in range(cores) for name in one)


def core_of(lane: str) -> tuple[int, str]:
    """The core that a lane belongs to, and the lane's name there."""
    number, _, name = lane.rpartition(": ")
    return int(number or 0), name


def _at_port(held: dict[str, tuple[float, int]], ports: tuple[str, ...], start: float, blocker: int) -> tuple[float, int]:
    """When ports that engines share are free, and who held them."""
    for port in ports:
        there, holder = held.get(port, (0.0, -1))
        if there > start:
            start, blocker = there, holder
    return start, blocker


class _DmaEngines:
    """The DMA engines' time. A transfer takes ``engines`` of them, the ones that are free first."""

    def __init__(self, core: NeuronCore):
        self._count = core.dma_engines
        self._free = [0.0] * core.dma_engines
        self._level: float | None = 0.0
        """When all engines are free, if that is the same for all."""

    def move(self, ready: float, engines: int, ns: float) -> tuple[float, float]:
        """First and last byte of a transfer that is ready to start."""
        if engines == self._count and self._level is not None:
            begin = max(ready, self._level)
            self._level = begin + ns
            return begin, self._level
        if self._level is not None:
            self._free, self._level = [self._level] * self._count, None
        if engines == self._count:
            begin, last = max(ready, min(self._free)), max(self._free)
            self._free = [max(ready, free) + ns for free in self._free]
            if last <= ready:
                self._level = ready + ns
            return begin, max(ready, last) + ns
        heap = self._free
        heapq.heapify(heap)
        taken = [max(ready, heapq.heappop(heap)) for _ in range(engines)]
        for begin in taken:
            heapq.heappush(heap, begin + ns)
        return taken[0], taken[-1] + ns


class _Warmth:
    """The tensor engine's throttle: half speed at the start of a burst, full speed after ``length`` ns of one; when it was
    idle for more than half of such a window, the next burst starts anew."""

    def __init__(self, length: float):
        self._length = length
        self._burst = 0.0
        self._window, self._worked = 0.0, 0.0
        self._cold = True

    def of(self, start: float, duration: float) -> float:
        """The duration of a matmul that starts at ``start``, at the speed it has then."""
        if not self._length:
            return duration
        if start - self._window >= self._length:
            self._cold = self._worked < HALF * (start - self._window)
            if self._cold:
                self._burst = start
            self._window, self._worked = start, 0.0
        age = (start - self._burst) / self._length
        if age < 1.0:
            duration /= HALF + HALF * max(0.0, age)
        self._worked += duration
        return duration


def _by_readiness(clock: _Clock) -> Iterator[int]:
    """Steps as a list scheduler takes them: the engine or queue that can go on first takes, of what is ready, the first.

    Per engine or queue there are two heaps: what is ready by now, in program order, and what will be, by time.
    """
    known, plans, held, free = clock.known, clock.program.tables[0], clock.held, clock.free
    now: list[list[int]] = [[] for _ in free]
    later: list[list[tuple[float, int]]] = [[] for _ in free]
    open_ = [known.first[i + 1] - known.first[i] for i in range(len(known))]
    consumers, first = _transposed(known)

    next_ = [math.inf] * len(free)
    """When each of them can take its next step."""

    def enter(step: int) -> None:
        mine = held[plans[step]]
        found = clock.ready(step, mine.lane)
        if mine.lane >= 0:
            clock.found[step] = found
        taker, there = mine.taker, found[1]
        heapq.heappush(later[taker], (there, step))
        if there < next_[taker]:
            next_[taker] = there if there > free[taker] else free[taker]

    for step in range(len(known)):
        if not open_[step]:
            enter(step)
    for _ in range(len(known)):
        when = min(next_)
        best = next_.index(when)
        waiting, ready = later[best], now[best]
        while waiting and waiting[0][0] <= when:
            heapq.heappush(ready, heapq.heappop(waiting)[1])
        step = heapq.heappop(ready)
        yield step
        next_[best] = free[best] if ready else max(free[best], waiting[0][0]) if waiting else math.inf
        for consumer in consumers[first[step] : first[step + 1]]:
            open_[consumer] -= 1
            if not open_[consumer]:
                enter(consumer)


def _transposed(known: Dependencies) -> tuple[list[int], list[int]]:
    producers = np.frombuffer(known.producers, np.int32) if len(known.producers) else np.zeros(0, np.int32)
    first_of = np.frombuffer(known.first, np.int64)
    counts = first_of[1:] - first_of[:-1]
    steps = np.repeat(np.arange(len(known), dtype=np.int32), counts)
    order = np.argsort(producers, kind="stable")
    first = np.zeros(len(known) + 1, np.int32)
    np.cumsum(np.bincount(producers, minlength=len(known)), out=first[1:])
    return steps[order].tolist(), first.tolist()
