"""``nki.isa.activation`` and ``activation_reduce``: a function of scaled and biased data on the Scalar Engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from nki_sim import context, ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Rule, isa_page, page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.accumulator import accumulator
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, Cost, column, free, instruction, partitions, read, write
from nki_sim.isa.checks import one_of_commands
from nki_sim.isa.cost import READ_REGISTERS, at_least, elements, table_of
from nki_sim.isa.enums import engine
from nki_sim.isa.enums import reduce_cmd as ReduceCmd  # noqa: N812 - a field has the enum's name
from nki_sim.isa.indirection import aligned, allowed, no_psum_scatter
from nki_sim.isa.values import apart, column_loader, is_plain_f32, loader, storer
from nki_sim.ops import Operator
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("activation")
_TABLE = page("api/nki.api.shared.html")


def _domain_rule(op: Operator) -> Rule:
    """The rule about an activation function's valid inputs."""
    low, high = op.domain or (0.0, 0.0)
    sign = "±" if op.name == "reciprocal" else ""
    return Rule(
        f"act.range_{op.name}",
        f"inputs of nl.{op.name} on the Scalar Engine lie in {sign}[{low:.4g}, {high:.4g}], after scale and bias",
        why="the engine evaluates a piecewise polynomial fitted to that range; outside it the result is invalid",
        fix="clamp the data first, or use another engine: nisa.reciprocal, nl.sin (which reduces the range), "
        "nisa.tensor_scalar(op0=nl.rsqrt)",
        page=_TABLE,
        enforce="ub",
    )


DOMAINS = {op: _domain_rule(op) for op in ops.TABLE.values() if op.domain is not None}
"""The rules about the inputs of activation functions."""

BIAS_DROPPED = Rule(
    "activation.copy_bias_trn1",
    "activation(op=nl.copy) adds its bias",
    why="a public report (aws-neuron-sdk issue 1296) says that trn1 drops it; the documented formula keeps it",
    fix="add with nisa.tensor_scalar(op0=nl.add, operand0=bias) on trn1",
    page=_PAGE,
    gens=(2,),
    enforce="warn",
)


