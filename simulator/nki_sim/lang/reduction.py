"""Reductions over free dimensions, and what is made of them: softmax, rms_norm, matmul, transpose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nki_sim import context, isa, ops
from nki_sim.errors import NkiTypeError, Rule, fail, page
from nki_sim.isa.enums import reduce_cmd
from nki_sim.lang.creation import broadcast_to, result_dtype, tile
from nki_sim.lang.elementwise import need_tile
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

Axis = int | Sequence[int]


def _page(name: str) -> str:
    return page(f"api/generated/nki.language.{name}.html")


REDUCE_AXES = Rule(
    "nl.reduce_axes",
    "the axes are free dimensions, the last contiguous ones: [1], [1, 2], …",
    why="an engine reduces along its own partition only, over what streams by last",
    fix="multiply with ones on the tensor engine to sum over partitions; permute to bring a free dimension last",
    page=_page("sum"),
)
TRANSPOSE_2D = Rule("nl.transpose_2d", "nl.transpose takes a 2-D tile", fix="nisa.nc_transpose flattens free dimensions",
                    page=_page("transpose"))  # fmt: skip
MATMUL_X = Rule(
    "nl.matmul_transpose_x",
    "nl.matmul needs transpose_x=True: x is [K, M] with the contraction on partitions, and the result x.T @ y",
    why="the reference describes an inserted transpose for False, the release notes say that it fails",
    fix="lay x out transposed and pass transpose_x=True, or call nisa.nc_transpose yourself",
    page=_page("matmul"),
)
MATMUL_TILES = Rule("nl.matmul_tiles", "x is [K ≤ 128, M ≤ 128] and y is [K, N ≤ 512], both in SBUF",
                    fix="cut K, M and N into tiles", page=_page("matmul"))  # fmt: skip


def axes_of(x: NkiTensor, axis: Axis, subject: str) -> tuple[int, ...]:
    """The reduced axes in order.

    Raises:
        NkiValidationError: they are not the last free dimensions.
    """
    given = (axis,) if isinstance(axis, int) else axis
    if not isinstance(given, Sequence) or any(not isinstance(a, int) for a in given):
        what = f"axis is {axis!r}"
        raise fail(REDUCE_AXES, what, target=context.core().target, subject=subject, operand="axis", error=NkiTypeError)
    axes = tuple(sorted(a + x.ndim if a < 0 else a for a in given))
    if not axes or axes != tuple(range(x.ndim - len(axes), x.ndim)) or axes[0] < 1:
        what = f"axis {axis} of a tile {x.shape}"
        raise fail(REDUCE_AXES, what, target=context.core().target, subject=subject, operand="axis")
    return axes


def _reduced_shape(x: NkiTensor, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    kept = x.shape[: axes[0]]
    if keepdims:
        return kept + (1,) * len(axes)
    return kept if len(kept) > 1 else (*kept, 1)


def reduce(name: str, subject: str, x: NkiTensor, axis: Axis, dtype: Any, keepdims: bool) -> NkiTensor:
    """One tensor_reduce into a new SBUF tile."""
    need_tile(x, subject)
    axes = axes_of(x, axis, subject)
    made = tile(_reduced_shape(x, axes, keepdims), result_dtype(x, dtype, subject))
    isa.tensor_reduce(made, ops.TABLE[name], x, axes, keepdims=keepdims)
    return made


def sum(x: NkiTensor, axis: Axis, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Sum over the last free dimensions, element after element in float32.

    Args:
        x: a tile in SBUF or PSUM.
        axis: the last dimension, or the last few; never 0, the partition axis.
        dtype: of the result; x's by default.
        keepdims: leave the reduced dimensions as size 1.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.sum(a, axis=1)  # (128, 1)
    """
    return reduce("add", "nl.sum", x, axis, dtype, keepdims)


