"""What the instructions of one core share beside its lanes: the DMA engines, and the tensor engine's warmth."""

from __future__ import annotations

import heapq

from nki_sim.hw import NeuronCore

HALF = 0.5


class DmaEngines:
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


class Warmth:
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
