"""What DMA instructions share: their rules about descriptor generation, and access by a column of indices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa import indirection
from nki_sim.isa.base import Cost, Instruction
from nki_sim.isa.enums import dge_mode as DgeMode  # noqa: N812 - fields have the enums' names
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.isa.enums import oob_mode as OobMode  # noqa: N812
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import Dynamic, NkiTensor, OutOfRangeError

_PAGE = isa_page("dma_copy")


class DmaInstruction(Instruction):
    """An instruction of the DMA engines: its operands are access patterns over HBM and SBUF."""

    runs_on = Engine.dma

    dst: NkiTensor
    src: NkiTensor
    priority: int | None
    dge_mode: DgeMode
    oob_mode: OobMode

    indirection_known = indirection.known
    dst_index: NkiTensor | None = None
    src_index: NkiTensor | None = None
    """The columns of indices that pick rows: most transfers have none."""

    def __post_init__(self) -> None:
        if getattr(self.dst, "dynamic", None) is not None or getattr(self.src, "dynamic", None) is not None:
            self.dst_index, self.src_index = index_of(self.dst), index_of(self.src)
            if self.oob_mode is OobMode.skip and isinstance(self.dst, NkiTensor):
                self.dst.storage.poison()  # what a skipped transfer leaves must be known to be nothing
        Instruction.__post_init__(self)  # what super() finds, in half the time

    def cost(self, core: NeuronCore) -> Cost:
        """No cycles of an engine: its bytes take the DMA engines' time. Descriptors are made by hardware for the queue of
        ``engine``, ahead of time for ``dge_mode.none`` and on trn1, else by GpSimd's software."""
        if not core.hwdge or self.dge_mode is DgeMode.none:
            return Cost(queue="static")
        if self.dge_mode is DgeMode.hwdge:
            asked = getattr(self, "engine", Engine.unknown)
            return Cost(queue="sync" if asked is Engine.unknown else asked.name)
        return Cost(queue="gpsimd")

    def dynamic(self) -> Iterator[tuple[str, NkiTensor, Dynamic]]:
        """Operands whose address is decided at run time."""
        for name, tile in self.tiles():
            if tile.dynamic is not None:
                yield name, tile, tile.dynamic

    @rule(
        "hw.partition_access_contiguous",
        "an operand in SBUF occupies consecutive partitions: no step on the partition dimension",
        why="a pattern over SBUF walks all its partitions, one after the other",
        fix="take neighbouring rows, or go through HBM, where a step is a stride",
        page=page("deep-dives/nki-aps.html"),
    )
    def partition_step(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            if tile.on_chip and tile.shape[0] > 1 and tile.strides[0] != tile.row_elems:
                return Broken(f"{name} takes every {tile.strides[0] // tile.row_elems}. partition", name)
        return None

    @rule(
        "dma_copy.priority_gen4",
        "priority is 0 to 3 (0 highest) and exists on trn3",
        why="older DMA queues are served round robin",
        fix="leave priority out",
        page=_PAGE,
    )
    def priorities(self, core: NeuronCore) -> Broken | None:
        if self.priority is not None and (core.gen < 4 or self.priority not in (0, 1, 2, 3)):
            return Broken(f"priority {self.priority} on {core.target}", "priority")
        return None

    @rule("dma_copy.none_static_only", "dge_mode.none takes compile-time addresses only", page=_PAGE,
          why="its descriptors are written before the kernel starts", fix="use nisa.dge_mode.unknown or swdge")  # fmt: skip
    def static_only(self, core: NeuronCore) -> Broken | None:
        for name, _, _ in self.dynamic():
            if self.dge_mode is DgeMode.none:
                return Broken(f"{name} has a runtime offset with dge_mode none", name)
        return None

    @rule("dma_copy.vector_offset_hbm", "a tensor indexed through vector_offset is in HBM", page=_PAGE)
    def indexed_in_hbm(self, core: NeuronCore) -> Broken | None:
        for name, tile, how in self.dynamic():
            if how.kind == "vector" and tile.on_chip:
                return Broken(f"{name} is in SBUF", name)
        return None


class Rows:
    """Access to rows of an HBM tensor by a column of indices read at run time."""

    def __init__(self, tile: NkiTensor, skip: bool):
        how = tile.dynamic
        assert how is not None
        self.skip = skip
        self.size = how.size
        size = tile.memory.stored(tile.info).itemsize
        self.shape = (how.size, *tile.shape[1:])
        self.strides = tuple(s * size for s in (how.stride, *tile.strides[1:]))
        self.count = tile.shape[0]
        limit = tile.row_elems
        inner = sum((n - 1) * s for n, s in zip(tile.shape[1:], tile.strides[1:], strict=True))
        # rows whose last element still lies inside the storage
        self.whole = (limit - tile.offset - inner - 1) // how.stride + 1 if how.stride else how.size

    def select(self, anchor: Array, index: Array) -> tuple[Array, Array, Array]:
        """``(rows of the tensor, valid lanes, their row numbers)`` for the indices now.

        ``anchor`` is the view of the first row; the rows follow it in memory.

        Raises:
            OutOfRangeError: an index is outside and the mode is not skip.
        """
        rows = index.astype(np.int64).reshape(-1)[: self.count]
        inside = (rows >= 0) & (rows < min(self.size, self.whole))
        if not inside.all() and not self.skip:
            raise OutOfRangeError(int(rows[~inside][0]), self.size)
        plain = anchor.view(f"u{anchor.itemsize}")  # as_strided does not know ml_dtypes' float8_e5m2
        table = np.lib.stride_tricks.as_strided(plain, (min(self.size, self.whole), *self.shape[1:]), self.strides)
        table = table.view(anchor.dtype)
        lanes = np.flatnonzero(inside)
        return table, lanes, rows[lanes]


def index_of(tile: Any) -> NkiTensor | None:
    """The index tile of a vector-indexed operand."""
    how = tile.dynamic if isinstance(tile, NkiTensor) else None
    return how.index if how is not None and how.kind == "vector" else None


def is_hbm(tile: NkiTensor) -> bool:
    return tile.buffer in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)
