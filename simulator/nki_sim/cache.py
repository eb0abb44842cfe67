"""Specialised kernels, kept: a call like an earlier one runs its record again instead of its Python.

The key is what the documents name: source, shapes, dtypes, compile-time values, target, logical cores and environment
switches; besides, the closure and global values that the code names. Only runs without findings are kept, whose course no
data decides; of several cores also none whose data decide what a core touches of HBM that another one writes, since that may
race the next time. A call whose data has something new to report runs the kernel itself, which says it at its line.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nki_sim.dtypes import Array, DType
from nki_sim.fingerprint import UNKNOWN
from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.run import FIT_VARIABLE

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
            from nki_sim.replay import PROGRAMS  # for the second call, or a fused first one

            self._bound = PROGRAMS.bound(self.machine, self.inputs, self.outputs)
        return self._bound

    @property
    def steps(self) -> int:
        return len(self.machine.program)

    @property
    def allocations(self) -> Sequence[Allocation]:
        return self.machine.program.allocations


class Cache:
    """Entries by key; the one not used for longest goes first."""

    def __init__(self, kernels: int = MOST_KERNELS, steps: int = MOST_STEPS):
        self._most_kernels, self._most_steps = kernels, steps
        self._entries: OrderedDict[Any, Entry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Entry | None:
        """The entry of a key, which is now the one used last."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: Any, entry: Entry) -> None:
        """Keep an entry, and let go of others where there are too many."""
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > self._most_kernels or self._steps() > self._most_steps:
                self._entries.popitem(last=False)

    def _steps(self) -> int:
        return sum(entry.steps for entry in self._entries.values()) if len(self._entries) > 1 else 0

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


KERNELS = Cache()
"""All specialised kernels of this process."""


def switches() -> tuple[str | None, ...]:
    """The environment's part of a key."""
    return tuple(os.environ.get(name) for name in SWITCHES)


def is_known(*parts: Any) -> bool:
    """Whether no part of a key is unknown."""
    return not any(part is UNKNOWN for part in parts)
