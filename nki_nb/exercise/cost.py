"""What a kernel costs, and how that compares with par."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nki_sim.run import Run

from nki_nb.sizes import human_bytes, plural


@dataclass(frozen=True)
class Cost:
    """What one run took.

    Attributes:
        instructions: how many, DMA included.
        dma_bytes: bytes that DMA wrote.
        cycles: of the compute engines, added up; DMA has its bytes instead.
    """

    instructions: int
    dma_bytes: int
    cycles: int

    @classmethod
    def of(cls, run: Run) -> Cost:
        """The cost of a finished run."""
        program = run.program
        plans = (program.plan_at(step) for step in range(len(program)))
        cycles = sum(plan.cycles for plan in plans if plan.engine != "dma")
        return cls(len(program), program.dma_bytes(), round(cycles))

    def against(self, par: Cost) -> str:
        """The verdict in words: at par, under par, or over par, and by what."""
        differences = (
            self.instructions - par.instructions,
            self.dma_bytes - par.dma_bytes,
            self.cycles - par.cycles,
        )
        more = _listed(max(0, n) for n in differences)
        less = _listed(max(0, -n) for n in differences)
        if more:
            return f"over par by {more}" + (f", with {less} less" if less else "")
        return f"under par by {less}" if less else "at par"

    def lines(self, par: Cost | None) -> list[tuple[str, str]]:
        """Label and value of each measure, with par beside it where there is one."""
        beside = [f" (par {value})" for value in par._words()] if par else [""] * 3
        labels = ("instructions", "dma", "cycles")
        return [(label, f"{value}{other}") for label, value, other in zip(labels, self._words(), beside, strict=True)]

    def _words(self) -> tuple[str, str, str]:
        return str(self.instructions), human_bytes(self.dma_bytes), str(self.cycles)

    def as_dict(self) -> dict[str, Any]:
        """The cost as plain data."""
        return {"instructions": self.instructions, "dma_bytes": self.dma_bytes, "cycles": self.cycles}


def _listed(amounts: Iterable[int]) -> str:
    """Instructions, bytes and cycles in words, without those that are 0."""
    instructions, size, cycles = amounts
    words = (
        (instructions, plural(instructions, "instruction")),
        (size, f"{human_bytes(size)} of DMA"),
        (cycles, plural(cycles, "cycle")),
    )
    return ", ".join(said for amount, said in words if amount)
