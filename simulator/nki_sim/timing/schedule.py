"""When each instruction runs: a pure function of the recorded program and the NeuronCore.

Every engine takes its instructions in the order it is given; one starts when its engine is free and everything it depends
on is done; it occupies its engine for its cycles, and its result is there some time later. A DMA instruction is triggered
by a queue, one after the other; its bytes then take the DMA engines' time. Two orders: that of the program, and the one
a compiler may choose, in which of all instructions of an engine that could start, the first in the program does.

Every number is :class:`~nki_sim.hw.Latencies`' or the instruction's own; what comes out is an estimate.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from nki_sim.hw import NeuronCore
from nki_sim.program import Order, Plan, Program
from nki_sim.timing.dependencies import ANTI, ORDER, OUTPUT, TRUE, Dependencies, dependencies
from nki_sim.timing.descriptors import dma_shape, engine_ns
from nki_sim.timing.resources import DmaEngines, Warmth
from nki_sim.timing.timeline import ENGINES, Ints, Timeline, lane_names


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
    clock.run(known.order if order == "program" else _by_readiness(clock))
    return clock.timeline(order)


class _Held(NamedTuple):
    """A plan's times in ns."""

    taker: int
    """The engine, or the queue after the engines, that takes it."""
    lane: int
    """-1 for a DMA, whose lane is chosen when it starts."""
    core: _Core
    held: float
    after: float
    gap: float = 0.0
    load: float = 0.0
    table: str = ""
    ports: tuple[str, ...] = ()
    engines: int = 0
    moving: float = 0.0


class _Core:
    """What one core's instructions share beside its lanes."""

    def __init__(self, core: NeuronCore, first: int):
        self.first = first
        """Its first lane, which is the tensor engine's."""
        self.ports: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, -1))
        self.transfers = 0
        self.dma = DmaEngines(core)
        self.table = ""
        self.weights = 0.0
        self.warmth = Warmth(core.latencies.throttle)


START, END, END_HEARD, OVERWRITTEN, READ = range(5)
"""Which time of a step another one waits for: its start; its end, where one engine does both in its order; its end, heard
of by another engine; its result, which is overwritten, or read."""


class _Waits:
    """Per step who waits for it, ``consumers[first[i]:first[i + 1]]``, and for which of its times, ``signals``."""

    def __init__(self, known: Dependencies, lane: Ints):
        producers, kinds = _numbers(known.producers, np.int32), _numbers(known.kinds, np.int8)
        count = np.diff(_numbers(known.first, np.int64))
        consumers = np.repeat(np.arange(len(known), dtype=np.int32), count)
        mine, theirs = lane[consumers], lane[producers]
        signals = np.array([START, END_HEARD, OVERWRITTEN, READ], np.int8)[kinds]
        over = (kinds == ANTI) | (kinds == OUTPUT)
        signals[over & (mine == theirs) & (mine >= 0)] = END
        by_producer = np.argsort(producers, kind="stable")
        first = np.zeros(len(known) + 1, np.int64)
        np.cumsum(np.bincount(producers, minlength=len(known)), out=first[1:])
        self.first, self.open = first.tolist(), count.tolist()
        self.consumers, self.signals = consumers[by_producer].tolist(), signals[by_producer].tolist()
        self.by_lane = set(consumers[over & (mine < 0) & (theirs < 0)].tolist())
        """DMA that follow DMA: what they wait for depends on the lanes that both get."""


