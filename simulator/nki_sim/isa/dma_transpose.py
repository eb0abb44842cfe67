"""``nki.isa.dma_transpose``: reverse the axes of a tensor while moving it into SBUF."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Rule, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import DMA_REACH, SBUF, Body, instruction, read, write
from nki_sim.isa.dma import DmaInstruction, Rows, is_hbm
from nki_sim.isa.enums import dge_mode as DgeMode  # noqa: N812 - fields have the enums' names
from nki_sim.isa.enums import oob_mode as OobMode  # noqa: N812
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("dma_transpose")
_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
_BLOCK = 16
"""Rows that a gathering transpose moves together (our reading: their number must be a multiple of 16)."""

MIXED_BLOCK = Rule(
    "dma_transpose.oob_skip_mixed",
    "with oob_mode.skip the 16 rows of a block are all inside src or all outside: a mixed block is undefined on current "
    "hardware",
    why="a public report (aws-neuron-sdk issue 1390) says that it aborts the DMA and hangs later runs on trn2 and trn3",
    fix="clamp the indices and mask afterwards, or gather with nisa.dma_copy and transpose on chip",
    page=_PAGE,
    enforce="runtime",
)


@instruction
class dma_transpose(DmaInstruction):
    """``dst = transpose(src, axes)``.

    Args:
        dst: SBUF; its shape is exactly the transposed shape of ``src``, its dtype that of ``src``.
        src: HBM or SBUF; with ``.ap(vector_offset=…)`` its rows are gathered first (trn2 and newer, HBM).
        axes: (1, 0), (2, 1, 0) or (3, 1, 2, 0), by rank; ``None`` takes the one for src's rank.
        priority: 0 to 3, trn3 only. dge_mode: unknown, none or hwdge; unknown or swdge when indirect.
        oob_mode: skip is for indirect sources.

    Example:
        turned = nl.ndarray((64, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=turned, src=x[:, 0:64])
    """

    decided_operands = ("src_index",)

    dst: NkiTensor = write(SBUF, "dma_transpose.dst_sbuf")
    src: NkiTensor = read(DMA_REACH, "dma_transpose.src_buffers")
    axes: Sequence[int] | None = None
    priority: int | None = None
    dge_mode: DgeMode = DgeMode.unknown
    oob_mode: OobMode = OobMode.error
    name: str | None = None

    def order(self) -> tuple[int, ...]:
        """The permutation: as given, or the one for the rank."""
        return tuple(self.axes) if self.axes is not None else _AXES.get(self.src.ndim, ())

    def _hwdge(self) -> bool:
        return self.dge_mode is DgeMode.hwdge

    def _indirect(self) -> bool:
        return self.src_index is not None

    @rule("dma_transpose.axes", "axes is (1, 0), (2, 1, 0) or (3, 1, 2, 0), as src's rank asks", page=_PAGE)
    def axes_legal(self, core: NeuronCore) -> Broken | None:
        if self.axes is not None and not isinstance(self.axes, Sequence):
            return Broken(f"axes is {self.axes!r}", "axes", error=TypeError)
        if self.order() != _AXES.get(self.src.ndim):
            return Broken(f"axes {self.axes} for a {self.src.ndim}-D src", "axes")
        return None

    @rule("dma_transpose.hwdge_last_le_128", "with hwdge src's last dimension is at most 128", page=_PAGE, gens=(3, 4))
    def hwdge_last(self, core: NeuronCore) -> Broken | None:
        bad = self._hwdge() and self.src.shape[-1] > 128
        return Broken(f"src's last dimension is {self.src.shape[-1]}", "src") if bad else None

    @rule("dma_transpose.indirect.last_le_128", "an indirect src's last dimension is at most 128", page=_PAGE)
    def indirect_last(self, core: NeuronCore) -> Broken | None:
        bad = self._indirect() and self.src.shape[-1] > 128
        return Broken(f"src's last dimension is {self.src.shape[-1]}", "src") if bad else None

    @rule("dma_transpose.dst_shape_exact", "dst's shape is exactly the transposed shape of src, rank included", page=_PAGE,
          fix="allocate dst with that shape, or reshape it before")  # fmt: skip
    def exact(self, core: NeuronCore) -> Broken | None:
        want = tuple(self.src.shape[a] for a in self.order())
        if self.dst.shape != want:
            return Broken(f"dst is {self.dst.shape}, the transpose of src is {want}", "dst", error=AssertionError)
        return None

    @rule("dma_transpose.same_dtype", "src and dst have the same dtype", page=_PAGE,
          fix="convert before or after with nisa.tensor_copy")  # fmt: skip
    def same_dtype(self, core: NeuronCore) -> Broken | None:
        same = self.src.dtype == self.dst.dtype
        return None if same else Broken(f"src is {self.src.dtype}, dst is {self.dst.dtype}", "dst")

    @rule("dma_transpose.dtype_bytes", "elements are 2 or 4 bytes wide", page=_PAGE, gens=(3, 4),
          why="the DMA engine's transpose works on 2- and 4-byte elements",
          fix="transpose on chip with nisa.nc_transpose")  # fmt: skip
    def element_size(self, core: NeuronCore) -> Broken | None:
        good = self.src.info.itemsize in (2, 4)
        return None if good else Broken(f"src is {self.src.dtype} ({self.src.info.itemsize} bytes)", "src")

    @rule("dma_transpose.direct_dge_mode", "a direct transpose has dge_mode unknown, none or hwdge", page=_PAGE)
    def direct_mode(self, core: NeuronCore) -> Broken | None:
        # The reference lists unknown and hwdge; the descriptor guide allows none too, which is accepted.
        bad = not self._indirect() and self.dge_mode is DgeMode.swdge
        return Broken("dge_mode swdge", "dge_mode") if bad else None

    @rule("dma_transpose.hwdge_gen3", "dge_mode hwdge exists on trn2 and newer", page=_PAGE)
    def hwdge_generation(self, core: NeuronCore) -> Broken | None:
        bad = self._hwdge() and not core.hwdge
        return Broken(f"dge_mode hwdge on {core.target}", "dge_mode") if bad else None

    @rule("dma_transpose.hwdge_2d_src0_16", "with hwdge a 2-D src has 16 rows (1, 2, 4 and 8 are allowed since 0.6)",
          page=_PAGE, gens=(3, 4))  # fmt: skip
    def hwdge_2d(self, core: NeuronCore) -> Broken | None:
        bad = self._hwdge() and self.src.ndim == 2 and self.src.shape[0] not in (1, 2, 4, 8, 16)
        return Broken(f"src has {self.src.shape[0]} rows with dge_mode hwdge", "src") if bad else None

    @rule("dma_transpose.hwdge_34d_src0", "with hwdge a 3-D or 4-D src has shape[0] in 1, 2, 4, 8, 16 and "
          "shape[0] · shape[-2] a multiple of 16", page=_PAGE, gens=(3, 4))  # fmt: skip
    def hwdge_34d(self, core: NeuronCore) -> Broken | None:
        if not self._hwdge() or self.src.ndim < 3:
            return None
        first = self.src.shape[0]
        bad = first not in (1, 2, 4, 8, 16) or first * self.src.shape[-2] % 16
        return Broken(f"src is {self.src.shape} with dge_mode hwdge", "src") if bad else None

    @rule("dma_transpose.hwdge_2byte", "with hwdge elements are 2 bytes wide", page=_PAGE, gens=(3, 4))
    def hwdge_bytes(self, core: NeuronCore) -> Broken | None:
        bad = self._hwdge() and self.src.info.itemsize != 2
        return Broken(f"src is {self.src.dtype} with dge_mode hwdge", "src") if bad else None

    @rule("dma_transpose.indirect.dge_mode", "an indirect transpose has dge_mode unknown or swdge", page=_PAGE)
    def indirect_mode(self, core: NeuronCore) -> Broken | None:
        bad = self._indirect() and self.dge_mode not in (DgeMode.unknown, DgeMode.swdge)
        return Broken(f"dge_mode {self.dge_mode.name} with indices", "dge_mode") if bad else None

    @rule("dma_transpose.indirect.gen3", "an indirect transpose exists on trn2 and newer", page=_PAGE)
    def indirect_generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"indices on {core.target}", "src") if self._indirect() and core.gen < 3 else None

    @rule("dma_transpose.indirect.4d", "an indirect 4-D src has shape[1] or shape[2] equal to 1", page=_PAGE)
    def indirect_4d(self, core: NeuronCore) -> Broken | None:
        bad = self._indirect() and self.src.ndim == 4 and 1 not in self.src.shape[1:3]
        return Broken(f"src is {self.src.shape}", "src") if bad else None

    @rule("dma_transpose.indirect.2byte", "an indirect src has 2-byte elements", page=_PAGE)
    def indirect_bytes(self, core: NeuronCore) -> Broken | None:
        bad = self._indirect() and self.src.info.itemsize != 2
        return Broken(f"src is {self.src.dtype}", "src") if bad else None

    @rule("dma_transpose.indirect.src_hbm", "an indirect src is in HBM", page=_PAGE)
    def indirect_hbm(self, core: NeuronCore) -> Broken | None:
        return Broken("src is in SBUF", "src") if self._indirect() and not is_hbm(self.src) else None

    @rule("dma_transpose.indirect.indices_2d", "the indices are 2-D", page=_PAGE)
    def indices_2d(self, core: NeuronCore) -> Broken | None:
        index = self.src_index
        return Broken(f"indices are {index.shape}", "src") if index is not None and index.ndim != 2 else None

    @rule("dma_transpose.indirect.indices_count", "there are at least as many indices as rows", page=_PAGE)
    def indices_count(self, core: NeuronCore) -> Broken | None:
        index = self.src_index
        bad = index is not None and index.size < self.src.shape[0]
        return Broken(f"{index.size if index is not None else 0} indices for {self.src.shape[0]} rows", "src") if bad else None

    @rule("dma_transpose.indirect.src0_mult_16", "the number of rows is a multiple of 16", page=_PAGE)
    def rows_16(self, core: NeuronCore) -> Broken | None:
        bad = self._indirect() and self.src.shape[0] % 16
        return Broken(f"{self.src.shape[0]} rows", "src") if bad else None

    @rule("dma_transpose.indirect.indices0", "the indices have 16 to 128 rows, a multiple of 16", page=_PAGE)
    def indices_rows(self, core: NeuronCore) -> Broken | None:
        index = self.src_index
        bad = index is not None and (index.shape[0] % 16 or not 16 <= index.shape[0] <= 128)
        return Broken(f"indices are {index.shape if index is not None else ()}", "src") if bad else None

    @rule(
        "dma_transpose.indirect.indices1_gt1",
        "with more than one column of indices there are 128 rows of them",
        page=_PAGE,
    )
    def indices_columns(self, core: NeuronCore) -> Broken | None:
        index = self.src_index
        bad = index is not None and index.shape[1] > 1 and index.shape[0] != 128
        return Broken(f"indices are {index.shape if index is not None else ()}", "src") if bad else None

    @rule("dma_transpose.indirect.indices_u32_sbuf", "the indices are uint32 and in SBUF", page=_PAGE)
    def indices_dtype(self, core: NeuronCore) -> Broken | None:
        index = self.src_index
        if index is not None and (index.dtype != "uint32" or index.buffer is not MemoryRegion.sbuf):
            return Broken(f"indices are {index.words()}", "src")
        return None

    @rule(
        "dma_transpose.oob_skip_indirect_only",
        "oob_mode.skip is for sources indexed at run time",
        page=_PAGE,
        fix="leave oob_mode out",
    )
    def skip_indirect(self, core: NeuronCore) -> Broken | None:
        bad = self.oob_mode is OobMode.skip and self.src.dynamic is None
        return Broken("oob_mode skip with a static src", "oob_mode") if bad else None

    def body(self, core: NeuronCore) -> Body:
        order = self.order()
        if not self._indirect():
            return lambda dst, src, _: np.copyto(dst, src.transpose(order))
        rows = Rows(self.src, self.oob_mode is OobMode.skip)
        machine, blocks = context.machine(), -(-self.src.shape[0] // _BLOCK)

        def gather(dst: Array, src: Array, index: Array) -> None:
            # indices run down the columns of the index tile; a skipped row leaves its column of dst alone
            table, lanes, numbers = rows.select(src, index.T)
            valid = np.bincount(lanes // _BLOCK, minlength=blocks)
            mixed = np.flatnonzero((valid > 0) & (valid < _BLOCK))
            if mixed.size:
                first = int(mixed[0]) * _BLOCK
                what = f"rows {first} to {first + _BLOCK - 1} mix indices inside and outside of src"
                raise machine.error(self, MIXED_BLOCK, Broken(what, "src"))
            dst[..., lanes] = table[numbers].transpose(order)

        return gather
