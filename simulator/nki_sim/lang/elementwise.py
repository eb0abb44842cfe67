"""Element-wise functions: each is also the operator that instructions take as ``op=``.

A function allocates an SBUF tile for its result and issues one instruction (a few, for those that no engine has).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from nki_sim import context, isa, ops
from nki_sim.errors import NkiTypeError, Rule, fail, page
from nki_sim.isa.enums import engine
from nki_sim.lang.creation import result_dtype, tile
from nki_sim.memory import MemoryRegion
from nki_sim.ops import Operator
from nki_sim.tensor import NkiTensor

Function = Callable[..., Any]


def _page(name: str) -> str:
    return page(f"api/generated/nki.language.{name}.html")


NO_BROADCAST = Rule(
    "nl.binary_no_broadcast",
    "both tiles have the same shape, or one operand is a scalar",
    why="nl's operators do not broadcast",
    fix="a (P, 1) column against a (P, N) tile: nisa.tensor_scalar(dst=…, data=…, op0=…, operand0=<column>); one row for "
    "all partitions: nl.broadcast_to",
    page=page("api/nki.language.html"),
)
ONE_TILE = Rule("nl.compare_one_tile", "at least one operand is a tile", fix="compare Python values with Python",
                page=page("api/nki.language.html"))  # fmt: skip
BITWISE_INT = Rule("nl.bitwise_int", "bitwise operators and shifts take integer tiles", fix="x.view(nl.int32) reinterprets",
                   page=page("api/nki.language.html"))  # fmt: skip
DIVIDE = Rule("nl.divide_unsupported", "no engine divides", why="the ALU has no division",
              fix="multiply by the reciprocal: nl.multiply(x, nl.reciprocal(y))", page=_page("divide"))  # fmt: skip
MODULO = Rule("nl.mod_fmod_unsupported", "no engine computes a remainder", why="the ALU has no division",
              fix="for indices use Python's % while the kernel is built; for data x - y·trunc(x·(1/y))",
              page=_page("mod"))  # fmt: skip
POWER = Rule("nl.power_tile_tile", "the exponent of nl.power is a tile", page=_page("power"),
             fix="nl.full(x.shape, exponent, dtype=x.dtype), or nl.square for 2")  # fmt: skip
GEN4 = Rule("nl.abs_max_min_gen4", "nl.abs_max and nl.abs_min exist on trn3", gens=(4,), page=_page("abs_max"))
RSQRT_PSUM = Rule("nl.rsqrt_no_psum", "nl.rsqrt does not read PSUM", why="it runs on GpSimd", fix="nl.copy to SBUF first",
                  page=_page("rsqrt"))  # fmt: skip
A_TILE = Rule("kernel.operand_type", "x is a tile in SBUF or PSUM", fix="load it first: nl.load(x)",
              page=page("get-started/nki-language-guide.html"))  # fmt: skip


def _error(rule: Rule, what: str, subject: str, operand: str = "", python: bool = False) -> Exception:
    target = context.core().target
    if python:
        return fail(rule, what, target=target, subject=subject, operand=operand, error=NkiTypeError)
    return fail(rule, what, target=target, subject=subject, operand=operand)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number))


_TILES = """
a, b = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
c = nl.{name}(a, b)
d = nl.{name}(a, 0.5)"""
_POWER = """
a = nl.load(x[:, 0:64])
cubes = nl.{name}(a, nl.full(a.shape, 3.0, dtype=a.dtype))"""
_BITS = """
a = nl.full((128, 64), 12, dtype=nl.int32)
b = nl.{name}(a, 10)"""
_SHIFT = """
a = nl.full((128, 64), 12, dtype=nl.int32)
b = nl.{name}(a, 2)"""
_FLAGS = """
a = nl.load(x[:, 0:64])
low, high = nl.greater(a, 0.5), nl.less(a, 1.0)
c = nl.{name}(low, high)"""
_ONE = """
a = nl.load(x[:, 0:64])
b = nl.{name}(a)"""
_INVERT = """
a = nl.full((128, 64), 12, dtype=nl.int32)
b = nl.{name}(a)"""
_PRELU = """
a = nl.load(x[:, 0:64])
b = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
nisa.activate2(dst=b, op=nl.{name}, data=a, imm0=1.0, imm1=0.0, op0=nl.multiply, op1=nl.add,
               relu_param=0.25)"""
_X = "x: a tile in SBUF or PSUM.\ndtype: of the result; x's by default."
_X_Y = "x, y: tiles of one shape in SBUF or PSUM, or one of them a scalar.\ndtype: of the result; by default the first tile's."
_TILES_ONLY = "x, y: tiles of one shape in SBUF or PSUM.\ndtype: of the result; x's by default."


def _tagged(name: str, function: Function, summary: str, example: str = _ONE, arguments: str = _X) -> Function:
    """Name the function after its operator, document it and tie the two together."""
    function.__name__ = function.__qualname__ = name
    parts = [summary, f"Also the operator that instructions take: ``op=nl.{name}``."]
    parts += [_section("Args", arguments)] if arguments else []
    function.__doc__ = "\n\n".join([*parts, _section("Example", example.format(name=name))])
    operator = ops.TABLE.get(name)
    if operator is not None:
        function.operator = operator  # type: ignore[attr-defined]
    return function


def _section(title: str, text: str) -> str:
    return f"{title}:\n" + textwrap.indent(text.strip(), "    ")


def need_tile(x: Any, subject: str) -> None:
    """x is a tile an engine can read.

    Raises:
        NkiValidationError: it is something else, or in HBM.
    """
    if not isinstance(x, NkiTensor):
        raise _error(A_TILE, f"x is a {type(x).__name__}", subject, "x", python=True)
    if not x.on_chip:
        raise _error(A_TILE, f"x is {x.words()}", subject, "x")


# --- two operands ----------------------------------------------------------------------------------------------------


def apply_binary(name: str, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x <name> y`` into a new SBUF tile."""
    op, subject = ops.TABLE[name], f"nl.{name}"
    if context.core().gen not in op.gens:
        raise _error(GEN4, f"nl.{name} on {context.core().target}", subject)
    for label, value in (("x", x), ("y", y)):
        if not (isinstance(value, NkiTensor) or _is_number(value)):
            raise _error(A_TILE, f"{label} is a {type(value).__name__}", subject, label, python=True)
    if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
        return _two_tiles(op, x, y, dtype, subject)
    if not isinstance(x, NkiTensor) and not isinstance(y, NkiTensor):
        raise _error(ONE_TILE, f"x is {x!r}, y is {y!r}", subject, python=True)
    data, scalar, reverse = (x, y, False) if isinstance(x, NkiTensor) else (y, x, True)
    need_tile(data, subject)
    if name == "power":
        raise _error(POWER, f"y is {y!r}" if not reverse else f"x is {x!r}", subject, "y")
    _check_bits(op, data, subject)
    made = tile(data.shape, result_dtype(data, dtype, subject))
    isa.tensor_scalar(made, data, op, scalar, reverse)
    return made