class _Clock:
    """Lanes and when each is free. Lists, not arrays: one step at a time is what Python's are faster at."""

    def __init__(self, program: Program, core: NeuronCore, known: Dependencies):
        self.known, self._core = known, core
        one = (*ENGINES, *(f"DMA q{i}" for i in range(core.dma_queues)))
        cores = 1 + max((plan.core for plan in program.plans), default=0)
        self.lanes = lane_names(one, cores)
        self._cores = [_Core(core, number * len(one)) for number in range(cores)]
        queues = sorted({plan.cost.queue for plan in program.plans if plan.engine == "dma"})
        self._takers = len(ENGINES) + len(queues)
        self.plans, self.held = program.tables[0], [self._hold(plan, queues) for plan in program.plans]
        self.free = [0.0] * (cores * self._takers)
        """When each engine, and each queue, can take its next step."""
        n, lanes = len(program), len(self.lanes)
        lane_of = np.array([held.lane for held in self.held], np.int32)
        self.lane = lane_of[_numbers(self.plans, np.int32)]
        self.waits = _Waits(known, self.lane)
        self.ready, self.opened = [0.0] * n, array("i")
        """When everything that a step depends on is there, as far as it is known; steps of which all is known."""
        self._free, self._last = [0.0] * lanes, [-1] * lanes
        self._read = [0.0] * n
        self._lane, self._blocker = array("i", self.lane.tobytes()), array("i", [-1]) * n
        self._start, self._end, self._begin, self._waited = (array("d", bytes(8 * n)) for _ in range(4))
        self._queue_last = [-1] * len(self.free)

    def _hold(self, plan: Plan, queues: list[str]) -> _Held:
        latencies, cost, core = self._core.latencies, plan.cost, self._cores[plan.core]
        first = plan.core * self._takers
        if plan.engine == "dma":
            engines, moving = dma_shape(plan).engines, engine_ns(plan, latencies, self._core.gen)
            if cost.link_ns:  # the links are slower than the engines that feed them
                engines, moving = 1, cost.link_ns
            taker = first + len(ENGINES) + queues.index(cost.queue)
            return _Held(taker, -1, core, 0.0, latencies.dma_end, engines=engines, moving=moving)
        clock = getattr(self._core.clocks, plan.engine, self._core.clocks.scalar)
        number, held = ENGINES.index(plan.engine), cost.cycles / clock
        taker, lane = first + number, core.first + number
        if plan.engine == "tensor":
            after, load = latencies.tensor + cost.columns / clock, cost.load / clock
            return _Held(taker, lane, core, held, after, load=load, ports=cost.ports)
        gap = latencies.vector_gap_cycles / clock if plan.engine == "vector" else 0.0
        after = getattr(latencies, plan.engine, 0.0)
        return _Held(taker, lane, core, held, after, gap, table=cost.table, ports=cost.ports)

    def run(self, steps: Iterable[int]) -> None:
        """Put each step on its lane, after what it depends on, and tell those that wait for it."""
        plans, helds, ready, read, opened = self.plans, [(*held,) for held in self.held], self.ready, self._read, self.opened
        frees, lasts, takers, blockers = self._free, self._last, self.free, self._blocker
        starts, ends, waits = self._start, self._end, self.waits
        first, consumers, signals, open_ = waits.first, waits.consumers, waits.signals, waits.open
        semaphore, table_load = self._core.latencies.semaphore, self._core.latencies.table_load
        for step in steps:
            taker, lane, core, duration, after, gap, load, table, ports, engines, moving = helds[plans[step]]
            if lane < 0:
                start, end = self._transfer(step, taker, core, engines, moving)
            else:
                start, idle = ready[step], frees[lane]
                free = idle
                if load and (there := max(read[step], core.weights) + load) > start:
                    start = there  # the next weights load while the last matmul runs
                if table and table != core.table:
                    core.table = table
                    free += table_load
                if free >= start:
                    start, blockers[step] = free, lasts[lane]
                for port in ports:
                    if core.ports[port][0] > start:
                        start, blockers[step] = core.ports[port]
                if lane == core.first:
                    duration = core.warmth.of(start, duration)
                    core.weights = start
                end = start + duration
                for port in ports:
                    core.ports[port] = (end, step)
                if start > idle:
                    self._waited[step] = start - idle
                frees[lane] = takers[taker] = end + gap
                lasts[lane], starts[step], ends[step] = step, start, end
            heard = end + after + semaphore
            times = (start, end, end + semaphore, heard, heard)
            for i in range(first[step], first[step + 1]):
                consumer, signal = consumers[i], signals[i]
                there = times[signal]
                if there > ready[consumer]:
                    ready[consumer], blockers[consumer] = there, step
                if signal == READ and there > read[consumer]:
                    read[consumer] = there
                open_[consumer] -= 1
                if not open_[consumer]:
                    opened.append(consumer)

    def _transfer(self, step: int, taker: int, core: _Core, engines: int, moving: float) -> tuple[float, float]:
        """Start and end of a DMA."""
        latencies = self._core.latencies
        lane = core.first + len(ENGINES) + core.transfers % self._core.dma_queues
        core.transfers += 1
        start = self._by_lane(step, lane) if step in self.waits.by_lane else self.ready[step]
        free = self._free[lane]
        if free > start:
            start, self._blocker[step] = free, self._last[lane]
        if self.free[taker] > start:
            start, self._blocker[step] = self.free[taker], self._queue_last[taker]
        self.free[taker], self._queue_last[taker] = start + latencies.dma_issue, step
        begin, end = core.dma.move(start + latencies.dma_start, engines, moving)
        if start > free:
            self._waited[step] = start - free
        self._free[lane], self._last[lane], self._lane[step] = end, step, lane
        self._start[step], self._begin[step], self._end[step] = start, begin, end
        return start, end

    def _by_lane(self, step: int, lane: int) -> float:
        """When everything is there that a DMA waits for, now that its lane is known: on one lane its turn is enough."""
        known, semaphore, ready = self.known, self._core.latencies.semaphore, 0.0
        for i in range(known.first[step], known.first[step + 1]):
            producer, kind = known.producers[i], known.kinds[i]
            if kind == ORDER:
                there = self._start[producer]
            elif kind != TRUE and self._lane[producer] == lane:
                there = self._end[producer]
            else:
                there = self._end[producer] + (0.0 if kind == ANTI else self.held[self.plans[producer]].after) + semaphore
            if there > ready:
                ready, self._blocker[step] = there, producer
        return ready

    def timeline(self, order: Order) -> Timeline:
        """All that was issued."""
        lane, blocker = (_numbers(a, np.int32) for a in (self._lane, self._blocker))
        start, end, begin, waited = (_numbers(a, np.float64) for a in (self._start, self._end, self._begin, self._waited))
        done = end + np.array([held.after for held in self.held])[_numbers(self.plans, np.int32)]
        np.copyto(begin, start, where=self.lane >= 0)
        return Timeline(self.lanes, lane, start, end, done, begin, blocker, waited, self.known, order)


