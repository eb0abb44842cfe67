"""Kernel arguments as text: ``a=randn:128x512:bf16``, ``b=weights.npy``, ``eps=1e-6``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from nki_sim.dtypes import DType, UnknownDTypeError, lookup
from nki_sim.estimate import TensorSpec

SHORT_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3", "i32": "int32", "u8": "uint8"}
"""Dtype names people type, beside the full ones."""

Shape = tuple[int, ...]
Maker = Callable[[np.random.Generator, Shape], npt.NDArray[Any]]

MAKERS: dict[str, Maker] = {
    "randn": lambda random, shape: random.standard_normal(shape),
    "rand": lambda random, shape: random.random(shape),
    "zeros": lambda random, shape: np.zeros(shape),
    "ones": lambda random, shape: np.ones(shape),
    "arange": lambda random, shape: np.arange(int(np.prod(shape))).reshape(shape),
    "ints": lambda random, shape: random.integers(-4, 5, shape),
}
"""How arrays are made: normal, uniform in [0, 1), zeros, ones, counted up, whole numbers from -4 to 4."""

FORMS = f"NAME={'|'.join(MAKERS)}:128x512[:bf16], NAME=file.npy, or NAME=<Python literal>"

SHAPE_FORMS = f"NAME=4096x8192[:bf16], NAME=4096:fp32, {FORMS}"
"""Where shapes are enough; a single dimension has its dtype, as ``NAME=4096`` is a number."""


class SpecError(ValueError):
    """An argument's text cannot be read; the message says what was expected."""


def read_arguments(specs: list[str], seed: int) -> dict[str, Any]:
    """Keyword arguments from ``NAME=VALUE`` texts, made in their order from one seed.

    Raises:
        SpecError: a text that is none of :data:`FORMS`.
    """
    return _with_values(specs, seed, FORMS)


def read_shapes(specs: list[str]) -> dict[str, Any]:
    """Keyword arguments of an estimate from ``NAME=VALUE`` texts: of arrays only shape and dtype.

    Raises:
        SpecError: a text that is none of :data:`SHAPE_FORMS`.
    """
    return _each(specs, SHAPE_FORMS, _shape_value)


def read_either(specs: list[str], seed: int) -> tuple[dict[str, Any], bool]:
    """Keyword arguments with values, and True, where every text gives some; else as :func:`read_shapes`, and False.

    Raises:
        SpecError: a text that is none of :data:`SHAPE_FORMS`.
    """
    if any(_is_shape(spec.partition("=")[2]) for spec in specs):
        return read_shapes(specs), False
    return _with_values(specs, seed, SHAPE_FORMS), True


def _with_values(specs: list[str], seed: int, forms: str) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return _each(specs, forms, lambda spec, value: _value(spec, value, random, forms))


def _each(specs: list[str], forms: str, read: Callable[[str, str], Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for spec in specs:
        name, equals, value = spec.partition("=")
        if not equals or not name.isidentifier():
            raise SpecError(f"--arg {spec}: expected {forms}")
        if name in arguments:
            raise SpecError(f"--arg {spec}: {name} is given twice")
        arguments[name] = read(spec, value)
    return arguments


def _shape_value(spec: str, value: str) -> Any:
    kind, colon, rest = value.partition(":")
    made = bool(colon) and kind in MAKERS
    if made or _is_shape(value):
        shape, _, dtype = (rest if made else value).partition(":")
        return _tensor(spec, _shape(spec, shape), _dtype(spec, dtype or "float32").name)
    if value.endswith(".npy"):
        there = _load(spec, Path(value), mapped=True)
        return _tensor(spec, there.shape, _dtype(spec, there.dtype.name).name)
    return _literal(spec, value, SHAPE_FORMS)


def _is_shape(value: str) -> bool:
    """Whether a text is a shape without values: ``4096x8192``, ``4096:fp32``."""
    shape, colon, _ = value.partition(":")
    sizes = shape.split("x")
    return (bool(colon) or len(sizes) > 1) and all(size.isdecimal() for size in sizes)


def _tensor(spec: str, shape: Shape, dtype: str) -> TensorSpec:
    try:
        return TensorSpec(shape, dtype)
    except ValueError as error:
        raise SpecError(f"--arg {spec}: {error}") from None


def _value(spec: str, value: str, random: np.random.Generator, forms: str) -> Any:
    kind, colon, rest = value.partition(":")
    if colon and kind in MAKERS:
        shape, _, dtype = rest.partition(":")
        return MAKERS[kind](random, _shape(spec, shape)).astype(_dtype(spec, dtype or "float32").storage)
    if value.endswith(".npy"):
        return _load(spec, Path(value))
    return _literal(spec, value, forms)


def _literal(spec: str, value: str, forms: str) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        raise SpecError(f"--arg {spec}: expected {forms}") from None


def _shape(spec: str, text: str) -> Shape:
    sizes = text.split("x")
    if not all(size.isdecimal() for size in sizes):
        raise SpecError(f"--arg {spec}: {text!r} is no shape; write it as 128x512")
    return tuple(int(size) for size in sizes)


def _dtype(spec: str, name: str) -> DType:
    try:
        return lookup(SHORT_NAMES.get(name, name))
    except UnknownDTypeError as error:
        raise SpecError(f"--arg {spec}: {error}") from None


def _load(spec: str, path: Path, mapped: bool = False) -> npt.NDArray[Any]:
    try:
        loaded: npt.NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError(f"--arg {spec}: cannot load {path.name}: {reason}") from None
    return loaded
