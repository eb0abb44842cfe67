"""``nki.isa.affine_select``: choose between a tile and a constant by an affine condition on the indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array, to_float32
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, ComputeInstruction, immediate, instruction, read, write
from nki_sim.isa.cost import elements, gpsimd
from nki_sim.isa.enums import engine
from nki_sim.isa.iota import affine, pattern_count, pattern_shape, wrap32
from nki_sim.isa.values import storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("affine_select")


@instruction
class affine_select(ComputeInstruction):
    """``dst = on_true_tile where cmp_op(affine value, 0), else on_false_value`` on GpSimd: causal masks, for one.

    Args:
        dst, on_true_tile: SBUF, equal partitions and elements per partition.
        pattern, channel_multiplier, offset: the affine value, as in ``iota``.
        on_false_value: a float32 scalar.
        cmp_op: a comparison of ``nl``, with 0 on the right.

    Example:
        scores = nl.load(x[:, 0:64])
        masked = nl.ndarray(scores.shape, dtype=nl.float32, buffer=nl.sbuf)
        # row p keeps the columns i with p - i >= 0
        nisa.affine_select(dst=masked, pattern=[[-1, 64]], channel_multiplier=1, on_true_tile=scores,
                           on_false_value=-1e9, cmp_op=nl.greater_equal)
    """

    runs_on = engine.gpsimd

    dst: NkiTensor = write(SBUF, "affine_select.buffers")
    pattern: Sequence[Sequence[int]]
    channel_multiplier: int
    on_true_tile: NkiTensor = read(SBUF, "affine_select.buffers")
    on_false_value: float = immediate("affine_select.on_false_fp32")
    cmp_op: Any = ops.TABLE["equal"]
    offset: int = immediate("affine_select.offset", default=0)
    name: str | None = None

    @rule("affine_select.pattern", "pattern has at most four pairs and as many values as dst and on_true_tile have "
          "elements per partition", page=_PAGE)  # fmt: skip
    def pattern_fits(self, core: NeuronCore) -> Broken | None:
        return pattern_shape(self.pattern, self.dst) or pattern_count(self.pattern, self.dst, "dst")

    @rule("affine_select.partition", "dst and on_true_tile have the same partition size", page=_PAGE)
    def rows(self, core: NeuronCore) -> Broken | None:
        return self.alike("dst", "on_true_tile", free_too=False)

    @rule("affine_select.free", "dst and on_true_tile have the same elements per partition", page=_PAGE)
    def columns(self, core: NeuronCore) -> Broken | None:
        return self.alike("dst", "on_true_tile")

    @rule("affine_select.cmp_op", "cmp_op is a comparison operator", page=_PAGE,
          fix="nl.equal, nl.not_equal, nl.less, nl.less_equal, nl.greater or nl.greater_equal")  # fmt: skip
    def comparison(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.cmp_op)
        return None if op.is_comparison else Broken(f"cmp_op nl.{op.name}", "cmp_op")

    def cycles(self, core: NeuronCore) -> float:
        """150 + N."""
        return gpsimd(elements(self, "dst"))

    def body(self, core: NeuronCore) -> Body:
        shape, compare = self.dst.shape, ops.lookup(self.cmp_op).compute
        assert compare is not None
        base = affine(self.pattern, shape[0], self.channel_multiplier).reshape(shape)
        same, store = self.dst.info is self.on_true_tile.info, storer(self.dst)

        def select(dst: Array, on_true: Array, on_false: float, offset: int) -> None:
            chosen = compare(wrap32(base + int(offset)), 0)
            values = on_true.reshape(shape)
            other = np.full((), on_false, np.float32)
            if same and values.dtype.kind in "iu":
                np.copyto(dst, values, where=chosen)
                rest = np.empty(shape, dst.dtype)
                store(rest, np.broadcast_to(other, shape))
                np.copyto(dst, rest, where=~chosen)
            else:
                store(dst, np.where(chosen, to_float32(values), other))

        return select
