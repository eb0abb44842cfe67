"""Values of the engines' sequencers: virtual registers and runtime scalars. A kernel has them, Python does not know them."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from nki_sim import context
from nki_sim.errors import Broken, NkiTypeError, Rule, fail, isa_page, violation
from nki_sim.run_time_loops import LOOPS, begins_in_old_form
from nki_sim.source import Site, outside

NO_PYTHON_VALUE = Rule(
    "register.no_python_value",
    "the value of a register is not known while the kernel is built",
    why="Python runs once, before the kernel does; what a register holds is decided on the device",
    fix="nl.fori_loop and nl.while_loop take registers as bounds and conditions; scalar_offset takes one as an index",
    page=isa_page("VirtualRegister"),
)
NO_ARITHMETIC = Rule(
    "lang.dynamic_var_not_python",
    "Python does not compute with a VirtualRegister",
    fix="nisa.scalar_load gives an NkiScalar, which adds, subtracts and multiplies",
    page=isa_page("VirtualRegister"),
)
SCALAR_DTYPES = Rule(
    "scalar.dtypes",
    "an NkiScalar is int32 or int64, and meets Python ints or scalars of its own dtype",
    page=isa_page("NkiScalar"),
)
COMPARISON = Rule(
    "scalar.comparison",
    "the result of comparing scalars cannot be used",
    fix="compare on an engine and load the result into a register, for nl.while_loop",
    page=isa_page("NkiScalar"),
)
UNINITIALISED = Rule(
    "register.uninitialised",
    "a register is written before it is read",
    why="a register that was allocated without a value holds whatever was there before",
    fix="nisa.register_alloc(0), or nisa.register_load or nisa.register_move before the first use",
    page=isa_page("register_alloc"),
    enforce="ub",
)


NEEDS_DATA = Rule(
    "estimate.needs_data",
    "an estimate knows shapes, not data",
    why="how often a loop at run time goes round, or where it goes on, stands in a tensor",
    fix="run the kernel on arrays: nki_sim.run(kernel, …).profile()",
    page=LOOPS,
)


def _unknown() -> NoReturn:
    raise fail(NEEDS_DATA, "needs a value that a tensor holds", target=context.core().target)


def wrapped(value: int, bits: int) -> int:
    """``value`` as a signed integer of ``bits`` bits."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


class RuntimeScalar:
    """Base of what a sequencer holds: a number at run time, nothing that Python could look at."""

    is_register = True

    @property
    def value(self) -> int | float:
        """What it holds at this point of the run; for the simulator's own use."""
        raise NotImplementedError

    def forget(self) -> None:
        """It holds what only data could tell."""
        raise NotImplementedError

    def words(self) -> str:
        """As diagnoses name it."""
        return f"a {type(self).__name__}"

    def _refuse(self, rule: Rule, use: str) -> NoReturn:
        raise fail(rule, f"{use} of {self.words()}", target=context.core().target, error=NkiTypeError)

    def __bool__(self) -> bool:
        self._refuse(NO_PYTHON_VALUE, "truth (if, while, and, or, not)")

    def __int__(self) -> int:
        self._refuse(NO_PYTHON_VALUE, "int()")

    def __float__(self) -> float:
        self._refuse(NO_PYTHON_VALUE, "float()")

    def __index__(self) -> int:
        self._refuse(NO_PYTHON_VALUE, "range(), or indexing a list")

    def __iter__(self) -> Iterator[Any]:
        self._refuse(NO_PYTHON_VALUE, "iteration")


def now(value: Any) -> Any:
    """What a runtime scalar holds at this point of the run; any other value as it is."""
    return value.value if isinstance(value, RuntimeScalar) else value


def _refusing(name: str) -> Callable[..., Any]:
    def method(self: RuntimeScalar, *_: Any) -> Any:
        self._refuse(NO_ARITHMETIC, f"the Python operator {name.strip('_')}")

    method.__name__ = name
    return method


class VirtualRegister(RuntimeScalar):
    """A 32-bit register of an engine's sequencer (``nisa.register_alloc``).

    Args:
        state: initial value; ``None`` for none.
        frozen: whether a loop owns it: it is not written.
        owner: the loop that made it, if one did.

    Example:
        def add_one(i):
            nisa.tensor_scalar(dst=acc, data=acc, op0=nl.add, operand0=1.0)

        acc = nl.zeros((128, 64), dtype=nl.float32)
        rounds = nisa.register_alloc(3)  # a VirtualRegister
        nl.fori_loop(0, rounds, add_one)
    """

    def __init__(self, state: int | float | None = None, frozen: bool = False, owner: str = ""):
        self._held = state
        self.frozen = frozen
        self.owner = owner

    @property
    def value(self) -> int | float:
        if self._held is None:
            machine = context.machine()
            if machine.dry:
                _unknown()
            machine.found(
                violation(UNINITIALISED, Broken("reads a register that was never written"), target=machine.core.target)
            )
            self._held = 0
        return self._held

    def reset(self, state: int | float | None) -> None:
        """Make it as it was allocated."""
        self._held = state

    def forget(self) -> None:
        """It holds what only data could tell."""
        self._held = None

    def hold(self, value: int | float) -> None:
        """Write it, cut to 32 bits."""
        self._held = value if isinstance(value, float) else _as_32(value)

    def __bool__(self) -> bool:
        """What it holds, where it is the condition of a ``while``, as in the frontend before 0.7; else that is refused."""
        frame = outside(sys._getframe(1))
        if frame is None or not Site(frame.f_code, frame.f_lasti).is_while_condition():
            return super().__bool__()
        machine = begins_in_old_form("while with a register")
        machine.effect(lambda: None)  # how often it goes round is this run's only
        return bool(self.value)

    __add__ = __radd__ = _refusing("__add__")
    __sub__ = __rsub__ = _refusing("__sub__")
    __mul__ = __rmul__ = _refusing("__mul__")
    __floordiv__ = __rfloordiv__ = _refusing("__floordiv__")
    __mod__ = __rmod__ = _refusing("__mod__")
    __neg__ = _refusing("__neg__")
    __lt__ = _refusing("__lt__")
    __le__ = _refusing("__le__")
    __gt__ = _refusing("__gt__")
    __ge__ = _refusing("__ge__")
    __eq__ = _refusing("__eq__")
    __ne__ = _refusing("__ne__")
    __hash__ = object.__hash__