class ScalarActivation(ComputeInstruction):
    """What ``activation`` and ``activation_reduce`` share: ``op(data · scale + bias)`` and a running sum."""

    runs_on = engine.scalar

    dst: NkiTensor
    op: Any
    data: NkiTensor
    bias: Any
    scale: Any
    reduce_op: Any
    reduce_res: NkiTensor | None

    def command(self) -> ReduceCmd:
        """What happens to the reduce registers."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        super().__post_init__()
        command = self.command()
        if command is not ReduceCmd.idle:
            accumulator("scalar").note(self, command)
        if self.bias is not None and context.core().gen == 2 and ops.lookup(self.op).name == "copy":
            context.machine().finding(self, BIAS_DROPPED, Broken("op nl.copy with a bias on trn1", "bias"))

    @rule(
        "act.legal_functions",
        "op is in the Scalar Engine's function table",
        fix=f"functions are {', '.join('nl.' + n for n in sorted(ops.ACTIVATIONS))}",
        page=_TABLE,
    )
    def function(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op)
        if op.name not in ops.ACTIVATIONS:
            return Broken(f"op nl.{op.name} is not an activation function", "op")
        return None

    @rule("act.prelu_relu_param", "nl.prelu needs its slope, which only nisa.activate2 (trn3) takes", page=_TABLE,
          fix="compute max(x, a·x) with nisa.scalar_tensor_tensor")  # fmt: skip
    def prelu(self, core: NeuronCore) -> Broken | None:
        return Broken("op nl.prelu without relu_param", "op") if ops.lookup(self.op).name == "prelu" else None

    @rule("activation.partition", "data and dst have the same partition size", page=_PAGE)
    def rows(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst", free_too=False)

    @rule("activation.free", "data and dst have the same elements per partition", page=_PAGE)
    def columns(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst")

    @rule(
        "activation.vector_shape",
        "scale and bias are scalars or tiles of shape (data.shape[0], 1)",
        why="each lane holds one scale and one bias",
        fix="a bias per column is added with nisa.tensor_tensor, after nl.broadcast_to",
        page=_PAGE,
    )
    def vectors(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data", "scale", "bias")

    @rule("activation.scale_fp32", "scale is float32, a scalar or a tile", page=_PAGE,
          fix="copy it to a float32 tile with nisa.tensor_copy")  # fmt: skip
    def scale_dtype(self, core: NeuronCore) -> Broken | None:
        if isinstance(self.scale, NkiTensor) and self.scale.dtype != "float32":
            return Broken(f"scale is {self.scale.dtype}", "scale")
        return None

    @rule("activation.bias_not_tf32", "bias is of any dtype but tfloat32", page=_PAGE)
    def bias_dtype(self, core: NeuronCore) -> Broken | None:
        tf32 = isinstance(self.bias, NkiTensor) and self.bias.dtype == "tfloat32"
        return Broken("bias is tfloat32", "bias") if tf32 else None

    @rule(
        "activation.bias_gen2_vector",
        "on trn1 bias is a tile of shape (data.shape[0], 1)",
        why="NeuronCore-v2 reads the bias from memory only",
        fix="nisa.memset a (P, 1) tile with the value",
        page=_PAGE,
        gens=(2,),
    )
    def bias_vector(self, core: NeuronCore) -> Broken | None:
        scalar = self.bias is not None and not isinstance(self.bias, NkiTensor)
        return Broken(f"bias is the scalar {self.bias}", "bias") if scalar else None

    @rule("act.reciprocal_no_bias_gen2", "on trn1 activation(op=nl.reciprocal) takes no bias", page=_TABLE, gens=(2,),
          fix="add first with nisa.tensor_scalar, or use nisa.reciprocal")  # fmt: skip
    def reciprocal_bias(self, core: NeuronCore) -> Broken | None:
        bad = self.bias is not None and ops.lookup(self.op).name == "reciprocal"
        return Broken("op nl.reciprocal with a bias", "bias") if bad else None

    @rule("activation.reduce_op_add", "reduce_op is nl.add", page=_PAGE,
          fix="other reductions: nisa.tensor_reduce, or nisa.activate2 on trn3")  # fmt: skip
    def reduce_operator(self, core: NeuronCore) -> Broken | None:
        if self.reduce_op is not None and ops.lookup(self.reduce_op).name != "add":
            return Broken(f"reduce_op nl.{ops.lookup(self.reduce_op).name}", "reduce_op")
        return None

    @rule("activation.reduce_cmd", "reduce_cmd is idle, reset, reduce or reset_reduce", page=_PAGE)
    def commands(self, core: NeuronCore) -> Broken | None:
        legal = (ReduceCmd.idle, ReduceCmd.reset, ReduceCmd.reduce, ReduceCmd.reset_reduce)
        return one_of_commands(self.command(), *legal)

    @rule("activation.reduce_res_shape", "reduce_res has shape (data.shape[0], 1)", page=_PAGE)
    def result_shape(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data", "reduce_res")

    def cycles(self, core: NeuronCore) -> float:
        """N, scale and bias included; 64 more to read the sum out."""
        return at_least(elements(self, "data")) + (READ_REGISTERS if self.reduce_res is not None else 0.0)

    def cost(self, core: NeuronCore) -> Cost:
        """With the table of its function."""
        return replace(super().cost(core), table=table_of(ops.lookup(self.op).name))

    def speaks(self) -> bool:
        """Inputs outside the function's range are reported."""
        return ops.lookup(self.op).domain is not None

    def evaluate(self) -> Callable[[Array, Any, Any], Array]:
        """``op(data · scale + bias)`` as a function of (data, bias, scale), in float32 and dst's shape."""
        op, shape, ndim = ops.lookup(self.op), self.dst.shape, self.dst.ndim
        activate = op.activate
        assert activate is not None
        load = loader(self.data, shape)
        bias, scale = column_loader(self.bias, ndim), column_loader(self.scale, ndim)
        scaled = isinstance(self.scale, NkiTensor) or self.scale != 1.0
        biased = self.bias is not None
        check = domain_check(self, op)

        def evaluate(data: Array, b: Any, s: Any) -> Array:
            x = load(data)
            if s is not None and (scaled or s != 1.0):
                x = x * scale(s)
            if biased:
                x = x + bias(b)
            check(x)
            return np.asarray(activate(x), dtype=np.float32)

        return evaluate

    def in_place(self) -> Body | None:
        """A body of (dst, data, bias, scale) that computes straight into dst, without temporaries; of float32 and plain ufuncs
        only."""
        op = ops.lookup(self.op)
        ufunc = op.activate
        plain = is_plain_f32(self.dst, self.data) and self.dst.shape == self.data.shape and op.domain is None
        if not plain or not isinstance(ufunc, np.ufunc):
            return None
        bias, scale = column_loader(self.bias, self.dst.ndim), column_loader(self.scale, self.dst.ndim)
        scaled = isinstance(self.scale, NkiTensor)

        def run(dst: Array, data: Array, b: Any, s: Any, _: Any = None) -> None:
            shift = None if b is None else bias(b)
            if scaled or (s != 1.0 and s is not None):
                shift = apart(shift, dst)
                data = np.multiply(data, scale(s), dst)
            if shift is not None:
                data = np.add(data, shift, dst)
            ufunc(data, dst)

        return run

    def reducing_body(self) -> Callable[..., None]:
        """A body of (dst, data, bias, scale, reduce_res) that also folds into the registers and reads them out."""
        rows, n = partitions(self.data), free(self.data)
        command, add = self.command(), ops.TABLE["add"]
        first = self.data.start_partition
        lanes, registers = slice(first, first + rows), accumulator("scalar")
        in_place, evaluate, store = self.in_place(), self.evaluate(), storer(self.dst)
        read_out = None if self.reduce_res is None else storer(self.reduce_res)
        shape = None if self.reduce_res is None else self.reduce_res.shape

        def run(dst: Array, data: Array, b: Any, s: Any, result: Array | None) -> None:
            if in_place is not None:
                in_place(dst, data, b, s)
                values = dst
            else:
                values = evaluate(data, b, s)
                store(dst, values)
            registers.accumulate(lanes, add, values.reshape(rows, n), command, None)
            if read_out is not None and result is not None:
                read_out(result, registers.values[lanes].reshape(shape))

        return run


