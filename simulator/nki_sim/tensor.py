"""``NkiTensor``: storage, an offset and an access pattern; every view method composes a new pattern over the same bytes.

Offsets and strides count elements. On SBUF and PSUM dimension 0 is the partition dimension; its stride is the number of
elements that the whole tensor keeps in one partition, so a pattern reads like the hardware's.
Source of the rules: the ``NkiTensor`` reference, the language guide and the access-pattern deep dive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from nki_sim import context, dtypes
from nki_sim.claims import Place
from nki_sim.dtypes import Array, DType, assign, to_float32
from nki_sim.errors import (
    NkiAssertionError,
    NkiError,
    NkiIndexError,
    NkiTypeError,
    NkiValidationError,
    Rule,
    fail,
    page,
)
from nki_sim.memory import Memory, MemoryRegion, Pattern, Storage

_TENSOR = page("api/generated/nki.language.NkiTensor.html")
_GUIDE = page("get-started/nki-language-guide.html")
_APS = page("deep-dives/nki-aps.html")

INDEX_KINDS = Rule(
    "tensor.index_kinds",
    "an index is an int, a slice, an Ellipsis, nl.ds(start, size) or a tuple of these, one per dimension",
    fix="nl.arange, nl.mgrid and masks are gone: slice with start:stop:step, use nl.ds, or spell the pattern with .ap",
    page=_GUIDE,
)
IN_BOUNDS = Rule(
    "tensor.slice",
    "0 ≤ start ≤ end ≤ size and step ≥ 1: slices are not clipped at the end of a dimension",
    why="the pattern is an address computation; past the end lies another tensor",
    fix="clamp the end: start:min(start + size, x.shape[dim])",
    page=_TENSOR,
)
NOT_EMPTY = Rule(
    "tensor.slice_empty",
    "an operand has at least one element: start < end in each of its slices",
    why="an access pattern counts from one; a core without work may take an empty slice, but issues nothing with it",
    fix="leave the instruction out where there is nothing to do: if end > start: …",
    page=_TENSOR,
)
SELECT = Rule("tensor.select_static", "0 ≤ index < size", fix="indices count from 0", page=_TENSOR)
VIEW_5D = Rule("tensor.view_le_5d", "a view has at most 5 dimensions", fix="merge dimensions first", page=_GUIDE)
PERMUTE = Rule(
    "tensor.permute",
    "dims is a permutation of all dimensions; on SBUF and PSUM dims[0] is 0",
    why="data changes partitions only through the tensor engine, a shuffle or a DMA",
    fix="use nisa.nc_transpose or nisa.dma_transpose to move data across partitions",
    page=_TENSOR,
)
BROADCAST = Rule(
    "tensor.broadcast",
    "broadcast repeats a dimension of size 1; on SBUF and PSUM not dimension 0",
    why="a pattern repeats bytes within a partition, it cannot fetch them from another one",
    fix="nl.broadcast_to(x, shape) copies a row to all partitions; a (P, 1) column is an operand of nisa.tensor_scalar",
    page=_TENSOR,
)
EXPAND = Rule("tensor.expand_dim", "expand_dim inserts anywhere but before the partition dimension", page=_TENSOR)
SQUEEZE = Rule("tensor.squeeze_dim", "squeeze_dim removes a dimension of size 1, not the partition dimension",
               page=_TENSOR)  # fmt: skip
RESHAPE_DIM = Rule(
    "tensor.reshape_dim",
    "the new sizes multiply to the dimension's size, at most one is -1; on SBUF and PSUM not dimension 0",
    page=_TENSOR,
)
FLATTEN = Rule(
    "tensor.flatten_dims",
    "the merged dimensions follow each other in memory; on SBUF and PSUM they do not include dimension 0",
    fix="copy to a fresh tile with nisa.tensor_copy, then flatten that",
    page=_TENSOR,
)
RESHAPE = Rule(
    "tensor.reshape",
    "reshape keeps the number of elements, keeps dimension 0 on SBUF and PSUM, and fits the layout in memory",
    why="a view renames bytes, it does not move them",
    fix="check the product of the sizes; a permuted or strided view is copied with nisa.tensor_copy first",
    page=_TENSOR,
)
VIEW_DTYPE = Rule(
    "tensor.view_dtype",
    "view(dtype) reinterprets a contiguous last dimension whose bytes divide evenly",
    fix="choose a size that is a multiple of the new dtype's bytes",
    page=_TENSOR,
)
REARRANGE = Rule("tensor.rearrange", "both patterns name the same dimensions, and the sizes multiply out", page=_TENSOR)
AP_BOUNDS = Rule("ap.bounds", "every address of a pattern lies inside the tensor's storage", page=_APS)
AP_PARTITION = Rule(
    "ap.partition_first",
    "on SBUF and PSUM the first [step, num] is the partition dimension and its step is the tensor's elements per partition",
    why="all partitions do the same access, one after the other",
    fix="take the first pair from x.get_pattern()",
    page=_APS,
)
AP_OFFSET = Rule("ap.offset_const", "offset is a compile-time int", fix="runtime offsets go to scalar_offset", page=_APS)
AP_EXCLUSIVE = Rule("ap.offsets_exclusive", "at most one of scalar_offset and vector_offset", page=_APS)
AP_SCALAR = Rule("ap.scalar_offset", "scalar_offset is a (1, 1) tensor in SBUF or a VirtualRegister", page=_APS)
AP_VECTOR = Rule("ap.vector_offset_dim0", "vector_offset needs indirect_dim=0 and a tensor in HBM", page=_APS)
INDIRECT_GEN = Rule(
    "tensor.indirect_gen4",
    "indirect() exists on trn3",
    why="tensor indirection came with NeuronCore-v4",
    fix="older cores gather with nisa.local_gather or nisa.nc_n_gather, and by DMA with .ap(vector_offset=…)",
    page=_TENSOR,
    gens=(2, 3),
)
INDIRECT_INDEX = Rule(
    "tensor.indirect_index",
    "index is in SBUF, of a whole-number dtype and of shape (P, K), P the partitions of the tensor, which is 2-D on chip",
    fix="flatten the free dimensions of the tensor first; one index column serves a group of 16 partitions (32 for a matmul)",
    page=_TENSOR,
)
INDIRECT_LAST = Rule(
    "tensor.indirect_last",
    "indirect() is the last view of an operand, and the only one with a runtime index",
    fix="slice first: x[:, a:b].indirect(index); for fewer elements pass num_elem",
    page=_TENSOR,
)
DYNAMIC_ONCE = Rule("tensor.select_dynamic_once", "a tensor is indexed by a runtime value at most once", page=_TENSOR)
DYNAMIC_PARTITION = Rule(
    "tensor.select_dynamic_not_partition", "a runtime index on SBUF or PSUM is not on dimension 0", page=_TENSOR
)
VECTOR_SELECT = Rule(
    "tensor.vector_select", "vector_select picks rows (dimension 0) of an HBM tensor by an SBUF column", page=_TENSOR
)
RESLICED = Rule(
    "tensor.vector_select_no_reslice",
    "the rows that vector_select chose are neither sliced nor selected again",
    fix="slice the column of indices instead",
    page=_TENSOR,
)
RESELECTED = Rule(
    "tensor.reinterpret_plus_vector_select",
    "rows that vector_select chose are not reinterpreted",
    why="a known issue: the two together are not supported",
    fix="reinterpret first: x.view(dtype).vector_select(0, index)",
    page=_TENSOR,
)
VECTOR_STRIDE = Rule(
    "ap.vector_offset_stride",
    "with vector_offset the leading step of a pattern is the tensor's elements after its first dimension",
    why="rows are found by the tensor's own shape; the leading step is not used",
    fix="write [[<elements of a row>, n], …]",
    page=_APS,
    enforce="warn",
)
WHOLE_NUMBERS = Rule("tensor.whole_numbers", "sizes, dimensions, steps and bounds are whole numbers", page=_TENSOR)
DTYPE = Rule(
    "dtype.supported_list",
    "dtype is an NKI data type",
    page=page("api/nki.api.shared.html"),
    fix="write dtype=nl.float32, nl.bfloat16, …",
)
VALUE_STYLE = Rule(
    "lang.isa_dst_required",
    "instructions write their dst; a tile has no arithmetic of its own, and only tensors are assigned to parts of it",
    page=page("migration/index.html"),
)
GIVEN = Rule(
    "lang.isa_dst_required",
    "whether a tensor is given is asked with `is not None`",
    why="a tensor has no truth value while the kernel is built; the public kernel library asks so, and it counts as given",
    fix="write `x is not None`",
    page=page("migration/index.html"),
    enforce="warn",
)


@dataclass(frozen=True)
class DynamicSlice:
    """``nl.ds(start, size)``: ``size`` elements from ``start``."""

    start: Any
    size: int


@dataclass(frozen=True)
class Dynamic:
    """A runtime offset: ``kind`` scalar, vector or indirect, ``index`` (a tensor or register), ``stride`` elements per
    unit, and ``size``, the extent of the dimension it indexes; for indirect also ``base``, the view that it picks from."""

    kind: str
    index: Any
    stride: int
    size: int
    base: NkiTensor | None = None

    @property
    def sig(self) -> Any:
        """What a check can depend on."""
        return self.kind if self.base is None else (self.kind, self.base.shape, self.index.sig)


if TYPE_CHECKING:
    Signature = tuple[Any, ...]

MOST_VIEWS = 64
"""Slices of one tensor that are remembered: a loop takes the same ones again."""


def _plain(key: Any) -> tuple[int | None, ...] | None:
    """The bounds of two slices of plain integers, ``None`` for any other index."""
    if type(key) is not tuple or len(key) != 2:
        return None
    rows, columns = key
    if type(rows) is not slice or type(columns) is not slice or rows.step is not None or columns.step is not None:
        return None
    a, b, c, d = bounds = rows.start, rows.stop, columns.start, columns.stop
    if (
        (a is None or type(a) is int)  # 0.0 and False equal 0
        and (b is None or type(b) is int)
        and (c is None or type(c) is int)
        and (d is None or type(d) is int)
    ):
        return bounds
    return None


class NkiTensor:
    """A view of on-chip or device memory.

    Attributes:
        shape: sizes, the partition dimension first on SBUF and PSUM.
        strides: elements between neighbours, per dimension.
        offset: elements before the first one.
        dtype: NKI dtype name.
        buffer: ``nl.sbuf``, ``nl.psum``, ``nl.private_hbm`` or ``nl.shared_hbm``.
        name: as given to ``nl.ndarray``.

    Example:
        tile = nl.load(x[:, 0:64])  # an NkiTensor; indexing and views give others over the same bytes
        pairs = tile.reshape_dim(dim=1, shape=(32, 2))  # (128, 32, 2)
        evens = pairs.select(dim=2, index=0)  # (128, 32)
    """

    __slots__ = ("_array", "_sig", "_views", "dynamic", "info", "memory", "offset", "quiet", "shape", "storage", "strides",
                 "written")  # fmt: skip
    __array_ufunc__ = None  # NumPy must not compute on tiles behind the machine's back

    def __init__(
        self,
        storage: Storage,
        memory: Memory,
        info: DType,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int = 0,
        dynamic: Dynamic | None = None,
    ):
        self.storage = storage
        self.memory = memory
        self.info = info
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.dynamic = dynamic
        self._array: Array | None = None
        self._sig = 0
        self._views: dict[Any, NkiTensor] | None = None
        self.written = False
        """Whether all of it is known to be written, and stays so; ``quiet``: and memory has nothing else to say of it."""
        self.quiet = False

    @classmethod
    def fresh(cls, storage: Storage, memory: Memory) -> NkiTensor:
        """The whole of a new allocation."""
        allocation, form = storage.allocation, storage.form
        made = cls(storage, memory, allocation.dtype, allocation.shape, _row_major(allocation.shape))
        if form is not None:
            number = memory.whole.get(form)
            if number is None:
                number = memory.whole[form] = made.sig
            made._sig = number
        return made

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> str:
        return self.info.name

    @property
    def buffer(self) -> MemoryRegion:
        return self.storage.allocation.region

    @property
    def name(self) -> str:
        return self.storage.allocation.name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_whole(self) -> bool:
        """Whether it has as many bytes as the tensor that it is a view of."""
        storage, allocation = self.storage, self.storage.allocation
        if self.shape == allocation.shape and self.info is allocation.dtype:
            return True
        return self.size * self.info.itemsize == storage.count * allocation.dtype.itemsize

    @property
    def data(self) -> NkiTensor:
        """The tensor itself: what a grid of tiles calls its operand."""
        return self

    @property
    def base_tensor(self) -> NkiTensor:
        """The whole tensor that this is a view of, as it was allocated; nki-library 2.29 reads MX weights by it."""
        return NkiTensor.fresh(self.storage, self.memory)

    @property
    def on_chip(self) -> bool:
        return self.storage.on_chip

    @property
    def pinned(self) -> bool:
        """Dimension 0 stays as it is: the partition dimension, or the rows that ``vector_select`` chose."""
        return self.storage.allocation.region.on_chip or (self.dynamic is not None and self.dynamic.kind == "vector")

    @property
    def row_elems(self) -> int:
        """Elements of this view's dtype that the whole tensor keeps in one partition (in all, for HBM)."""
        storage = self.storage
        own = storage.allocation.dtype
        return storage.row_elems if own is self.info else storage.row_elems * own.itemsize // self.info.itemsize

    @property
    def start_partition(self) -> int:
        """The physical partition of the first row (0 for a tile the compiler places)."""
        address = self.storage.allocation.address
        return self.offset // self.row_elems + (address[0] if address else 0)

    @property
    def start_byte(self) -> int:
        """Byte of the first element within its partition, from the start of the tensor's own row or its address."""
        address = self.storage.allocation.address
        return self.offset % self.row_elems * self.info.itemsize + (address[1] if address else 0)

    @property
    def place(self) -> Place:
        """The bytes on chip that it spans; of an irregular view more than it touches, never fewer (none skips partitions)."""
        first, start = self.start_partition, self.start_byte
        end = start + (span(self.shape[1:], self.strides[1:]) + 1) * self.info.itemsize
        return Place(first, first + self.shape[0], start, end)

    @property
    def pattern(self) -> Pattern:
        """Offset, shape, strides and bytes per element, as the storage's bookkeeping takes them."""
        if self.dynamic is not None and self.dynamic.base is not None:
            return self.dynamic.base.pattern
        return self.offset, self.shape, self.strides, self.info.itemsize

    def words(self) -> str:
        """Region, dtype and shape, as diagnoses print them.

        Example:
            tile = nl.load(x[:, 0:64])
            print(tile.words())  # sbuf float32 [128 × 64]
        """
        region = self.buffer.value if self.on_chip else "hbm"
        return f"{region} {self.dtype} [{' × '.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        label = self.storage.allocation.label
        return f"NkiTensor({label}: {self.words()})"

    def __str__(self) -> str:
        values = np.array2string(to_float32(self.numpy()) if self.info.is_float else self.numpy(), threshold=64)
        return f"{self!r}\n{values}"

    def numpy(self) -> Array:
        """A copy of the values now (never-written elements read as NaN or 4); float32 where NumPy lacks the data type.

        Example:
            tile = nl.load(x[0:2, 0:3])
            print(tile.numpy().sum())
        """
        self.storage.allocation.looked_at = True
        if self.storage.state:
            self.storage.poison()
        return self.array.copy() if self.array.dtype.names is None else to_float32(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        values = self.numpy()
        if dtype is None:
            return values
        made: Array = np.empty(values.shape, dtype)
        assign(made, values)
        return made

    # -- the bytes ---------------------------------------------------------------------------------------------------

    @property
    def array(self) -> Array:
        """The NumPy view of the bytes, of an indirect view all it picks from. For instructions only: writes are unchecked."""
        found = self._array
        return found if found is not None else self._bind()

    def _bind(self) -> Array:
        if self.memory.waiting is not None:
            self.memory.waiting()
        if self.dynamic is not None and self.dynamic.base is not None:
            return self.dynamic.base.array
        storage, stored = self.storage, self.info
        if not self.memory.precise:
            stored = self.memory.stored(stored)
        size, offset, strides = stored.itemsize, self.offset, self.strides
        if self.dynamic is not None:
            offset += resolve(self.dynamic, self)
        if storage.on_chip:
            row, pitch = self.row_elems, storage.pitch
            start = storage.base + offset // row * pitch + offset % row * size
            if len(strides) == 2:
                steps: tuple[int, ...] = (strides[0] // row * pitch, strides[1] * size)
            else:
                steps = (strides[0] // row * pitch, *[s * size for s in strides[1:]])
        else:
            start = storage.base + offset * size
            steps = (strides[0] * size, strides[1] * size) if len(strides) == 2 else tuple([s * size for s in strides])
        array: Array = np.ndarray(self.shape, stored.storage, storage.bytes, start, steps)
        if self.dynamic is None:
            self._array = array
            if storage.views is not None:
                storage.views.append(self)
        return array

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the stored elements (float32 for low precision with ``NKI_PRECISE_FP=0``)."""
        return self.memory.stored(self.info).storage

    def unbind(self) -> None:
        """Forget the NumPy view: the storage's bytes were exchanged."""
        self._array = None

    @property
    def sig(self) -> int:
        """The number of its signature in this run, from 1."""
        if not self._sig:
            memory, signature = self.memory, self.signature
            self._sig = number = memory.signatures.setdefault(signature, len(memory.signed))
            if number == len(memory.signed):
                memory.signed.append(signature)
        return self._sig

    @property
    def signature(self) -> Signature:
        """All that a shape, dtype, space or alignment check can depend on."""
        storage = self.storage
        kind = None if self.dynamic is None else self.dynamic.sig
        if not storage.on_chip:
            return (self.info.name, storage.allocation.region.label, self.shape, self.strides, kind)
        row = storage.row_elems if storage.allocation.dtype is self.info else self.row_elems
        address, where = storage.allocation.address, 0
        partition = self.offset // row + (address[0] if address is not None else 0)
        if storage.accumulation is not None:
            where = self.start_byte  # PSUM: which bank
        return (self.info.name, storage.allocation.region.label, self.shape, self.strides, row, partition, where, kind)

    # -- indexing ----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> NkiTensor:
        """Index with ints, slices, an Ellipsis and ``nl.ds``; on SBUF and PSUM the result is at least 2-D.

        Raises:
            NkiIndexError: an index or slice outside the dimension (nothing is clipped).
            NkiTypeError: any other kind of index.
        """
        known = _plain(key)
        if known is not None and self._views is not None:
            found = self._views.get(known)
            if found is not None:
                return found
        made = self._view(key if isinstance(key, tuple) else (key,))
        if known is not None:
            if self._views is None or len(self._views) >= MOST_VIEWS:
                self._views = {}
            self._views[known] = made
        return made

    def _view(self, keys: tuple[Any, ...]) -> NkiTensor:
        shape, strides = self.shape, self.strides
        ndim = len(shape)
        if self.dynamic is not None:
            self._not_indirect("an index")
            if keys[0] != slice(None) and keys[0] is not Ellipsis:
                self._not_chosen(0)
        if len(keys) == ndim:
            made = self._plain_slices(keys)
            if made is not None:
                return made
        else:
            keys = self._spread(keys)
        offset = self.offset
        new_shape: list[int] = []
        new_strides: list[int] = []
        dropped: list[tuple[int, int]] = []
        dynamic = self.dynamic
        on_chip = self.storage.on_chip
        for dim, item in enumerate(keys):
            size, stride = shape[dim], strides[dim]
            if isinstance(item, slice):
                start, count, step = self._slice(dim, item)
                offset += start * stride
                new_shape.append(count)
                new_strides.append(stride * step)
            elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
                index = int(item)
                if index < 0:
                    index += size
                if not 0 <= index < size:
                    self._out_of_bounds(dim, int(item), size)
                offset += index * stride
                if on_chip and dim == 0:
                    new_shape.append(1)
                    new_strides.append(stride)
                else:
                    dropped.append((len(new_shape), stride))
            elif isinstance(item, DynamicSlice) and isinstance(item.start, (int, np.integer)):
                start, count, step = self._slice(dim, slice(item.start, item.start + item.size))
                offset += start * stride
                new_shape.append(count)
                new_strides.append(stride * step)
            elif isinstance(item, DynamicSlice) or is_runtime(item):
                size_kept = item.size if isinstance(item, DynamicSlice) else None
                dynamic = self._dynamic(dim, item.start if isinstance(item, DynamicSlice) else item)
                if size_kept is not None:
                    new_shape.append(int(size_kept))
                    new_strides.append(stride)
            elif item is Ellipsis:
                return self._view(self._spread(keys))
            else:
                self._bad_index(item)
        least = 2 if on_chip else 1
        if len(new_shape) < least and dropped:
            for position, stride in reversed(dropped[len(new_shape) - least :]):
                new_shape.insert(position, 1)
                new_strides.insert(position, stride)
        return NkiTensor(self.storage, self.memory, self.info, tuple(new_shape), tuple(new_strides), offset, dynamic)

    def _plain_slices(self, keys: tuple[Any, ...]) -> NkiTensor | None:
        """Index with one slice of plain ints, or a whole dimension, per dimension: the common case; else ``None``."""
        offset = self.offset
        sizes, dim = list(self.shape), 0
        for item in keys:
            if type(item) is not slice or item.step is not None:
                return None
            start, stop = item.start, item.stop
            if start is None:
                if stop is None:
                    dim += 1
                    continue
                start = 0
            if type(start) is not int or type(stop) is not int or not 0 <= start < stop <= sizes[dim]:
                return None
            sizes[dim] = stop - start
            offset += start * self.strides[dim]
            dim += 1
        return NkiTensor(self.storage, self.memory, self.info, tuple(sizes), self.strides, offset, self.dynamic)

    def _spread(self, keys: tuple[Any, ...]) -> tuple[Any, ...]:
        dots = [i for i, item in enumerate(keys) if item is Ellipsis]
        missing = self.ndim - (len(keys) - len(dots))
        if len(dots) > 1 or missing < 0:
            what = "two Ellipses" if len(dots) > 1 else f"{len(keys)} indices for {self.ndim} dimensions"
            raise self._error(INDEX_KINDS, what, NkiIndexError)
        at = dots[0] if dots else len(keys)
        rest = keys[at + 1 :] if dots else ()
        return (*keys[:at], *(slice(None),) * missing, *rest)

    def _slice(self, dim: int, item: slice) -> tuple[int, int, int]:
        size = self.shape[dim]
        start = 0 if item.start is None else item.start
        stop = size if item.stop is None else item.stop
        step = 1 if item.step is None else item.step
        for bound in (start, stop, step):
            if not isinstance(bound, (int, np.integer)):
                self._bad_index(bound)
        start, stop, step = int(start), int(stop), int(step)
        start, stop = start + size if start < 0 else start, stop + size if stop < 0 else stop
        if step < 1:
            fix = "descending order is not a pattern of the hardware; write the loop the other way round"
            raise self._error(IN_BOUNDS, f"slice step {step} on dimension {dim}", NkiIndexError, fix=fix)
        if start < 0 or stop > size:
            worst = stop - 1 if stop > size else start
            self._out_of_bounds(dim, worst, size)
        if start > stop:
            raise self._error(IN_BOUNDS, f"slice {start}:{stop} on dimension {dim} ends before it starts", NkiIndexError)
        return start, -(-(stop - start) // step), step

    def _out_of_bounds(self, dim: int, index: int, size: int) -> NoReturn:
        what = f"out-of-bound access for tensor {self.storage.allocation.label} on dimension {dim}: "
        raise self._error(IN_BOUNDS, f"{what}index {index} exceeds dimension size {size}", NkiIndexError)

    def _bad_index(self, item: Any) -> NoReturn:
        raise self._error(INDEX_KINDS, f"index of type {type(item).__name__}", NkiTypeError)

    def _error(self, rule: Rule, what: str, error: type[NkiError] = NkiValidationError, fix: str = "") -> NkiError:
        subject = f"{self.storage.allocation.label} ({self.words()})"
        return fail(rule, what, target=self.memory.core.target, subject=subject, fix=fix, error=error)

    def _not_indirect(self, what: str) -> None:
        if self.dynamic is not None and self.dynamic.base is not None:
            raise self._error(INDIRECT_LAST, f"{what} after indirect()")

    def _new(self, shape: Sequence[int], strides: Sequence[int], offset: int | None = None) -> NkiTensor:
        self._not_indirect("another view")
        if len(shape) > 5:
            raise self._error(VIEW_5D, f"{len(shape)} dimensions {tuple(shape)}")
        start = self.offset if offset is None else offset
        return NkiTensor(self.storage, self.memory, self.info, tuple(shape), tuple(strides), start, self.dynamic)

    def _whole(self, what: str, *values: Any) -> None:
        """All values are whole numbers."""
        for value in values:
            if not isinstance(value, (int, np.integer)):
                raise self._error(WHOLE_NUMBERS, f"{what} {value!r}", NkiTypeError)

    def _numbers(self, what: str, values: Any) -> tuple[int, ...]:
        """A sequence of whole numbers."""
        if not isinstance(values, Sequence):
            raise self._error(WHOLE_NUMBERS, f"{what} {values!r} is no sequence", NkiTypeError)
        self._whole(what, *values)
        return tuple(int(n) for n in values)

    def _dtype(self, dtype: Any) -> DType:
        try:
            return dtypes.lookup(dtype)
        except dtypes.UnknownDTypeError as error:
            raise self._error(DTYPE, str(error), NkiTypeError) from None

    def _dim(self, dim: int, extra: int = 0) -> int:
        """A dimension number, counted from the end when negative."""
        if not isinstance(dim, (int, np.integer)) or not -self.ndim - extra <= dim < self.ndim + extra:
            raise self._error(SELECT, f"dimension {dim} of a {self.ndim}-D tensor", NkiIndexError)
        return int(dim) + self.ndim + extra if dim < 0 else int(dim)

    # -- views -------------------------------------------------------------------------------------------------------

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Elements ``start`` to ``end`` (exclusive) of one dimension, every ``step``-th.

        Args:
            dim: the dimension; negative ones count from the end.
            start, end, step: whole numbers from 0.

        Example:
            tile = nl.load(x[:, 0:64])
            odd = tile.slice(dim=1, start=1, end=64, step=2)  # (128, 32), as tile[:, 1:64:2]
        """
        dim = self._dim(dim)
        self._not_chosen(dim)
        self._whole("slice bound", start, end, step)
        if start < 0 or end < 0:
            raise self._error(IN_BOUNDS, f"slice {start}:{end} on dimension {dim}", NkiIndexError)
        first, count, step = self._slice(dim, slice(start, end, step))
        shape, strides = list(self.shape), list(self.strides)
        shape[dim], strides[dim] = count, strides[dim] * step
        return self._new(shape, strides, self.offset + first * self.strides[dim])

    def select(self, dim: int, index: int | NkiTensor) -> NkiTensor:
        """One element of a dimension, which disappears; a (1, 1) SBUF tensor as index is read at run time.

        Args:
            dim: the dimension; on chip dimension 0 stays, with size 1.
            index: a whole number, a register, or a (1, 1) tensor in SBUF.

        Example:
            cube = nl.load(x[:, 0:64]).reshape((128, 4, 16))
            third = cube.select(dim=1, index=2)  # (128, 16)
            column = nl.full((1, 1), 5, dtype=nl.int32)
            chosen = nl.load(x.select(dim=1, index=column).expand_dim(1))  # (128, 1), index read at run time
        """
        dim = self._dim(dim)
        self._not_chosen(dim)
        size = self.shape[dim]
        offset, dynamic = self.offset, self.dynamic
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
            if not 0 <= index < size:
                raise self._error(SELECT, f"index {index} on dimension {dim} of size {size}", NkiIndexError)
            offset += int(index) * self.strides[dim]
        elif is_runtime(index):
            dynamic = self._dynamic(dim, index)
        else:
            self._bad_index(index)
        keep = [d for d in range(self.ndim) if d != dim]
        if (self.on_chip and dim == 0) or (not keep):
            keep = list(range(self.ndim))
        shape = [1 if d == dim else self.shape[d] for d in keep]
        view = self._new(shape, [self.strides[d] for d in keep], offset)
        view.dynamic = dynamic
        if self.on_chip and len(shape) < 2:
            return view.expand_dim(1)
        return view

    def _not_chosen(self, dim: int) -> None:
        if dim == 0 and self.dynamic is not None and self.pinned and not self.on_chip:
            raise self._error(RESLICED, "slice or select on the rows that vector_select chose")

    def _dynamic(self, dim: int, index: Any) -> Dynamic:
        if self.dynamic is not None:
            raise self._error(DYNAMIC_ONCE, "indexed by a runtime value a second time")
        if self.on_chip and dim == 0:
            raise self._error(DYNAMIC_PARTITION, "runtime index on the partition dimension")
        check_scalar_index(self, index)
        return Dynamic("scalar", index, self.strides[dim], self.shape[dim])

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Rows of an HBM tensor by a column of indices: row i of the result is ``self[vector_offset[i]]``.

        Args:
            dim: 0.
            vector_offset: (n, 1) whole numbers in SBUF, the rows.

        Example:
            rows = nl.ndarray((32, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.iota(dst=rows, pattern=[[1, 1]], channel_multiplier=4)  # 0, 4, 8, …
            tile = nl.ndarray((32, 512), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x.vector_select(dim=0, vector_offset=rows))
        """
        if self.dynamic is not None:
            raise self._error(DYNAMIC_ONCE, "indexed by a runtime value a second time")
        column = isinstance(vector_offset, NkiTensor) and vector_offset.ndim == 2 and vector_offset.shape[1] == 1
        if dim != 0 or self.on_chip or not column or vector_offset.buffer is not MemoryRegion.sbuf:
            what = f"vector_select(dim={dim}) with {getattr(vector_offset, 'words', lambda: vector_offset)()}"
            raise self._error(VECTOR_SELECT, what)
        view = self._new((vector_offset.shape[0], *self.shape[1:]), (0, *self.strides[1:]))
        view.dynamic = Dynamic("vector", vector_offset, self.strides[0], self.shape[0])
        return view

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Elements at offsets along the free dimension that are read at run time: a gather when read, a scatter when written.

        Args:
            index: (P, K) offsets in SBUF, P the partitions of this 2-D tensor. In each group of G partitions offset i is
                ``index[i % G, i // G]`` of the group, G 16, on the Tensor Engine 32.
            num_elem: how many of them; ``index.size`` when not given.

        Returns:
            A view of shape (P, num_elem), an operand of the instructions that know it; trn3 only.

        Example:
            tile = nl.load(x[0:16, 0:64])
            index = nl.ndarray((16, 2), dtype=nl.uint16, buffer=nl.sbuf)
            nisa.iota(dst=index, pattern=[[32, 2]], channel_multiplier=2)  # 0, 2, 4, …, 62
            picked = nl.ndarray((16, 32), dtype=tile.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=picked, src=tile.indirect(index, num_elem=32))
        """
        if self.memory.core.gen in INDIRECT_GEN.gens:
            raise self._error(INDIRECT_GEN, f"indirect() on {self.memory.core.target}")
        if self.dynamic is not None:
            raise self._error(INDIRECT_LAST, "indirect() of a view with a runtime index")
        tile = isinstance(index, NkiTensor) and index.ndim == 2 and index.dynamic is None
        if not tile or index.buffer is not MemoryRegion.sbuf or not index.info.is_integer or index.shape[0] != self.shape[0]:
            what = f"index is {index.words() if isinstance(index, NkiTensor) else repr(index)}"
            raise self._error(INDIRECT_INDEX, f"{what} for {self.shape[0]} partitions")
        if not self.on_chip or self.ndim != 2:
            raise self._error(INDIRECT_INDEX, f"indirect() of {self.words()}")
        count = index.size if num_elem is None else num_elem
        self._whole("num_elem", count)
        if count < 1:
            raise self._error(INDIRECT_INDEX, f"num_elem {count}")
        self.memory.indirect = True
        return picking(self, index, int(count))

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """The dimensions in another order.

        Args:
            dims: for each dimension of the result, which one of this tensor it is; on chip 0 comes first.

        Example:
            cube = nl.load(x[:, 0:64]).reshape((128, 4, 16))
            turned = cube.permute((0, 2, 1))  # (128, 16, 4)
        """
        order = self._numbers("permute", dims)
        if sorted(order) != list(range(self.ndim)):
            raise self._error(PERMUTE, f"permute{order} of {self.ndim} dimensions")
        if self.pinned and order[0] != 0:
            raise self._error(PERMUTE, f"permute{order} moves the partition dimension")
        return self._new([self.shape[d] for d in order], [self.strides[d] for d in order])

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """A dimension of size 1 repeated ``size`` times, without a copy.

        Args:
            dim: a dimension of size 1, on chip not 0.
            size: how often it repeats.

        Example:
            a, column = nl.load(x[:, 0:64]), nl.load(x[:, 64:65])
            c = nl.multiply(a, column.broadcast(dim=1, size=64))
        """
        dim = self._dim(dim)
        self._whole("broadcast size", size)
        if self.pinned and dim == 0:
            raise self._error(BROADCAST, "broadcast of the partition dimension")
        if self.shape[dim] != 1 or size < 1:
            raise self._error(BROADCAST, f"broadcast of dimension {dim} of size {self.shape[dim]} to {size}")
        shape, strides = list(self.shape), list(self.strides)
        shape[dim], strides[dim] = size, 0
        return self._new(shape, strides)

    def expand_dim(self, dim: int) -> NkiTensor:
        """A new dimension of size 1 at ``dim``.

        Args:
            dim: where the new dimension stands in the result; on chip not 0.

        Example:
            tile = nl.load(x[:, 0:64])
            rows = tile.expand_dim(1)  # (128, 1, 64)
        """
        dim = self._dim(dim, extra=1)
        if self.pinned and dim == 0:
            raise self._error(EXPAND, "a dimension before the partition dimension")
        stride = self.strides[dim] * self.shape[dim] if dim < self.ndim else 1
        return self._new((*self.shape[:dim], 1, *self.shape[dim:]), (*self.strides[:dim], stride, *self.strides[dim:]))

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Without the dimension ``dim``, whose size is 1.

        Args:
            dim: a dimension of size 1, on chip not 0.

        Example:
            rows = nl.load(x[:, 0:64]).reshape((128, 1, 64))
            tile = rows.squeeze_dim(1)  # (128, 64)
        """
        dim = self._dim(dim)
        if (self.pinned and dim == 0) or (self.on_chip and self.ndim == 2):
            raise self._error(SQUEEZE, f"squeeze_dim({dim}) of a {self.ndim}-D on-chip tensor")
        if self.shape[dim] != 1:
            raise self._error(SQUEEZE, f"dimension {dim} has size {self.shape[dim]}")
        return self._new(self.shape[:dim] + self.shape[dim + 1 :], self.strides[:dim] + self.strides[dim + 1 :])

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """One dimension split into several; one size may be -1.

        Args:
            dim: the dimension, on chip not 0.
            shape: sizes whose product is that of the dimension.

        Example:
            tile = nl.load(x[:, 0:64])
            cube = tile.reshape_dim(dim=1, shape=(4, -1))  # (128, 4, 16)
        """
        dim = self._dim(dim)
        sizes = list(self._numbers("reshape_dim", shape))
        if self.pinned and dim == 0 and tuple(sizes) not in ((self.shape[0],), (-1,)):
            raise self._error(RESHAPE_DIM, "reshape_dim of the partition dimension")
        known = math.prod(n for n in sizes if n != -1)
        if sizes.count(-1) == 1 and known > 0 and self.shape[dim] % known == 0:
            sizes[sizes.index(-1)] = self.shape[dim] // known
        if any(n < 1 for n in sizes) or math.prod(sizes) != self.shape[dim]:
            raise self._error(RESHAPE_DIM, f"dimension {dim} of size {self.shape[dim]} into {tuple(shape)}")
        inner = [self.strides[dim] * n for n in contiguous_strides(sizes)]
        return self._new(
            (*self.shape[:dim], *sizes, *self.shape[dim + 1 :]), (*self.strides[:dim], *inner, *self.strides[dim + 1 :])
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Dimensions ``start_dim`` to ``end_dim`` (inclusive) merged into one.

        Args:
            start_dim, end_dim: the first and the last of neighbouring dimensions, on chip without 0.

        Example:
            cube = nl.load(x[:, 0:64]).reshape((128, 4, 16))
            tile = cube.flatten_dims(start_dim=1, end_dim=2)  # (128, 64)
        """
        first, last = self._dim(start_dim), self._dim(end_dim)
        if first > last or (self.pinned and first == 0 and last > 0):
            raise self._error(FLATTEN, f"flatten_dims({start_dim}, {end_dim})")
        merged = coalesce(self.shape[first : last + 1], self.strides[first : last + 1])
        if len(merged) > 1:
            raise self._error(FLATTEN, f"dimensions {first} to {last} are not contiguous in memory")
        size, stride = merged[0]
        return self._new(
            (*self.shape[:first], size, *self.shape[last + 1 :]),
            (*self.strides[:first], stride, *self.strides[last + 1 :]),
        )

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        """Other sizes over the same elements in the same order; one size may be -1.

        Args:
            shape: the new sizes; on chip the first one is kept.

        Example:
            tile = nl.load(x[:, 0:64])
            cube = tile.reshape((128, 4, -1))  # (128, 4, 16)
        """
        sizes = list(self._numbers("reshape", shape))
        known = math.prod(n for n in sizes if n != -1)
        if sizes.count(-1) == 1 and known > 0 and self.size % known == 0:
            sizes[sizes.index(-1)] = self.size // known
        if any(n < 1 for n in sizes) or math.prod(sizes) != self.size:
            what = f"{self.size} elements {self.shape} into {math.prod(sizes)} elements {tuple(shape)}"
            raise self._error(RESHAPE, what, NkiAssertionError)
        if self.pinned and sizes[0] != self.shape[0]:
            raise self._error(RESHAPE, f"partition dimension {self.shape[0]} into {sizes[0]}", NkiAssertionError)
        skip = 1 if self.pinned else 0
        strides = split_strides(self.shape[skip:], self.strides[skip:], sizes[skip:])
        if strides is None:
            what = f"{self.shape} with strides {self.strides} is no {tuple(sizes)} in memory"
            raise self._error(RESHAPE, what, NkiAssertionError)
        return self._new(sizes, (*self.strides[:skip], *strides))

    def rearrange(
        self,
        src_pattern: Sequence[Any],
        dst_pattern: Sequence[Any],
        fixed_sizes: Mapping[str, int] | None = None,
    ) -> NkiTensor:
        """Split, reorder and merge dimensions by name: ``(('b', ('h', 'w')), ('b', 'w', 'h'), {'h': 4})``.

        Args:
            src_pattern: a name for each dimension, or a tuple of names for one that is split.
            dst_pattern: the same names in another order, in a tuple where they are merged.
            fixed_sizes: sizes of the names that a split does not give; one per split may be left out.

        Example:
            tile = nl.load(x[:, 0:64])  # 64 = 4 heads of 16
            by_head = tile.rearrange(("p", ("h", "d")), ("p", "d", "h"), {"h": 4})  # (128, 16, 4)
        """
        groups = [(item,) if isinstance(item, str) else tuple(item) for item in src_pattern]
        if len(groups) != self.ndim:
            raise self._error(REARRANGE, f"{len(groups)} groups for {self.ndim} dimensions")
        view, names = self, [name for group in groups for name in group]
        position = 0
        for group in groups:
            if len(group) > 1:
                view = view.reshape_dim(position, [(fixed_sizes or {}).get(name, -1) for name in group])
            position += len(group)
        targets = [(item,) if isinstance(item, str) else tuple(item) for item in dst_pattern]
        flat = [name for group in targets for name in group]
        if sorted(flat) != sorted(names) or len(set(names)) != len(names):
            raise self._error(REARRANGE, f"{tuple(src_pattern)} to {tuple(dst_pattern)}")
        view = view.permute([names.index(name) for name in flat])
        for position, group in enumerate(targets):
            if len(group) > 1:
                view = view.flatten_dims(position, position + len(group) - 1)
        return view

    def view(self, dtype: Any) -> NkiTensor:
        """The same bytes as another dtype; the last dimension grows or shrinks by the ratio of the sizes.

        Args:
            dtype: NKI data type.

        Example:
            tile = nl.load(x[:, 0:64])
            bits = tile.view(nl.int32)  # (128, 64)
            halves = tile.reinterpret_cast(nl.uint16)  # (128, 128)
        """
        self._not_indirect("view(dtype)")
        new, old = self._dtype(dtype), self.info
        wide = self.memory.stored(old) is not old or self.memory.stored(new) is not new
        if wide and (old.itemsize != new.itemsize or self.memory.stored(old) is not self.memory.stored(new)):
            what = f"view of {old.name} as {new.name} with NKI_PRECISE_FP=0, which stores {old.name} as float32"
            raise self._error(VIEW_DTYPE, what, fix="run with NKI_PRECISE_FP=1 (without --fp32)")
        if self.dynamic is not None and self.dynamic.kind == "vector" and new is not old:
            raise self._error(RESELECTED, f"view({new.name}) of rows that vector_select chose")
        if self.dynamic is not None and new.itemsize != old.itemsize:
            raise self._error(VIEW_DTYPE, "view(dtype) after a runtime index")
        last, ratio = self.shape[-1] * old.itemsize, (old.itemsize, new.itemsize)
        if new.itemsize != old.itemsize and (self.strides[-1] != 1 and self.shape[-1] != 1):
            raise self._error(VIEW_DTYPE, f"last dimension has stride {self.strides[-1]}")
        outer = [s * old.itemsize for s in (*self.strides[:-1], self.offset)]
        if last % new.itemsize or any(s % new.itemsize for s in outer):
            raise self._error(VIEW_DTYPE, f"{last} bytes in the last dimension do not divide by {ratio[1]} ({new.name})")
        *strides, offset = (s // new.itemsize for s in outer)
        step = self.strides[-1] if new.itemsize == old.itemsize else 1
        dynamic = self.dynamic
        shape = (*self.shape[:-1], last // new.itemsize)
        return NkiTensor(self.storage, self.memory, new, shape, (*strides, step), offset, dynamic)

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """An explicit pattern ``[[step, num], …]`` over the whole tensor's storage; replaces any earlier view. One that leaves
        the tensor is refused where it is used: public kernels make some that they do not use.

        ``offset`` counts elements and is added to the view's own (``None`` keeps that). The documents give three
        readings; this is the one of the newest reference. A runtime offset advances ``indirect_dim`` of ``self.shape``.

        Args:
            pattern: [step, num] pairs, in elements, the outermost first; on chip the first walks the partitions.
            offset: elements before the first one.
            scalar_offset: a register, or a (1, 1) tensor in SBUF, added along ``indirect_dim``.
            vector_offset: (n, 1) whole numbers in SBUF, the rows of an HBM tensor to gather or scatter.
            dtype: NKI data type of the view; this tensor's by default.

        Example:
            tile = nl.load(x[:, 0:64])
            # per partition 4 windows of 8 elements, 16 apart, from element 2
            windows = tile.ap(pattern=[[64, 128], [16, 4], [1, 8]], offset=2)  # (128, 4, 8)
        """
        info = self.info if dtype is None else self._dtype(dtype)
        if offset is not None and not isinstance(offset, (int, np.integer)):
            raise self._error(AP_OFFSET, f"offset of type {type(offset).__name__}", NkiTypeError)
        if scalar_offset is not None and vector_offset is not None:
            raise self._error(AP_EXCLUSIVE, "scalar_offset and vector_offset together")
        if not isinstance(pattern, Sequence):
            raise self._error(WHOLE_NUMBERS, f"pattern {pattern!r} is no sequence", NkiTypeError)
        pairs = [self._numbers("pattern", pair) for pair in pattern]
        if any(len(pair) != 2 for pair in pairs):
            raise self._error(AP_BOUNDS, f"pattern {pattern!r} is no list of [step, num] pairs")
        start = self.offset * self.info.itemsize // info.itemsize + int(offset or 0)
        probe = NkiTensor(self.storage, self.memory, info, tuple(n for _, n in pairs), tuple(s for s, _ in pairs), start)
        try:
            probe._check_pattern(scalar_offset is not None or vector_offset is not None)
        except NkiIndexError as outside:
            return _Outside(probe, outside)
        if scalar_offset is not None:
            check_scalar_index(self, scalar_offset)
            stride = math.prod(self.shape[indirect_dim + 1 :])
            probe.dynamic = Dynamic("scalar", scalar_offset, stride, self.shape[indirect_dim])
        elif vector_offset is not None:
            if indirect_dim != 0 or self.on_chip:
                raise self._error(AP_VECTOR, f"vector_offset with indirect_dim={indirect_dim} on {self.words()}")
            row = math.prod(self.shape[1:])
            if pairs[0][0] != row:
                what = f"leading step {pairs[0][0]}, elements of a row {row}"
                context.machine().found(self._error(VECTOR_STRIDE, what).diagnosis)
            probe.dynamic = Dynamic("vector", vector_offset, row, self.shape[0])
            probe.strides = (0, *probe.strides[1:])
        return probe

    def _check_pattern(self, dynamic: bool) -> None:
        if not self.shape or any(n < 1 for n in self.shape) or any(s < 0 for s in self.strides):
            raise self._error(AP_BOUNDS, f"pattern {self.get_pattern()}")
        row = self.row_elems
        if self.on_chip and (self.strides[0] % row or self.ndim < 2) and not (self.shape[0] == 1 and self.ndim > 1):
            raise self._error(AP_PARTITION, f"first pair {self.get_pattern()[0]}, elements per partition {row}")
        if self.on_chip:
            if self.strides[0] % row:
                self.strides = (row, *self.strides[1:])
            if self.strides[0] > row and self.shape[0] > 1:
                raise self._error(AP_PARTITION, f"partition step {self.strides[0]} skips partitions, not {row}")
        if dynamic:
            return
        partitions = self.storage.allocation.partitions
        if self.on_chip:
            inner = self.offset % row + span(self.shape[1:], self.strides[1:])
            bad = inner >= row or self.offset // row + self.shape[0] > partitions
        else:
            bad = self.offset < 0 or self.offset + span(self.shape, self.strides) >= row
        if bad:
            what = f"out-of-bound access: pattern {self.get_pattern()} at offset {self.offset} of {row} elements"
            raise self._error(AP_BOUNDS, what, NkiIndexError)

    # -- questions ---------------------------------------------------------------------------------------------------

    def get_pattern(self) -> list[list[int]]:
        """``[[stride, count], …]`` of the view, in the order of :attr:`shape`.

        Example:
            cube = nl.load(x[:, 0:64]).reshape((128, 4, 16))
            print(cube.permute((0, 2, 1)).get_pattern())  # [[64, 128], [1, 16], [16, 4]]
        """
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    def is_contiguous(self) -> bool:
        """Dense and in row-major order; the partition dimension of on-chip tensors does not count.

        Example:
            tile = nl.load(x[:, 0:64])
            part = tile[:, 0:64:2]
            packed = part if part.is_contiguous() else nl.copy(part)
        """
        skip = 1 if self.on_chip else 0
        expected = contiguous_strides(self.shape)
        pairs = zip(self.shape[skip:], self.strides[skip:], expected[skip:], strict=True)
        return all(n == 1 or stride == want for n, stride, want in pairs)

    def is_indirect(self) -> bool:
        """Whether a runtime value decides the address.

        Example:
            row = nl.full((1, 1), 5, dtype=nl.int32)
            late = x.select(dim=0, index=row)
            print(late.is_indirect(), x.is_indirect())  # True False
        """
        return self.dynamic is not None

    def __setitem__(self, key: Any, value: Any) -> None:
        """``t[key] = value``: copy another tensor there; ``nisa.tensor_copy`` on chip, ``nisa.dma_copy`` to or from HBM.

        Raises:
            NkiTypeError: the value is no tensor.
        """
        if not isinstance(value, NkiTensor):
            fix = "a number: nisa.memset(dst=t[…], value=…); what an instruction computes goes to its dst: dst=t[…]"
            what = f"assignment of a {type(value).__name__} to a part of a tensor"
            raise self._error(VALUE_STYLE, what, NkiTypeError, fix=fix)
        context.machine().assign(self[key], value)

    # -- what Python would otherwise do in silence --------------------------------------------------------------------

    def _no_arithmetic(self, symbol: str, operator: str) -> NoReturn:
        fix = (
            f"two tiles: nisa.tensor_tensor(dst=…, data1=…, data2=…, op=nl.{operator}); "
            f"a tile and a scalar or (P, 1) column: nisa.tensor_scalar(dst=…, data=…, op0=nl.{operator}, operand0=…)"
        )
        raise self._error(VALUE_STYLE, f"Python's {symbol} on a tile", NkiTypeError, fix=fix)

    def __add__(self, other: Any) -> NoReturn:
        self._no_arithmetic("+", "add")

    def __sub__(self, other: Any) -> NoReturn:
        self._no_arithmetic("-", "subtract")

    def __mul__(self, other: Any) -> NoReturn:
        self._no_arithmetic("*", "multiply")

    def __truediv__(self, other: Any) -> NoReturn:
        self._no_arithmetic("/", "multiply")

    def __matmul__(self, other: Any) -> NoReturn:
        fix = "nisa.nc_matmul(dst=<psum tile>, stationary=<[K, M]>, moving=<[K, N]>) computes stationary.T @ moving"
        raise self._error(VALUE_STYLE, "Python's @ on a tile", NkiTypeError, fix=fix)

    def __neg__(self) -> NoReturn:
        self._no_arithmetic("-", "multiply")

    __radd__ = __iadd__ = __add__
    __rsub__ = __isub__ = __sub__
    __rmul__ = __imul__ = __mul__
    __rtruediv__ = __itruediv__ = __truediv__

    def __float__(self) -> NoReturn:
        fix = "a device value has no Python value while the kernel is built; nl.device_print shows it"
        raise self._error(VALUE_STYLE, "a tile as a Python number", NkiTypeError, fix=fix)

    def __bool__(self) -> bool:
        if math.prod(self.shape) > 1 or self.storage.allocation.role == "input":
            context.machine().found(self._error(GIVEN, "a tensor as a Python condition: true").diagnosis)
            return True  # more than one element: only whether there is a tensor can have been meant
        fix = "the kernel is built before the data exist: choose with masks, or compare shapes and Python values"
        raise self._error(VALUE_STYLE, "a tile as a Python condition", NkiTypeError, fix=fix)

    def __lt__(self, other: Any) -> NoReturn:
        self._no_arithmetic("<", "less")

    def __le__(self, other: Any) -> NoReturn:
        self._no_arithmetic("<=", "less_equal")

    def __gt__(self, other: Any) -> NoReturn:
        self._no_arithmetic(">", "greater")

    def __ge__(self, other: Any) -> NoReturn:
        self._no_arithmetic(">=", "greater_equal")

    __int__ = __index__ = __float__


class _Outside(NkiTensor):
    """A pattern that leaves its tensor: an error once somebody uses it."""

    __slots__ = ("_why",)

    def __init__(self, view: NkiTensor, why: NkiIndexError):
        super().__init__(view.storage, view.memory, view.info, view.shape, view.strides, view.offset)
        self._why = why

    @property
    def signature(self) -> Signature:
        raise self._why

    @property
    def array(self) -> Array:
        raise self._why

    def __getitem__(self, key: Any) -> NkiTensor:
        raise self._why


def picking(base: NkiTensor, index: NkiTensor, count: int) -> NkiTensor:
    """The view of ``count`` elements per partition of ``base`` at the offsets in ``index``."""
    how = Dynamic("indirect", index, base.strides[1], base.shape[1], base)
    return NkiTensor(base.storage, base.memory, base.info, (base.shape[0], count), base.strides, base.offset, how)


# --- arithmetic of patterns ------------------------------------------------------------------------------------------


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    return _row_major(tuple(shape))


@lru_cache(maxsize=4096)
def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Distance from the first element to the last one, in elements."""
    far = 0
    for n, s in zip(shape, strides, strict=True):
        far += (n - 1) * s
    return far


def coalesce(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """``(size, stride)`` pairs with size-1 dimensions dropped and neighbours that follow each other merged."""
    merged: list[tuple[int, int]] = []
    for n, s in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if merged and merged[-1][1] == n * s:
            merged[-1] = (merged[-1][0] * n, s)
        else:
            merged.append((n, s))
    return merged or [(1, 1)]


def split_strides(shape: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    """Strides of ``sizes`` over the elements of ``shape``, or ``None`` when no pattern has them."""
    runs = coalesce(shape, strides)
    out: list[int] = []
    remaining = list(runs)
    size, stride = remaining.pop()
    for n in reversed(sizes):
        if n == 1:
            out.append(stride)
            continue
        if size == 1 and remaining:
            size, stride = remaining.pop()
        if size % n:
            return None
        out.append(stride)
        size, stride = size // n, stride * n
    if size != 1 or remaining:
        return None
    return out[::-1]


def is_runtime(value: Any) -> bool:
    """A value known only on the device: a tensor or a register."""
    return isinstance(value, NkiTensor) or getattr(value, "is_register", False)


def check_scalar_index(base: NkiTensor, index: Any) -> None:
    """A runtime scalar index is a register or a (1, 1) tensor in SBUF."""
    if isinstance(index, NkiTensor):
        if index.size != 1 or index.buffer is not MemoryRegion.sbuf:
            raise base._error(AP_SCALAR, f"index is {index.words()}")
    elif not getattr(index, "is_register", False):
        raise base._error(AP_SCALAR, f"index of type {type(index).__name__}", NkiTypeError)
    elif getattr(index, "is_comparison", False):
        raise base._error(AP_SCALAR, f"index is {index.words()}", NkiTypeError)
    elif base.on_chip and getattr(index, "dtype", "") == "int64":
        raise base._error(AP_SCALAR, "a 64-bit scalar indexes a tensor in SBUF or PSUM; only HBM takes one")


class OutOfRangeError(Exception):
    """A runtime index points outside its tensor; the instruction decides what that means."""

    def __init__(self, index: int, size: int):
        super().__init__(f"runtime index {index}, size {size}")
        self.index = index
        self.size = size


def runtime_value(index: Any) -> int:
    """The integer in a register or a one-element tensor now."""
    if isinstance(index, NkiTensor):
        return int(index.array.reshape(-1)[0])
    return int(index.value)


def resolve(dynamic: Dynamic, view: NkiTensor) -> int:
    """Elements that a scalar runtime offset adds.

    Raises:
        OutOfRangeError: the access would leave the tensor.
    """
    if dynamic.kind != "scalar":
        return 0
    value = runtime_value(dynamic.index)
    added = value * dynamic.stride
    if view.on_chip:
        row = view.row_elems
        end = view.offset % row + added + span(view.shape[1:], view.strides[1:])
        inside = value >= 0 and end < row
    else:
        end = view.offset + added + span(view.shape, view.strides)
        inside = value >= 0 and end < view.row_elems
    if not inside:
        raise OutOfRangeError(value, dynamic.size)
    return added