def _as_32(value: int) -> int:
    """A whole number as 32 bits: unsigned values keep their sign, others wrap."""
    return value if -(1 << 31) <= value < 1 << 32 else wrapped(value, 32)


class NkiScalar(RuntimeScalar):
    """A runtime scalar: what ``nisa.scalar_load`` gives, and sums, differences and products of such.

    Arithmetic wraps at the width of its dtype. It is worked out where it is used, so that each round of a loop has its own.

    Args:
        state: a number, or a function that gives it at run time.
        dtype: ``int32`` (default) or ``int64``.
        is_comparison: whether it is the result of a comparison, which nothing takes.

    Example:
        row = nisa.scalar_load(src=nl.full((1, 1), 3, dtype=nl.int32))  # an NkiScalar
        tile = nl.load(x.select(dim=0, index=2 * row + 1).expand_dim(0))  # (1, 512)
    """

    def __init__(self, state: Any = 0, dtype: Any = None, is_comparison: bool = False):
        self._state = state
        self.dtype = str(dtype or "int32")
        self.is_comparison = is_comparison
        if self.dtype not in ("int32", "int64"):
            self._refuse(SCALAR_DTYPES, f"dtype {self.dtype}")

    @property
    def bits(self) -> int:
        return int(self.dtype[3:])

    @property
    def value(self) -> int:
        if self.is_comparison:
            self._refuse(COMPARISON, "use")
        return self._now()

    def hold(self, value: int) -> None:
        """Give it the number of this round."""
        self._state = wrapped(int(value), self.bits)

    def forget(self) -> None:
        """It holds what only data could tell."""
        self._state = _unknown

    def words(self) -> str:
        return "a comparison of NkiScalars" if self.is_comparison else f"an NkiScalar ({self.dtype})"

    def _now(self) -> int:
        return int(self._state() if callable(self._state) else self._state)

    def _with(self, other: Any, combine: Callable[[int, int], Any], name: str, *, compares: bool = False) -> NkiScalar:
        if isinstance(other, NkiScalar):
            if other.dtype != self.dtype:
                self._refuse(SCALAR_DTYPES, f"{name} with {other.words()}")
            right = other._now
        elif isinstance(other, int) and not isinstance(other, bool):
            right = lambda: other  # noqa: E731
        else:
            self._refuse(SCALAR_DTYPES, f"{name} with a {type(other).__name__}")
        if self.is_comparison or (isinstance(other, NkiScalar) and other.is_comparison):
            self._refuse(COMPARISON, name)
        if compares and self.dtype == "int64":
            self._refuse(SCALAR_DTYPES, f"{name} (64-bit scalars add, subtract and multiply)")
        bits = self.bits
        return NkiScalar(lambda: wrapped(int(combine(self._now(), right())), bits), self.dtype, compares)

    def __add__(self, other: Any) -> NkiScalar:
        return self._with(other, operator.add, "+")

    def __sub__(self, other: Any) -> NkiScalar:
        return self._with(other, operator.sub, "-")

    def __rsub__(self, other: Any) -> NkiScalar:
        return self._with(other, lambda a, b: b - a, "-")

    def __mul__(self, other: Any) -> NkiScalar:
        return self._with(other, operator.mul, "*")

    def __neg__(self) -> NkiScalar:
        return self._with(0, lambda a, _: -a, "-")

    def __lt__(self, other: Any) -> NkiScalar:
        return self._with(other, operator.lt, "<", compares=True)

    def __le__(self, other: Any) -> NkiScalar:
        return self._with(other, operator.le, "<=", compares=True)

    def __gt__(self, other: Any) -> NkiScalar:
        return self._with(other, operator.gt, ">", compares=True)

    def __ge__(self, other: Any) -> NkiScalar:
        return self._with(other, operator.ge, ">=", compares=True)

    def __eq__(self, other: Any) -> Any:
        return self._with(other, operator.eq, "==", compares=True)

    def __ne__(self, other: Any) -> Any:
        return self._with(other, operator.ne, "!=", compares=True)

    __radd__ = __add__
    __rmul__ = __mul__
    __hash__ = object.__hash__
