"""What is done for every instruction, written out operand by operand: Python's loops over them would cost more than the work.

Each function here makes another one, from the names of fields or the kinds of operands; those for the same kinds are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from nki_sim.tensor import NkiTensor

Keyed = Callable[[Any, int], tuple[tuple[Any, ...], Any, Any]]

TENSOR, NUMBER, NOTHING = "tensor", "number", "nothing"
"""Kinds of operands."""


def keyed(operands: tuple[str, ...], params: tuple[str, ...]) -> Keyed:
    """Note the step of an instruction; its operands, what tells plans apart (its class, parameters, and the operands'
    signatures), and its name."""
    values = [f"v{i}" for i in range(len(operands))]
    lines = ["ins.step = step", *(f"{v} = ins.{name}" for v, name in zip(values, operands, strict=True))]
    signed = [f"({v}._sig or {v}.sig) if type({v}) is NkiTensor else type({v})" for v in values]
    key = _tuple(["type(ins)", *(f"ins.{name}" for name in params), *signed])
    found: Keyed = _made("ins, step", [*lines, f"return {_tuple(values)}, {key}, ins.name"])
    return found


def keyed_by(operands: Callable[[Any], tuple[Any, ...]], params: Callable[[Any], tuple[Any, ...]]) -> Keyed:
    """As :func:`keyed`, for operands and parameters that are not all fields."""

    def made(ins: Any, step: int) -> tuple[tuple[Any, ...], Any, Any]:
        ins.step, values = step, operands(ins)
        return values, (type(ins), *params(ins), *[v.sig if type(v) is NkiTensor else type(v) for v in values]), ins.name

    return made


def kinds_of(values: Sequence[Any]) -> tuple[str, ...]:
    """What each operand is: a tensor, a number, or nothing."""
    return tuple(TENSOR if type(v) is NkiTensor else NOTHING if v is None else NUMBER for v in values)


@lru_cache(maxsize=4096)
def look(
    kinds: tuple[str, ...], runtime: tuple[int, ...], reads: tuple[int, ...], writes: tuple[int, ...]
) -> Callable[..., None]:
    """Ask memory about the operands that it may have something to say of, and about the indices of those that have one."""
    line = "if not (v{1}.storage.quiet_to_{0} or v{1}.quiet): machine.before_{0}(ins, slots[{1}].name, v{1})"
    lines = [f"machine.before_index(ins, slots[{i}].name, v{i})" for i in runtime]
    lines += [line.format("read", i) for i in reads] + [line.format("write", i) for i in writes]
    found: Callable[..., None] = _made("machine, ins, slots, values", [f"{_values(kinds)} = values", *lines])
    return found


@lru_cache(maxsize=4096)
def do(kinds: tuple[str, ...]) -> Callable[..., None]:
    """Call the body with the operands' NumPy views."""
    has = {TENSOR: "v{0}._array if v{0}._array is not None else v{0}._bind()", NUMBER: "v{0}", NOTHING: "None"}
    given = ", ".join(has[kind].format(i) for i, kind in enumerate(kinds))
    found: Callable[..., None] = _made("body, values", [f"{_values(kinds)} = values", f"body({given})"])
    return found


@lru_cache(maxsize=4096)
def note(kinds: tuple[str, ...], scalar: int, absent: int) -> Callable[..., Sequence[int]]:
    """Note the step as the operands' last use; what the record has of them, for operands at fixed places: of a tensor its
    number and offset, of a number ``scalar`` and which constant it is, of nothing ``absent`` and 0."""
    lines = [f"a{i} = v{i}.storage.allocation; a{i}.last = step" for i, kind in enumerate(kinds) if kind is TENSOR]
    has = {TENSOR: "a{0}.id, v{0}.offset", NUMBER: f"{scalar}, constant(v{{0}})", NOTHING: f"{absent}, 0"}
    flat = _tuple([has[kind].format(i) for i, kind in enumerate(kinds)])
    found: Callable[..., Sequence[int]] = _made(
        "constant, values, step", [f"{_values(kinds)} = values", *lines, f"return {flat}"]
    )
    return found


def _values(kinds: tuple[str, ...]) -> str:
    return _tuple([f"v{i}" for i in range(len(kinds))])


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _made(arguments: str, lines: Sequence[str]) -> Any:
    """A function: its text is put together here, of field names and numbers only."""
    text = "\n    ".join([f"def made({arguments}):", *lines])
    names: dict[str, Any] = {"__name__": __name__, "NkiTensor": NkiTensor}
    exec(compile(text, f"<{__name__}>", "exec"), names)  # noqa: S102 - as dataclasses do it
    return names["made"]