def _two_tiles(op: Operator, x: NkiTensor, y: NkiTensor, dtype: Any, subject: str) -> NkiTensor:
    need_tile(x, subject)
    need_tile(y, subject)
    if x.shape != y.shape:
        raise _error(NO_BROADCAST, f"x is {x.shape}, y is {y.shape}", subject, "y")
    _check_bits(op, x, subject)
    _check_bits(op, y, subject)
    made = tile(x.shape, result_dtype(x, dtype, subject))
    isa.tensor_tensor(made, x, y, op)
    return made


def _check_bits(op: Operator, x: NkiTensor, subject: str) -> None:
    if op.is_bitvec and not x.info.is_integer:
        raise _error(BITWISE_INT, f"x is {x.dtype}", subject, "x")


def _binary(name: str, summary: str, example: str = _TILES, arguments: str = _X_Y) -> Function:
    def function(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        return apply_binary(name, x, y, dtype)

    text = f"{summary}, element by element, of two tiles of one shape or a tile and a scalar; a new SBUF tile."
    return _tagged(name, function, text, example, arguments)


add = _binary("add", "x + y")
subtract = _binary("subtract", "x - y")
multiply = _binary("multiply", "x · y")
maximum = _binary("maximum", "The larger of x and y")
minimum = _binary("minimum", "The smaller of x and y")
abs_max = _binary("abs_max", "The one of larger magnitude, with its sign; y on a tie (trn3)")
abs_min = _binary("abs_min", "The one of smaller magnitude, with its sign; y on a tie (trn3)")
power = _binary("power", "x to the power of y (a tile)", _POWER, _TILES_ONLY)
equal = _binary("equal", "1 where x == y, else 0")
not_equal = _binary("not_equal", "1 where x != y, else 0")
less = _binary("less", "1 where x < y, else 0")
less_equal = _binary("less_equal", "1 where x <= y, else 0")
greater = _binary("greater", "1 where x > y, else 0")
greater_equal = _binary("greater_equal", "1 where x >= y, else 0")
bitwise_and = _binary("bitwise_and", "Bitwise and of integers", _BITS)
bitwise_or = _binary("bitwise_or", "Bitwise or of integers", _BITS)
bitwise_xor = _binary("bitwise_xor", "Bitwise exclusive or of integers", _BITS)
left_shift = _binary("left_shift", "x << y of integers", _SHIFT)
right_shift = _binary("right_shift", "x >> y of integers, zeros shifted in", _SHIFT)
logical_and = _binary("logical_and", "Logical and of 0 and 1 values", _FLAGS)
logical_or = _binary("logical_or", "Logical or of 0 and 1 values", _FLAGS)
logical_xor = _binary("logical_xor", "Logical exclusive or of 0 and 1 values", _FLAGS)


def divide(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Not on the hardware.

    Raises:
        NkiValidationError: always, with what to write instead.

    Example:
        a, b = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
        quotient = nl.multiply(a, nl.reciprocal(b))
    """
    raise _error(DIVIDE, "division", "nl.divide")


def mod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Not on the hardware.

    Raises:
        NkiValidationError: always, with what to write instead.

    Example:
        a, b = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
        whole = nl.floor(nl.multiply(a, nl.reciprocal(b)))
        rest = nl.subtract(a, nl.multiply(b, whole))
    """
    raise _error(MODULO, "remainder", "nl.mod")


def fmod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Not on the hardware.

    Raises:
        NkiValidationError: always, with what to write instead.

    Example:
        a, b = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
        whole = nl.trunc(nl.multiply(a, nl.reciprocal(b)))
        rest = nl.subtract(a, nl.multiply(b, whole))
    """
    raise _error(MODULO, "remainder", "nl.fmod")


# --- one operand -----------------------------------------------------------------------------------------------------


def apply_unary(name: str, x: Any, dtype: Any = None) -> NkiTensor:
    """An activation function into a new SBUF tile."""
    need_tile(x, f"nl.{name}")
    made = tile(x.shape, result_dtype(x, dtype, f"nl.{name}"))
    isa.activation(made, ops.TABLE[name], x)
    return made


def _unary(name: str, summary: str) -> Function:
    def function(x: Any, dtype: Any = None) -> NkiTensor:
        return apply_unary(name, x, dtype)

    return _tagged(name, function, f"{summary}, element by element, on the Scalar Engine; a new SBUF tile.")


exp = _unary("exp", "e to the power of x")
log = _unary("log", "Natural logarithm; x in [2^-64, 2^64]")
sqrt = _unary("sqrt", "Square root; x in [2^-116, 2^118]")
tanh = _unary("tanh", "Hyperbolic tangent")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x))")
relu = _unary("relu", "max(x, 0)")
gelu = _unary("gelu", "x·Φ(x), exactly")
gelu_dx = _unary("gelu_dx", "Derivative of gelu")
gelu_apprx_tanh = _unary("gelu_apprx_tanh", "gelu by the tanh formula")
gelu_apprx_sigmoid = _unary("gelu_apprx_sigmoid", "gelu by x·sigmoid(1.702 x)")
gelu_apprx_sigmoid_dx = _unary("gelu_apprx_sigmoid_dx", "Derivative of gelu_apprx_sigmoid")
silu = _unary("silu", "x·sigmoid(x)")
silu_dx = _unary("silu_dx", "Derivative of silu")
softplus = _unary("softplus", "log(1 + exp(x))")
mish = _unary("mish", "x·tanh(softplus(x))")
erf = _unary("erf", "The error function")
erf_dx = _unary("erf_dx", "Derivative of erf")
arctan = _unary("arctan", "Arc tangent; x in [-π/2, π/2]")
square = _unary("square", "x²")
abs = _unary("abs", "Absolute value")
sign = _unary("sign", "-1, 0 or 1")


def _prelu(x: Any, dtype: Any = None) -> NkiTensor:
    return apply_unary("prelu", x, dtype)


prelu = _tagged("prelu", _prelu, "Parametric ReLU: an operator of nisa.activate2 (trn3).", _PRELU, "")


def _rsqrt(x: Any, dtype: Any = None) -> NkiTensor:
    need_tile(x, "nl.rsqrt")
    if x.buffer is MemoryRegion.psum:
        raise _error(RSQRT_PSUM, f"x is {x.words()}", "nl.rsqrt", "x")
    made = tile(x.shape, result_dtype(x, dtype, "nl.rsqrt"))
    isa.tensor_scalar(made, x, ops.TABLE["rsqrt"], None, engine=engine.gpsimd)
    return made


def _reciprocal(x: Any, dtype: Any = None) -> NkiTensor:
    need_tile(x, "nl.reciprocal")
    made = tile(x.shape, result_dtype(x, dtype, "nl.reciprocal"))
    isa.reciprocal(made, x)
    return made


def _invert(x: Any, dtype: Any = None) -> NkiTensor:
    need_tile(x, "nl.invert")
    _check_bits(ops.TABLE["invert"], x, "nl.invert")
    made = tile(x.shape, result_dtype(x, dtype, "nl.invert"))
    isa.tensor_scalar(made, x, ops.TABLE["bitwise_xor"], -1)
    return made


rsqrt = _tagged("rsqrt", _rsqrt, "1/√x on GpSimd; a new SBUF tile. x is in SBUF.", arguments=_X.replace(" or PSUM", ""))
reciprocal = _tagged("reciprocal", _reciprocal, "1/x on the Vector Engine; a new SBUF tile.")
invert = _tagged("invert", _invert, "Bitwise not of integers, as exclusive or with ones; a new SBUF tile.", _INVERT)


def logical_not(x: Any, dtype: Any = None) -> NkiTensor:
    """1 - x for 0 and 1 values, as exclusive or with 1.

    Args:
        x: a tile in SBUF or PSUM.
        dtype: of the result; x's by default.

    Example:
        a = nl.greater(nl.load(x[:, 0:64]), 0.5)
        b = nl.logical_not(a)
    """
    return apply_binary("logical_xor", x, 1.0, dtype)


def negative(x: Any, dtype: Any = None) -> NkiTensor:
    """-x, element by element.

    Args:
        x: a tile in SBUF or PSUM.
        dtype: of the result; x's by default.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.negative(a)
    """
    return apply_binary("multiply", x, -1.0, dtype)


def _reduced_sin(x: Any, shift: float, dtype: Any, subject: str) -> NkiTensor:
    """sin(x + shift) with the argument brought into [-π, π] first."""
    need_tile(x, subject)
    shape = x.shape
    turns, whole, back = tile(shape, "float32"), tile(shape, "int32"), tile(shape, "float32")
    moved, angle = tile(shape, "float32"), tile(shape, "float32")
    isa.tensor_scalar(moved, x, ops.TABLE["add"], shift)
    isa.tensor_scalar(turns, moved, ops.TABLE["multiply"], 1.0 / (2.0 * math.pi))
    isa.tensor_copy(whole, turns)
    isa.tensor_copy(back, whole)
    isa.scalar_tensor_tensor(angle, back, ops.TABLE["multiply"], -2.0 * math.pi, ops.TABLE["add"], moved)
    pi = float(np.nextafter(np.float32(math.pi), np.float32(0)))
    isa.tensor_scalar(angle, angle, ops.TABLE["minimum"], pi, op1=ops.TABLE["maximum"], operand1=-pi)
    made = tile(shape, result_dtype(x, dtype, subject))
    isa.activation(made, ops.TABLE["sin"], angle)
    return made


def _sin(x: Any, dtype: Any = None) -> NkiTensor:
    return _reduced_sin(x, 0.0, dtype, "nl.sin")


sin = _tagged("sin", _sin, "Sine of any x: the argument is reduced to [-π, π] first; a new SBUF tile.")


def cos(x: Any, dtype: Any = None) -> NkiTensor:
    """Cosine, as sin(x + π/2) with the argument reduced.

    Args:
        x: a tile in SBUF or PSUM.
        dtype: of the result; x's by default.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.cos(a)
    """
    return _reduced_sin(x, math.pi / 2.0, dtype, "nl.cos")


def tan(x: Any, dtype: Any = None) -> NkiTensor:
    """Tangent, as sin(x) · 1/cos(x).

    Args:
        x: a tile in SBUF or PSUM.
        dtype: of the result; x's by default.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.tan(a)
    """
    inverse = _reciprocal(cos(x, "float32"))
    return apply_binary("multiply", _sin(x, "float32"), inverse, result_dtype(x, dtype, "nl.tan"))


def _rounded(x: Any, correction: str, sign_: float, dtype: Any, subject: str) -> NkiTensor:
    """floor or ceil: round to nearest, then correct by one where that went the wrong way.

    Values of 2^23 and more are integers already and are kept.
    """
    need_tile(x, subject)
    shape = x.shape
    whole, nearest, wrong = tile(shape, "int32"), tile(shape, "float32"), tile(shape, "float32")
    isa.tensor_copy(whole, x)
    isa.tensor_copy(nearest, whole)
    exact = tile(shape, "float32")
    isa.tensor_copy(exact, x)
    isa.tensor_tensor(wrong, nearest, exact, ops.TABLE[correction])
    out = tile(shape, "float32")
    isa.scalar_tensor_tensor(out, wrong, ops.TABLE["multiply"], sign_, ops.TABLE["add"], nearest)
    large, magnitude = tile(shape, "uint8"), tile(shape, "float32")
    isa.activation(magnitude, ops.TABLE["abs"], exact)
    isa.tensor_scalar(large, magnitude, ops.TABLE["greater_equal"], float(2**23))
    isa.tensor_copy_predicated(out, exact, large)
    made = tile(shape, result_dtype(x, dtype, subject))
    isa.tensor_copy(made, out)
    return made


def floor(x: Any, dtype: Any = None) -> NkiTensor:
    """The largest integer not above x.

    Args:
        x: a tile in SBUF or PSUM.
        dtype: of the result; x's by default.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.floor(a)
    """
    return _rounded(x, "greater", -1.0, dtype, "nl.floor")


def ceil(x: Any, dtype: Any = None) -> NkiTensor:
    """The smallest integer not below x.

    Args:
        x: a tile in SBUF or PSUM.
        dtype: of the result; x's by default.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.ceil(a)
    """
    return _rounded(x, "less", 1.0, dtype, "nl.ceil")


def trunc(x: Any, dtype: Any = None) -> NkiTensor:
    """The integer next to x towards zero: sign(x) · floor(|x|).

    Args:
        x: a tile in SBUF or PSUM.
        dtype: of the result; x's by default.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.trunc(a)
    """
    down = floor(apply_unary("abs", x, "float32"), "float32")
    return apply_binary("multiply", down, apply_unary("sign", x, "float32"), result_dtype(x, dtype, "nl.trunc"))


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x where condition is not 0, else y; x and y are tiles of condition's shape, or scalars.

    Args:
        condition: a tile in SBUF or PSUM.
        x, y: tiles of condition's shape, or scalars.
        dtype: of the result; by default that of x or y, whichever is a tile.

    Example:
        a, b = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
        larger = nl.where(nl.greater(a, b), a, b)
    """
    need_tile(condition, "nl.where")
    reference = x if isinstance(x, NkiTensor) else y if isinstance(y, NkiTensor) else condition
    made = tile(condition.shape, result_dtype(reference, dtype, "nl.where"))
    if isinstance(y, NkiTensor):
        isa.tensor_copy(made, y)
    else:
        isa.memset(made, int(y) if made.info.is_integer else y)
    chosen = tile(condition.shape, "uint8")
    isa.tensor_scalar(chosen, condition, ops.TABLE["not_equal"], 0.0)
    value = x
    if isinstance(x, NkiTensor) and x.dtype != made.dtype:
        value = tile(x.shape, made.dtype)
        isa.tensor_copy(value, x)
    isa.tensor_copy_predicated(made, value, chosen)
    return made


# nl.copy is defined with the other copies; the Scalar Engine's identity function has its name.
def tie_copy(function: Function) -> None:
    """Let ``op=nl.copy`` mean the identity activation."""
    function.operator = ops.TABLE["copy"]  # type: ignore[attr-defined]
