"""``nl.fori_loop`` and ``nl.while_loop``: loops whose bounds or condition the device knows, not Python.

A body is traced once, by calling it, which runs its first round. What it did is kept, and done again in each further round:
the same instructions on the same tensors, with what registers hold then. In the program every round has its own steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from nki_sim.errors import NkiAssertionError, NkiTypeError, NkiValidationError, Rule, fail
from nki_sim.machine import Machine
from nki_sim.run_time_loops import LOOPS, begins, begins_in_old_form
from nki_sim.scalars import NkiScalar, RuntimeScalar, VirtualRegister, now
from nki_sim.source import call_sites

STEP = Rule("lang.fori_loop_step", "step is a positive whole number that is known while the kernel is built", page=LOOPS)
BOUNDS = Rule(
    "lang.fori_loop_bounds",
    "lower and upper are whole numbers, registers, or 32-bit scalars",
    why="the sequencer counts in 32 bits",
    fix="load a number from a tile: reg = nisa.register_alloc(); nisa.register_load(reg, tile)",
    page=LOOPS,
)
NO_RETURN = Rule(
    "lang.fori_loop_no_return",
    "the body of fori_loop returns nothing",
    fix="write to a tensor that was allocated before the loop",
    page=LOOPS,
)
WHILE = Rule(
    "lang.while_loop_body",
    "init is a register, and the body returns the register that decides about the next round",
    why="the loop ends when that register is zero; everything else goes from round to round in tensors",
    page=LOOPS,
)


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any], Any], step: int = 1) -> None:
    """``body_fun(i)`` for each i from ``lower`` to ``upper`` (exclusive); the bounds may be known at run time only.

    Args:
        lower, upper: whole numbers, registers, or 32-bit runtime scalars.
        body_fun: called once, with a runtime scalar, or with a register where a bound is one. It writes to tensors allocated
            before the loop and returns nothing; its own tensors end with it.
        step: a positive whole number.

    Raises:
        NkiValidationError: a bound of another kind, a step that is not positive, a body that returns something, a loop inside
            of ``nl.no_reorder``.

    Example:
        def add_column(i):
            column = nl.load(x.select(dim=1, index=i).expand_dim(1))
            nisa.tensor_tensor(dst=acc, data1=acc, data2=column, op=nl.add)

        acc = nl.zeros((128, 1), dtype=nl.float32)
        nl.fori_loop(0, 4, add_column)
    """
    machine = begins("nl.fori_loop")
    _check_range(machine, "nl.fori_loop", lower, upper, step)
    registers = any(isinstance(bound, VirtualRegister) for bound in (lower, upper))
    counter: VirtualRegister | NkiScalar = VirtualRegister(owner="nl.fori_loop") if registers else NkiScalar()

    def trace() -> None:
        returned = body_fun(counter)
        if returned is not None:
            raise _error(machine, NO_RETURN, f"the body returns {_kind(returned)}", "nl.fori_loop", NkiValidationError)

    body = _Body(machine, trace)

    def run() -> None:
        for i in range(int(now(lower)), int(now(upper)), step):
            counter.hold(i)
            body.round()

    machine.effect(run)


def while_loop(init: RuntimeScalar, body_fun: Callable[[Any], RuntimeScalar]) -> None:
    """``r = init``, then ``r = body_fun(r)`` as long as ``r`` is not zero.

    Args:
        init: a register.
        body_fun: called once, with a register; returns the register that decides about the next round.

    Raises:
        NkiValidationError: ``init``, or what the body returns, is no register; a loop inside of ``nl.no_reorder``.

    Example:
        left = nl.full((1, 1), 8, dtype=nl.int32)

        def halve(rounds):
            nisa.tensor_scalar(dst=left, data=left, op0=nl.right_shift, operand0=1)
            nisa.register_load(dst=rounds, src=left)
            return rounds

        nl.while_loop(nisa.register_alloc(8), halve)
    """
    machine = begins("nl.while_loop")
    if not isinstance(init, RuntimeScalar):
        raise _error(machine, WHILE, f"init is {_kind(init)}", "nl.while_loop", NkiTypeError)
    condition = VirtualRegister()
    following: list[RuntimeScalar] = []

    def trace() -> None:
        returned = body_fun(condition)
        if not isinstance(returned, RuntimeScalar):
            raise _error(machine, WHILE, f"the body returns {_kind(returned)}", "nl.while_loop", NkiTypeError)
        following.append(returned)

    body = _Body(machine, trace)

    def run() -> None:
        condition.hold(init.value)
        while condition.value:
            body.round()
            condition.hold(following[0].value)

    machine.effect(run)


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[VirtualRegister]:
    """The numbers of a loop at run time, each in a register of the loop's: the form before :func:`fori_loop`.

    The frontend of NKI 0.7 has removed it; kernels written for the one before are run, and it is reported.

    Args:
        start, stop: whole numbers, registers, or 32-bit runtime scalars; one alone is where the loop ends.
        step: a positive whole number.

    Raises:
        NkiValidationError: a bound of another kind, or a step that is not positive.

    Example:
        def add_one(i):
            nisa.tensor_scalar(dst=acc, data=acc, op0=nl.add, operand0=1.0)

        acc = nl.zeros((128, 64), dtype=nl.float32)
        nl.fori_loop(0, 4, add_one)  # instead of nl.dynamic_range(4)
    """
    lower, upper = (0, start) if stop is None else (start, stop)
    _check_range(begins("nl.dynamic_range"), "nl.dynamic_range", lower, upper, step)
    begins_in_old_form("nl.dynamic_range")
    return (VirtualRegister(i, frozen=True, owner="nl.dynamic_range") for i in range(int(now(lower)), int(now(upper)), step))


class _Body:
    """A loop's body: traced in its first round, repeated in the others."""

    def __init__(self, machine: Machine, trace: Callable[[], None]):
        self._machine = machine
        self._trace = trace
        self.site = call_sites(2)[0]
        """The line that makes the loop."""
        # Where the loop stands, not where it is first run: an inner loop may get its first round in a later one of the outer.
        self._scopes = (*machine.scopes, self)
        self._kept: list[Any] | None = None

    def round(self) -> None:
        """Do the body once."""
        self._machine.round_of(self)
        if self._kept is None:
            self._first()
            return
        machine = self._machine
        for again in self._kept:
            if isinstance(again, tuple):
                machine.repeat(*again)
            else:
                again()

    def _first(self) -> None:
        machine = self._machine
        outer, scopes, made = machine.round, machine.scopes, len(machine.memory.allocations)
        machine.round, machine.scopes = [], self._scopes
        try:
            self._trace()
            self._kept = machine.round
        finally:
            machine.round, machine.scopes = outer, scopes
            machine.close_scope(self, made)


def _check_range(machine: Machine, subject: str, lower: Any, upper: Any, step: Any) -> None:
    for name, bound in (("lower", lower), ("upper", upper)):
        if not _is_bound(bound):
            raise _error(machine, BOUNDS, f"{name} is {_kind(bound)}", subject, NkiTypeError)
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        given = str(step) if isinstance(step, int) else _kind(step)
        raise _error(machine, STEP, f"step is {given}", subject, NkiAssertionError)


def _is_bound(bound: Any) -> bool:
    if isinstance(bound, NkiScalar):
        return bound.dtype == "int32" and not bound.is_comparison
    return isinstance(bound, VirtualRegister) or (isinstance(bound, int) and not isinstance(bound, bool))


def _kind(value: Any) -> str:
    if isinstance(value, RuntimeScalar):
        return value.words()
    words = getattr(value, "words", None)
    return f"a tensor ({words()})" if callable(words) else f"a {type(value).__name__}"


def _error(machine: Machine, rule: Rule, what: str, subject: str, error: Any) -> Exception:
    return fail(rule, what, target=machine.core.target, subject=subject, error=error)
