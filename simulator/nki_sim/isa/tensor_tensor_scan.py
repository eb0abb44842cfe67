"""``nki.isa.tensor_tensor_scan``: a linear recurrence along the free dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, column, free, instruction, partitions, read, write
from nki_sim.isa.checks import arithmetic
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.tensor_scalar import stage
from nki_sim.isa.values import column_loader, loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("tensor_tensor_scan")


@instruction
class tensor_tensor_scan(ComputeInstruction):
    """``state = (data0[i] <op0> state) <op1> data1[i]; dst[i] = state`` on the Vector Engine, per partition.

    The state is float32 from element to element; it is rounded to ``dst``'s dtype only on the way out. (The reference's
    NumPy model keeps it in data0's dtype; the text says float32.)

    Args:
        dst, data0, data1: SBUF or PSUM tiles of equal size, the inputs not both in PSUM.
        initial: the first state: a float32 scalar or a (P, 1) tile.
        op0, op1: binary arithmetic operators. reverse0, reverse1: swap the inputs of the operator.

    Example:
        decay, a = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
        state = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        # state[i] = decay[i] state[i - 1] + a[i]
        nisa.tensor_tensor_scan(dst=state, data0=decay, data1=a, initial=0.0, op0=nl.multiply, op1=nl.add)
    """

    dst: NkiTensor = write(ON_CHIP)
    data0: NkiTensor = read(ON_CHIP)
    data1: NkiTensor = read(ON_CHIP)
    initial: float | NkiTensor = column(ON_CHIP)
    op0: Any
    op1: Any
    reverse0: bool = False
    reverse1: bool = False
    name: str | None = None

    @rule("tensor_tensor_scan.ops", "op0 and op1 are binary arithmetic operators", page=_PAGE)
    def operators(self, core: NeuronCore) -> Broken | None:
        for name, value in (("op0", self.op0), ("op1", self.op1)):
            op = ops.lookup(value)
            if op.arity != 2:
                return Broken(f"{name} nl.{op.name} is unary", name)
            broken = arithmetic(op, name)
            if broken:
                return broken
        return None

    @rule("tensor_tensor_scan.shape", "data0, data1 and dst have the same partition size and elements per partition",
          page=_PAGE)  # fmt: skip
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("data0", "data1", "dst")

    @rule("tensor_tensor_scan.initial", "initial is a float32 scalar or a tile with one element per partition",
          page=_PAGE)  # fmt: skip
    def initial_shape(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data0", "initial")

    @rule("tensor_tensor_scan.not_both_psum", "data0 and data1 are not both in PSUM", page=_PAGE,
          why="the engine has one read port to PSUM")  # fmt: skip
    def psum(self, core: NeuronCore) -> Broken | None:
        return self.not_both_psum("data0", "data1")

    def cycles(self, core: NeuronCore) -> float:
        """2N: each element waits for the one before."""
        return at_least(2 * elements(self, "data0"))

    def body(self, core: NeuronCore) -> Body:
        p, n, shape = partitions(self.data0), free(self.data0), self.dst.shape
        load0, load1 = loader(self.data0, (p, n)), loader(self.data1, (p, n))
        store, first = storer(self.dst), column_loader(self.initial, 1)
        op0, op1 = ops.lookup(self.op0), ops.lookup(self.op1)
        # stage(op, reverse) computes value <op> operand; the state is op0's right operand unless reversed
        step0, step1 = stage(op0, self.reverse0), stage(op1, self.reverse1)

        def scan(dst: Array, data0: Array, data1: Array, initial: Any) -> None:
            a = np.ascontiguousarray(load0(data0).T)
            b = np.ascontiguousarray(load1(data1).T)
            out = np.empty((n, p), np.float32)
            state: Array = np.broadcast_to(np.asarray(first(initial), np.float32), (p,))
            for i in range(n):
                state = out[i] = np.asarray(step1(step0(a[i], state), b[i]), dtype=np.float32)
            store(dst, out.T.reshape(shape))

        return scan
