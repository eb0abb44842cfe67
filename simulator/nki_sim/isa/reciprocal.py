"""``nki.isa.reciprocal``: 1/x on the Vector Engine."""

from __future__ import annotations

import numpy as np

from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, instruction, read, write
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.values import is_plain_f32, loader, storer
from nki_sim.tensor import NkiTensor


@instruction
class reciprocal(ComputeInstruction):
    """``dst = 1 / data`` in float32; more precise and about 8 times slower than on the Scalar Engine.

    Args:
        dst, data: SBUF or PSUM, equal partitions and elements per partition.

    Example:
        a = nl.load(x[:, 0:64])
        inverse = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=a)
    """

    dst: NkiTensor = write(ON_CHIP, "reciprocal.buffers")
    data: NkiTensor = read(ON_CHIP, "reciprocal.buffers")
    name: str | None = None

    @rule("reciprocal.shape", "dst and data have the same partition size and elements per partition",
          page=isa_page("reciprocal"))  # fmt: skip
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst")

    def cycles(self, core: NeuronCore) -> float:
        """8N: eight times that of the Scalar Engine."""
        return at_least(8 * elements(self, "data"))

    def body(self, core: NeuronCore) -> Body:
        if is_plain_f32(self.dst, self.data) and self.dst.shape == self.data.shape:
            return lambda dst, data: np.reciprocal(data, dst)
        load, store = loader(self.data, self.dst.shape), storer(self.dst)
        return lambda dst, data: store(dst, np.reciprocal(load(data)))
