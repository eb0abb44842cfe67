"""Tensors: allocation, filling, moving to and from HBM."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_sim import context, dtypes, isa, ops
from nki_sim.dtypes import DType, UnknownDTypeError
from nki_sim.errors import NkiTypeError, Rule, fail, page
from nki_sim.isa.nc_stream_shuffle import nc_stream_shuffle
from nki_sim.memory import NAME_UNIQUE, PARTITION_LIMIT, SBUF_ALIGN, MemoryRegion
from nki_sim.tensor import NkiTensor

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm


def _page(name: str) -> str:
    return page(f"api/generated/nki.language.{name}.html")


DTYPE = Rule("dtype.supported_list", "dtype is an NKI data type", page=page("api/nki.api.shared.html"),
             fix="write dtype=nl.float32, nl.bfloat16, …")  # fmt: skip
SHAPE = Rule("tensor.shape_positive", "a shape is a tuple of positive integers", page=_page("ndarray"),
             fix="write (128, 512)")  # fmt: skip
X4_GEN4 = Rule(
    "dtype.x4_gen4_only",
    "packed (x4) dtypes exist on trn3",
    why="only its tensor engine multiplies them",
    page=page("api/nki.api.shared.html"),
    gens=(4,),
)
LOAD_HBM = Rule(
    "nl.load_hbm",
    "nl.load copies from HBM to a new SBUF tile",
    fix="a tile in SBUF or PSUM is copied with nl.copy or nisa.tensor_copy",
    page=_page("load"),
)
LOAD_ROWS = Rule(
    "nl.load_partition_le_128",
    PARTITION_LIMIT.words,
    why=PARTITION_LIMIT.why,
    fix="load in tiles of 128 rows: for i in range(0, x.shape[0], 128): t = nl.load(x[i:min(i + 128, x.shape[0])])",
    page=_page("load"),
)
STORE = Rule(
    "nl.store_sbuf",
    "nl.store copies an SBUF tile to HBM",
    why="DMA engines do not reach PSUM",
    fix="nisa.tensor_copy the PSUM tile to SBUF first (nl.copy does)",
    page=_page("store"),
)
COPY = Rule("nl.copy", "nl.copy takes a tile in SBUF or PSUM", fix="nl.load copies from HBM", page=_page("copy"))
GATHER = Rule(
    "nl.gather_flattened",
    "nl.gather_flattened takes a tile, a tile of whole-number indices, and axis 0",
    page=_page("gather_flattened"),
)
BROADCAST_RANK = Rule(
    "nl.broadcast_to_rank",
    "the target has the rank of x, and each size equals x's or x's is 1; x is in SBUF or PSUM",
    page=_page("broadcast_to"),
)
CONSTANT = Rule(
    "shared_constant.source", "a constant is a NumPy array or the path of a .npy file", page=_page("shared_constant")
)
CONSTANT_DTYPE = Rule(
    "shared_constant.dtypes",
    "a constant has a data type of at most 32 bits that is neither bool nor packed",
    page=_page("shared_constant"),
)
IDENTITY = Rule("shared_identity.n", "an identity tile has at most 128 rows", page=_page("shared_identity_matrix"))


def _target() -> str:
    return context.core().target


def resolve_dtype(dtype: Any, subject: str) -> DType:
    """The table row of a dtype argument.

    Raises:
        NkiTypeError: it is none.
    """
    try:
        return dtypes.lookup(dtype)
    except UnknownDTypeError as error:
        raise fail(DTYPE, str(error), target=_target(), subject=subject, error=NkiTypeError, operand="dtype") from None


def tile(shape: Sequence[int], dtype: str, buffer: MemoryRegion = sbuf) -> NkiTensor:
    """A fresh tile for a result."""
    return context.machine().allocate(tuple(shape), dtypes.lookup(dtype), buffer)


def result_dtype(x: NkiTensor, dtype: Any, subject: str) -> str:
    """``dtype`` when given, else x's."""
    return x.dtype if dtype is None else resolve_dtype(dtype, subject).name


