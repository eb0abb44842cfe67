"""HBM that the logical cores of one rank share: each core allocates a tensor, and all of them get the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_sim.errors import Broken, NkiValidationError, Rule, page, violation
from nki_sim.hw import NeuronCore
from nki_sim.memory import Storage

SAME_TENSOR = Rule(
    "kernel.lnc2_same_tensor",
    "what the logical cores allocate in shared HBM under one name, or as the n-th without one, has one shape and dtype",
    why="it is one tensor, which every core allocates",
    fix="allocate shared_hbm tensors outside of what depends on nl.program_id, or give them names; private_hbm is each core's",
    page=page("get-started/about/lnc.html"),
    gens=(3, 4),
)
SAME_CONSTANT = Rule(
    "shared_constant.lnc2_same",
    "the logical cores pass the same values to nl.shared_constant",
    why="both share one constant, which is loaded once",
    fix="make it of what does not depend on nl.program_id",
    page=page("api/generated/nki.language.shared_constant.html"),
    gens=(3, 4),
    enforce="ub",
)


@dataclass
class SharedHbm:
    """The tensors of one rank's shared HBM, by name or by the order in which each core allocates them."""

    _found: dict[Any, Storage] = field(default_factory=dict)
    _counts: dict[tuple[int, str], int] = field(default_factory=dict)

    def key(self, core: int, kind: str, name: str = "") -> Any:
        """What the next tensor of a core is matched by: its name, or how many of its kind came before."""
        if name:
            return kind, name
        number = self._counts.get((core, kind), 0)
        self._counts[core, kind] = number + 1
        return kind, number

    def get(self, key: Any, make: Callable[[], Storage]) -> tuple[Storage, bool]:
        """The tensor of a key, and whether it is new."""
        found = self._found.get(key)
        if found is not None:
            return found, False
        made = self._found[key] = make()
        return made, True

    def clear(self) -> None:
        """Let go of all of them."""
        self._found.clear()


def check_same(storage: Storage, shape: tuple[int, ...], dtype: Any, core: NeuronCore) -> None:
    """Refuse a tensor that another core allocated in another way.

    Raises:
        NkiValidationError: shape or dtype differ.
    """
    first = storage.allocation
    if (first.shape, first.dtype) == (shape, dtype):
        return
    mine = f"{dtype.name} [{' × '.join(map(str, shape))}]"
    what = f"one core allocates {mine}, the other {first.dtype.name} [{' × '.join(map(str, first.shape))}] for the same tensor"
    notes = (f"the other core: {first.label}, line {first.line}",)
    raise NkiValidationError(violation(SAME_TENSOR, Broken(what), target=core.target, instruction="nl.ndarray", notes=notes))


def differs(first: Any, second: Any) -> bool:
    """Whether two arrays hold different bytes."""
    a, b = np.ascontiguousarray(first), np.ascontiguousarray(second)
    return a.shape != b.shape or a.dtype != b.dtype or a.tobytes() != b.tobytes()
