"""Which exercises there are, and which kernels were handed in for them: what grading asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nki_nb.exercise.exercise import Exercise

Listener = Callable[["Exercise", Any], None]


@dataclass
class Registry:
    """The exercises of this process by name; one defined again takes the place of the first.

    Attributes:
        known: every exercise.
        listeners: called with an exercise and a kernel whenever ``check`` is.
    """

    known: dict[str, Exercise] = field(default_factory=dict)
    listeners: list[Listener] = field(default_factory=list)

    def add(self, exercise: Exercise) -> None:
        """Make an exercise known."""
        self.known[exercise.name] = exercise

    def handed_in(self, exercise: Exercise, kernel: Any) -> None:
        """Tell the listeners of a kernel that is about to be checked."""
        for listener in self.listeners:
            listener(exercise, kernel)


REGISTRY = Registry()
"""The one of this process."""
