"""HBM, SBUF and PSUM as bytes: allocations, their storage, what of it was written, and where it lies.

SBUF and PSUM have 128 partitions. A tensor there starts at the same byte in each partition it occupies, so its place is
(partition, byte within the partition). A tensor with an explicit ``address`` lives in the memory's real bytes and
aliases whatever else is put there. A tensor without one is placed after the run, when its liveness (allocation to last
use) is known: see :mod:`nki_sim.placement`; until then it has bytes of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_sim.claims import Claim, Claims, Place
from nki_sim.dtypes import TABLE, Array, DType, filled, poison, to_float32
from nki_sim.errors import NkiValidationError, Rule, fail, page
from nki_sim.hw import NeuronCore
from nki_sim.marks import Marks
from nki_sim.source import Site

if TYPE_CHECKING:
    from nki_sim.copies import PrivateCopies


class MemoryRegion(Enum):
    """Where a tensor lives, as ``nki.language.MemoryRegion``.

    Example:
        acc = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.MemoryRegion.psum)  # is nl.psum
        tile = nl.copy(acc) if acc.buffer is nl.MemoryRegion.psum else acc
    """

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"
    hbm = "private_hbm"  # noqa: PIE796 - nl.hbm is documented as an alias of private_hbm

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is a Python function

    on_chip: bool
    """SBUF or PSUM: dimension 0 is the partition dimension."""

    label: str
    """Its value; that of a member of an enumeration is found by a function."""

    def __init__(self, value: str):
        self.label, self.on_chip = value, value in ("sbuf", "psum")

    def __repr__(self) -> str:
        return f"nl.{self.name}"


_MEM = page("get-started/about/memory-hierarchy-overview.html")
_NDARRAY = page("api/generated/nki.language.ndarray.html")

PARTITION_LIMIT = Rule(
    "hw.partition_dim_le_128",
    "the partition dimension (dimension 0) of an SBUF or PSUM tile is at most 128",
    why="SBUF and PSUM have 128 partitions, and each lane of an engine serves one",
    fix="loop over the rows in tiles of nl.tile_size.pmax (128): x[i:min(i + 128, n)] for i in range(0, n, 128)",
    page=page("get-started/about/tiling-overview.html"),
)
ON_CHIP_2D = Rule(
    "tensor.onchip_ge_2d",
    "SBUF and PSUM tensors must have at least 2 dimensions, the partition dimension first; HBM tensors at least 1",
    why="dimension 0 picks the partition, the others walk the bytes within it",
    fix="give a column the shape (n, 1) and a row the shape (1, n)",
    page=_NDARRAY,
)
SHAPE_POSITIVE = Rule(
    "tensor.shape_positive",
    "a shape is a tuple of positive integers",
    fix="skip the empty case before the kernel is called",
    page=_NDARRAY,
)
SBUF_CAPACITY = Rule(
    "hw.sbuf.capacity_enforced",
    "the SBUF tensors alive at one time fit in the usable bytes of a partition",
    why="each partition has its own small memory, and nothing spills out of it by itself",
    fix="use smaller tiles, or let tiles die earlier: what is allocated inside the loop is reused by the next round",
    page=_MEM,
)
PSUM_CAPACITY = Rule(
    "hw.psum.capacity_enforced",
    "the PSUM tensors alive at one time fit in 16 KiB per partition, 8 banks of 2 KiB",
    why="PSUM is a small accumulator beside the tensor engine, not a working memory",
    fix="evict each result with tensor_copy to SBUF before the next one needs its bank",
    page=_MEM,
)
HBM_CAPACITY = Rule(
    "hw.hbm.capacity",
    "the HBM tensors of a kernel fit in the device's HBM",
    fix="work on a part of the data, or check the shape",
    page=_MEM,
)
USABLE = Rule(
    "hw.sbuf.usable_partition_bytes",
    "a tile fits in the usable bytes of one SBUF partition (nl.tile_size.sbuf_fmax_bytes)",
    why="all elements of a row lie in one partition",
    fix="split the free dimension",
    page=page("api/nki.language.tile_size.html"),
)
PSUM_ROW = Rule(
    "hw.psum.partition_bytes",
    "a PSUM tile fits in 16 KiB per partition",
    why="PSUM has 128 partitions of 16 KiB on every generation",
    fix="split the free dimension; one bank holds 512 fp32 (nl.tile_size.psum_bank_fmax)",
    page=page("guides/architecture/trainium2_arch.html"),
)
BUFFER_OBJECT = Rule(
    "ndarray.buffer_object",
    "buffer is one of nl.sbuf, nl.psum, nl.hbm, nl.private_hbm and nl.shared_hbm",
    fix="write buffer=nl.sbuf, without quotes",
    page=_NDARRAY,
)
ADDRESS_TUPLE = Rule(
    "ndarray.address_tuple",
    "address is (partition offset, byte offset) on SBUF and PSUM, (offset,) on HBM, of non-negative integers",
    fix="for example address=(0, 4096)",
    page=_NDARRAY,
)
BANK_START = Rule(
    "ndarray.psum_bank_start",
    "a PSUM tensor with an address starts at a bank boundary, a multiple of 2048 bytes",
    why="the tensor engine addresses PSUM by bank",
    fix="address=(0, bank * 2048)",
    page=_NDARRAY,
)
NAME_UNIQUE = Rule(
    "ndarray.name_unique",
    "a name is given to one tensor of a kernel",
    why="schedules, and allocators of kernel libraries, find tensors by their names",
    fix='number it: name=f"x_{i}", or leave it out',
    page=_NDARRAY,
    enforce="warn",
)
SBUF_ALIGN = Rule(
    "hw.sbuf_min_align",
    "an SBUF byte offset is a multiple of nl.tile_size.sbuf_min_align (value undocumented; 4 assumed)",
    page=page("api/nki.language.tile_size.html"),
    fix="round the byte offset up to a multiple of 4",
    enforce="warn",
)

READ_ONLY = Rule(
    "kernel.read_only_argument",
    "a kernel writes only to arrays that can be written",
    fix="pass a copy: x.copy()",
    page=_NDARRAY,
)


def row_bytes_of(region: MemoryRegion, shape: tuple[int, ...], dtype: DType) -> int:
    """Bytes of a tensor in each partition, of one in HBM all of them."""
    return math.prod(shape[1:] if region.on_chip else shape) * dtype.itemsize


@dataclass(slots=True)
class Allocation:
    """What is remembered of a tensor after its data is gone.

    Attributes:
        id: number within the run, in order of allocation.
        region, shape, dtype: as given to ``nl.ndarray``.
        row_bytes: bytes in each partition (all bytes for HBM).
        name: as given; :attr:`label` falls back to the variable's name.
        site: the user's line that allocated it; ``caller``, the one that called the function it is in.
        role: ``input``, ``constant`` or ``tile``; an HBM tensor the kernel returns becomes ``output``.
        address: explicit (partition, byte) or ``None``.
        born, last: program step at allocation, and of the last use (-1: never used).
        placed: byte within the partition, once known.
        loop: the loop at run time in whose body it was made, once that is over.
        core: whose SBUF, PSUM or private HBM it is in, where a run has several cores.
        looked_at: whether the kernel's Python looked at its values.
    """

    id: int
    region: MemoryRegion
    shape: tuple[int, ...]
    dtype: DType
    row_bytes: int
    name: str
    site: Site | None
    role: str
    address: tuple[int, int] | None
    born: int
    last: int = -1
    placed: int | None = None
    caller: Site | None = None
    loop: object | None = None
    core: int = 0
    looked_at: bool = False

    @classmethod
    def of(
        cls, number: int, region: MemoryRegion, shape: tuple[int, ...], dtype: DType, *others: Any, **named: Any
    ) -> Allocation:
        """One of a shape and data type; the other fields as given, those after ``row_bytes``."""
        return cls(number, region, shape, dtype, row_bytes_of(region, shape, dtype), *others, **named)

    @property
    def partitions(self) -> int:
        """Partitions occupied (1 for HBM)."""
        return self.shape[0] if self.region.on_chip else 1

    @property
    def label(self) -> str:
        """The given name, or the variable it was assigned to, or ``tile 7``."""
        if self.name:
            return self.name
        for site in (self.site, self.caller if self.site and self.site.is_return() else None):
            name = site.assigned_name() if site else ""
            if name:
                return name
        return f"tile {self.id}"

    @property
    def line(self) -> int | None:
        return self.site.line if self.site else None

    def words(self) -> str:
        """Region, dtype and shape, as reports print them."""
        region = "hbm" if self.region in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm) else self.region.value
        return f"{region} {self.dtype.name} [{' × '.join(map(str, self.shape))}]"


FULL, NONE, PARTIAL = 0, 1, 2

Pattern = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""An access: offset, shape and strides in elements, and the bytes of one element."""


