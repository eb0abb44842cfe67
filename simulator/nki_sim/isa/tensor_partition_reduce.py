"""``nki.isa.tensor_partition_reduce``: reduce a tile over its partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, ComputeInstruction, free, instruction, partitions, read, write
from nki_sim.isa.checks import bitvec_integers
from nki_sim.isa.cost import elements, gpsimd
from nki_sim.isa.enums import engine
from nki_sim.isa.values import loader, reduce_rows, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("tensor_partition_reduce")
_REDUCTIONS = ("add", "average", "maximum", "bitwise_or", "bitwise_and")


@instruction
class tensor_partition_reduce(ComputeInstruction):
    """``dst[0] = op over the partitions of data`` on GpSimd, in float32, or bit by bit.

    Args:
        dst: SBUF, one partition, elements per partition as data.
        op: add, average, maximum, bitwise_or or bitwise_and.
        data: SBUF.

    Example:
        a = nl.load(x[:, 0:64])
        total = nl.ndarray((1, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_partition_reduce(dst=total, op=nl.add, data=a)
    """

    runs_on = engine.gpsimd

    dst: NkiTensor = write(SBUF, "tensor_partition_reduce.engine")
    op: Any
    data: NkiTensor = read(SBUF, "tensor_partition_reduce.engine")
    name: str | None = None

    @rule("tensor_partition_reduce.ops", "op is add, average, maximum, bitwise_or or bitwise_and", page=_PAGE)
    def operator(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op)
        return None if op.name in _REDUCTIONS else Broken(f"op nl.{op.name}", "op")

    @rule("tensor_partition_reduce.dst", "dst has one partition and as many elements per partition as data", page=_PAGE)
    def shape(self, core: NeuronCore) -> Broken | None:
        if partitions(self.dst) != 1 or free(self.dst) != free(self.data):
            return Broken(f"dst has shape {self.dst.shape}, data {self.data.shape}", "dst")
        return None

    @rule("tensor_partition_reduce.bitvec_int", "a bitwise reduction takes and gives integers", page=_PAGE)
    def bitvec(self, core: NeuronCore) -> Broken | None:
        return bitvec_integers(self, ops.lookup(self.op), "dst", "data")

    def cycles(self, core: NeuronCore) -> float:
        """150 + 16N (an estimate: the documents have no number)."""
        return gpsimd(elements(self, "data"), 16.0)

    def body(self, core: NeuronCore) -> Body:
        op, p, n, shape = ops.lookup(self.op), partitions(self.data), free(self.data), self.dst.shape
        if op.is_bitvec:
            ufunc = op.ufunc
            assert ufunc is not None

            def bits(dst: Array, data: Array) -> None:
                np.copyto(dst, ufunc.reduce(data.reshape(p, n), axis=0).reshape(shape), casting="unsafe")

            return bits
        load, store = loader(self.data, (p, n)), storer(self.dst)
        if op is ops.AVERAGE:
            add, count = ops.TABLE["add"], np.float32(p)
            return lambda dst, data: store(dst, (reduce_rows(add, load(data).T) / count).reshape(shape))
        return lambda dst, data: store(dst, reduce_rows(op, load(data).T).reshape(shape))
