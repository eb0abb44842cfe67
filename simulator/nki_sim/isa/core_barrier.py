"""``nki.isa.core_barrier``: two logical cores wait for each other."""

from __future__ import annotations

from typing import Any

from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import DMA_REACH, Instruction, instruction, read
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - a field has the enum's name
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("core_barrier")
ONE_CORE = "this run has one logical core"
"""What stops an instruction for two of them."""


@instruction
class core_barrier(Instruction):
    """Wait until both logical cores have come here; what they wrote to ``data`` before is then seen by both.

    A run has one logical core here, so the arguments are checked and the call is refused.

    Args:
        data: a tensor in shared HBM. cores: (0, 1).
        engine: the one that waits; the others go on.

    Example:
        try:
            nisa.core_barrier(data=x, cores=(0, 1))
        except nisa.NkiValidationError:  # one logical core
            nisa.memset(dst=nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.sbuf), value=0.0)
    """

    data: NkiTensor = read(DMA_REACH)
    cores: Any
    engine: Engine = Engine.gpsimd
    name: str | None = None

    def resolve_engine(self, core: NeuronCore) -> Engine:
        return self.engine

    @rule("core_barrier.gen3", "core_barrier exists on trn2 and newer", page=_PAGE, gens=(2,),
          why="logical cores of two came with NeuronCore-v3")  # fmt: skip
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("core_barrier.cores", "cores is (0, 1)", page=_PAGE, gens=(3, 4))
    def both(self, core: NeuronCore) -> Broken | None:
        good = isinstance(self.cores, (tuple, list)) and tuple(self.cores) == (0, 1)
        return None if good else Broken(f"cores is {self.cores!r}", "cores")

    @rule("core_barrier.shared_hbm", "data is in shared HBM", page=_PAGE, gens=(3, 4),
          fix="allocate it with buffer=nl.shared_hbm")  # fmt: skip
    def shared(self, core: NeuronCore) -> Broken | None:
        bad = self.data.buffer is not MemoryRegion.shared_hbm
        return Broken(f"data is {self.data.words()}", "data") if bad else None

    @rule("core_barrier.lnc2", "a barrier needs two logical cores", page=_PAGE, gens=(3, 4),
          fix="leave it out where nl.num_programs() is 1")  # fmt: skip
    def two_cores(self, core: NeuronCore) -> Broken | None:
        return Broken(ONE_CORE)

    def cycles(self, core: NeuronCore) -> float:
        """Not known: a barrier takes as long as the slower core."""
        return 0.0