def max(x: NkiTensor, axis: Axis, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Maximum over the last free dimensions.

    Args:
        x: a tile in SBUF or PSUM.
        axis: the last dimension, or the last few; never 0, the partition axis.
        dtype: of the result; x's by default.
        keepdims: leave the reduced dimensions as size 1.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.max(a, axis=1)  # (128, 1)
    """
    return reduce("maximum", "nl.max", x, axis, dtype, keepdims)


def min(x: NkiTensor, axis: Axis, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Minimum over the last free dimensions.

    Args:
        x: a tile in SBUF or PSUM.
        axis: the last dimension, or the last few; never 0, the partition axis.
        dtype: of the result; x's by default.
        keepdims: leave the reduced dimensions as size 1.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.min(a, axis=1)  # (128, 1)
    """
    return reduce("minimum", "nl.min", x, axis, dtype, keepdims)


def prod(x: NkiTensor, axis: Axis, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Product over the last free dimensions.

    Args:
        x: a tile in SBUF or PSUM.
        axis: the last dimension, or the last few; never 0, the partition axis.
        dtype: of the result; x's by default.
        keepdims: leave the reduced dimensions as size 1.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.prod(a, axis=1)  # (128, 1)
    """
    return reduce("multiply", "nl.prod", x, axis, dtype, keepdims)


def all(x: NkiTensor, axis: Axis, dtype: Any = None) -> NkiTensor:
    """1 where all elements over the last free dimensions are non-zero, else 0.

    Args:
        x: a tile in SBUF or PSUM.
        axis: the last dimension, or the last few; never 0, the partition axis.
        dtype: of the result; x's by default.

    Example:
        low = nl.less(nl.load(x[:, 0:64]), 2.0)
        every = nl.all(low, axis=1)  # (128, 1)
    """
    return reduce("logical_and", "nl.all", x, axis, dtype, False)


def mean(x: NkiTensor, axis: Axis, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Mean over the last free dimensions, computed in float32.

    Args:
        x: a tile in SBUF or PSUM.
        axis: the last dimension, or the last few; never 0, the partition axis.
        dtype: of the result; x's by default.
        keepdims: leave the reduced dimensions as size 1.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.mean(a, axis=1)  # (128, 1)
    """
    total = reduce("add", "nl.mean", x, axis, "float32", keepdims)
    count = math.prod(x.shape[a] for a in axes_of(x, axis, "nl.mean"))
    made = tile(total.shape, result_dtype(x, dtype, "nl.mean"))
    isa.tensor_scalar(made, total, ops.TABLE["multiply"], 1.0 / count)
    return made


def var(x: NkiTensor, axis: Axis, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Variance over the last free dimensions; the result always keeps them as size 1.

    Args:
        x: a tile in SBUF or PSUM.
        axis: the last dimension, or the last few; never 0, the partition axis.
        dtype: of the result; x's by default.
        keepdims: has no effect.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.var(a, axis=1)  # (128, 1)
    """
    middle = mean(x, axis, "float32", keepdims=True)
    centred = tile(x.shape, "float32")
    isa.tensor_tensor(centred, x, _spread(middle, x.shape), ops.TABLE["subtract"])
    squared = tile(x.shape, "float32")
    isa.activation(squared, ops.TABLE["square"], centred)
    return mean(squared, axis, result_dtype(x, dtype, "nl.var"), keepdims=True)


def _spread(column: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """A view of a reduced tile (size-1 dimensions kept) with the full shape."""
    view = column
    for dim, size in enumerate(shape):
        if dim and view.shape[dim] != size:
            view = view.broadcast(dim, size)
    return view


def softmax(x: NkiTensor, axis: Axis = -1, dtype: Any = None) -> NkiTensor:
    """exp(x - max) / sum over the last free dimensions.

    Args:
        x: a tile in SBUF or PSUM.
        axis: the last dimension, or the last few; never 0, the partition axis.
        dtype: of the result; x's by default.

    Example:
        scores = nl.load(x[:, 0:64])
        weights = nl.softmax(scores, axis=1)
    """
    need_tile(x, "nl.softmax")
    axes = axes_of(x, axis, "nl.softmax")
    shape = _reduced_shape(x, axes, keepdims=True)
    lowest, total, inverse = tile(shape, "float32"), tile(shape, "float32"), tile(shape, "float32")
    e, made = tile(x.shape, "float32"), tile(x.shape, result_dtype(x, dtype, "nl.softmax"))
    isa.tensor_reduce(lowest, ops.TABLE["maximum"], x, axes, negate=True, keepdims=True)
    if axes[0] == 1:
        column = (x.shape[0], 1)
        isa.activation(e, ops.TABLE["exp"], x, bias=lowest.reshape(column), reduce_op=ops.TABLE["add"],
                       reduce_res=total.reshape(column), reduce_cmd=reduce_cmd.reset_reduce)  # fmt: skip
        isa.reciprocal(inverse, total)
        isa.tensor_scalar(made, e, ops.TABLE["multiply"], inverse.reshape(column))
        return made
    isa.tensor_tensor(e, x, _spread(lowest, x.shape), ops.TABLE["add"])
    isa.activation(e, ops.TABLE["exp"], e)
    isa.tensor_reduce(total, ops.TABLE["add"], e, axes, keepdims=True)
    isa.reciprocal(inverse, total)
    isa.tensor_tensor(made, e, _spread(inverse, x.shape), ops.TABLE["multiply"])
    return made


def rms_norm(
    x: NkiTensor,
    w: NkiTensor,
    axis: Axis,
    n: int,
    epsilon: float = 1e-6,
    dtype: Any = None,
    compute_dtype: Any = None,
) -> NkiTensor:
    """x / sqrt(sum(x²) / n + epsilon) · w over all free dimensions; w has x's shape, or one row.

    Args:
        x: a tile in SBUF or PSUM.
        w: the weights, a tile of x's shape or of one row.
        axis: all free dimensions. n: what the sum of squares is divided by, the elements of a row.
        dtype: of the result; x's by default. compute_dtype: of the squares; float32 by default.

    Example:
        a, w = nl.load(x[:, 0:64]), nl.load(x[0:1, 64:128])
        normed = nl.rms_norm(a, w, axis=1, n=64)
    """
    need_tile(x, "nl.rms_norm")
    axes = axes_of(x, axis, "nl.rms_norm")
    if axes[0] != 1:
        what = f"axis {axis} of a tile {x.shape}: rms_norm reduces all free dimensions"
        raise fail(REDUCE_AXES, what, target=context.core().target, subject="nl.rms_norm", operand="axis")
    inner = result_dtype(x, compute_dtype or "float32", "nl.rms_norm")
    squared, total, scale = tile(x.shape, inner), tile((x.shape[0], 1), "float32"), tile((x.shape[0], 1), "float32")
    isa.activation(squared, ops.TABLE["square"], x, reduce_op=ops.TABLE["add"], reduce_res=total,
                   reduce_cmd=reduce_cmd.reset_reduce)  # fmt: skip
    isa.tensor_scalar(total, total, ops.TABLE["multiply"], 1.0 / n, op1=ops.TABLE["add"], operand1=epsilon)
    isa.tensor_scalar(scale, total, ops.TABLE["rsqrt"], None)
    weight = w if w.shape == x.shape else broadcast_to(w, x.shape)
    made = tile(x.shape, result_dtype(x, dtype, "nl.rms_norm"))
    isa.scalar_tensor_tensor(made, x, ops.TABLE["multiply"], scale, ops.TABLE["multiply"], weight)
    return made


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The transpose of a 2-D SBUF tile of at most [128, 128], in PSUM.

    Args:
        x: a 2-D tile in SBUF.
        dtype: of the result; x's by default (on trn1 float32).

    Example:
        a = nl.load(x[:, 0:64])
        turned = nl.transpose(a)  # (64, 128), in PSUM
    """
    need_tile(x, "nl.transpose")
    if x.ndim != 2:
        raise fail(TRANSPOSE_2D, f"x is {x.words()}", target=context.core().target, subject="nl.transpose", operand="x")
    made = tile((x.shape[1], x.shape[0]), result_dtype(x, dtype, "nl.transpose"), MemoryRegion.psum)
    isa.nc_transpose(made, x)
    return made


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x.T @ y of SBUF tiles [K, M] and [K, N] with ``transpose_x=True``; float32 in PSUM.

    Args:
        x: [K, M] in SBUF, K ≤ 128 on partitions, M ≤ 128.
        y: [K, N] in SBUF, N ≤ 512.
        transpose_x: True.

    Example:
        stationary = nl.load(x[:, 0:64])  # [K, M]
        moving = nl.load(x[:, 64:320])  # [K, N]
        acc = nl.matmul(stationary, moving, transpose_x=True)  # (64, 256)
    """
    target = context.core().target
    need_tile(x, "nl.matmul")
    need_tile(y, "nl.matmul")
    if not transpose_x:
        raise fail(MATMUL_X, "transpose_x is False", target=target, subject="nl.matmul", operand="transpose_x")
    limits = x.ndim == y.ndim == 2 and x.shape[0] == y.shape[0] and x.shape[1] <= 128 and y.shape[1] <= 512
    if not limits or x.buffer is not MemoryRegion.sbuf or y.buffer is not MemoryRegion.sbuf:
        what = f"x is {x.words()}, y is {y.words()}"
        raise fail(MATMUL_TILES, what, target=target, subject="nl.matmul", operand="x")
    made = tile((x.shape[1], y.shape[1]), "float32", MemoryRegion.psum)
    isa.nc_matmul(made, x, y)
    return made
