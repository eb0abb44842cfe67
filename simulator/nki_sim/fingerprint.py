"""What a function's course depends on besides its arguments: its code, and the closure and global values that it names.

A value that could change without being another object (a list, an array, an instance) is compared by content where that
is plain data, and is :data:`UNKNOWN` where it is not: then nothing is known about the function, and it is not cached.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

UNKNOWN = object()
"""Stands for whatever may have changed."""

SMALL = 1 << 16
"""Bytes of an array that are compared by content."""

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), np.generic)
_FIXED = ("nki", "nki_sim", "numpy", "ml_dtypes", "math", "builtins", "functools", "itertools", "typing", "os", "enum", "torch")
"""Packages whose modules and functions do not change while a program runs."""


class Place(str):
    """Where code stands: in one process another function, in the next one perhaps the same."""

    __slots__ = ()


class Unknown(Exception):  # noqa: N818 - an answer, not an error
    """A value that no fingerprint can stand for."""


def fingerprint(function: Callable[..., Any]) -> Any:
    """A hashable value that is another one when the function would do something else; ``UNKNOWN`` where none can be made."""
    try:
        return _of(function, [])
    except Unknown:
        return UNKNOWN


def frozen(value: Any) -> Any:
    """A hashable value that stands for a compile-time argument; ``UNKNOWN`` where none can be made."""
    try:
        return _of(value, [])
    except Unknown:
        return UNKNOWN


def _of(value: Any, open_: list[int]) -> Any:
    if isinstance(value, enum.Enum):
        return type(value), value.name
    if isinstance(value, _PLAIN):
        return type(value), value if value == value else "nan"
    if id(value) in open_:
        return "again", open_.index(id(value))
    open_ = [*open_, id(value)]
    if isinstance(value, (tuple, list)):
        return type(value), tuple(_of(item, open_) for item in value)
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(_of(item, open_) for item in value)
    if isinstance(value, dict):
        return dict, tuple((_of(k, open_), _of(v, open_)) for k, v in value.items())
    if isinstance(value, slice):
        return slice, _of((value.start, value.stop, value.step), open_)
    if isinstance(value, np.dtype):
        return np.dtype, value.str, value.name
    if isinstance(value, np.ndarray):
        return _array(value)
    return _object(value, open_)


def _array(value: Any) -> Any:
    if value.nbytes > SMALL or value.dtype.hasobject:
        raise Unknown
    return np.ndarray, value.shape, value.dtype.str, value.tobytes()


def _object(value: Any, open_: list[int]) -> Any:
    package = str(getattr(value, "__module__", None) or getattr(value, "__name__", "")).partition(".")[0]
    if isinstance(value, types.ModuleType):
        return "module", value.__name__
    compiled = isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType, np.ufunc))
    if (compiled or package in _FIXED) and callable(value):
        return "fixed", package, getattr(value, "__qualname__", None) or repr(value)
    wrapped = getattr(value, "function", None)
    if type(value).__name__ == "Kernel" and isinstance(wrapped, types.FunctionType):
        return "kernel", _of(wrapped, open_), value.lnc, value.schedule, value.configs
    if isinstance(value, types.FunctionType):
        return _function(value, open_)
    if isinstance(value, types.MethodType):
        return "method", _of(value.__func__, open_), _of(value.__self__, open_)
    if isinstance(value, property):
        return "property", *(_of(f, open_) for f in (value.fget, value.fset, value.fdel))
    if isinstance(value, (classmethod, staticmethod)):
        return type(value), _of(value.__func__, open_)
    if isinstance(value, type):
        return _class(value, open_)
    plain = dataclasses.is_dataclass(value) or type(getattr(value, "__dict__", None)) is dict
    if plain and type(value).__module__.partition(".")[0] not in _FIXED:
        return _of(type(value), open_), _of(vars(value), open_)
    raise Unknown


_HEAP_TYPE = 1 << 9
"""Set in the flags of classes that Python code made; the others cannot change."""


def _class(value: type, open_: list[int]) -> Any:
    if not value.__flags__ & _HEAP_TYPE:
        return "fixed", value.__module__, value.__qualname__
    own = {name: item for name, item in vars(value).items() if name not in _OF_EVERY_CLASS}
    bases = tuple(_of(base, open_) for base in value.__bases__ if base is not object)
    return "class", value.__module__, value.__qualname__, bases, _of(own, open_)


_OF_EVERY_CLASS = {
    "__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__annotate_func__", "__dataclass_fields__",
    "__dataclass_params__", "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl", "__qualname__",
}  # fmt: skip


def _function(value: types.FunctionType, open_: list[int]) -> Any:
    code = value.__code__
    cells = tuple(_of(_content(cell), open_) for cell in value.__closure__ or ())
    defaults = _of((value.__defaults__, value.__kwdefaults__), open_)
    named = tuple((name, _of(found, open_)) for name, found in _globals_of(code, value.__globals__))
    return "function", code, Place(code.co_filename), cells, defaults, named


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        raise Unknown from None


def _globals_of(code: types.CodeType, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The global values that a function's code names, those of the functions inside of it, and attributes of modules."""
    for one in _codes(code):
        for name in one.co_names:
            if name not in names:
                continue
            value = names[name]
            yield name, value
            if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] not in _FIXED:
                for attribute in one.co_names:
                    if attribute in vars(value):
                        yield f"{name}.{attribute}", vars(value)[attribute]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
