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
from nki_sim.program import Plan, Program
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
    """One of them as it runs: what it is called with, and from where it was issued."""

    plan: Plan
    values: tuple[Any, ...]
    step: int
    sites: Sequence[Site]


class Pending:
    """The instructions that wait, in program order: all of a run so far, so that each is at the number of its step.

    Args:
        program: the record of the run.

    Attributes:
        waiting: what each will be called with.
        room: so many may wait before one more has to be asked about; who has nothing to report need not ask before.
    """

    def __init__(self, program: Program) -> None:
        self.waiting: list[tuple[Any, ...]] = []
        self.room = SAMPLE
        self._program = program
        self._sites: dict[int, Sequence[Site]] = {}
        """From where those were issued that may have something to report, by step."""

    def take(self, plan: Plan, values: tuple[Any, ...]) -> bool:
        """Let an instruction wait; False when it must run now, and so all before it."""
        waiting = self.waiting
        if not plan.waits or len(waiting) >= MOST:
            return False
        if len(waiting) == SAMPLE:
            if self.elements + plan.elements < SAMPLE * LARGE:
                return False
            self.room = MOST
        if plan.speaks:
            self._sites[len(waiting)] = call_chain(4)
        waiting.append(values)
        return True

    def drain(self) -> Iterator[Waiting]:
        """Those that wait, in order, each forgotten when it is given: tiles that no other one uses give their bytes back."""
        self.waiting.reverse()
        for step in range(len(self.waiting)):
            yield Waiting(self._program.plan_at(step), self.waiting.pop(), step, self._sites.get(step, ()))

    @property
    def elements(self) -> int:
        """Of the largest operand of each."""
        sizes = [plan.elements for plan in self._program.plans]
        return sum([sizes[number] for number in self._program.steps[: len(self.waiting)]])

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