def ndarray(
    shape: Sequence[int],
    dtype: Any,
    buffer: MemoryRegion = sbuf,
    name: str = "",
    address: tuple[int, ...] | None = None,
) -> NkiTensor:
    """A new, unwritten tensor.

    Args:
        shape: sizes; on SBUF and PSUM the partition dimension (≤ 128) first.
        dtype: NKI data type.
        buffer: ``nl.sbuf``, ``nl.psum``, ``nl.hbm`` or ``nl.shared_hbm``.
        name: shown in reports.
        address: (partition, byte within the partition) pins an on-chip tensor to real bytes, which others may share.
            (The text says elements; all documented examples are in bytes.)

    Raises:
        NkiValidationError: a shape, dtype, buffer or address the memory does not have.

    Example:
        tile = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.sbuf, name="tile")
        acc = nl.ndarray((64, 256), dtype=nl.float32, buffer=nl.psum)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    """
    own = _sizes(shape)
    row, machine = resolve_dtype(dtype, "nl.ndarray"), context.machine()
    if row.kind == "packed" and machine.core.gen < 4:
        raise fail(X4_GEN4, f"dtype {row.name} on {_target()}", target=_target(), subject="nl.ndarray", operand="dtype")
    made = machine.allocate(own, row, buffer, name, address)
    if address is not None and buffer is sbuf and address[1] % machine.core.sbuf_min_align:
        machine.found(_portability(SBUF_ALIGN, f"byte offset {address[1]}", "nl.ndarray"))
    if name and not machine.memory.take_name(name):
        machine.found(_portability(NAME_UNIQUE, f"a second tensor named {name!r}", "nl.ndarray"))
    return made


