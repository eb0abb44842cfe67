"""``nki.isa.bn_aggr``: one mean and variance from several ``bn_stats`` results."""

from __future__ import annotations

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, free, instruction, partitions, read, write
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.values import loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("bn_aggr")


@instruction
class bn_aggr(ComputeInstruction):
    """``dst = (mean, variance)`` of the union of the groups in ``data``; Vector Engine, float32.

    Args:
        dst: SBUF or PSUM, 2 elements per partition.
        data: SBUF or PSUM, (count, mean, variance·count) triples.

    Example:
        stats = nl.ndarray((128, 6), dtype=nl.float32, buffer=nl.sbuf)
        nisa.bn_stats(dst=stats, data=nl.load(x[:, 0:64]))
        mean_var = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.bn_aggr(dst=mean_var, data=stats)
    """

    dst: NkiTensor = write(ON_CHIP)
    data: NkiTensor = read(ON_CHIP)
    name: str | None = None

    @rule("bn_aggr.data_mult_3", "data has a multiple of 3 elements per partition", page=_PAGE,
          fix="pass the results of nisa.bn_stats, 6 elements each")  # fmt: skip
    def triples(self, core: NeuronCore) -> Broken | None:
        n = free(self.data)
        return Broken(f"data has {n} elements per partition", "data") if n % 3 else None

    @rule("bn_aggr.dst_2", "dst has 2 elements per partition and data's partition size", page=_PAGE)
    def two(self, core: NeuronCore) -> Broken | None:
        if free(self.dst) != 2:
            return Broken(f"dst has {free(self.dst)} elements per partition, not 2", "dst")
        return self.alike("data", "dst", free_too=False)

    def cycles(self, core: NeuronCore) -> float:
        """13N/3."""
        return at_least(13 * elements(self, "data") / 3)

    def body(self, core: NeuronCore) -> Body:
        p, shape = partitions(self.data), self.dst.shape
        load, store = loader(self.data, (p, free(self.data) // 3, 3)), storer(self.dst)

        def aggregate(dst: Array, data: Array) -> None:
            count, mean, spread = np.moveaxis(load(data), 2, 0)
            total = count.sum(axis=1, dtype=np.float32)
            whole = (count * mean).sum(axis=1, dtype=np.float32) / total
            between = (count * np.square(mean - whole[:, None])).sum(axis=1, dtype=np.float32)
            variance = (spread.sum(axis=1, dtype=np.float32) + between) / total
            store(dst, np.stack([whole, variance], axis=1).reshape(shape))

        return aggregate
