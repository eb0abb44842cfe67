"""What is done for every instruction, written out operand by operand: Python's loops over them would cost more than the work.

Each function here makes another one, from the names of fields or the kinds of operands; those for the same kinds are made once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Literal

from nki_sim.tensor import NkiTensor

Keyed = Callable[[Any, int], tuple[tuple[Any, ...], Any, Any]]

Asked = tuple[Literal["read", "write", "add"], int]
"""What is done with which operand: a sum goes on in one that is added to."""

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
def look(kinds: tuple[str, ...], runtime: tuple[int, ...], asked: tuple[Asked, ...]) -> Callable[..., None]:
    """Ask memory about the operands that it may have something to say of, and about the indices of those that have one."""
    lines = [f"machine.before_index(ins, slots[{i}].name, v{i})" for i in runtime]
    found: Callable[..., None] = _made(
        "machine, ins, slots, values", [f"{_values(kinds)} = values", *lines, *_asking(asked, "v{}.storage", "slots")]
    )
    return found


@lru_cache(maxsize=4096)
def do(kinds: tuple[str, ...]) -> Callable[..., None]:
    """Call the body with the operands' NumPy views."""
    found: Callable[..., None] = _made("body, values", [f"{_values(kinds)} = values", f"body({_views(kinds)})"])
    return found


@lru_cache(maxsize=4096)
def note(kinds: tuple[str, ...], scalar: int, absent: int) -> Callable[..., Sequence[int]]:
    """Note the step as the operands' last use; what the record has of them, for operands at fixed places: of a tensor its
    number and offset, of a number ``scalar`` and which constant it is, of nothing ``absent`` and 0."""
    found: Callable[..., Sequence[int]] = _made(
        "constant, values, step",
        [f"{_values(kinds)} = values", *_last_uses(kinds, "v{}.storage"), f"return {_flat(kinds, scalar, absent)}"],
    )
    return found


@lru_cache(maxsize=4096)
def play(kinds: tuple[str, ...], asked: tuple[Asked, ...], speaks: bool, scalar: int, absent: int) -> Callable[..., None]:
    """:func:`look`, then :func:`do` unless the machine keeps it waiting, then :func:`note` and the record of the step, at the
    line that issued it: all that a machine does with an instruction whose course is decided."""
    now = ["if pending is None or machine.runs_now(plan, values):", f"    plan.body({_views(kinds)})"]
    later = ["if pending is not None and len(pending.waiting) < pending.room:", "    pending.waiting.append(values)"]
    storages = [f"s{i} = v{i}.storage" for i, kind in enumerate(kinds) if kind is TENSOR]
    found: Callable[..., None] = _made(
        "machine, ins, number, plan, values, step",
        [
            f"{_values(kinds)} = values",
            *storages,
            *_asking(asked, "s{}", "plan.slots"),
            "pending = machine.pending",
            *(now if speaks else [*later, f"el{now[0]}", now[1]]),
            *_last_uses(kinds, "s{}"),
            *_recording("plan.depth", f"frombytes(pack{_flat(kinds, scalar, absent, 'program.constant')})"),
        ],
        pack=Struct(f"{2 * len(kinds)}q").pack,  # an array takes bytes in a third of the time that it takes numbers in
    )
    return found


def _recording(depth: str, adding: str) -> list[str]:
    """Append a step to the record, at the line that issues it, ``depth`` frames up, or issued it in a loop's first round.

    Args:
        adding: the call that adds its operands to the table of operands.
    """
    return [
        "program = machine.program",
        f"frame = getframe({depth})",
        "site = program.site_numbers.get((id(frame.f_code), frame.f_lasti)) if machine._again is None else machine._again",
        "program.steps.append(number)",
        "program._site.append(program.site_of(frame) if site is None else site)",
        f"program._operands.{adding}",
    ]


def _asking(asked: Sequence[Asked], storage: str, slots: str) -> list[str]:
    """Ask memory where it may have something to say."""
    line = "if not ({2}.quiet_to_{0} or v{1}.quiet): machine.before_{3}(ins, {4}[{1}].name, v{1})"
    return [line.format(what, i, storage.format(i), "read" if what == "read" else "write", slots) for what, i in asked]


def _views(kinds: Sequence[str]) -> str:
    """The arguments of a body."""
    has = {TENSOR: "v{0}._array if v{0}._array is not None else v{0}._bind()", NUMBER: "v{0}", NOTHING: "None"}
    return ", ".join(has[kind].format(i) for i, kind in enumerate(kinds))


def _last_uses(kinds: Sequence[str], storage: str) -> list[str]:
    """The step is the last use of its tensors."""
    tensors = [i for i, kind in enumerate(kinds) if kind is TENSOR]
    return [f"a{i} = {storage.format(i)}.allocation; a{i}.last = step" for i in tensors]


def _flat(kinds: Sequence[str], scalar: int, absent: int, constant: str = "constant") -> str:
    """What the record has of the operands."""
    has = {TENSOR: "a{0}.id, v{0}.offset", NUMBER: f"{scalar}, {constant}(v{{0}})", NOTHING: f"{absent}, 0"}
    return _tuple([has[kind].format(i) for i, kind in enumerate(kinds)])


def _values(kinds: tuple[str, ...]) -> str:
    return _tuple([f"v{i}" for i in range(len(kinds))])


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _made(arguments: str, lines: Sequence[str], **known: Any) -> Any:
    """A function: its text is put together here, of field names and numbers only; ``known``: what it has by name."""
    text = "\n    ".join([f"def made({arguments}):", *lines])
    names: dict[str, Any] = {"__name__": __name__, "NkiTensor": NkiTensor, "getframe": sys._getframe, **known}
    exec(compile(text, f"<{__name__}>", "exec"), names)  # noqa: S102 - as dataclasses do it
    return names["made"]


record: Callable[..., None] = _made("machine, number, plan, flat", _recording("1 + plan.depth", "extend(flat)"))
"""Append a step to the record of a machine, called by what :meth:`issue` calls."""
