"""Instructions that were checked and recorded, and have not run yet.

A kernel of large tiles runs at its end as a whole, fused (:mod:`nki_sim.replay`): copies that only move data need not be made,
and the products of an accumulation group are one. Whoever looks at a value before, or an instruction whose course depends on
values, makes all that wait run at once, one after the other; from there on each instruction runs at its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nki_sim.isa.base import Instruction
from nki_sim.program import Plan
from nki_sim.scalars import RuntimeScalar
from nki_sim.source import Site, call_chain
from nki_sim.tensor import NkiTensor

LARGE = 16_384
"""Elements of the largest operand, on average, from which on preparing a fused run costs less than it saves."""
SAMPLE = 32
"""Instructions after which that is judged."""
MOST = 50_000
"""Instructions that may wait."""


class Waiting(NamedTuple):
    """One of them: what it will be called with, and from where it was issued."""

    instruction: Instruction
    plan: Plan
    values: tuple[Any, ...]
    step: int
    sites: Sequence[Site]


class Pending:
    """The instructions that wait, in program order.

    Attributes:
        waiting: each as the fields of :class:`Waiting`.
        room: so many may wait before one more has to be asked about; who has nothing to report need not ask before.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[Instruction, Plan, tuple[Any, ...], int, Sequence[Site]]] = []
        self.room = SAMPLE

    def take(self, ins: Instruction, plan: Plan, values: tuple[Any, ...], step: int) -> bool:
        """Let an instruction wait; False when it must run now, and so all before it."""
        waiting = self.waiting
        if not plan.waits or len(waiting) >= MOST:
            return False
        if len(waiting) == SAMPLE:
            if self.elements + plan.elements < SAMPLE * LARGE:
                return False
            self.room = MOST
        waiting.append((ins, plan, values, step, call_chain(4) if plan.speaks else ()))
        return True

    def drain(self) -> Iterator[Waiting]:
        """Those that wait, in order, each forgotten when it is given: tiles that no other one uses give their bytes back."""
        self.waiting.reverse()
        while self.waiting:
            yield Waiting._make(self.waiting.pop())

    @property
    def elements(self) -> int:
        """Of the largest operand of each."""
        return sum([plan.elements for _, plan, *_ in self.waiting])

    @property
    def worth_fusing(self) -> bool:
        """Whether they are large enough, on average."""
        return self.elements >= LARGE * len(self.waiting) > 0


def can_wait(ins: Instruction, values: tuple[Any, ...]) -> bool:
    """Whether what an instruction does is decided: no register, no offset at run time, no word to say about values."""
    fixed = all(
        value.dynamic is None if isinstance(value, NkiTensor) else not isinstance(value, RuntimeScalar) for value in values
    )
    return fixed and ins.waits and ins.writes_all


def largest(values: tuple[Any, ...]) -> int:
    """Elements of the largest operand."""
    return max((math.prod(value.shape) for value in values if isinstance(value, NkiTensor)), default=0)
