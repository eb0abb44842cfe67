"""The pictures of a run, by the names that ``--view`` takes. Each is a pure function of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nki_sim.run import Run

from nki_nb.memory_map import memory_map
from nki_nb.program_listing import program_listing
from nki_nb.timeline_view import timeline

VIEWS: dict[str, Callable[[Run], str]] = {"memory": memory_map, "program": program_listing, "timeline": timeline}
"""The pictures that ``--view`` offers."""

STEP = "step"
"""What ``--view`` offers besides: stepping through the run (:mod:`nki_nb.stepper`)."""

VIEW_NAMES = ("none", *VIEWS, STEP)


@dataclass(frozen=True)
class Picture:
    """One picture of a run; displays as SVG, or as a line of text where there is none."""

    words: str
    svg: str

    @classmethod
    def of(cls, run: Run, view: str) -> Picture:
        """The picture named ``view``, one of :data:`VIEWS`."""
        return cls(f"{view} of {run.name}", VIEWS[view](run))

    def __str__(self) -> str:
        return f"[{self.words}: a picture]"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_svg_(self) -> str:
        return self.svg