def _by_readiness(clock: _Clock) -> Iterator[int]:
    """Steps as a list scheduler takes them: the engine or queue that can go on first takes, of what is ready, the first.

    Per engine or queue there are two heaps: what is ready by now, in program order, and what will be, by time.
    """
    plans, free, ready, opened = clock.plans, clock.free, clock.ready, clock.opened
    taker_of = [held.taker for held in clock.held]
    now: list[list[int]] = [[] for _ in free]
    later: list[list[tuple[float, int]]] = [[] for _ in free]
    next_ = [math.inf] * len(free)
    """When each of them can take its next step."""
    opened.extend(step for step, open_ in enumerate(clock.waits.open) if not open_)
    for _ in range(len(ready)):
        for step in opened:
            taker, there = taker_of[plans[step]], ready[step]
            if there <= free[taker]:
                there = free[taker]
                heappush(now[taker], step)
            else:
                heappush(later[taker], (there, step))
            if there < next_[taker]:
                next_[taker] = there
        del opened[:]
        when = min(next_)
        best = next_.index(when)
        waiting, mine = later[best], now[best]
        while waiting and waiting[0][0] <= when:
            heappush(mine, heappop(waiting)[1])
        yield heappop(mine)
        if mine:
            next_[best] = free[best]
        elif waiting:
            next_[best] = max(free[best], waiting[0][0])
        else:
            next_[best] = math.inf


def _numbers(values: array[int] | array[float], dtype: type[np.generic]) -> np.ndarray:
    """An array's values, not copied."""
    return np.frombuffer(values, dtype) if len(values) else np.zeros(0, dtype)
