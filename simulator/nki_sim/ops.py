"""One table of operators: the ALU operators and the activation functions that every instruction and ``nl.*`` share.

All of them work on float32, as the engines do. A bit operator (``bitvec``) works on integers as they are. Sources: the
tables "Supported Math Operators" and "Supported Activation Functions" of ``nki.api.shared``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nki_sim.dtypes import Array

Function = Callable[..., Any]
Kind = Literal["bitvec", "arithmetic", "activation"]


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator.

    Attributes:
        name: as in ``nki.language``.
        kind: ``bitvec``, ``arithmetic`` (ALU) or ``activation`` (only the Scalar Engine's table has it).
        arity: 1 or 2 inputs.
        compute: the ALU function on float32 (arithmetic) or integers (bitvec); ``None`` for a pure activation function.
        reduce: identity element when the operator is a legal reduction, else ``None``.
        activate: the Scalar Engine's function on float32, or ``None``.
        domain: valid inputs of ``activate``; outside, the hardware's result is invalid.
        gens: NeuronCore generations that have the ALU operator.
    """

    name: str
    kind: Kind
    arity: int = 2
    compute: Function | None = None
    reduce: float | None = None
    activate: Function | None = None
    domain: tuple[float, float] | None = None
    gens: tuple[int, ...] = (2, 3, 4)

    @property
    def is_bitvec(self) -> bool:
        return self.kind == "bitvec"

    @property
    def is_arithmetic(self) -> bool:
        return self.kind == "arithmetic"

    @property
    def is_comparison(self) -> bool:
        return self.name in COMPARISONS

    @property
    def ufunc(self) -> np.ufunc | None:
        """The NumPy ufunc behind ``compute``, when that is what it is."""
        return self.compute if isinstance(self.compute, np.ufunc) else None

    def __repr__(self) -> str:
        return f"nl.{self.name}"


COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})

# --- functions NumPy does not have -----------------------------------------------------------------------------------

