"""Specialised kernels, kept: a call like an earlier one runs its record again instead of its Python.

The key is what the documents name: source, shapes, dtypes, compile-time values, target, logical cores and environment
switches; besides, the closure and global values that the code names. Only runs without findings are kept, whose course no
data decides; of several cores also none whose data decide what a core touches of HBM that another one writes, since that may
race the next time. A call whose data has something new to report runs the kernel itself, which says it at its line.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nki_sim.dtypes import Array, DType
from nki_sim.fingerprint import UNKNOWN
from nki_sim.fitting import FIT_VARIABLE
from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.recent import Recent

if TYPE_CHECKING:
    from nki_sim.replay import Bound
    from nki_sim.replay.accesses import Access

MOST_KERNELS = 64
MOST_STEPS = 2_000_000
SWITCHES = ("NKI_PRECISE_FP", "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "NEURON_LOGICAL_NC_CONFIG", FIT_VARIABLE)


@dataclass(frozen=True)
class Output:
    """The place of a result among those of an entry."""

    index: int
    info: DType


@dataclass
class Entry:
    """One specialised kernel.

    Attributes:
        machine: what recorded it.
        inputs: allocation numbers of its inputs.
        outputs: where its results lie.
        returned: what the kernel returned, with the places of results in ``outputs`` for tensors.
    """

    machine: Machine
    inputs: tuple[int, ...]
    outputs: tuple[Access, ...]
    returned: Any
    _bound: Bound | None = None

    def __call__(self, arrays: Sequence[Array]) -> tuple[list[Array], dict[int, Array]]:
        """Run it on other inputs.

        Raises:
            Disturbed: an instruction has something to report.
        """
        return self.bind()(arrays)

    def bind(self) -> Bound:
        """Its program, bound to storage."""
        if self._bound is None:
            from nki_sim.replay import bind  # for the second call, or a fused first one

            self._bound = bind(self.machine, self.inputs, self.outputs)
        return self._bound

    @property
    def steps(self) -> int:
        return len(self.machine.program)

    @property
    def allocations(self) -> Sequence[Allocation]:
        return self.machine.program.allocations


class Cache(Recent[Entry]):
    """Entries by key, of all together so many steps; one entry may be larger."""

    def __init__(self, kernels: int = MOST_KERNELS, steps: int = MOST_STEPS):
        def fits(entries: Collection[Entry]) -> bool:
            return len(entries) <= kernels and (len(entries) < 2 or sum(entry.steps for entry in entries) <= steps)

        super().__init__(fits)


KERNELS = Cache()
"""All specialised kernels of this process."""


def switches() -> tuple[str | None, ...]:
    """The environment's part of a key."""
    return tuple(os.environ.get(name) for name in SWITCHES)


def is_known(*parts: Any) -> bool:
    """Whether no part of a key is unknown."""
    return not any(part is UNKNOWN for part in parts)
