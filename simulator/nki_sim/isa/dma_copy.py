"""``nki.isa.dma_copy``: move data between HBM and SBUF, by pattern or by a column of row indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array, to_float32, write_float32, write_integers
from nki_sim.errors import Broken, Rule, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import DMA_REACH, Body, free, instruction, read, write
from nki_sim.isa.dma import DmaInstruction, Rows
from nki_sim.isa.enums import dge_mode as DgeMode  # noqa: N812 - fields have the enums' names
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.isa.enums import oob_mode as OobMode  # noqa: N812
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("dma_copy")

DUPLICATES = Rule(
    "dma_copy.scatter_duplicates",
    "the indices of a scatter name each row once",
    why="the descriptors of a DMA complete in no documented order: which write is last is not known (here: the last lane)",
    fix="combine the lanes of one row first, for example with a matmul against a 0/1 matrix",
    page=_PAGE,
    enforce="ub",
)


@instruction
class dma_copy(DmaInstruction):
    """``dst = src`` in the order of the elements; other dtypes convert through float32.

    Args:
        dst, src: HBM or SBUF, equal numbers of elements; shapes may differ. ``.ap(vector_offset=…)`` gathers from or
            scatters to rows of an HBM tensor.
        priority: 0 to 3, trn3 only.
        oob_mode: what a runtime index out of bounds does: an error, or the transfer is skipped.
        dge_mode: who generates the descriptors. engine: sync or scalar, with hwdge only.

    Example:
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, 0:64])
    """

    decided_operands = ("dst_index", "src_index")

    dst: NkiTensor = write(DMA_REACH, "dma_copy.no_psum_dst")
    src: NkiTensor = read(DMA_REACH, "dma_copy.no_psum_src")
    priority: int | None = None
    oob_mode: OobMode = OobMode.error
    dge_mode: DgeMode = DgeMode.unknown
    engine: Engine = Engine.unknown
    name: str | None = None

    @rule(
        "dma_copy.elem_count",
        "src and dst have the same number of elements",
        why="a DMA is a list of byte runs: what is read must be written somewhere",
        fix="allocate the tile with exactly the shape of the slice: nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.sbuf)",
        page=_PAGE,
    )
    def count(self, core: NeuronCore) -> Broken | None:
        if self.src.size != self.dst.size:
            what = "requires src and dst to have the same number of elements, got "
            return Broken(f"{what}src={self.src.size} {self.src.shape}, dst={self.dst.size} {self.dst.shape}", "dst")
        return None

    @rule(
        "dma_copy.no_cast_mx",
        "DMA does not convert to or from packed (x4) dtypes",
        fix="reinterpret with .view(dtype) to move the bytes as they are",
        page=_PAGE,
    )
    def no_mx_cast(self, core: NeuronCore) -> Broken | None:
        kinds = (self.src.info.kind, self.dst.info.kind)
        if "packed" in kinds and self.src.dtype != self.dst.dtype:
            return Broken(f"src is {self.src.dtype}, dst is {self.dst.dtype}", "dst")
        return None

    @rule("dma_copy.hwdge_gen3", "dge_mode hwdge exists on trn2 and newer", page=_PAGE,
          why="the descriptor generation hardware came with NeuronCore-v3", fix="leave dge_mode out")  # fmt: skip
    def hwdge_generation(self, core: NeuronCore) -> Broken | None:
        bad = self.dge_mode is DgeMode.hwdge and not core.hwdge
        return Broken(f"dge_mode hwdge on {core.target}", "dge_mode") if bad else None

    @rule("dma_copy.hwdge_same_dtype", "with hwdge src and dst have the same dtype", page=_PAGE, gens=(3, 4),
          fix="reinterpret with .view(dtype), or convert on chip with nisa.tensor_copy")  # fmt: skip
    def hwdge_dtype(self, core: NeuronCore) -> Broken | None:
        if self.dge_mode is DgeMode.hwdge and self.src.dtype != self.dst.dtype:
            return Broken(f"src is {self.src.dtype}, dst is {self.dst.dtype} with dge_mode hwdge", "dst")
        return None

    @rule("dma_copy.hwdge_no_indirect", "hwdge does not gather or scatter", page=_PAGE, gens=(3, 4),
          fix="use dge_mode.swdge or unknown")  # fmt: skip
    def hwdge_indirect(self, core: NeuronCore) -> Broken | None:
        return self._indirect_mode((DgeMode.hwdge,), "hwdge")

    @rule("dma_copy.vector_offset_mode", "vector_offset needs dge_mode swdge or unknown", page=_PAGE)
    def indirect_mode(self, core: NeuronCore) -> Broken | None:
        return self._indirect_mode((DgeMode.hwdge, DgeMode.none), getattr(self.dge_mode, "name", ""))

    def _indirect_mode(self, bad: tuple[DgeMode, ...], label: str) -> Broken | None:
        for name, _, how in self.dynamic():
            if how.kind == "vector" and self.dge_mode in bad:
                return Broken(f"{name} has a vector_offset with dge_mode {label}", name)
        return None

    @rule("dma_copy.hwdge_engine", "engine is sync or scalar, and given with dge_mode hwdge only", page=_PAGE)
    def queue_engine(self, core: NeuronCore) -> Broken | None:
        if self.engine is Engine.unknown:
            return None
        if self.dge_mode is not DgeMode.hwdge or self.engine not in (Engine.sync, Engine.scalar):
            mode = getattr(self.dge_mode, "name", self.dge_mode)
            return Broken(f"engine {self.engine.name} with dge_mode {mode}", "engine")
        return None

    @rule("dma_copy.vector_offset_shape", "the indices are an SBUF tile of shape (P, 1) and integer dtype", page=_PAGE)
    def index_shape(self, core: NeuronCore) -> Broken | None:
        for name, tile, how in self.dynamic():
            if how.kind == "vector":
                index = how.index
                bad = index.size < tile.shape[0] or free(index) != 1 or not index.info.is_integer
                if bad or index.buffer is not MemoryRegion.sbuf:
                    return Broken(f"{name} has indices {index.words()}", name)
        return None

    def body(self, core: NeuronCore) -> Body:
        move = _mover(self.dst, self.src)
        if self.dst_index is None and self.src_index is None:
            return lambda dst, src, _, __: move(dst, src)
        skip, machine = self.oob_mode is OobMode.skip, context.machine()
        gather = Rows(self.src, skip) if self.src_index is not None else None
        scatter = Rows(self.dst, skip) if self.dst_index is not None else None
        row = self.dst.shape if gather is None else (gather.count, self.dst.size // gather.count)
        by_row = gather is None or self.dst.shape[0] == gather.count

        def indirect(dst: Array, src: Array, to: Array | None, of: Array | None) -> None:
            lanes = np.arange(row[0])
            if gather is not None and of is not None:
                table, lanes, rows = gather.select(src, of)
                src = table[rows]
            if scatter is not None and to is not None:
                table, chosen, rows = scatter.select(dst, to)
                if len(np.unique(rows)) < len(rows):
                    machine.finding(self, DUPLICATES, Broken("two lanes scatter to one row", "dst"))
                part = np.empty((len(chosen), *dst.shape[1:]), dst.dtype)
                move(part, src.reshape(dst.shape)[chosen])
                table[rows] = part
                return
            into = dst if by_row else dst.reshape(row)  # a copy where dst's rows are not those of the gather
            part = np.empty((len(lanes), *into.shape[1:]), dst.dtype)
            move(part, src)
            into[lanes] = part
            if not by_row:
                dst[...] = into.reshape(dst.shape)

        return indirect


def _mover(dst: NkiTensor, src: NkiTensor) -> Any:
    """``move(dst, src)`` for arrays: bytes as they are, or one conversion through float32."""
    if dst.info is src.info:
        if dst.shape == src.shape and src.dynamic is None:
            return lambda d, s: np.copyto(d, s)

        def reshaped(d: Array, s: Array) -> None:
            d[...] = s.reshape(d.shape)

        return reshaped
    info = dst.info
    if info.is_integer and src.info.is_integer and src.info.itemsize < 4:
        return lambda d, s: write_integers(d, info, s.astype(np.int64).reshape(d.shape))
    return lambda d, s: write_float32(d, info, to_float32(s).reshape(d.shape))