_SERIES = [(-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(12)]
_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806,
    0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip


def erf(x: Array) -> Any:
    """The error function, to 2e-7 (far closer than the engine's piecewise polynomials).

    A Taylor series near zero and the Chebyshev fit of erfc of "Numerical Recipes" (6.2) elsewhere.
    """
    wide = np.asarray(x, dtype=np.float64)
    magnitude = np.abs(wide)
    near = np.minimum(magnitude, 0.75)
    squared = near * near
    series = np.zeros_like(squared)
    for factor in reversed(_SERIES):
        series = series * squared + factor
    t = 1.0 / (1.0 + 0.5 * magnitude)
    poly = np.zeros_like(t)
    for factor in reversed(_ERFC):
        poly = poly * t + factor
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        far = 1.0 - t * np.exp(poly - magnitude * magnitude)
    result = np.where(magnitude < 0.75, 2.0 / math.sqrt(math.pi) * near * series, far)
    return np.copysign(result, wide).astype(np.float32)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _softplus(x: Array) -> Any:
    return np.logaddexp(x, np.float32(0.0))


def _sin(x: Array) -> Any:
    """Sine as the Scalar Engine has it: right in [-pi, pi], a cubic beyond (sin(9.0) is about 27.65)."""
    pi = np.float32(math.pi)
    d = np.abs(x) - pi
    return np.where(d <= 0, np.sin(x), np.sign(x) * (d * d * d / np.float32(6.0) - d))


def _normal_density(x: Array) -> Any:
    return np.exp(-0.5 * x * x) * np.float32(1.0 / math.sqrt(2.0 * math.pi))


def _normal_cdf(x: Array) -> Any:
    return np.float32(0.5) * (np.float32(1.0) + erf(x * np.float32(math.sqrt(0.5))))


def _gelu_tanh(x: Array) -> Any:
    inner = np.float32(math.sqrt(2.0 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1.0) + np.tanh(inner))


def _gelu_sigmoid_dx(x: Array) -> Any:
    s = _sigmoid(np.float32(1.702) * x)
    return s + np.float32(1.702) * x * s * (1 - s)


def _silu_dx(x: Array) -> Any:
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _abs_max(x: Array, y: Array) -> Array:
    return np.where(np.abs(x) > np.abs(y), x, y)


def _abs_min(x: Array, y: Array) -> Array:
    return np.where(np.abs(x) < np.abs(y), x, y)


def _logical_right_shift(x: Array, y: Array) -> Array:
    """Shift in zeros: the documented table has no arithmetic right shift."""
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    shifted = np.right_shift(x.view(unsigned), np.asarray(y).astype(unsigned))
    return np.asarray(shifted).view(x.dtype)


def _power(x: Array, y: Array) -> Any:
    return np.power(x, y)


# --- the table -------------------------------------------------------------------------------------------------------

_PI = math.pi
_TINY, _HUGE = 2.0**-42, 2.0**42

TABLE: dict[str, Operator] = {
    op.name: op
    for op in (
        Operator("invert", "bitvec", 1, np.invert),
        Operator("bitwise_and", "bitvec", 2, np.bitwise_and, reduce=-1),
        Operator("bitwise_or", "bitvec", 2, np.bitwise_or, reduce=0),
        Operator("bitwise_xor", "bitvec", 2, np.bitwise_xor, reduce=0),
        Operator("left_shift", "bitvec", 2, np.left_shift),
        Operator("right_shift", "bitvec", 2, _logical_right_shift),
        Operator("add", "arithmetic", 2, np.add, reduce=0.0),
        Operator("subtract", "arithmetic", 2, np.subtract, reduce=0.0),
        Operator("multiply", "arithmetic", 2, np.multiply, reduce=1.0),
        Operator("maximum", "arithmetic", 2, np.maximum, reduce=-math.inf),
        Operator("minimum", "arithmetic", 2, np.minimum, reduce=math.inf),
        Operator("equal", "arithmetic", 2, np.equal),
        Operator("not_equal", "arithmetic", 2, np.not_equal),
        Operator("greater_equal", "arithmetic", 2, np.greater_equal),
        Operator("greater", "arithmetic", 2, np.greater),
        Operator("less_equal", "arithmetic", 2, np.less_equal),
        Operator("less", "arithmetic", 2, np.less),
        Operator("logical_and", "arithmetic", 2, np.logical_and, reduce=1.0),
        Operator("logical_or", "arithmetic", 2, np.logical_or, reduce=0.0),
        Operator("logical_xor", "arithmetic", 2, np.logical_xor, reduce=0.0),
        Operator("power", "arithmetic", 2, _power),
        Operator("abs_max", "arithmetic", 2, _abs_max, gens=(4,)),
        Operator("abs_min", "arithmetic", 2, _abs_min, gens=(4,)),
        Operator("abs", "arithmetic", 1, np.abs, activate=np.abs),
        Operator("square", "arithmetic", 1, np.square, activate=np.square, gens=(4,)),
        Operator("relu", "arithmetic", 1, lambda x: np.maximum(x, np.float32(0)), gens=(4,),
                 activate=lambda x: np.maximum(x, np.float32(0))),
        Operator("rsqrt", "arithmetic", 1, lambda x: 1 / np.sqrt(x), activate=lambda x: 1 / np.sqrt(x),
                 domain=(2.0**-87, 2.0**97)),
        Operator("reciprocal", "arithmetic", 1, np.reciprocal, activate=np.reciprocal, domain=(_TINY, _HUGE)),
        Operator("copy", "activation", 1, activate=lambda x: x),
        Operator("sigmoid", "activation", 1, activate=_sigmoid),
        Operator("prelu", "activation", 1, activate=None),
        Operator("gelu", "activation", 1, activate=lambda x: x * _normal_cdf(x)),
        Operator("gelu_dx", "activation", 1, activate=lambda x: _normal_cdf(x) + x * _normal_density(x)),
        Operator("gelu_apprx_tanh", "activation", 1, activate=_gelu_tanh),
        Operator("gelu_apprx_sigmoid", "activation", 1, activate=lambda x: x * _sigmoid(np.float32(1.702) * x)),
        Operator("gelu_apprx_sigmoid_dx", "activation", 1, activate=_gelu_sigmoid_dx),
        Operator("silu", "activation", 1, activate=lambda x: x * _sigmoid(x)),
        Operator("silu_dx", "activation", 1, activate=_silu_dx),
        Operator("tanh", "activation", 1, activate=np.tanh),
        Operator("softplus", "activation", 1, activate=_softplus),
        Operator("mish", "activation", 1, activate=lambda x: x * np.tanh(_softplus(x))),
        Operator("erf", "activation", 1, activate=erf),
        Operator("erf_dx", "activation", 1, activate=lambda x: np.float32(2 / math.sqrt(_PI)) * np.exp(-x * x)),
        Operator("exp", "activation", 1, activate=np.exp),
        Operator("log", "activation", 1, activate=np.log, domain=(2.0**-64, 2.0**64)),
        Operator("sin", "activation", 1, activate=_sin, domain=(-_PI, _PI)),
        Operator("arctan", "activation", 1, activate=np.arctan, domain=(-_PI / 2, _PI / 2)),
        Operator("sqrt", "activation", 1, activate=np.sqrt, domain=(2.0**-116, 2.0**118)),
        Operator("sign", "activation", 1, activate=np.sign),
    )
}  # fmt: skip

BYPASS = Operator("bypass", "arithmetic", 1, lambda x: x, gens=(4,))
AVERAGE = Operator("average", "arithmetic", gens=())
"""Of ``nisa.tensor_partition_reduce`` only: no ALU has it."""
"""``nl.bypass``: a stage that does nothing."""

ACTIVATIONS = frozenset(name for name, op in TABLE.items() if op.activate is not None or name == "prelu")
REDUCTIONS = frozenset(name for name, op in TABLE.items() if op.reduce is not None)


class UnknownOperatorError(TypeError):
    """A value given as ``op`` that is no operator of ``nki.language``."""


_MOVED = {
    "max": "maximum",
    "min": "minimum",
    "sum": "add",
    "prod": "multiply",
    "mul": "multiply",
    "sub": "subtract",
    "all": "logical_and",
}


def lookup(value: Any) -> Operator:
    """The operator behind ``nl.add`` and its like.

    Raises:
        UnknownOperatorError: anything else, with the operator that was probably meant.
    """
    found = value if isinstance(value, Operator) else getattr(value, "operator", None)
    if isinstance(found, Operator):
        return found
    name = value if isinstance(value, str) else getattr(value, "__name__", repr(value))
    module = getattr(value, "__module__", "") or ""
    meant = _MOVED.get(name, name)
    if meant in TABLE and not isinstance(value, str):
        origin = f"{module}.{name}" if module.startswith("numpy") or isinstance(value, np.ufunc) else f"nl.{name}"
        raise UnknownOperatorError(f"{origin} is not an operator; write op=nl.{meant}")
    if meant in TABLE:
        raise UnknownOperatorError(f"op must be an object, not the string {value!r}; write op=nl.{meant}")
    near = difflib.get_close_matches(str(name), TABLE, n=1)
    hint = f"; did you mean nl.{near[0]}?" if near else f"; operators are {', '.join(TABLE)}"
    raise UnknownOperatorError(f"{name} is not an operator of nki.language{hint}")
