"""``nki.isa.sendrecv``: two logical cores exchange tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nki_sim import context
from nki_sim.errors import Broken, Rule, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, free, instruction, partitions, read, write
from nki_sim.isa.core_barrier import ONE_CORE
from nki_sim.isa.enums import dma_engine as DmaEngine  # noqa: N812 - a field has the enum's name
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.isa.meeting import Meeting
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("sendrecv")
_MOST = {4: 1024, 2: 512, 1: 256}
"""Bytes per partition that GpSimd's own DMA moves, by bytes per element."""
_GPSIMD_GB_S = 153.0
"""Of GpSimd's own DMA, per direction: trainium2_arch."""
UNANSWERED = Rule(
    "sendrecv.answered",
    "both logical cores come to a sendrecv, each receiving from the other what that sends it",
    why="none goes on before both have; one that does not come leaves the other waiting for ever",
    fix="call sendrecv on both cores equally often, with the same pipe_id, send_to_rank=1 - me and recv_from_rank=1 - me",
    page=_PAGE,
    gens=(3, 4),
)
CROSSED = Rule(
    "sendrecv.same_pipe",
    "both logical cores come to the exchanges of each pipe_id in the same order",
    why="calls with one pipe_id complete together, and a core that waits in one does not come to its next",
    fix="give the two calls that belong together one pipe_id, and write several exchanges in the same order on both cores",
    page=_PAGE,
    gens=(3, 4),
)
AGREE = Rule(
    "sendrecv.agree",
    "what one logical core sends has the shape, dtype and dma_engine of what the other receives",
    page=_PAGE,
    gens=(3, 4),
)


@instruction
class sendrecv(Meeting):
    """Send ``src`` to another logical core's ``dst`` and receive ``dst`` from one, at the same time.

    Args:
        src, dst: SBUF, one dtype and shape.
        send_to_rank, recv_from_rank: 0 or 1.
        pipe_id: calls with one number complete together. The page says that others do not wait for them; here a core goes on
            when its exchange is done, so both cores come to their pipes in one order.
        dma_engine: ``dma``, or ``gpsimd_dma`` for small tiles: 1024 bytes per partition of 32-bit elements, 512 of 16-bit,
            256 of 8-bit.

    Example:
        tile, got = nl.load(x[:, 0:64]), nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        if nl.num_programs() == 2:  # of kernel[2]
            other = 1 - nl.program_id(axis=0)
            nisa.sendrecv(src=tile, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        else:
            nisa.tensor_copy(dst=got, src=tile)
    """

    unanswered, crossed, waits = UNANSWERED, CROSSED, True
    decided_operands = ("received",)

    src: NkiTensor = read(SBUF, "sendrecv.buffers")
    dst: NkiTensor = write(SBUF, "sendrecv.buffers")
    send_to_rank: Any
    recv_from_rank: Any
    pipe_id: Any
    dma_engine: DmaEngine = DmaEngine.dma
    name: str | None = None

    def resolve_engine(self, core: NeuronCore) -> Engine:
        return Engine.gpsimd if self.dma_engine is DmaEngine.gpsimd_dma else Engine.dma

    def key(self) -> Any:
        return self.pipe_id

    def called(self) -> str:
        return f"sendrecv (pipe_id {self.pipe_id})"

    def waits_on(self) -> str:
        return f"pipe_id {self.pipe_id}"

    def take(self, mine: int, others: Mapping[int, sendrecv]) -> tuple[Rule, Broken] | None:
        sender = others.get(self.recv_from_rank)
        if sender is None or sender.send_to_rank != mine:
            to = "nobody" if sender is None else f"core {sender.send_to_rank}"
            what = f"core {mine} receives from core {self.recv_from_rank}, which sends to {to}"
            return UNANSWERED, Broken(what, "recv_from_rank")
        sent = sender.src
        if (sent.shape, sent.dtype, sender.dma_engine) != (self.dst.shape, self.dst.dtype, self.dma_engine):
            what = f"core {mine} receives {self.dst.words()} by {self.dma_engine.name}, core {self.recv_from_rank} sends "
            return AGREE, Broken(f"{what}{sent.words()} by {sender.dma_engine.name}", "dst")
        self.received = sent
        return None

    def body(self, core: NeuronCore) -> Body:
        return lambda src, dst, received: np.copyto(dst, received)

    def cycles(self, core: NeuronCore) -> float:
        """Of GpSimd, when its own DMA moves the tile; an estimate."""
        if self.dma_engine is DmaEngine.dma:
            return 0.0
        return partitions(self.src) * free(self.src) * self.src.info.itemsize / _GPSIMD_GB_S * core.clocks.gpsimd

    @rule("sendrecv.gen3", "sendrecv exists on trn2 and newer", page=_PAGE, gens=(2,),
          why="logical cores of two came with NeuronCore-v3")  # fmt: skip
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("sendrecv.ranks", "send_to_rank and recv_from_rank are 0 or 1", page=_PAGE, gens=(3, 4),
          why="a logical core has two")  # fmt: skip
    def known_ranks(self, core: NeuronCore) -> Broken | None:
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
        bad = self.dma_engine is DmaEngine.gpsimd_dma and context.machine().programs == 1
        return Broken(ONE_CORE, "dma_engine") if bad else None

    @rule("sendrecv.lnc2", "an exchange needs two logical cores", page=_PAGE, gens=(3, 4),
          fix="run kernel[2], or use nisa.tensor_copy where nl.num_programs() is 1")  # fmt: skip
    def two_cores(self, core: NeuronCore) -> Broken | None:
        return Broken(ONE_CORE) if context.machine().programs == 1 else None
