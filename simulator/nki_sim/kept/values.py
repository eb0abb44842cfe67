"""Compile-time values and arrays as JSON and raw bytes, and back."""

from __future__ import annotations

from enum import Enum
from itertools import accumulate
from typing import Any

import numpy as np

from nki_sim import dtypes, ops
from nki_sim.dtypes import Array, DType
from nki_sim.isa import enums
from nki_sim.kept.digest import Unkept
from nki_sim.memory import MemoryRegion

_NUMBERS = (bool, int, float, str)


class Writer:
    """Values as JSON, and the bytes beside it."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []

    def value(self, value: Any) -> Any:
        """JSON for a compile-time value.

        Raises:
            Unkept: it is of a kind that files do not hold.
        """
        if value is None or type(value) in _NUMBERS:
            return {"float": repr(value)} if isinstance(value, float) else value
        if isinstance(value, Enum):
            return {"enum": [type(value).__name__, value.name]}
        if isinstance(value, (tuple, list)):
            return {type(value).__name__: [self.value(item) for item in value]}
        if isinstance(value, np.ndarray):
            return {"array": self.array(value)}
        if isinstance(value, np.generic):
            return {"number": self.array(np.asarray(value))}
        if isinstance(value, DType):
            return {"dtype": value.name}
        operator = value if isinstance(value, ops.Operator) else getattr(value, "operator", None)
        if isinstance(operator, ops.Operator) and ops.TABLE.get(operator.name) is operator:
            return {"operator": operator.name}
        raise Unkept(f"a parameter of type {type(value).__name__}")

    def array(self, values: Array) -> list[Any]:
        """Dtype, shape and where the bytes are."""
        if values.dtype.hasobject:
            raise Unkept("an array of objects")
        self.blocks.append(np.ascontiguousarray(values).tobytes())
        return [dtype_name(values.dtype), list(values.shape), len(self.blocks) - 1]


class Reader:
    """The other way round."""

    def __init__(self, data: memoryview, sizes: list[int]):
        self.blocks = [data[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]

    def value(self, made: Any) -> Any:
        if not isinstance(made, dict):
            return made
        ((kind, content),) = made.items()
        return getattr(self, f"_{kind}")(content)

    def array(self, made: list[Any]) -> Array:
        name, shape, block = made
        return np.frombuffer(self.blocks[block], dtype_of(name)).reshape(shape)

    def _float(self, text: str) -> float:
        return float(text)

    def _enum(self, made: list[str]) -> Any:
        kind = MemoryRegion if made[0] == "MemoryRegion" else vars(enums)[made[0]]
        return kind[made[1]]

    def _tuple(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(map(self.value, items))

    def _list(self, items: list[Any]) -> list[Any]:
        return list(map(self.value, items))

    def _array(self, made: list[Any]) -> Array:
        return self.array(made).copy()

    def _number(self, made: list[Any]) -> Any:
        return self.array(made)[()]

    def _dtype(self, name: str) -> DType:
        return dtypes.TABLE[name]

    def _operator(self, name: str) -> ops.Operator:
        return ops.TABLE[name]


def dtype_name(dtype: np.dtype[Any]) -> str:
    """NumPy's own word for it, or the NKI name of what NumPy has no word for."""
    if dtype.isbuiltin == 1 and dtype.kind in "biufc":
        return str(dtype.str)
    found = next((row.name for row in dtypes.TABLE.values() if row.storage == dtype), None)
    if found is None:
        raise Unkept(f"an array of {dtype}")
    return found


def dtype_of(name: str) -> np.dtype[Any]:
    row = dtypes.TABLE.get(name)
    return row.storage if row is not None else np.dtype(name)
