"""``nki.isa.tensor_scalar_cumulative``: a scalar stage and a running reduction of its results."""

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
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - fields have the enums\' names
from nki_sim.isa.enums import reduce_cmd as ReduceCmd  # noqa: N812 - a field has the enum's name
from nki_sim.isa.indirection import aligned, allowed
from nki_sim.isa.tensor_scalar import stage
from nki_sim.isa.values import column_loader, loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("tensor_scalar_cumulative")
_SCANS = ("add", "subtract", "multiply", "maximum", "minimum")
_DTYPES = ("bfloat16", "float16", "float32", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "uint8", "uint16", "int8", "int16")


@instruction
class tensor_scalar_cumulative(ComputeInstruction):
    """``reg = (src[i] <op0> imm0) <op1> reg; dst[i] = reg`` per partition, on the Vector Engine in float32.

    ``reg`` is the lane's accumulator register and stays from one instruction to the next. With subtract it is the right
    operand, as the reference writes it: reg = value - reg.

    Args:
        dst, src: SBUF or PSUM, equal partitions and elements per partition; no 32-bit integers.
        op0: an arithmetic operator. op1: add, subtract, multiply, maximum or minimum.
        imm0: a scalar or a (P, 1) float32 tile.
        imm1: the first value of the register, with load_reduce only.
        reduce_cmd: reset_reduce (0, 1 or an infinity, as op1 asks), reduce (go on) or load_reduce.

    Example:
        a = nl.load(x[:, 0:64])
        running = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        # running sums of 0.5 a
        nisa.tensor_scalar_cumulative(dst=running, src=a, op0=nl.multiply, op1=nl.add, imm0=0.5)
    """

    dst: NkiTensor = write(ON_CHIP)
    src: NkiTensor = read(ON_CHIP)
    op0: Any
    op1: Any
    imm0: float | NkiTensor = column(ON_CHIP)
    imm1: float | NkiTensor | None = column(ON_CHIP, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce
    name: str | None = None

    indirect_operands = allowed("tensor_scalar_cumulative", ("dst", "src"), (Engine.vector,))
    indirect_partitions = aligned("tensor_scalar_cumulative", "src")

    def __post_init__(self) -> None:
        super().__post_init__()
        accumulator("vector").note(self, self.reduce_cmd)

    @rule("tensor_scalar_cumulative.op0", "op0 is an arithmetic operator", page=_PAGE)
    def operator(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op0)
        return arithmetic(op, "op0") or operator_gen(core, op, "op0")

    @rule("tensor_scalar_cumulative.op1", "op1 is nl.add, nl.subtract, nl.multiply, nl.maximum or nl.minimum", page=_PAGE)
    def scan(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op1)
        return None if op.name in _SCANS else Broken(f"op1 nl.{op.name}", "op1")

    @rule("tensor_scalar_cumulative.shape", "dst and src have the same partition size and elements per partition", page=_PAGE)
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("src", "dst")

    @rule("tensor_scalar_cumulative.dtypes", "src and dst are bfloat16, float16, float32, fp8, uint8, uint16, int8 or int16",
          page=_PAGE, why="the instruction has no encoding for 32-bit integers",
          fix="convert to float32 with nisa.tensor_copy first")  # fmt: skip
    def dtypes(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("src", "dst"):
            if tile.dtype not in _DTYPES:
                return Broken(f"{name} is {tile.dtype}", name)
        return None

    @rule("tensor_scalar_cumulative.imm_shape", "imm0 and imm1 are scalars or tiles of shape (src.shape[0], 1)", page=_PAGE)
    def columns(self, core: NeuronCore) -> Broken | None:
        return self.column_of("src", "imm0", "imm1")

    @rule("tensor_scalar_cumulative.imm_fp32", "imm0 and imm1 are float32 scalars or float32 tiles", page=_PAGE)
    def immediates(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("imm0", "imm1"):
            if tile.dtype != "float32":
                return Broken(f"{name} is {tile.dtype}", name)
        return None

    @rule("tensor_scalar_cumulative.reduce_cmd", "reduce_cmd is reset_reduce, reduce or load_reduce, and imm1 is given exactly "
          "with load_reduce", page=_PAGE)  # fmt: skip
    def command(self, core: NeuronCore) -> Broken | None:
        command = self.reduce_cmd
        broken = one_of_commands(command, ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)
        if broken is None and (command is ReduceCmd.load_reduce) != (self.imm1 is not None):
            return Broken(f"reduce_cmd {command.name}, imm1 {self.operand_words('imm1') or None}", "imm1")
        return broken

    def cycles(self, core: NeuronCore) -> float:
        """N (an estimate: the documents have no number)."""
        return at_least(elements(self, "src"))

    def body(self, core: NeuronCore) -> Body:
        rows, n, shape = partitions(self.src), free(self.src), self.dst.shape
        first = self.src.start_partition
        lanes, registers, command = slice(first, first + rows), accumulator("vector"), self.reduce_cmd
        op1 = ops.lookup(self.op1)
        compute, ufunc, neutral = stage(ops.lookup(self.op0), False), op1.ufunc, op1.reduce
        assert ufunc is not None
        load, store = loader(self.src, (rows, n)), storer(self.dst)
        operand, initial = column_loader(self.imm0, 2), column_loader(self.imm1, 1)
        # reg = value - reg is a sum with alternating signs, and turning a sign is exact
        signs = np.where(np.arange(n + 1) % 2, -1, 1).astype(np.float32) if op1.name == "subtract" else None

        def run(dst: Array, src: Array, imm0: Any, imm1: Any) -> None:
            values = np.empty((rows, n + 1), np.float32)
            if command is ReduceCmd.reduce:
                values[:, 0] = registers.values[lanes]
            else:
                values[:, 0] = initial(imm1) if command is ReduceCmd.load_reduce else neutral
            values[:, 1:] = compute(load(src), operand(imm0))
            if signs is None:
                scanned = ufunc.accumulate(values, axis=1)
            else:
                scanned = np.add.accumulate(values * signs, axis=1) * signs
            registers.values[lanes] = scanned[:, -1]
            store(dst, scanned[:, 1:].reshape(shape))

        return run
