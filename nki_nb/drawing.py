"""The pictures of a run, by the names that ``--view`` takes. Each is a pure function of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from nki_sim.run import Run


def _drawn_by(name: str) -> Callable[[Run], str]:
    """``module:function``, loaded when it first draws: ``%load_ext`` does not wait for it."""
    module, _, function = name.partition(":")

    def draw(run: Run) -> str:
        drawing: str = getattr(import_module(f"nki_nb.{module}"), function)(run)
        return drawing

    return draw


VIEWS: dict[str, Callable[[Run], str]] = {
    "memory": _drawn_by("memory_map:memory_map"),
    "program": _drawn_by("program_listing:program_listing"),
    "timeline": _drawn_by("timeline_view:timeline"),
}
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
