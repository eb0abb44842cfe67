"""``nki.isa.max8``: the eight largest values of each partition."""

from __future__ import annotations

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, free, instruction, partitions, read, write
from nki_sim.isa.checks import between_8_and_16384, eight_columns
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.values import loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("max8")


@instruction
class max8(ComputeInstruction):
    """``dst = the 8 largest elements of each partition of src``, the largest first; Vector Engine, float32.

    NaN counts as larger than any number, as ``nl.maximum`` lets it through (undocumented).

    Args:
        dst: SBUF or PSUM, shape (P, 8); any dtype, rounded on the way out.
        src: SBUF or PSUM, up to 3 dimensions, 8 to 16384 elements per partition.

    Example:
        a = nl.load(x[:, 0:64])
        largest = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=largest, src=a)
    """

    dst: NkiTensor = write(ON_CHIP)
    src: NkiTensor = read(ON_CHIP)
    name: str | None = None

    @rule("max8.src_rank", "src has at most 3 dimensions, the partition dimension included", page=_PAGE,
          fix="merge free dimensions that follow each other: t.reshape((P, N))")  # fmt: skip
    def rank(self, core: NeuronCore) -> Broken | None:
        # the documents do not say whether "3-dimensional" counts the partition dimension; their shapes do
        return Broken(f"src has {self.src.ndim} dimensions", "src") if self.src.ndim > 3 else None

    @rule("max8.free_8_16384", "src has 8 to 16384 elements per partition", page=_PAGE,
          why="the engine compares a stream with eight registers, and counts its elements in 14 bits",
          fix="take the 8 largest of each part, then the 8 largest of those")  # fmt: skip
    def elements(self, core: NeuronCore) -> Broken | None:
        return between_8_and_16384(self, "src")

    @rule("max8.dst_8", "dst has shape (src.shape[0], 8)", page=_PAGE)
    def eight(self, core: NeuronCore) -> Broken | None:
        return eight_columns(self, "src", "dst")

    def cycles(self, core: NeuronCore) -> float:
        """N."""
        return at_least(elements(self, "src"))

    def body(self, core: NeuronCore) -> Body:
        p, n = partitions(self.src), free(self.src)
        load, store = loader(self.src, (p, n)), storer(self.dst)

        def largest(dst: Array, src: Array) -> None:
            top = np.partition(load(src), n - 8, axis=1)[:, n - 8 :]
            store(dst, np.sort(top, axis=1)[:, ::-1])

        return largest