class Storage:
    """The bytes behind one allocation, and which of its elements were written.

    Attributes:
        bytes: flat uint8 array; element (p, i) of an on-chip tensor starts at ``base + p * pitch + i * itemsize``.
        state: FULL, NONE or PARTIAL of the elements were written.
        rows, row_elems, count: partitions (1 for HBM), elements of each, and in all.
        quiet_to_read, quiet_to_write: whether nothing has to be asked or noted before it is read or written: it is written,
            no sum is under way in it, no other tensor may have its bytes, and, to be written, it is not the caller's array.
        quiet_to_add: as to be written, by an instruction that goes on with a sum.
        claim: of an explicit placement, who else wrote on its bytes (:mod:`nki_sim.claims`, :mod:`nki_sim.clobbers`).
        views: tensors that hold a NumPy view of ``bytes``, when the bytes may be exchanged (kernel inputs).
        pool: where ``bytes`` go when the last tensor on them dies.
        form: what it has in common with others, where no address places it.
    """

    __slots__ = (
        "__weakref__",
        "_bytes",
        "accumulation",
        "allocation",
        "base",
        "claim",
        "count",
        "form",
        "host",
        "itemsize",
        "mask",
        "on_chip",
        "pitch",
        "poisoned",
        "pool",
        "quiet_to_add",
        "quiet_to_read",
        "quiet_to_write",
        "row_elems",
        "rows",
        "size",
        "state",
        "unwritten_bytes",
        "views",
    )  # fmt: skip

    def __init__(
        self, allocation: Allocation, data: Array | None, pitch: int, base: int = 0, itemsize: int | None = None, size: int = 0
    ):
        self.allocation = allocation
        self.on_chip = allocation.region.on_chip
        self._bytes = data
        self.size = size
        self.pitch = pitch
        self.base = base
        self.itemsize = itemsize or allocation.dtype.itemsize
        self.row_elems = allocation.row_bytes // allocation.dtype.itemsize
        self.rows = allocation.shape[0] if self.on_chip else 1
        self.count = self.rows * self.row_elems
        self.mask: Marks | None = None
        self.unwritten_bytes = 0
        self.poisoned = False
        self.accumulation: Any = None
        self.claim: Claim | None = None
        self.host: HostArray | None = None
        self.views: list[Any] | None = None
        self.pool: list[Array] | None = None
        self.form: Form | None = None
        self.state = NONE
        self.quiet_to_read = self.quiet_to_write = self.quiet_to_add = False

    def __del__(self) -> None:
        # Fresh pages cost more than most instructions: bytes that nobody else can see go back to the run's pool.
        if self.pool is not None and self._bytes is not None and getrefcount(self._bytes) == 2:
            self.pool.append(self._bytes)

    @property
    def bytes(self) -> Array:
        """The bytes, taken when they are first asked for."""
        if self._bytes is None:
            self._bytes = self.pool.pop() if self.pool else np.empty(self.size, np.uint8)
        return self._bytes

    @bytes.setter
    def bytes(self, data: Array) -> None:
        self._bytes = data

    # -- written-ness ------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Note that all of it is written."""
        self.state, self.mask = FULL, None
        if self.claim is None:
            self.quiet_to_read = self.accumulation is None
            if self.host is None:
                self.quiet_to_add, self.quiet_to_write = True, self.quiet_to_read

    @property
    def is_plain(self) -> bool:
        """Whether all there is to know of it is what was written."""
        return self.accumulation is None and self.claim is None and self.host is None

    def poison(self) -> None:
        """Fill what was never written with NaN or 4, before anybody can see it."""
        if self.poisoned or self.state == FULL:
            return
        self.poisoned = True
        dtype = self.allocation.dtype
        stored = dtype.storage if self.itemsize == dtype.itemsize else np.dtype(np.float32)
        if self.mask is None:
            self.bytes.view(stored)[...] = filled((), poison(dtype), stored)
            return
        pattern = filled(self.count, poison(dtype), stored)
        target = self.bytes.view(stored) if self.mask.unit == self.itemsize else self.bytes
        np.copyto(target, pattern.view(target.dtype), where=self.mask.all())

    def _mask(self) -> Marks:
        """Which elements were never written."""
        if self.mask is None:
            self.mask = Marks(self, self.state != FULL, np.bool_)
            self.unwritten_bytes = self.count * self.itemsize if self.state != FULL else 0
        return self.mask

    def missing(self, pattern: Pattern, chosen: Array | None = None) -> int:
        """How many elements of an access pattern, or of the ``chosen`` ones of it, were never written."""
        if self.state == FULL:
            return 0
        if self.state == NONE and chosen is None:
            return math.prod(pattern[1])
        mask = self._mask()
        view = mask.of(pattern, chosen is not None)
        count = int(np.count_nonzero(view if chosen is None else view[chosen])) * (pattern[1][0] // len(view))
        return -(-count // max(1, pattern[3] // mask.unit))

    def mark(self, pattern: Pattern, chosen: Array | None = None) -> None:
        """Note that an access pattern, or the ``chosen`` elements of it, were written."""
        if self.state == FULL:
            return
        mask = self._mask()
        view = mask.of(pattern, chosen is not None)
        if chosen is None:
            self.unwritten_bytes -= int(np.count_nonzero(view)) * (pattern[1][0] // len(view)) * mask.unit
            view[...] = False
        else:
            self.unwritten_bytes -= int(np.count_nonzero(view[chosen])) * mask.unit
            view[chosen] = False
        self.state = PARTIAL
        if self.unwritten_bytes == 0:
            self.fill()

    def unwritten(self) -> int:
        """How many elements of the allocation were never written."""
        if self.state == PARTIAL:
            return -(-self.unwritten_bytes // self.itemsize)
        return 0 if self.state == FULL else self.count


@dataclass
class HostArray:
    """The caller's array behind an input tensor: exchanged for a copy at the first write, written back at the end."""

    writable: bool
    written: bool = False


@dataclass(slots=True, eq=False)
class Form:
    """What is the same of all tensors of one shape and data type in one memory that no address places.

    Attributes:
        row_bytes: bytes in each partition (all bytes for HBM).
        itemsize, pitch, size, pool: as of their storage.
    """

    row_bytes: int
    itemsize: int
    pitch: int
    size: int
    pool: list[Array]


class Memory:
    """The three memories of one NeuronCore, and every allocation of one run."""

    def __init__(self, core: NeuronCore, precise: bool = True):
        self.core = core
        self.precise = precise
        self.allocations: list[Allocation] = []
        self.number: int | None = None
        """Which core's it is, where several cores share ``allocations``."""
        self._names: set[str] = set()
        self.waiting: Callable[[], None] | None = None
        """To be called before values are looked at: it runs the instructions that have not run yet."""
        self.signatures: dict[Any, int] = {}
        """Numbers, from 1, of what shapes, dtypes, spaces and alignments views have had, in order; ``signed``: of each number
        what it was; ``whole``: of whole tensors of one form, which may be another core's."""
        self.signed: list[Any] = [None]
        self.whole: dict[Form, int] = {}
        self.hollow = False
        """Whether nothing is computed: the bytes mean nothing, and nobody fills or copies them."""
        self.indirect = False
        """Whether there are views whose offsets are read at run time."""
        self._hbm = self._counted = 0
        """Bytes of HBM of the first ``_counted`` allocations."""
        self._forms: dict[tuple[tuple[int, ...], DType, MemoryRegion], Form] = {}
        """What is known of tensors that no address places, by shape, data type and memory."""
        self.copies: PrivateCopies | None = None
        """What copies the callers' arrays, where several ranks may be given the same."""
        self._pools: dict[int, list[Array]] = {}
        """Bytes of dead tensors by size, to be used again."""
        self._arenas: dict[MemoryRegion, Array] = {}
        self._claims = {MemoryRegion.sbuf: Claims(), MemoryRegion.psum: Claims()}
        self._places: dict[Any, Place] = {}
        """Checked shapes and addresses, and the bytes that such tensors claim."""

    def take_name(self, name: str) -> bool:
        """Note a name that the user gave; False when another tensor has it."""
        new = name not in self._names
        self._names.add(name)
        return new

    # -- allocation --------------------------------------------------------------------------------------------------

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        region: MemoryRegion,
        *,
        name: str = "",
        address: Any = None,
        site: Site | None = None,
        step: int = 0,
        role: str = "tile",
    ) -> Storage:
        """Bytes for a tensor of ``shape`` elements of ``dtype``; unwritten.

        Raises:
            NkiValidationError: a shape, buffer or address that the memory does not have.
        """
        if address is not None:
            place = self._claimed(shape, dtype, region, address)
            if place is not None and self.stored(dtype) is dtype:
                where = (place.partition, place.byte)
                allocation = Allocation.of(len(self.allocations), region, shape, dtype, name, site, role, where, step)
                self.allocations.append(allocation)
                return self._place(allocation, place)
        else:
            place = None
        form = self._forms.get((shape, dtype, region)) or self._form(shape, dtype, region)
        if not region.on_chip:
            self._check_hbm(form.row_bytes)
        at = (place.partition, place.byte) if place is not None else None
        allocation = Allocation(len(self.allocations), region, shape, dtype, form.row_bytes, name, site, role, at, step)
        storage = Storage(allocation, None, form.pitch, itemsize=form.itemsize, size=form.size)
        storage.poisoned, storage.pool, storage.form = self.hollow, form.pool, form if at is None else None
        self.allocations.append(allocation)
        return storage

    def _form(self, shape: tuple[int, ...], dtype: DType, region: MemoryRegion) -> Form:
        """Check a shape, and note what is the same of all tensors of it."""
        self._check_shape(shape, dtype, region)
        itemsize, row = self.stored(dtype).itemsize, row_bytes_of(region, shape, dtype)
        size = math.prod(shape) * itemsize
        pitch = row // dtype.itemsize * itemsize if region.on_chip else 0
        found = self._forms[shape, dtype, region] = Form(row, itemsize, pitch, size, self._pools.setdefault(size, []))
        return found

    def own(self) -> list[Allocation]:
        """The allocations of this core."""
        return self.allocations if self.number is None else [a for a in self.allocations if a.core == self.number]

    def forget_pools(self) -> None:
        """Give the bytes of dead tensors back."""
        for pool in self._pools.values():
            pool.clear()

    def stored(self, dtype: DType) -> DType:
        """The dtype as stored: with ``NKI_PRECISE_FP=0`` low-precision floats are kept as float32."""
        if self.precise or dtype.kind != "float" or dtype.itemsize >= 4:
            return dtype
        return TABLE["float32"]

    def adopt(self, array: Array, dtype: DType, name: str, writable: bool = True, role: str = "input") -> Storage:
        """An HBM tensor over a C-contiguous array of the host's, which is not written until a run ends well."""
        allocation = Allocation.of(
            len(self.allocations), MemoryRegion.shared_hbm, array.shape, dtype, name, None, role, None, 0
        )
        self.allocations.append(allocation)
        stored = self.stored(dtype)
        own = array if stored is dtype else to_float32(array)
        storage = Storage(allocation, own.reshape(-1).view(np.uint8), 0, itemsize=stored.itemsize)
        storage.host = HostArray(writable)
        storage.fill()
        storage.views = []
        return storage

    def detach(self, storage: Storage) -> None:
        """Before the first write to an input: give the run its own copy of the caller's bytes."""
        if storage.host is None or storage.host.written:
            return
        if not storage.host.writable:
            what = f"writes its argument {storage.allocation.name}, a read-only array"
            raise fail(READ_ONLY, what, target=self.core.target, operand="dst")
        storage.host.written = True
        if self.hollow:
            return
        storage.bytes = storage.bytes.copy() if self.copies is None else self.copies.of(storage.bytes)
        for view in storage.views or ():
            view.unbind()

    # -- explicit addresses ------------------------------------------------------------------------------------------

    def capacity(self, region: MemoryRegion) -> int:
        """Usable bytes per partition."""
        return self.core.sbuf_usable_bytes if region is MemoryRegion.sbuf else self.core.psum_usable_bytes

    def _claimed(self, shape: tuple[int, ...], dtype: DType, region: MemoryRegion, address: Any) -> Place | None:
        """The bytes that a tensor at an address claims; nothing where there are no addresses."""
        plain = type(address) is tuple and all(type(n) is int for n in address)
        key = (shape, dtype, region, address) if plain else None
        place = self._places.get(key)
        if place is None:
            row = self._check_shape(shape, dtype, region)
            if not region.on_chip:
                return None
            place = _place(self._checked_place(address, shape[0], row, region), shape[0], row)
            if key is not None:
                self._places[key] = place
        return place

    def _check_shape(self, shape: tuple[int, ...], dtype: DType, region: MemoryRegion) -> int:
        """Raise what is wrong with a shape or a buffer; the bytes in a partition, of HBM in all."""
        target = self.core.target
        if not isinstance(region, MemoryRegion):
            raise fail(BUFFER_OBJECT, f"buffer is {region!r}", target=target, subject="nl.ndarray", operand="buffer")
        positive = all(isinstance(n, (int, np.integer)) and n > 0 for n in shape)
        if not positive or not shape:
            raise fail(SHAPE_POSITIVE, f"shape {shape}", target=target, subject="nl.ndarray", operand="shape")
        if not region.on_chip:
            return math.prod(shape) * dtype.itemsize
        label = region.value.upper()
        if len(shape) < 2:
            raise fail(ON_CHIP_2D, f"{label} shape {shape} has 1 dimension", target=target, subject="nl.ndarray",
                       operand="shape")  # fmt: skip
        if shape[0] > self.core.partitions:
            what = f"partition dimension {shape[0]} exceeds maximum {self.core.partitions} in shape {shape}"
            raise fail(PARTITION_LIMIT, what, target=target, subject="nl.ndarray", operand="shape")
        row, limit = math.prod(shape[1:]) * dtype.itemsize, self.capacity(region)
        if row > limit:
            rule = USABLE if region is MemoryRegion.sbuf else PSUM_ROW
            what = f"{row} bytes per partition > {limit} of {label} for shape {shape} {dtype.name}"
            raise fail(rule, what, target=target, subject="nl.ndarray", operand="shape")
        return row

    def _check_hbm(self, size: int) -> None:
        self._hbm += sum(a.row_bytes for a in self.allocations[self._counted :] if not a.region.on_chip)
        self._counted = len(self.allocations)
        if self._hbm + size > self.core.hbm_bytes:
            what = f"{self._hbm + size} bytes of HBM > {self.core.hbm_bytes}"
            raise fail(HBM_CAPACITY, what, target=self.core.target, subject="nl.ndarray", operand="shape")

    def _checked_place(self, address: Any, partitions: int, row: int, region: MemoryRegion) -> tuple[int, int]:
        target = self.core.target
        good = isinstance(address, (tuple, list)) and len(address) == 2
        if not good or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in address):
            raise fail(ADDRESS_TUPLE, f"address {address!r}", target=target, subject="nl.ndarray", operand="address")
        partition, offset = int(address[0]), int(address[1])
        label, limit = region.value.upper(), self.capacity(region)
        if partition + partitions > self.core.partitions:
            what = f"address partition {partition} + {partitions} partitions > {self.core.partitions}"
            raise fail(PARTITION_LIMIT, what, target=target, subject="nl.ndarray", operand="address")
        if offset + row > limit:
            rule = SBUF_CAPACITY if region is MemoryRegion.sbuf else PSUM_CAPACITY
            what = f"address {offset} + {row} bytes = {offset + row} > {limit} bytes per {label} partition"
            raise fail(rule, what, target=target, subject="nl.ndarray", operand="address",
                       fix=f"the last byte offset that fits is {limit - row}")  # fmt: skip
        if region is MemoryRegion.psum and offset % self.core.psum_bank_bytes:
            what = f"byte offset {offset} is {offset % self.core.psum_bank_bytes} bytes into a bank"
            raise fail(BANK_START, what, target=target, subject="nl.ndarray", operand="address")
        return partition, offset

    def _place(self, allocation: Allocation, place: Place) -> Storage:
        region = allocation.region
        pitch = self.core.sbuf_partition_bytes if region is MemoryRegion.sbuf else self.core.psum_partition_bytes
        arena = self._arenas.get(region)
        if arena is None:
            arena = self._arenas[region] = np.full(pitch * self.core.partitions, 0xFF, np.uint8)
        allocation.placed = place.byte
        storage = Storage(allocation, arena, pitch, base=place.partition * pitch + place.byte)
        storage.claim = self._claims[region].add(place)
        if not storage.claim.patch.shared:
            block = arena.reshape(self.core.partitions, pitch)[place.partition : place.partitions, place.byte : place.bytes]
            dtype = allocation.dtype
            pattern = filled(allocation.row_bytes // dtype.itemsize, poison(dtype), dtype.storage)
            block[...] = pattern.view(np.uint8)
        storage.poisoned = True
        return storage


def claimed(allocation: Allocation) -> Place:
    """The bytes that a placed allocation's ``address=`` claims."""
    assert allocation.address is not None
    return _place(allocation.address, allocation.partitions, allocation.row_bytes)


def _place(address: tuple[int, int], partitions: int, row_bytes: int) -> Place:
    first, start = address
    return Place(first, first + partitions, start, start + row_bytes)


__all__ = ["Allocation", "HostArray", "Memory", "MemoryRegion", "NkiValidationError", "Storage", "claimed"]
