"""``nki.isa.iota`` and the affine patterns it shares with ``affine_select``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nki_sim.dtypes import Array, write_integers
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, ComputeInstruction, free, immediate, instruction, write
from nki_sim.isa.cost import elements, gpsimd
from nki_sim.isa.enums import engine
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("iota")
Pattern = Sequence[Sequence[int]]


def affine(pattern: Pattern, rows: int, multiplier: int) -> Array:
    """(rows, n) int64 values ``channel * multiplier + Σ index · step``, without the offset."""
    values = np.zeros((), np.int64)
    for step, num in pattern:
        values = values[..., None] + np.arange(int(num), dtype=np.int64) * int(step)
    return values.reshape(1, -1) + np.arange(rows, dtype=np.int64).reshape(-1, 1) * int(multiplier)


def wrap32(values: Array) -> Array:
    """int64 values as the 32-bit integers that the engine computes."""
    return values.astype(np.int32).astype(np.int64)


def pattern_shape(pattern: Pattern, tile: NkiTensor) -> Broken | None:
    """A pattern of at most 4 [step, num] pairs."""
    pairs = isinstance(pattern, Sequence) and all(isinstance(p, Sequence) and len(p) == 2 for p in pattern)
    if not pairs or not 0 < len(pattern) <= 4 or any(num < 1 for _, num in pattern):
        return Broken(f"pattern {pattern!r}", "pattern")
    return None


def pattern_count(pattern: Pattern, tile: NkiTensor, name: str) -> Broken | None:
    """The pattern generates as many values as the tile has elements per partition."""
    n = math.prod(int(num) for _, num in pattern)
    if n != free(tile):
        return Broken(f"pattern gives {n} values, {name} has {free(tile)} elements per partition", "pattern")
    return None


@instruction
class iota(ComputeInstruction):
    """``dst[p, w, z, y, x] = offset + p·channel_multiplier + w·step_w + z·step_z + …`` on GpSimd.

    Args:
        dst: SBUF; values are computed as int32 and cast (saturating, which is undocumented).
        pattern: up to four [step, num] pairs, outermost first; their nums multiply to dst's elements per partition.
        offset, channel_multiplier: int32.

    Example:
        number = nl.ndarray((128, 64), dtype=nl.int32, buffer=nl.sbuf)
        nisa.iota(dst=number, pattern=[[1, 64]], channel_multiplier=64)  # 64 p + i
    """

    runs_on = engine.gpsimd

    dst: NkiTensor = write(SBUF, "iota.dst_sbuf")
    pattern: Pattern
    offset: int = immediate("iota.int32_params", default=0)
    channel_multiplier: int = 0
    name: str | None = None

    @rule("iota.pattern_le_4d", "pattern has at most four [step, num] pairs", page=_PAGE)
    def pairs(self, core: NeuronCore) -> Broken | None:
        return pattern_shape(self.pattern, self.dst)

    @rule("iota.pattern_count", "the nums of the pattern multiply to dst's elements per partition", page=_PAGE)
    def count(self, core: NeuronCore) -> Broken | None:
        return pattern_count(self.pattern, self.dst, "dst")

    def cycles(self, core: NeuronCore) -> float:
        """150 + N."""
        return gpsimd(elements(self, "dst"))

    def body(self, core: NeuronCore) -> Body:
        shape, info = self.dst.shape, self.dst.info
        base = affine(self.pattern, shape[0], self.channel_multiplier).reshape(shape)
        return lambda dst, offset: write_integers(dst, info, wrap32(base + int(offset)))
