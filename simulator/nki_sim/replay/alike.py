"""Bound programs by what was recorded: a run whose record is that of an earlier one runs what was bound for it.

A cell that is run again, with other data or with a change elsewhere, records what it recorded before, and binding and fusing
a record takes about as long as making it. Who asks has recorded and checked every instruction; what is shared is storage, and
the order in which what was recorded is done.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_sim.machine import Machine
from nki_sim.replay.accesses import Access
from nki_sim.replay.bound import Bound

MOST_PROGRAMS = 16
MOST_STEPS = 100_000
"""Of all programs that are kept, together."""
MOST_BYTES = 64 << 20
"""Of the storage that they are bound to, together."""


class Programs:
    """Bound programs by record; the one not asked for longest goes first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, Bound] = OrderedDict()
        self._lock = threading.Lock()

    def bound(self, machine: Machine, inputs: Sequence[int], outputs: Sequence[Access]) -> Bound:
        """What a finished run of one core or of several recorded, bound to storage."""
        key = record_of(machine, inputs, outputs)
        with self._lock:
            found = self._kept.get(key) if key is not None else None
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made = Bound(machine, inputs, outputs)
        if key is not None and made.steps <= MOST_STEPS and made.nbytes <= MOST_BYTES:
            self._keep(key, made)
        return made

    def _keep(self, key: Any, made: Bound) -> None:
        with self._lock:
            self._kept[key] = made
            while not self._fits():
                self._kept.popitem(last=False)

    def _fits(self) -> bool:
        kept = self._kept.values()
        steps, size = sum(each.steps for each in kept), sum(each.nbytes for each in kept)
        return len(kept) <= MOST_PROGRAMS and steps <= MOST_STEPS and size <= MOST_BYTES

    def forget(self) -> None:
        """Let go of all of them."""
        with self._lock:
            self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


def record_of(machine: Machine, inputs: Sequence[int], outputs: Sequence[Access]) -> Any:
    """All that the effect of a record depends on; ``None`` where that is not known, or there are several cores."""
    program = machine.program
    if machine.programs * machine.ranks > 1 or not program.plans:
        return None
    origins = tuple([plan.origin for plan in program.plans])
    constants = [_exactly(value) for value in program.constants]
    if None in origins or None in constants:
        return None
    allocations = [(a.region, a.shape, a.dtype.name, a.role, a.address) for a in program.allocations]
    held = [(number, values.dtype.str, values.tobytes()) for number, values in machine.constants.items()]
    steps, _, operands = program.tables
    return origins, steps.tobytes(), operands.tobytes(), (*allocations,), (*constants,), (*held,), (*inputs,), (*outputs,)


def _exactly(value: Any) -> Any:
    """A constant operand with its type and sign; ``None`` for what is no number."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, float):
        return float, value.hex()
    return (type(value), value) if isinstance(value, int) else None


PROGRAMS = Programs()
"""Those of this process."""
