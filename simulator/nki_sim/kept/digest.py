"""A key of specialised kernels as a name that is the same in every process."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from nki_sim.fingerprint import Place


class Unkept(Exception):  # noqa: N818 - an answer, not an error
    """A kernel that no file can stand for."""


def digest(key: Any) -> str:
    """The name of a key: SHA-256 in hexadecimal, of its values and of the simulator that made it.

    Raises:
        Unkept: the key holds something that only this process knows.
    """
    made = hashlib.sha256(_maker())
    _feed(made, key)
    return made.hexdigest()


def _feed(made: Any, value: Any) -> None:
    if value is None or isinstance(value, (bool, int, float, complex, np.generic)):
        _text(made, f"{type(value).__name__} {value!r}")
    elif isinstance(value, Place):
        pass
    elif isinstance(value, str):
        _text(made, f"str {value}")
    elif isinstance(value, bytes):
        made.update(b"bytes %d:" % len(value) + value)
    elif isinstance(value, (tuple, list)):
        _text(made, f"{type(value).__name__} {len(value)}")
        for item in value:
            _feed(made, item)
    elif isinstance(value, frozenset):
        _feed(made, ("frozenset", *sorted(_alone(item) for item in value)))
    elif isinstance(value, Enum):
        _feed(made, (type(value).__qualname__, value.name))
    elif isinstance(value, types.CodeType):
        _feed(made, _code(value))
    elif isinstance(value, (type, types.BuiltinFunctionType)):
        _feed(made, (value.__module__, value.__qualname__))
    elif dataclasses.is_dataclass(value):
        _feed(made, (type(value).__qualname__, *((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))))
    else:
        raise Unkept(f"a {type(value).__name__} in the key")


def _text(made: Any, words: str) -> None:
    data = words.encode("utf-8", "surrogatepass")
    made.update(b"%d:" % len(data) + data)


def _alone(value: Any) -> str:
    made = hashlib.sha256()
    _feed(made, value)
    return made.hexdigest()


def _code(code: types.CodeType) -> tuple[Any, ...]:
    """What code does: not where it stands, since the file of a notebook's cell has another name each time."""
    return (
        "code", code.co_name, code.co_code, code.co_consts, code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        getattr(code, "co_exceptiontable", b""),
    )  # fmt: skip


@functools.cache
def _maker() -> bytes:
    """Python's bytecode, NumPy's version and this simulator's files: others would do something else."""
    import importlib.util
    from importlib.metadata import PackageNotFoundError, version  # 20 ms, which %load_ext need not take

    root = Path(__file__).parent.parent
    files = sorted(root.rglob("*.py"))
    seen = [(str(f.relative_to(root)), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    try:
        released = version("nki-nb")
    except PackageNotFoundError:
        released = ""
    return repr((importlib.util.MAGIC_NUMBER, np.__version__, released, seen)).encode()
