"""Blanks: the name ``___`` in a kernel that is still to be written, and where it stands."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, NoReturn

from nki_sim.kernel import Kernel

NAME = "___"
"""How a blank is written."""


class BlankError(NameError):
    """A blank was used before it was filled in."""


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise BlankError(f"fill in the blank: {NAME} stands for something to be written")


class Blank:
    """What ``___`` is: anything done with it says that it is to be filled in; an instruction names the operand that it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return NAME

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what Python and displays ask any object for
            raise AttributeError(name)
        _refuse()

    __call__ = __getitem__ = __setitem__ = __iter__ = __len__ = __contains__ = _refuse
    __bool__ = __index__ = __int__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __enter__ = __exit__ = _refuse
    __add__ = __sub__ = __mul__ = __matmul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rmatmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = _refuse


___ = Blank()


@dataclass(frozen=True)
class Place:
    """A line with blanks: its number in the cell or file, its text, and how many there are."""

    line: int
    text: str
    count: int


def find_blanks(kernel: Any) -> tuple[Place, ...]:
    """The lines of a kernel, and of the functions it calls from the same module, that still have a blank.

    Found by reading, not by running: a blank in a branch that is not taken is one, too.
    """
    if isinstance(kernel, Blank):
        return (Place(0, NAME, 1),)
    return tuple(place for function in _functions(kernel) for place in _places(function))


def _functions(kernel: Any) -> Iterator[FunctionType]:
    """The kernel's own function, then those of its module that it names, directly or not."""
    waiting, seen = [kernel], set()
    while waiting:
        function = _plain(waiting.pop())
        if function is None or id(function) in seen:
            continue
        seen.add(id(function))
        yield function
        named = (function.__globals__.get(name) for name in _names(function.__code__))
        waiting += [f for f in map(_plain, named) if f is not None and f.__globals__ is function.__globals__]


def _plain(value: Any) -> FunctionType | None:
    """The Python function of a function or a kernel, if it is one."""
    inner: Callable[..., Any] = value.function if isinstance(value, Kernel) else value
    return inner if isinstance(inner, FunctionType) else None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _places(function: FunctionType) -> Iterator[Place]:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):  # no source to be had, or a lambda cut out of a line
        found = []
    else:
        found = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == NAME]
    if not found and NAME in _names(function.__code__):
        yield Place(0, f"in {function.__name__}", 1)
    for line in sorted(set(found)):
        yield Place(first + line - 1, lines[line - 1].strip(), found.count(line))
