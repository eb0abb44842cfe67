"""How bodies read and write operands: float32 in, one rounding out, shapes matched once per plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki_sim.dtypes import Array, decoder, encoder, float_to_int, round_tfloat32
from nki_sim.ops import Operator
from nki_sim.tensor import NkiTensor

Load = Callable[[Any], Any]
Store = Callable[[Array, Array], None]

F32 = np.dtype(np.float32)
_COLUMNS = 256
"""Columns that are turned at a time, within the cache."""
_APART = 16
"""Elements between rows that are turned, which keep them from falling on the same lines of the cache."""


def is_plain_f32(*tiles: Any) -> bool:
    """Whether all are float32 in memory and need no rounding: the body may compute straight into them."""
    return all(isinstance(t, NkiTensor) and t.stored_dtype == F32 and t.info.name != "tfloat32" for t in tiles)


def loader(tile: NkiTensor, shape: tuple[int, ...] | None = None) -> Load:
    """A function that gives the operand as float32, in ``shape`` when the ranks differ."""
    reshape = shape is not None and shape != tile.shape
    if tile.stored_dtype == F32:
        return (lambda a: a.reshape(shape)) if reshape else (lambda a: a)
    decode = decoder(tile.stored_dtype)
    return (lambda a: decode(a).reshape(shape)) if reshape else decode


def integer_loader(tile: NkiTensor, shape: tuple[int, ...] | None = None) -> Load:
    """A function that gives the operand as int64, exactly."""
    if shape is not None and shape != tile.shape:
        return lambda a: a.astype(np.int64).reshape(shape)
    return lambda a: a.astype(np.int64)


def bits_loader(tile: NkiTensor, shape: tuple[int, ...]) -> Load:
    """A function that gives the operand as it is."""
    return (lambda a: a.reshape(shape)) if shape != tile.shape else (lambda a: a)


def column_loader(operand: Any, ndim: int) -> Load:
    """A scalar as a float32, a (P, 1) tile as float32 that broadcasts over ``ndim`` dimensions."""
    if not isinstance(operand, NkiTensor):
        return lambda value: np.float32(0.0 if value is None else value)
    shape = (operand.shape[0],) + (1,) * (ndim - 1)
    return loader(operand, shape)


def storer(tile: NkiTensor) -> Store:
    """A function that rounds float32 results once into the operand; results may have any shape of equal size."""
    info, shape = tile.info, tile.shape
    if tile.stored_dtype == F32 and info.name == "tfloat32":

        def store_tf32(dst: Array, values: Array) -> None:
            dst[...] = round_tfloat32(np.broadcast_to(values, shape) if values.size != dst.size else values).reshape(shape)

        return store_tf32
    if info.is_integer:

        def store_int(dst: Array, values: Array) -> None:
            dst[...] = float_to_int(np.asarray(values, dtype=F32), info).reshape(values.shape)

        return store_int

    return encoder(tile.stored_dtype)


def apart(operand: Any, dst: Array) -> Any:
    """An operand that stays what it is while ``dst`` is written."""
    return operand.copy() if isinstance(operand, np.ndarray) and np.may_share_memory(operand, dst) else operand


def sum_in_order(values: Array) -> Array:
    """Sum over the last axis one element after the other, in float32: the order of the Vector and Scalar Engines.

    A grading repository's published device values equal this bit for bit, and differ from NumPy's pairwise sum.
    """
    rows, n = values.shape[0], values.shape[-1]
    if rows == 1 or n < 8:  # (F, 1) would be summed pairwise
        return np.asarray(np.add.accumulate(values, axis=-1, dtype=F32)[..., -1])
    if n <= _COLUMNS or values.ndim > 2:
        return np.asarray(np.add.reduce(np.ascontiguousarray(values.T), axis=0, dtype=F32))
    some, turned = np.empty((rows, _COLUMNS + _APART), F32), np.empty((1 + _COLUMNS, rows), F32)
    for start in range(0, n, _COLUMNS):
        end = min(_COLUMNS, n - start)
        some[:, :end] = values[:, start : start + end]
        turned[1 : 1 + end] = some[:, :end].T
        turned[0] = np.add.reduce(turned[start == 0 : 1 + end], axis=0)  # what was summed before is the first to be added
    return np.asarray(turned[0])


def reduce_rows(op: Operator, values: Array) -> Array:
    """Reduce the last axis of (rows, n) float32 values with ``op``, one element after the other, to (rows,)."""
    ufunc = op.ufunc
    if ufunc is None:
        raise ValueError(f"nl.{op.name} is no reduction")
    if ufunc is np.add:
        return sum_in_order(values)
    if ufunc in (np.maximum, np.minimum):
        return np.asarray(ufunc.reduce(values, axis=-1))
    if values.shape[0] == 1:
        return np.asarray(ufunc.reduce(list(values.T), axis=0), dtype=F32)
    return np.asarray(ufunc.reduce(np.ascontiguousarray(values.T), axis=0), dtype=F32)
