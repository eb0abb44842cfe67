"""``nki.isa.bn_stats``: mean and variance of the even and odd elements of each partition."""

from __future__ import annotations

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, free, instruction, partitions, read, write
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.values import loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("bn_stats")


@instruction
class bn_stats(ComputeInstruction):
    """``dst = (count, mean, variance·count)`` of the even, then of the odd elements; Vector Engine, float32.

    Args:
        dst: SBUF or PSUM, 6 elements per partition.
        data: SBUF or PSUM, at most 512 elements per partition (``nl.tile_size.bn_stats_fmax``).

    Example:
        a = nl.load(x[:, 0:64])
        stats = nl.ndarray((128, 6), dtype=nl.float32, buffer=nl.sbuf)
        nisa.bn_stats(dst=stats, data=a)
    """

    dst: NkiTensor = write(ON_CHIP)
    data: NkiTensor = read(ON_CHIP)
    name: str | None = None

    @rule("bn_stats.free_le_512", "data has at most 512 elements per partition", page=_PAGE,
          fix="one bn_stats per 512 elements into neighbouring 6-element slices, then one bn_aggr over all")  # fmt: skip
    def elements(self, core: NeuronCore) -> Broken | None:
        n = free(self.data)
        return Broken(f"data has {n} elements per partition > 512", "data") if n > core.bn_stats_fmax else None

    @rule("bn_stats.dst_6", "dst has 6 elements per partition and data's partition size", page=_PAGE)
    def six(self, core: NeuronCore) -> Broken | None:
        if free(self.dst) != 6:
            return Broken(f"dst has {free(self.dst)} elements per partition, not 6", "dst")
        return self.alike("data", "dst", free_too=False)

    def cycles(self, core: NeuronCore) -> float:
        """N."""
        return at_least(elements(self, "data"))

    def body(self, core: NeuronCore) -> Body:
        p, n, shape = partitions(self.data), free(self.data), self.dst.shape
        load, store = loader(self.data, (p, n)), storer(self.dst)

        def stats(dst: Array, data: Array) -> None:
            x = load(data)
            out = np.zeros((p, 6), np.float32)
            for at, part in ((0, x[:, 0::2]), (3, x[:, 1::2])):
                count = part.shape[1]
                if count:
                    mean = part.mean(axis=1, dtype=np.float32)
                    out[:, at] = count
                    out[:, at + 1] = mean
                    out[:, at + 2] = np.square(part - mean[:, None]).sum(axis=1, dtype=np.float32)
            store(dst, out.reshape(shape))

        return stats