def domain_check(ins: ComputeInstruction, op: Operator) -> Callable[[Array], None]:
    """A function that reports inputs outside the activation table's range."""
    if op.domain is None:
        return lambda x: None
    low, high = op.domain
    declared, machine = DOMAINS[op], context.machine()

    def check(x: Array) -> None:
        magnitude = np.abs(x) if op.name == "reciprocal" else x
        outside = (magnitude < low) | (magnitude > high)
        if outside.any():
            worst = float(x[outside].flat[0])
            what = f"nl.{op.name} of {worst:.6g}, outside its valid range ({int(outside.sum())} of {x.size} inputs)"
            machine.finding(ins, declared, Broken(what, "data"))

    return check


@instruction
class activation(ScalarActivation):
    """``dst = op(data · scale + bias)`` on the Scalar Engine, in float32, with an optional running sum.

    Args:
        dst, data: SBUF or PSUM, equal partitions and elements per partition.
        op: an activation function of ``nl``.
        bias: a scalar (trn2 and newer) or a (P, 1) tile.
        scale: a float32 scalar or (P, 1) tile.
        reduce_op: ``nl.add``. reduce_cmd: what to do with the 128 reduce registers.
        reduce_res: a (P, 1) tile to read the registers into.

    Example:
        a = nl.load(x[:, 0:64])
        e = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=e, op=nl.exp, data=a, scale=0.5, bias=-1.0)
    """

    dst: NkiTensor = write(ON_CHIP, "activation.buffers")
    op: Any
    data: NkiTensor = read(ON_CHIP, "activation.buffers")
    bias: float | NkiTensor | None = column(ON_CHIP, default=None)
    scale: float | NkiTensor = column(ON_CHIP, default=1.0)
    reduce_op: Any = None
    reduce_res: NkiTensor | None = write(ON_CHIP, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    name: str | None = None

    indirect_operands = allowed("activation", ("dst", "data"), (engine.scalar,))
    indirect_partitions = aligned("activation", "data")
    indirect_scatter = no_psum_scatter("activation")

    def command(self) -> ReduceCmd:
        return self.reduce_cmd

    def body(self, core: NeuronCore) -> Body:
        if self.command() is not ReduceCmd.idle or self.reduce_res is not None:
            return self.reducing_body()
        in_place = self.in_place()
        if in_place is not None:
            return in_place
        evaluate, store = self.evaluate(), storer(self.dst)
        return lambda dst, data, b, s, _: store(dst, evaluate(data, b, s))


@instruction
class activation_reduce(ScalarActivation):
    """``activation`` that also sums each partition's results into ``reduce_res``.

    Args:
        dst, op, data, bias, scale: as for ``activation``.
        reduce_op: ``nl.add``. (The reference names trn1 only; ``activation``, which this is, has add on all.)
        reduce_res: a (P, 1) tile, or ``None`` to leave the sum in the registers.

    Example:
        a = nl.load(x[:, 0:64])
        squares = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=squares, op=nl.square, data=a, reduce_op=nl.add, reduce_res=total)
    """

    dst: NkiTensor = write(ON_CHIP, "activation.buffers")
    op: Any
    data: NkiTensor = read(ON_CHIP, "activation.buffers")
    reduce_op: Any
    reduce_res: NkiTensor | None = write(ON_CHIP, "activation_reduce.reduce_res", none=True)
    bias: float | NkiTensor | None = column(ON_CHIP, default=None)
    scale: float | NkiTensor = column(ON_CHIP, default=1.0)
    name: str | None = None

    indirect_operands = allowed("activation_reduce", ("dst", "data"), (engine.scalar,))
    indirect_partitions = aligned("activation_reduce", "data")
    indirect_scatter = no_psum_scatter("activation_reduce")

    def goes_on(self) -> bool:
        """It begins anew and reads the sum out."""
        return False

    def command(self) -> ReduceCmd:
        return ReduceCmd.reset_reduce

    @rule("activation_reduce.reduce_op", "reduce_op is nl.add", page=isa_page("activation_reduce"))
    def reduce_operator(self, core: NeuronCore) -> Broken | None:
        if ops.lookup(self.reduce_op).name != "add":
            return Broken(f"reduce_op nl.{ops.lookup(self.reduce_op).name}", "reduce_op")
        return None

    @rule("activation_reduce.reduce_res", "reduce_res has data's partition size and one element per partition",
          page=isa_page("activation_reduce"))  # fmt: skip
    def result_shape(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data", "reduce_res")

    def body(self, core: NeuronCore) -> Body:
        run = self.reducing_body()
        return lambda dst, data, result, b, s: run(dst, data, b, s, result)
