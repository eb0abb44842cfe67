"""``nki.isa.activate2``: two operations with scalars, a function, and a reduction, on the Scalar Engine of trn3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from nki_sim import context, ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Rule, isa_page, page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.accumulator import accumulator
from nki_sim.isa.activation import domain_check
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, Cost, column, free, instruction, partitions, read, write
from nki_sim.isa.checks import one_of_commands
from nki_sim.isa.cost import READ_REGISTERS, at_least, elements, table_of
from nki_sim.isa.enums import engine
from nki_sim.isa.enums import reduce_cmd as ReduceCmd  # noqa: N812 - a field has the enum's name
from nki_sim.isa.indirection import aligned, allowed, no_psum_scatter
from nki_sim.isa.values import column_loader, loader, reduce_rows, storer
from nki_sim.ops import Operator
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("activate2")
_PAIRS = (
    ("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"), ("subtract", "bypass"),
    ("bypass", "bypass"),
)  # fmt: skip
_IDENTITY = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf, "abs_max": 0.0, "abs_min": np.inf}
SHARED = Rule(
    "activate2.shared_regs",
    "activate2 continues only what activate2 began",
    why="activation, activation_reduce and activate2 use the same reduce registers of the Scalar Engine",
    fix="finish one chain before the next begins",
    page=_PAGE,
    gens=(4,),
    enforce="ub",
)


@instruction
class activate2(ComputeInstruction):
    """``dst = op((data <op0> imm0) <op1> imm1)`` on the Scalar Engine of trn3, in float32, with an optional reduction.

    The reduction takes the float32 results, before they are rounded to ``dst``'s dtype (the reference writes dst[i], and says
    that the engine computes in float32).

    Args:
        dst, data: SBUF or PSUM, equal partitions and elements per partition; both also ``indirect()`` views.
        op: an activation function of ``nl``; ``nl.prelu`` is x for x >= 0, else relu_param · x.
        imm0, imm1: scalars or (P, 1) tiles, two tiles of one dtype.
        op0, op1: (multiply, add), (multiply, subtract), (multiply, bypass), (add, bypass), (subtract, bypass) or
            (bypass, bypass), of ``nl``.
        relu_param: a scalar or a (P, 1) tile.
        reverse0, reverse1: put the immediate on the left.
        reduce_op: ``nl.add``, ``nl.maximum``, ``nl.minimum``, ``nl.abs_max`` or ``nl.abs_min``; needed unless idle.
        reduce_res: a (P, 1) tile to read the registers into; None on all but the last step of a chain.
        reduce_cmd: idle, reset, reduce or reset_reduce.

    Example:
        a = nl.load(x[:, 0:64])
        e = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        # e = exp(2 a - 1)
        nisa.activate2(dst=e, op=nl.exp, data=a, imm0=2.0, imm1=1.0, op0=nl.multiply, op1=nl.subtract)
    """

    runs_on = engine.scalar

    dst: NkiTensor = write(ON_CHIP)
    op: Any
    data: NkiTensor = read(ON_CHIP)
    imm0: float | NkiTensor = column(ON_CHIP)
    imm1: float | NkiTensor = column(ON_CHIP)
    op0: Any
    op1: Any
    relu_param: float | NkiTensor = column(ON_CHIP, default=0.0)
    reverse0: bool = False
    reverse1: bool = False
    reduce_op: Any = None
    reduce_res: NkiTensor | None = write(ON_CHIP, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    name: str | None = None

    indirect_operands = allowed("activate2", ("dst", "data"), (engine.scalar,))
    indirect_partitions = aligned("activate2", "data")
    indirect_scatter = no_psum_scatter("activate2")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reduce_cmd is ReduceCmd.idle:
            return
        registers = accumulator("scalar")
        if self.reduce_cmd is ReduceCmd.reduce and registers.owner not in ("", "activate2"):
            what = f"continues an accumulation that {registers.owner} left"
            context.machine().finding(self, SHARED, Broken(what, "reduce_cmd"))
            registers.owner = "activate2"
        registers.note(self, self.reduce_cmd)

    @rule("activate2.gen4_only", "activate2 exists on trn3 and newer", page=_PAGE, gens=(2, 3),
          fix="nisa.tensor_scalar, then nisa.activation")  # fmt: skip
    def generation(self, core: NeuronCore) -> Broken | None:
        # the architecture guide says that there is no such call; the reference, which is newer, has it
        return Broken(f"not available on {core.target}")

    @rule("act.legal_functions", "op is in the Scalar Engine's function table", page=page("api/nki.api.shared.html"),
          fix=f"functions are {', '.join('nl.' + n for n in sorted(ops.ACTIVATIONS))}")  # fmt: skip
    def function(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op)
        return None if op.name in ops.ACTIVATIONS else Broken(f"op nl.{op.name} is not an activation function", "op")

    @rule("activate2.op1_requires_op0", "op1 and reverse0 need an op0, reverse1 needs an op1", page=_PAGE, gens=(4,),
          why="nl.bypass is no operation", fix="write a single operation as op0")  # fmt: skip
    def second(self, core: NeuronCore) -> Broken | None:
        op0, op1 = self._names()
        if op0 == "bypass" and (op1 != "bypass" or self.reverse0):
            return Broken("op0 is nl.bypass with " + ("reverse0" if self.reverse0 else f"op1 nl.{op1}"), "op0")
        return Broken("op1 is nl.bypass with reverse1", "op1") if op1 == "bypass" and self.reverse1 else None

    @rule("activate2.op_combos", f"(op0, op1) is {', '.join(f'({a}, {b})' for a, b in _PAIRS)}", page=_PAGE, gens=(4,))
    def pair(self, core: NeuronCore) -> Broken | None:
        # the parameters' own words allow any arithmetic operator; the list of six is what the pipeline has
        op0, op1 = self._names()
        return None if (op0, op1) in _PAIRS else Broken(f"op0 nl.{op0}, op1 nl.{op1}", "op0" if op1 == "bypass" else "op1")

    def _names(self) -> tuple[str, str]:
        return ops.lookup(self.op0).name, ops.lookup(self.op1).name

    @rule("activate2.partition", "data and dst have the same partition size", page=_PAGE, gens=(4,))
    def rows(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst", free_too=False)

    @rule("activate2.free", "data and dst have the same elements per partition", page=_PAGE, gens=(4,))
    def columns(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst")

    @rule("activate2.imm_shape", "imm0 and imm1 are scalars or tiles of shape (data.shape[0], 1)", page=_PAGE, gens=(4,))
    def immediates(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data", "imm0", "imm1")

    @rule("activate2.imm_same_dtype", "imm0 and imm1 have the same dtype when both are tiles", page=_PAGE, gens=(4,))
    def same_dtype(self, core: NeuronCore) -> Broken | None:
        a, b = self.imm0, self.imm1
        if isinstance(a, NkiTensor) and isinstance(b, NkiTensor) and a.dtype != b.dtype:
            return Broken(f"imm0 is {a.dtype}, imm1 is {b.dtype}", "imm1")
        return None

    @rule("activate2.relu_param", "relu_param is a scalar or a tile of shape (data.shape[0], 1)", page=_PAGE, gens=(4,))
    def slope(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data", "relu_param")

    @rule("activate2.reduce_cmd", "reduce_cmd is idle, reset, reduce or reset_reduce", page=_PAGE, gens=(4,))
    def command(self, core: NeuronCore) -> Broken | None:
        return one_of_commands(self.reduce_cmd, ReduceCmd.idle, ReduceCmd.reset, ReduceCmd.reduce, ReduceCmd.reset_reduce)

    @rule("activate2.reduce_op", "reduce_op is add, maximum, minimum, abs_max or abs_min, and given unless reduce_cmd is idle",
          page=_PAGE, gens=(4,))  # fmt: skip
    def reduction(self, core: NeuronCore) -> Broken | None:
        if self.reduce_op is None:
            needed = self.reduce_cmd is not ReduceCmd.idle
            return Broken(f"no reduce_op with reduce_cmd {self.reduce_cmd.name}", "reduce_cmd") if needed else None
        name = ops.lookup(self.reduce_op).name
        return None if name in _IDENTITY else Broken(f"reduce_op nl.{name}", "reduce_op")

    @rule("activate2.reduce_res", "reduce_res has shape (data.shape[0], 1)", page=_PAGE, gens=(4,))
    def result_shape(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data", "reduce_res")

    def cycles(self, core: NeuronCore) -> float:
        """N, as ``activation`` (an estimate: the documents have no number); 64 more to read the registers out."""
        return at_least(elements(self, "data")) + (READ_REGISTERS if self.reduce_res is not None else 0.0)

    def cost(self, core: NeuronCore) -> Cost:
        """With the table of its function."""
        return replace(super().cost(core), table=table_of(ops.lookup(self.op).name))

    def speaks(self) -> bool:
        """Inputs outside the function's range are reported."""
        return ops.lookup(self.op).domain is not None

    def _activated(self) -> Callable[[Array, Any], Array]:
        """The function, of float32 values and relu_param."""
        op = ops.lookup(self.op)
        if op.name == "prelu":
            slope = column_loader(self.relu_param, self.dst.ndim)
            return lambda x, a: np.where(x >= 0, x, x * slope(a))
        function, check = op.activate, domain_check(self, op)
        assert function is not None

        def activated(x: Array, _: Any) -> Array:
            check(x)
            return np.asarray(function(x), np.float32)

        return activated

    def body(self, core: NeuronCore) -> Body:
        rows, n, shape, ndim = partitions(self.data), free(self.data), self.dst.shape, self.dst.ndim
        load, store, activated = loader(self.data, shape), storer(self.dst), self._activated()
        first = _stage(ops.lookup(self.op0), self.imm0, ndim, self.reverse0)
        second = _stage(ops.lookup(self.op1), self.imm1, ndim, self.reverse1)
        start = self.data.start_partition
        lanes, registers, command = slice(start, start + rows), accumulator("scalar"), self.reduce_cmd
        fold = None if self.reduce_op is None else ops.lookup(self.reduce_op)
        out = None if self.reduce_res is None else storer(self.reduce_res)
        out_shape = None if self.reduce_res is None else self.reduce_res.shape

        def run(dst: Array, data: Array, imm0: Any, imm1: Any, relu_param: Any, result: Array | None) -> None:
            values = activated(second(first(load(data), imm0), imm1), relu_param)
            store(dst, values)
            if fold is not None and command is not ReduceCmd.idle:
                identity = np.full(rows, _IDENTITY[fold.name], np.float32)
                held = registers.values[lanes] if command is ReduceCmd.reduce else identity
                registers.values[lanes] = held if command is ReduceCmd.reset else _folded(fold, held, values.reshape(rows, n))
            if out is not None and result is not None:
                out(result, registers.values[lanes].reshape(out_shape))

        return run


def _stage(op: Operator, immediate: Any, ndim: int, reverse: bool) -> Callable[[Array, Any], Array]:
    compute, load = op.compute, column_loader(immediate, ndim)
    assert compute is not None
    if op.name == "bypass":
        return lambda x, _: x
    if reverse:
        return lambda x, imm: np.asarray(compute(load(imm), x))
    return lambda x, imm: np.asarray(compute(x, load(imm)))


def _folded(op: Operator, held: Array, values: Array) -> Array:
    """(rows,) registers with (rows, n) values folded in, one element after the other."""
    compute = op.compute
    assert compute is not None
    return np.asarray(compute(held, reduce_rows(op, values)) if op.ufunc is not None else reduce(compute, values.T, held))
