"""``nki.isa.rand2``: random numbers between two bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Rule, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, column, free, instruction, partitions, write
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.enums import engine
from nki_sim.isa.prng import generator, lanes_of
from nki_sim.isa.values import column_loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("rand2")
_DTYPES = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32", "int8", "int16", "int32", "uint8",
           "uint16", "uint32")  # fmt: skip
ORDER = Rule("rand2.min_lt_max", "min is less than max", page=_PAGE, gens=(4,), enforce="runtime")


@instruction
class rand2(ComputeInstruction):
    """``dst = min + u · (max - min)`` with u uniform in [0, 1), on the Vector Engine of trn3.

    u is the upper 24 bits of a number of XORWOW: the documents say "uniform in [min, max]", not which bits make the float.
    The result is rounded to float32, then to dst's dtype, and either may round it to max.

    Args:
        dst: SBUF or PSUM; float8_e4m3, float8_e5m2, float16, bfloat16, float32, tfloat32 or an integer of up to 32 bits.
        min, max: a float32 scalar or a (P, 1) float32 tile each, min < max.

    Example:
        noise = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.rand2(dst=noise, min=-1.0, max=1.0)
    """

    waits = False

    dst: NkiTensor = write(ON_CHIP)
    min: float | NkiTensor = column(ON_CHIP)
    max: float | NkiTensor = column(ON_CHIP)
    name: str | None = None

    @rule("rand2.gen4_only", "rand2 exists on trn3 and newer", page=_PAGE, gens=(2, 3),
          fix="nisa.rng, then scale the bits with nisa.tensor_scalar; nl.rand does that")  # fmt: skip
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("rand2.dtype", f"dst is {', '.join(_DTYPES[:-1])} or {_DTYPES[-1]}", page=_PAGE, gens=(4,))
    def dtype(self, core: NeuronCore) -> Broken | None:
        return None if self.dst.dtype in _DTYPES else Broken(f"dst is {self.dst.dtype}", "dst")

    @rule("rand2.minmax_fp32", "min and max are float32: scalars, or tiles of shape (dst.shape[0], 1)", page=_PAGE, gens=(4,))
    def bounds(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("min", "max"):
            if tile.dtype != "float32":
                return Broken(f"{name} is {tile.dtype}", name)
        return self.column_of("dst", "min", "max")

    def cycles(self, core: NeuronCore) -> float:
        """N / 4: four numbers per lane and cycle (trn3 architecture guide)."""
        return at_least(elements(self, "dst") / 4)

    def body(self, core: NeuronCore) -> Body:
        rows, n, shape, machine = partitions(self.dst), free(self.dst), self.dst.shape, context.machine()
        numbers, lanes, store = generator(engine.vector), lanes_of(self.dst), storer(self.dst)
        lowest, highest = column_loader(self.min, 2), column_loader(self.max, 2)

        def between(dst: Array, least: Any, most: Any) -> None:
            low, high = (np.broadcast_to(f(a), (rows, 1)).astype(np.float64) for f, a in ((lowest, least), (highest, most)))
            wrong = ~(low < high)[:, 0]
            if wrong.any():
                row = int(np.argmax(wrong))
                where = "" if np.ndim(least) == np.ndim(most) == 0 else f" in partition {row}"
                machine.broken(self, ORDER, Broken(f"min is {low[row, 0]:g}, max is {high[row, 0]:g}{where}", "min"))
            share = (numbers.draw(lanes, n) >> 8) * 2.0**-24
            store(dst, (low + share * (high - low)).astype(np.float32).reshape(shape))

        return between
