"""Bound programs by what was recorded: a run whose record is that of an earlier one runs what was bound for it.

A cell that is run again, with other data or with a change elsewhere, records what it recorded before, and binding and fusing
a record takes more than half as long as making it. Who asks has recorded and checked every instruction; what is shared is
storage, and the order in which what was recorded is done.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from nki_sim.machine import Machine
from nki_sim.recent import Recent
from nki_sim.replay.accesses import Access
from nki_sim.replay.bound import Bound

MOST_PROGRAMS = 16
MOST_STEPS = 100_000
"""Of all programs that are kept, together."""
MOST_BYTES = 64 << 20
"""Of the storage that they are bound to, together."""


def bind(machine: Machine, inputs: Sequence[int], outputs: Sequence[Access]) -> Bound:
    """What a finished run recorded, bound to storage, now or for an earlier run."""
    key = record_of(machine, inputs, outputs)
    found = PROGRAMS.get(key) if key is not None else None
    if found is None:
        found = Bound(machine, inputs, outputs)
        if key is not None and _fit([found]):
            PROGRAMS.put(key, found)
    return found


def record_of(machine: Machine, inputs: Sequence[int], outputs: Sequence[Access]) -> Any:
    """All that the effect of a record depends on; ``None`` where that is not known, or there are several ranks."""
    program = machine.program
    if machine.ranks > 1 or not program.plans:
        return None
    origins = tuple([plan.origin for plan in program.plans])
    constants = [_exactly(value) for value in program.constants]
    if None in origins or None in constants:
        return None
    allocations = [(a.region, a.core, a.shape, a.dtype.name, a.role, a.address) for a in program.allocations]
    held = [(number, values.dtype.str, values.tobytes()) for number, values in machine.constants.items()]
    steps, _, operands = program.tables
    given = (*allocations,), (*constants,), (*held,), (*inputs,), (*outputs,)
    return origins, steps.tobytes(), operands.tobytes(), given


def _exactly(value: Any) -> Any:
    """A constant operand with its type and sign; ``None`` for what is no number."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, float):
        return float, value.hex()
    return (type(value), value) if isinstance(value, int) else None


def _fit(programs: Collection[Bound]) -> bool:
    steps, size = sum(each.steps for each in programs), sum(each.nbytes for each in programs)
    return len(programs) <= MOST_PROGRAMS and steps <= MOST_STEPS and size <= MOST_BYTES


PROGRAMS: Recent[Bound] = Recent(_fit)
"""Those of this process, by record."""
