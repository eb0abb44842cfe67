"""``nki.isa.tensor_scalar_reduce``: a scalar stage and a reduction of its result."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.accumulator import accumulator
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, column, free, instruction, partitions, read, write
from nki_sim.isa.checks import arithmetic, one_of_commands, operator_gen
from nki_sim.isa.cost import READ_REGISTERS, at_least, elements
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - fields have the enums\' names
from nki_sim.isa.enums import reduce_cmd as ReduceCmd  # noqa: N812 - a field has the enum's name
from nki_sim.isa.indirection import aligned, allowed
from nki_sim.isa.tensor_scalar import stage
from nki_sim.isa.values import column_loader, loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("tensor_scalar_reduce")
_REDUCTIONS = ("add", "multiply", "maximum", "minimum")


@instruction
class tensor_scalar_reduce(ComputeInstruction):
    """``dst = data <op0> operand0``, and its reduction over all free dimensions, on the Vector Engine.

    The reduction takes the float32 results before they are cast to ``dst``.

    Args:
        dst, data: SBUF or PSUM, equal partitions and elements per partition.
        op0: an arithmetic operator. operand0: a scalar or a (P, 1) float32 tile; None or 0 for a unary op0.
        reduce_op: add, multiply, maximum or minimum.
        reduce_res: (P, 1) tile for the registers' value; None on all but the last step of a chain.
        reduce_cmd: reset_reduce, reduce, or load_reduce with ``reduce_init``.
        reduce_init: float32 scalar or (P, 1) tile. reduce_res_negate: negate what is written, not the registers.

    Example:
        a = nl.load(x[:, 0:64])
        halves = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar_reduce(dst=halves, data=a, op0=nl.multiply, operand0=0.5, reduce_op=nl.add,
                                  reduce_res=total)
    """

    decided_params = ("neutral",)

    dst: NkiTensor = write(ON_CHIP)
    data: NkiTensor = read(ON_CHIP)
    op0: Any
    operand0: float | NkiTensor | None = column(ON_CHIP, none=True)
    reduce_op: Any
    reduce_res: NkiTensor | None = write(ON_CHIP, "tensor_scalar_reduce.reduce_res", default=None)
    reverse0: bool = False
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce
    reduce_init: float | NkiTensor | None = column(ON_CHIP, default=None)
    reduce_res_negate: bool = False
    name: str | None = None

    indirect_operands = allowed("tensor_scalar_reduce", ("dst", "data"), (Engine.vector,))
    indirect_partitions = aligned("tensor_scalar_reduce", "data")

    neutral = True  # False where operand0 is a value: plans differ, since a unary op0 takes none

    def __post_init__(self) -> None:
        if isinstance(self.operand0, NkiTensor) or (self.operand0 is not None and self.operand0 != 0):
            self.neutral = False
        super().__post_init__()
        accumulator("vector").note(self, self.reduce_cmd)

    @rule("tensor_scalar_reduce.op0", "op0 is an arithmetic operator", page=_PAGE)
    def operator(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op0)
        return arithmetic(op, "op0") or operator_gen(core, op, "op0")

    @rule("tensor_scalar_reduce.reduce_op", "reduce_op is nl.add, nl.multiply, nl.maximum or nl.minimum", page=_PAGE)
    def reduction(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.reduce_op)
        return None if op.name in _REDUCTIONS else Broken(f"reduce_op nl.{op.name}", "reduce_op")

    @rule("tensor_scalar_reduce.reverse0", "reverse0 is not supported", page=_PAGE, fix="use nisa.tensor_scalar")
    def reversed(self, core: NeuronCore) -> Broken | None:
        return Broken("reverse0=True", "reverse0") if self.reverse0 else None

    @rule("tensor_scalar_reduce.unary", "operand0 is None or 0 for a unary op0, and a value for a binary one", page=_PAGE)
    def unary(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op0)
        if op.arity == 1 and (isinstance(self.operand0, NkiTensor) or self.operand0 not in (None, 0)):
            return Broken(f"op0 nl.{op.name} is unary, operand0 is {self.operand_words('operand0')}", "operand0")
        return Broken(f"op0 nl.{op.name} has no operand0", "op0") if op.arity == 2 and self.operand0 is None else None

    @rule("tensor_scalar_reduce.shape", "dst and data have the same partition size and elements per partition", page=_PAGE)
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst")

    @rule(
        "tensor_scalar_reduce.reduce_res",
        "operand0, reduce_res and reduce_init have shape (data.shape[0], 1)",
        page=_PAGE,
    )
    def columns(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data", "operand0", "reduce_res", "reduce_init")

    @rule("tensor_scalar_reduce.reduce_cmd", "reduce_cmd is reset_reduce, reduce or load_reduce", page=_PAGE)
    def command(self, core: NeuronCore) -> Broken | None:
        return one_of_commands(self.reduce_cmd, ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)

    @rule("tensor_scalar_reduce.reduce_init", "reduce_init is given exactly with nisa.reduce_cmd.load_reduce", page=_PAGE)
    def initial(self, core: NeuronCore) -> Broken | None:
        loads = self.reduce_cmd is ReduceCmd.load_reduce
        if loads != (self.reduce_init is not None):
            return Broken(f"reduce_cmd {self.reduce_cmd.name}, reduce_init {self.reduce_init!r}", "reduce_init")
        return None

    def cycles(self, core: NeuronCore) -> float:
        """N + 64: the registers are read out by a second instruction."""
        return at_least(elements(self, "data")) + READ_REGISTERS

    def body(self, core: NeuronCore) -> Body:
        rows, n, shape = partitions(self.data), free(self.data), self.dst.shape
        first = self.data.start_partition
        lanes, registers, command = slice(first, first + rows), accumulator("vector"), self.reduce_cmd
        compute, fold = stage(ops.lookup(self.op0), False), ops.lookup(self.reduce_op)
        load, store, col = loader(self.data, shape), storer(self.dst), column_loader(self.operand0, self.dst.ndim)
        init = column_loader(self.reduce_init, 1)
        out = None if self.reduce_res is None else storer(self.reduce_res)
        out_shape = None if self.reduce_res is None else self.reduce_res.shape
        sign = np.float32(-1.0 if self.reduce_res_negate else 1.0)

        def run(dst: Array, data: Array, operand: Any, result: Array | None, initial: Any) -> None:
            values = np.asarray(compute(load(data), col(operand)), dtype=np.float32)
            begin = np.broadcast_to(init(initial), (rows,)) if initial is not None else None
            store(dst, values)
            registers.accumulate(lanes, fold, values.reshape(rows, n), command, begin)
            if out is not None and result is not None:
                out(result, (registers.values[lanes] * sign).reshape(out_shape))

        return run
