"""When each instruction runs, as it comes out of scheduling: lanes of engines and DMA queues, and what each step waited for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nki_sim.program import Order
from nki_sim.timing.dependencies import Dependencies

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")

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


def lane_names(one: tuple[str, ...], cores: int) -> tuple[str, ...]:
    """The lanes of all cores: those of one where there is one, else with the core's number before each."""
    return one if cores == 1 else tuple(f"{number}: {name}" for number in range(cores) for name in one)


def core_of(lane: str) -> tuple[int, str]:
    """The core that a lane belongs to, and the lane's name there."""
    number, _, name = lane.rpartition(": ")
    return int(number or 0), name
