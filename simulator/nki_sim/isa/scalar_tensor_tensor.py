"""``nki.isa.scalar_tensor_tensor``: a scalar stage, then an element-wise stage with a second tile."""

from __future__ import annotations

from typing import Any

from nki_sim import ops
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, column, instruction, read, write
from nki_sim.isa.checks import arithmetic, operator_gen
from nki_sim.isa.cost import two_tiles
from nki_sim.isa.tensor_scalar import in_place, stage
from nki_sim.isa.values import column_loader, is_plain_f32, loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("scalar_tensor_tensor")


@instruction
class scalar_tensor_tensor(ComputeInstruction):
    """``dst = (data <op0> operand0) <op1> operand1`` on the Vector Engine, in float32.

    Args:
        dst, data, operand1: SBUF or PSUM tiles of equal size; data and operand1 not both in PSUM.
        operand0: a compile-time scalar or a (P, 1) tile.
        op0, op1: arithmetic operators. reverse0, reverse1: put the operand on the left.

    Example:
        a, b = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
        c = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        # c = 0.5 a + b
        nisa.scalar_tensor_tensor(dst=c, data=a, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=b)
    """

    dst: NkiTensor = write(ON_CHIP)
    data: NkiTensor = read(ON_CHIP)
    op0: Any
    operand0: float | NkiTensor = column(ON_CHIP)
    op1: Any
    operand1: NkiTensor = read(ON_CHIP)
    reverse0: bool = False
    reverse1: bool = False
    name: str | None = None

    @rule("scalar_tensor_tensor.arith_only", "op0 and op1 are arithmetic operators", page=_PAGE,
          fix="bitwise operators go to nisa.tensor_scalar and nisa.tensor_tensor")  # fmt: skip
    def operators(self, core: NeuronCore) -> Broken | None:
        for name, value in (("op0", self.op0), ("op1", self.op1)):
            op = ops.lookup(value)
            broken = arithmetic(op, name) or operator_gen(core, op, name)
            if broken:
                return broken
        return None

    @rule("scalar_tensor_tensor.shape", "data, operand1 and dst have the same partition size and elements per partition",
          page=_PAGE)  # fmt: skip
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "operand1", "dst")

    @rule("scalar_tensor_tensor.operand0", "operand0 is a scalar or a tile of shape (data.shape[0], 1)", page=_PAGE)
    def operand0_shape(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data", "operand0")

    @rule("scalar_tensor_tensor.not_both_psum", "data and operand1 are not both in PSUM", page=_PAGE,
          why="the engine has one read port to PSUM")  # fmt: skip
    def psum(self, core: NeuronCore) -> Broken | None:
        return self.not_both_psum("data", "operand1")

    def cycles(self, core: NeuronCore) -> float:
        """About that of tensor_tensor."""
        return two_tiles(core, self.data, self.operand1)

    def body(self, core: NeuronCore) -> Body:
        shape, op0, op1 = self.dst.shape, ops.lookup(self.op0), ops.lookup(self.op1)
        plain = is_plain_f32(self.dst, self.data, self.operand1) and shape == self.data.shape == self.operand1.shape
        fast = in_place(op0, op1, self.reverse1) if plain and not self.reverse0 else None
        if fast is not None:
            column = column_loader(self.operand0, self.dst.ndim)
            return lambda dst, data, a, b: fast(dst, data, column(a), b)
        first, second = stage(op0, self.reverse0), stage(op1, self.reverse1)
        load, load1, store = loader(self.data, shape), loader(self.operand1, shape), storer(self.dst)
        col = column_loader(self.operand0, self.dst.ndim)
        return lambda dst, data, a, b: store(dst, second(first(load(data), col(a)), load1(b)))
