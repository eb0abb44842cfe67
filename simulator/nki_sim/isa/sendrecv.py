"""``nki.isa.sendrecv``: two logical cores exchange tiles."""

from __future__ import annotations

from typing import Any

from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Instruction, free, instruction, read, write
from nki_sim.isa.core_barrier import ONE_CORE
from nki_sim.isa.enums import dma_engine as DmaEngine  # noqa: N812 - a field has the enum's name
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("sendrecv")
_MOST = {4: 1024, 2: 512, 1: 256}
"""Bytes per partition that GpSimd's own DMA moves, by bytes per element."""


@instruction
class sendrecv(Instruction):
    """Send ``src`` to another logical core's ``dst`` and receive ``dst`` from one, at the same time.

    A run has one logical core here, so the arguments are checked and the call is refused.

    Args:
        src, dst: SBUF, one dtype and shape.
        send_to_rank, recv_from_rank: 0 or 1.
        pipe_id: calls with one number complete together.
        dma_engine: ``dma``, or ``gpsimd_dma`` for small tiles: 1024 bytes per partition of 32-bit elements, 512 of 16-bit,
            256 of 8-bit.

    Example:
        tile, got = nl.load(x[:, 0:64]), nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        try:
            nisa.sendrecv(src=tile, dst=got, send_to_rank=1, recv_from_rank=1, pipe_id=0)
        except nisa.NkiValidationError:  # one logical core
            nisa.tensor_copy(dst=got, src=tile)
    """

    runs_on = Engine.dma

    src: NkiTensor = read(SBUF, "sendrecv.buffers")
    dst: NkiTensor = write(SBUF, "sendrecv.buffers")
    send_to_rank: Any
    recv_from_rank: Any
    pipe_id: Any
    dma_engine: DmaEngine = DmaEngine.dma
    name: str | None = None

    @rule("sendrecv.gen3", "sendrecv exists on trn2 and newer", page=_PAGE, gens=(2,),
          why="logical cores of two came with NeuronCore-v3")  # fmt: skip
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("sendrecv.ranks", "send_to_rank and recv_from_rank are 0 or 1", page=_PAGE, gens=(3, 4),
          why="a logical core has two")  # fmt: skip
    def ranks(self, core: NeuronCore) -> Broken | None:
        for name, rank in (("send_to_rank", self.send_to_rank), ("recv_from_rank", self.recv_from_rank)):
            if isinstance(rank, bool) or rank not in (0, 1):
                return Broken(f"{name} is {rank!r}", name)
        return None

    @rule("sendrecv.same_dtype", "src and dst share one dtype", page=_PAGE, gens=(3, 4))
    def same_dtype(self, core: NeuronCore) -> Broken | None:
        same = self.src.dtype == self.dst.dtype
        return None if same else Broken(f"src is {self.src.dtype}, dst is {self.dst.dtype}", "dst")

    @rule("sendrecv.same_shape", "src and dst have the same shape", page=_PAGE, gens=(3, 4))
    def same_shape(self, core: NeuronCore) -> Broken | None:
        same = self.src.shape == self.dst.shape
        return None if same else Broken(f"src is {self.src.shape}, dst is {self.dst.shape}", "dst")

    @rule("sendrecv.gpsimd_dma_size", "gpsimd_dma moves at most 1024 bytes per partition of 32-bit elements, 512 of 16-bit, "
          "256 of 8-bit", page=_PAGE, gens=(3, 4), fix="use dma_engine.dma, or split the free dimension")  # fmt: skip
    def small(self, core: NeuronCore) -> Broken | None:
        size, most = free(self.src) * self.src.info.itemsize, _MOST.get(self.src.info.itemsize, 1024)
        bad = self.dma_engine is DmaEngine.gpsimd_dma and size > most
        return Broken(f"src has {size} bytes per partition > {most} with gpsimd_dma", "src") if bad else None

    @rule("sendrecv.gpsimd_dma_lnc2", "gpsimd_dma moves between two logical cores", page=_PAGE, gens=(3, 4),
          fix="use nisa.tensor_copy where nl.num_programs() is 1")  # fmt: skip
    def gpsimd_cores(self, core: NeuronCore) -> Broken | None:
        return Broken(ONE_CORE, "dma_engine") if self.dma_engine is DmaEngine.gpsimd_dma else None

    @rule("sendrecv.lnc2", "an exchange needs two logical cores", page=_PAGE, gens=(3, 4),
          fix="use nisa.tensor_copy where nl.num_programs() is 1")  # fmt: skip
    def two_cores(self, core: NeuronCore) -> Broken | None:
        return Broken(ONE_CORE)
