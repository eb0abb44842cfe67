"""Questions about the target that ``nki.isa`` answers while a kernel is built."""

from __future__ import annotations

from nki_sim import context
from nki_sim.hw import nc_version


def get_nc_version() -> nc_version:
    """The NeuronCore generation of the current target."""
    return context.core().version


def get_nc_sub_version() -> int:
    """The silicon revision within the generation: 0, the first."""
    return 0
