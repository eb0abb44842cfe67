"""``nki.isa.core_barrier``: two logical cores wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nki_sim import context
from nki_sim.errors import Broken, Rule, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import DMA_REACH, Body, instruction, read
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - a field has the enum's name
from nki_sim.isa.meeting import Meeting
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("core_barrier")
ONE_CORE = "this run has one logical core"
"""What stops an instruction for two of them."""
UNANSWERED = Rule(
    "core_barrier.answered",
    "both logical cores come to a barrier",
    why="each signals the other and waits for its signal; one that does not come leaves the other waiting for ever",
    fix="call core_barrier outside of what depends on nl.program_id, so that both cores call it equally often",
    page=_PAGE,
    gens=(3, 4),
)
SAME_DATA = Rule(
    "core_barrier.same_data",
    "both logical cores name one tensor",
    why="data is what the accesses on both sides of the barrier are kept apart of",
    fix="pass the same shared_hbm tensor on both cores",
    page=_PAGE,
    gens=(3, 4),
    enforce="ub",
)


@instruction
class core_barrier(Meeting):
    """Wait until both logical cores have come here; what either wrote to ``data`` before is then seen by both.

    Only ``data`` is ordered: the page calls it what the cores synchronize on, and other engines than the one that waits go on.
    What hangs together with ``data`` by dependencies is ordered too; another shared tensor needs a barrier of its own.

    Args:
        data: a tensor in shared HBM. cores: (0, 1).
        engine: the one that waits; the others go on.

    Example:
        half = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=half, src=x[:, 0:64])
        if nl.num_programs() == 2:  # of kernel[2]
            nisa.core_barrier(data=half, cores=(0, 1))
    """

    unanswered, waits = UNANSWERED, True

    data: NkiTensor = read(DMA_REACH)
    cores: Any
    engine: Engine = Engine.gpsimd
    name: str | None = None

    def resolve_engine(self, core: NeuronCore) -> Engine:
        return self.engine

    def orders(self) -> tuple[NkiTensor, ...]:
        return (self.data,)

    def take(self, mine: int, others: Mapping[int, core_barrier]) -> tuple[Rule, Broken] | None:
        storages = {id(other.data.storage): other.data for other in others.values()}
        if len(storages) == 1:
            return None
        names = " and ".join(tensor.storage.allocation.label for tensor in storages.values())
        return SAME_DATA, Broken(f"the cores meet on {names}", "data")

    def body(self, core: NeuronCore) -> Body:
        return lambda data: None

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
          fix="run kernel[2], or leave it out where nl.num_programs() is 1")  # fmt: skip
    def two_cores(self, core: NeuronCore) -> Broken | None:
        return Broken(ONE_CORE) if context.machine().programs == 1 else None

    def cycles(self, core: NeuronCore) -> float:
        """Not known: a barrier takes as long as the slower core."""
        return 0.0
