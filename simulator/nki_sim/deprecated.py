"""Names of the public API that still work and will go, and what to write instead."""

from __future__ import annotations

import warnings

from nki_sim.errors import NkiDeprecationWarning, Rule, page
from nki_sim.isa.enums import engine

_MIGRATION = page("migration/index.html")

DEPRECATED = Rule(
    "kernel.deprecated_name",
    "a kernel uses no deprecated names",
    why="a later release will not have them",
    fix="write the new name",
    page=_MIGRATION,
    enforce="warn",
)
BRACKETS = Rule(
    "kernel.bracket_launch",
    "a launch names no grid: kernel(…), not kernel[n](…)",
    why="the grid is announced to go: a kernel will run on all physical cores of a logical one, whether or not it names them",
    fix="set NEURON_LOGICAL_NC_CONFIG=n for the process, and call kernel(…)",
    page=_MIGRATION,
    enforce="warn",
)

INSTEAD: dict[str, dict[str, str]] = {
    "nki.isa": {f"{e.name}_engine": f"nisa.engine.{e.name}" for e in engine if e.name not in ("dma", "sync")},
    "nki.language": dict.fromkeys(("affine_range", "sequential_range", "static_range"), "Python's range"),
    "nki.language.tile_size": {
        "psum_fmax": "nl.tile_size.psum_bank_fmax",
        "total_available_sbuf_size": "nl.tile_size.sbuf_fmax_bytes",
    },
}
"""By module or object: a deprecated name, and the one that stays."""

_SHORT = {"nki.isa": "nisa", "nki.language": "nl", "nki.language.tile_size": "nl.tile_size"}


def headline(module: str, name: str) -> str:
    """What is said of a deprecated name."""
    return f"{_SHORT[module]}.{name} is deprecated"


def warn(module: str, name: str) -> None:
    """Warn at the line of the caller's caller."""
    warnings.warn(NkiDeprecationWarning(headline(module, name), f"write {INSTEAD[module][name]}"), stacklevel=3)