def _sizes(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of plain ints."""
    if type(shape) is tuple:
        for n in shape:
            if type(n) is not int:
                break
        else:
            return shape
    if isinstance(shape, (int, np.integer)) or not all(isinstance(n, (int, np.integer)) for n in shape):
        raise fail(SHAPE, f"shape {shape!r}", target=_target(), subject="nl.ndarray", operand="shape")
    return tuple(int(n) for n in shape)


def full(shape: Sequence[int], fill_value: float, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """A new tensor filled with a constant (through SBUF when it lies in HBM).

    Args:
        shape, dtype, buffer, name: as for ``nl.ndarray``.
        fill_value: a compile-time number.

    Example:
        half = nl.full((128, 64), 0.5, dtype=nl.float32)
    """
    made = ndarray(shape, dtype, buffer, name)
    value = int(fill_value) if made.info.is_integer else fill_value
    if made.on_chip:
        isa.memset(made, value)
        return made
    total = made.size
    rows = math.gcd(total, 128)
    width = total // rows
    step = max(1, min(width, context.core().sbuf_usable_bytes // 4 // made.info.itemsize))
    flat = made.reshape((rows, width))
    for start in range(0, width, step):
        end = min(start + step, width)
        part = tile((rows, end - start), made.dtype)
        isa.memset(part, value)
        isa.dma_copy(flat[:, start:end], part)
    return made


def zeros(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """A new tensor of zeros.

    Args:
        shape, dtype, buffer, name: as for ``nl.ndarray``.

    Example:
        acc = nl.zeros((128, 64), dtype=nl.float32)
    """
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """A new tensor of ones.

    Args:
        shape, dtype, buffer, name: as for ``nl.ndarray``.

    Example:
        column = nl.ones((128, 1), dtype=nl.float32)
    """
    return full(shape, 1, dtype, buffer, name)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """A new tensor of zeros of x's shape.

    Args:
        x: a tensor.
        dtype, buffer: x's by default.

    Example:
        a = nl.load(x[:, 0:64])
        acc = nl.zeros_like(a, dtype=nl.float32)
    """
    return zeros(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the values of an HBM tensor; at most 128 rows.

    Args:
        src: a tensor in HBM, or a part of one.
        dtype: of the tile; src's by default.

    Raises:
        NkiValidationError: src is not in HBM, or has more than 128 rows.

    Example:
        tile = nl.load(x[:, 0:64], dtype=nl.bfloat16)
    """
    _need_tensor(src, LOAD_HBM, "nl.load", "src")
    if src.on_chip:
        raise fail(LOAD_HBM, f"src is {src.words()}", target=_target(), subject="nl.load", operand="src")
    if src.shape[0] > 128:
        what = f"partition dimension {src.shape[0]} exceeds maximum 128 in src {src.words()}"
        raise fail(LOAD_ROWS, what, target=_target(), subject="nl.load", operand="src")
    made = tile(src.shape, result_dtype(src, dtype, "nl.load"))
    isa.dma_copy(made, src)
    return made


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the transpose of a 2-D HBM tensor.

    Args:
        src: a 2-D tensor in HBM, an argument of the kernel; at most 128 columns.
        dtype: of the tile; src's by default.

    Example:
        turned = nl.load_transpose2d(x[:, 0:64])  # (64, 128)
    """
    _need_tensor(src, LOAD_HBM, "nl.load_transpose2d", "src")
    if src.on_chip or src.ndim != 2:
        raise fail(LOAD_HBM, f"src is {src.words()}", target=_target(), subject="nl.load_transpose2d", operand="src")
    if src.storage.allocation.role != "input":
        note = "src is HBM of this kernel"
        context.machine().found(_portability(TRANSPOSE_LOCAL, note, "nl.load_transpose2d"))
    want = result_dtype(src, dtype, "nl.load_transpose2d")
    turned = tile((src.shape[1], src.shape[0]), src.dtype)
    if src.info.itemsize in (2, 4):
        isa.dma_transpose(turned, src)
    else:
        isa.dma_copy(turned, src.permute((1, 0)))
    return turned if want == turned.dtype else copy(turned, want)


TRANSPOSE_LOCAL = Rule(
    "nl.load_transpose2d_local",
    "nl.load_transpose2d reads kernel arguments",
    why="a public report (trnfft) says that the trn1 compiler fails on HBM allocated by the kernel itself",
    fix="keep the tensor in SBUF and use nisa.nc_transpose",
    page=_page("load_transpose2d"),
    enforce="warn",
)


def _portability(rule: Rule, what: str, subject: str) -> Any:
    return fail(rule, what, target=_target(), subject=subject).diagnosis


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Copy an SBUF tile to an HBM tensor of as many elements.

    Args:
        dst: a tensor in HBM, or a part of one.
        value: a tile in SBUF.

    Raises:
        NkiValidationError: dst is not in HBM, or value not in SBUF.

    Example:
        out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[:, 0:64]))
    """
    _need_tensor(dst, STORE, "nl.store", "dst")
    _need_tensor(value, STORE, "nl.store", "value")
    if dst.on_chip or value.buffer is not MemoryRegion.sbuf:
        which, words = ("dst", dst.words()) if dst.on_chip else ("value", value.words())
        raise fail(STORE, f"{which} is {words}", target=_target(), subject="nl.store", operand=which)
    isa.dma_copy(dst, value)


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with x's values, bit by bit when the dtype stays.

    Args:
        x: a tile in SBUF or PSUM.
        dtype: of the result; x's by default.

    Example:
        acc = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.psum)
        tile = nl.copy(acc, dtype=nl.bfloat16)
    """
    _need_tensor(x, COPY, "nl.copy", "x")
    if not x.on_chip:
        raise fail(COPY, f"x is {x.words()}", target=_target(), subject="nl.copy", operand="x")
    made = tile(x.shape, result_dtype(x, dtype, "nl.copy"))
    isa.tensor_copy(made, x)
    return made


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """A tile of indices' shape with ``data[p, indices[p, i]]``, the free dimensions of each counted as one.

    Args:
        data: SBUF. indices: SBUF, whole numbers, as many partitions.
        axis: 0; the documents do not say what another one would mean.
        dtype: data's when not given.

    Raises:
        NkiValidationError: another axis, indices that are no whole numbers, tiles that are not in SBUF.

    Example:
        a = nl.load(x[:, 0:64])
        index = nl.ndarray((128, 16), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.iota(dst=index, pattern=[[4, 16]])  # every fourth element
        picked = nl.gather_flattened(a, index)
    """
    _need_tensor(data, GATHER, "nl.gather_flattened", "data")
    _need_tensor(indices, GATHER, "nl.gather_flattened", "indices")
    if axis != 0 or not indices.info.is_integer:
        what, which = (f"axis {axis}", "axis") if axis != 0 else (f"indices are {indices.dtype}", "indices")
        raise fail(GATHER, what, target=_target(), subject="nl.gather_flattened", operand=which)
    made = tile(indices.shape, data.dtype)
    isa.nc_n_gather(made, data, indices if indices.dtype == "uint32" else copy(indices, "uint32"))
    want = result_dtype(data, dtype, "nl.gather_flattened")
    return made if want == data.dtype else copy(made, want)


def _need_tensor(value: Any, rule: Rule, subject: str, operand: str) -> None:
    if not isinstance(value, NkiTensor):
        what = f"{operand} is a {type(value).__name__}"
        raise fail(rule, what, target=_target(), subject=subject, error=NkiTypeError, operand=operand)


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view with a new dimension of size 1 at ``axis``.

    Args:
        x: a tensor.
        axis: where the new dimension stands in the result; on chip not 0.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.expand_dims(a, axis=1)  # (128, 1, 64)
    """
    return x.expand_dim(axis)


def broadcast_to(x: NkiTensor, shape: Sequence[int], dtype: Any = None) -> NkiTensor:
    """A tile of ``shape`` that repeats x's size-1 dimensions; one row goes to all partitions by a stream shuffle.

    Args:
        x: a tile in SBUF or PSUM.
        shape: as many sizes as x has; each is x's own, or x's is 1.
        dtype: of the result; x's by default.

    Example:
        row = nl.load(x[0:1, 0:64])
        everywhere = nl.broadcast_to(row, (128, 64))
    """
    _need_tensor(x, BROADCAST_RANK, "nl.broadcast_to", "x")
    target = tuple(int(n) for n in shape)
    fits = len(target) == x.ndim and all(n in (1, m) for n, m in zip(x.shape, target, strict=True))
    if not fits or not x.on_chip:
        what = f"x is {x.words()}, target {target}"
        raise fail(BROADCAST_RANK, what, target=_target(), subject="nl.broadcast_to", operand="x")
    want = result_dtype(x, dtype, "nl.broadcast_to")
    if x.shape == target:
        return x if want == x.dtype else copy(x, want)
    view = x
    for dim in range(1, x.ndim):
        if view.shape[dim] != target[dim]:
            view = view.broadcast(dim, target[dim])
    if x.shape[0] == target[0]:
        return copy(view, want)
    row = view if want == x.dtype else copy(view, want)
    made = tile(target, want)
    for start in range(0, target[0], 32):
        nc_stream_shuffle(made[start : min(start + 32, target[0])], row, (0,) * 32)
    return made


def shared_constant(constant: Any) -> NkiTensor:
    """A tensor in shared HBM that holds given values when the kernel starts.

    Args:
        constant: a NumPy array, or the path of a ``.npy`` file.

    Raises:
        NkiValidationError: it is neither, the file cannot be read, or the hardware has no such data type.

    Example:
        weights = nl.shared_constant(np.arange(64, dtype=np.float32).reshape(1, 64))
        row = nl.load(weights)
    """
    if isinstance(constant, (str, os.PathLike)):
        try:
            constant = np.load(constant, allow_pickle=False)
        except (OSError, ValueError) as error:
            what = f"{os.fspath(constant)!r} cannot be read: {error}"
            raise fail(CONSTANT, what, target=_target(), subject="nl.shared_constant", operand="constant") from None
    if not isinstance(constant, np.ndarray):
        what = f"constant is a {type(constant).__name__}"
        raise fail(CONSTANT, what, target=_target(), subject="nl.shared_constant", operand="constant", error=NkiTypeError)
    info = resolve_dtype(constant.dtype, "nl.shared_constant")
    if info.itemsize > 4 or info.kind in ("bool", "packed"):
        what = f"the values are {info.name}"
        raise fail(CONSTANT_DTYPE, what, target=_target(), subject="nl.shared_constant", operand="constant")
    return context.machine().constant(constant, info)


def shared_identity_matrix(n: int, dtype: Any = "uint8", dst: NkiTensor | None = None) -> NkiTensor:
    """An n × n identity in SBUF, n ≤ 128.

    Args:
        n: its rows and columns.
        dtype: of the tile.
        dst: a tile to write; a new one by default.

    Example:
        eye = nl.shared_identity_matrix(64, dtype=nl.float32)
    """
    if not 0 < n <= 128:
        raise fail(IDENTITY, f"n is {n}", target=_target(), subject="nl.shared_identity_matrix", operand="n")
    made = dst if dst is not None else ndarray((n, n), dtype)
    filled = tile((n, n), made.dtype)
    isa.memset(filled, 1)
    isa.affine_select(made, [[-1, n]], 1, filled, 0.0, ops.TABLE["equal"])
    return made
