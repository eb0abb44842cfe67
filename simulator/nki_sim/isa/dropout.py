"""``nki.isa.dropout``: set elements to zero at random."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nki_sim.dtypes import Array, filled
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, column, free, instruction, partitions, read, write
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.enums import engine
from nki_sim.isa.prng import generator, lanes_of
from nki_sim.isa.values import column_loader
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("dropout")


@instruction
class dropout(ComputeInstruction):
    """``dst = 0 with probability prob, else data``, each element by itself, on the Vector Engine.

    What is kept stays bit for bit, without a factor 1 / (1 - prob). An element is dropped when its random bits, taken as a
    fraction of 2^32, are below ``prob``: all with 1, none with 0 (or NaN in a tile). The bits are the next of the Vector
    Engine's generator, one number per element; the documents do not say which ones a device draws.

    Args:
        dst, data: SBUF or PSUM, equal partitions and elements per partition, one dtype.
        prob: a scalar between 0 and 1, or a (P, 1) tile: float32 when data is of integers, else of any float dtype.

    Example:
        a = nl.load(x[:, 0:64])
        kept = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.dropout(dst=kept, data=a, prob=0.25)
    """

    decided_params = ("probable",)

    dst: NkiTensor = write(ON_CHIP)
    data: NkiTensor = read(ON_CHIP)
    prob: float | NkiTensor = column(ON_CHIP)
    name: str | None = None

    probable: ClassVar[object] = True  # None where prob is a number but no probability: plans differ

    def __post_init__(self) -> None:
        if isinstance(self.prob, (int, float, np.number)) and not 0 <= self.prob <= 1:
            self.__dict__["probable"] = None
        super().__post_init__()

    @rule("dropout.shape", "data and dst have the same partition size and elements per partition", page=_PAGE)
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst")

    @rule("dropout.dtype_match", "dst has data's dtype", page=_PAGE, fix="convert the result with nisa.tensor_copy")
    def same_dtype(self, core: NeuronCore) -> Broken | None:
        same = self.dst.dtype == self.data.dtype
        return None if same else Broken(f"data is {self.data.dtype}, dst is {self.dst.dtype}", "dst")

    @rule("dropout.prob_dtype", "prob is float32 when data is of integers, of a float dtype otherwise", page=_PAGE,
          fix="copy it to a float32 tile with nisa.tensor_copy")  # fmt: skip
    def prob_dtype(self, core: NeuronCore) -> Broken | None:
        for name, prob in self._named("prob"):
            if not prob.info.is_float or (self.data.info.is_integer and prob.dtype != "float32"):
                return Broken(f"data is {self.data.dtype}, prob is {prob.dtype}", name)
        return None

    @rule("dropout.prob_shape", "prob is a probability, from 0 to 1, or a tile of shape (data.shape[0], 1)", page=_PAGE)
    def prob_shape(self, core: NeuronCore) -> Broken | None:
        # a tile's values are not known while the kernel is built, and a public test passes some above 1: those drop all
        if self.probable is None:
            return Broken(f"prob is {self.operand_words('prob')}", "prob")
        return self.column_of("data", "prob")

    def cycles(self, core: NeuronCore) -> float:
        """N."""
        return at_least(elements(self, "data"))

    def body(self, core: NeuronCore) -> Body:
        rows, n, shape = partitions(self.data), free(self.data), self.dst.shape
        numbers, lanes = generator(engine.vector), lanes_of(self.data)
        probability, zero = column_loader(self.prob, 2), filled((), 0, self.dst.stored_dtype)

        def drop(dst: Array, data: Array, prob: Any) -> None:
            limit = np.asarray(probability(prob), np.float64).reshape(-1, 1) * 2.0**32
            out = data.reshape(rows, n).copy()
            out[numbers.draw(lanes, n) < limit] = zero
            dst[...] = out.reshape(shape)

        return drop
