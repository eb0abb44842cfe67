"""``nki.isa.nc_n_gather``: gather along the free dimension, each partition by its own indices."""

from __future__ import annotations

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Rule, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, ComputeInstruction, free, instruction, partitions, read, write
from nki_sim.isa.cost import elements, gpsimd
from nki_sim.isa.enums import engine
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("nc_n_gather")
OUT_OF_RANGE = Rule(
    "nc_n_gather.range",
    "each index is smaller than data's elements per partition",
    fix="clamp the indices with nisa.tensor_scalar(op0=nl.minimum, …)",
    page=_PAGE,
    enforce="runtime",
)


@instruction
class nc_n_gather(ComputeInstruction):
    """``dst[p, i] = data[p, indices[p, i]]``, the free dimensions counted as one, on GpSimd.

    Args:
        dst: SBUF, data's dtype and partitions, indices' elements per partition.
        data: SBUF, any dtype. indices: SBUF, uint32.

    Example:
        a = nl.load(x[:, 0:64])
        index = nl.ndarray((128, 16), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.iota(dst=index, pattern=[[4, 16]])  # every fourth element
        picked = nl.ndarray((128, 16), dtype=a.dtype, buffer=nl.sbuf)
        nisa.nc_n_gather(dst=picked, data=a, indices=index)
    """

    runs_on = engine.gpsimd
    waits = False

    dst: NkiTensor = write(SBUF)
    data: NkiTensor = read(SBUF)
    indices: NkiTensor = read(SBUF)
    name: str | None = None

    @rule("nc_n_gather.partition", "data, indices and dst have the same partition size", page=_PAGE)
    def rows(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "indices", "dst", free_too=False)

    @rule("nc_n_gather.count", "dst and indices have the same elements per partition", page=_PAGE)
    def columns(self, core: NeuronCore) -> Broken | None:
        return self.alike("indices", "dst")

    @rule("nc_n_gather.dtype", "dst has data's dtype", page=_PAGE)
    def same_dtype(self, core: NeuronCore) -> Broken | None:
        same = self.dst.dtype == self.data.dtype
        return None if same else Broken(f"data is {self.data.dtype}, dst is {self.dst.dtype}", "dst")

    @rule("nc_n_gather.indices_u32", "indices is uint32", page=_PAGE, fix="convert it with nisa.tensor_copy")  # fmt: skip
    def index_dtype(self, core: NeuronCore) -> Broken | None:
        return None if self.indices.dtype == "uint32" else Broken(f"indices is {self.indices.dtype}", "indices")

    def cycles(self, core: NeuronCore) -> float:
        """150 for each 512 elements, and 8N (an estimate; the groups of 512 are documented)."""
        n = elements(self, "dst")
        return -(-n // 512) * gpsimd(0) + 8.0 * n

    def body(self, core: NeuronCore) -> Body:
        p, n, shape, machine = partitions(self.data), free(self.data), self.dst.shape, context.machine()

        def gather(dst: Array, data: Array, indices: Array) -> None:
            at = indices.reshape(p, -1).astype(np.int64)
            if at.max() >= n:
                machine.broken(self, OUT_OF_RANGE, Broken(f"index {at.max()} of {n} elements per partition", "indices"))
            dst[...] = np.take_along_axis(data.reshape(p, n), at, axis=1).reshape(shape)

        return gather
