"""``nki.isa.tensor_scalar``: one or two operators between a tile and scalars or columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, column, instruction, read, write
from nki_sim.isa.checks import bitvec_integers, operator_gen
from nki_sim.isa.cost import at_least, elements, gpsimd, streamed
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.isa.indirection import aligned, allowed, is_indirect, no_psum_scatter
from nki_sim.isa.values import Load, apart, bits_loader, column_loader, integer_loader, is_plain_f32, loader, storer
from nki_sim.memory import MemoryRegion
from nki_sim.ops import Operator
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("tensor_scalar")
_WORDS = ("int32", "uint32")
_INTEGER_OPS = ("add", "subtract", "multiply")
_TRUTHS = ops.COMPARISONS | {"logical_and", "logical_or", "logical_xor"}
_SCALAR_ENGINE = (("multiply", "add"), ("multiply", None), ("add", None))


@instruction
class tensor_scalar(ComputeInstruction):
    """``dst = (data <op0> operand0) <op1> operand1``, the operands broadcast along the free dimensions.

    Arithmetic runs in float32. With int32 or uint32 tiles throughout (data, dst and an operand tile) add, subtract and
    multiply are exact: the address arithmetic that the documents mention beside the float32 rule.

    Args:
        dst, data: SBUF or PSUM, equal partitions and elements per partition.
        op0, op1: operators of one kind, both arithmetic or both bitwise.
        operand0, operand1: compile-time scalars or (P, 1) tiles; ``None`` (or 0) for a unary operator.
        reverse0, reverse1: put the operand on the left.
        engine: vector, scalar, gpsimd (rsqrt and power) or unknown.

    Example:
        a = nl.load(x[:, 0:64])
        c = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        # c = 2 a + 1
        nisa.tensor_scalar(dst=c, data=a, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
    """

    decided_params = ("neutral",)

    dst: NkiTensor = write(ON_CHIP)
    data: NkiTensor = read(ON_CHIP)
    op0: Any
    operand0: float | NkiTensor | None = column(ON_CHIP, none=True)
    reverse0: bool = False
    op1: Any = None
    operand1: float | NkiTensor | None = column(ON_CHIP, default=None)
    reverse1: bool = False
    engine: Engine = Engine.unknown
    name: str | None = None

    indirect_operands = allowed("tensor_scalar", ("dst", "data"), (Engine.vector, Engine.scalar, Engine.gpsimd))
    indirect_partitions = aligned("tensor_scalar", "data")
    indirect_scatter = no_psum_scatter("tensor_scalar")

    @rule("tensor_scalar.no_indirect_addr_pattern", "an address computation takes no indirect() views", page=_PAGE, gens=(4,),
          why="32-bit products and sums run as another instruction", fix="gather with nisa.tensor_copy first")  # fmt: skip
    def address_arithmetic(self, core: NeuronCore) -> Broken | None:
        # the documents do not say which operators make the pattern: those of an address, offset = index * stride + base
        words = {"int32", "uint32"} >= {self.data.dtype, self.dst.dtype}
        names = {ops.lookup(op).name for op in (self.op0, self.op1) if op is not None}
        if words and names <= {"add", "multiply"}:
            for name, tile in self.tiles():
                if is_indirect(tile):
                    return Broken(f"{name} is an indirect() view and the operators are {' and '.join(sorted(names))}", name)
        return None

    neutral = True  # False where operand0 is a value: plans differ, since a unary op0 takes none

    def __post_init__(self) -> None:
        operand = self.operand0
        if type(operand) is NkiTensor or (operand is not None and operand != 0):
            self.neutral = False
        super().__post_init__()

    def _ops(self) -> tuple[Operator, Operator | None]:
        return ops.lookup(self.op0), None if self.op1 is None else ops.lookup(self.op1)

    def resolve_engine(self, core: NeuronCore) -> Engine:
        if self.engine is not Engine.unknown:
            return self.engine
        on_gpsimd = any(op is not None and op.name in ("rsqrt", "power") for op in self._ops())
        in_psum = any(t.buffer is MemoryRegion.psum for _, t in self.tiles())
        return Engine.gpsimd if on_gpsimd and not in_psum else Engine.vector

    def _integers(self) -> bool:
        """The exact integer path: everything is a 32-bit integer tile and the operators are add, subtract, multiply."""
        tiles = [t for _, t in self._named("operand0", "operand1")]
        op0, op1 = self._ops()
        named = op0.name in _INTEGER_OPS and (op1 is None or op1.name in _INTEGER_OPS)
        return bool(tiles) and named and all(t.dtype in _WORDS for t in (self.dst, self.data, *tiles))

    @rule("tensor_scalar.engines", "engine is vector, scalar, gpsimd or unknown", page=_PAGE)
    def engines(self, core: NeuronCore) -> Broken | None:
        return self.one_of_engines(Engine.vector, Engine.scalar, Engine.gpsimd)

    @rule("tensor_scalar.op", "op0 and op1 are operators of the ALU", page=_PAGE)
    def operators(self, core: NeuronCore) -> Broken | None:
        for name, op in zip(("op0", "op1"), self._ops(), strict=True):
            if op is None:
                continue
            if op.compute is None:
                return Broken(f"{name} nl.{op.name} is not an ALU operator", name, fix="use nisa.activation(op=…)")
            broken = operator_gen(core, op, name)
            if broken:
                return broken
        return None

    @rule("tensor_scalar.shape", "dst and data have the same partition size and elements per partition", page=_PAGE)
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst")

    @rule(
        "tensor_scalar.operand_shape",
        "operand0 and operand1 are compile-time scalars or tiles of shape (data.shape[0], 1)",
        why="each lane holds one operand value and applies it to all elements of its partition",
        fix="two tiles of equal shape go to nisa.tensor_tensor; one row for all partitions needs nl.broadcast_to",
        page=_PAGE,
    )
    def operand_shapes(self, core: NeuronCore) -> Broken | None:
        return self.column_of("data", "operand0", "operand1")

    @rule("tensor_scalar.op1_none", "op1 and operand1 are given together or not at all", page=_PAGE)
    def second(self, core: NeuronCore) -> Broken | None:
        _, op1 = self._ops()
        if op1 is None and self.operand1 is not None:
            return Broken("operand1 is given without op1", "operand1")
        if op1 is not None and op1.arity == 2 and self.operand1 is None:
            return Broken(f"op1 nl.{op1.name} has no operand1", "op1")
        return None

    @rule("tensor_scalar.unary_operand", "operand0 is None or 0 for a unary op0, and a value for a binary one", page=_PAGE)
    def unary(self, core: NeuronCore) -> Broken | None:
        op0, _ = self._ops()
        if op0.arity == 1 and (isinstance(self.operand0, NkiTensor) or self.operand0 not in (None, 0)):
            return Broken(f"op0 nl.{op0.name} is unary, operand0 is {self.operand_words('operand0')}", "operand0")
        if op0.arity == 2 and self.operand0 is None:
            return Broken(f"op0 nl.{op0.name} has no operand0", "operand0")
        return None

    @rule("tensor_scalar.same_class", "op0 and op1 are both bitwise or both arithmetic", page=_PAGE,
          fix="use two instructions")  # fmt: skip
    def same_class(self, core: NeuronCore) -> Broken | None:
        op0, op1 = self._ops()
        if op1 is not None and op0.is_bitvec != op1.is_bitvec:
            return Broken(f"op0 nl.{op0.name} with op1 nl.{op1.name}", "op1")
        return None

    @rule("tensor_scalar.bitvec_vector_int", "bitwise operators run on the Vector Engine, on integer tiles", page=_PAGE)
    def bitvec(self, core: NeuronCore) -> Broken | None:
        op0, _ = self._ops()
        if op0.is_bitvec and self.resolve_engine(core) is not Engine.vector:
            return Broken(f"op0 nl.{op0.name} on engine {self.engine.name}", "engine")
        broken = bitvec_integers(self, op0, "dst", "data", "operand0", "operand1")
        if broken or not op0.is_bitvec:
            return broken
        for name in ("operand0", "operand1"):
            if isinstance(getattr(self, name), float):
                return Broken(f"{name} is {getattr(self, name)} with bitwise op0 nl.{op0.name}", name)
        return None

    @rule(
        "tensor_scalar.arith_operand_fp32",
        "with arithmetic operators an operand tile is float32",
        why="the operand goes into a float32 register of the lane",
        fix="copy it to a float32 tile with nisa.tensor_copy",
        page=_PAGE,
    )
    def operand_dtype(self, core: NeuronCore) -> Broken | None:
        if self._ops()[0].is_arithmetic and not self._integers():
            for name, tile in self._named("operand0", "operand1"):
                if tile.dtype != "float32":
                    return Broken(f"{name} is {tile.dtype}", name)
        return None

    @rule(
        "tensor_scalar.gen2_no_scalar",
        "on trn1 the Scalar Engine has no tensor_scalar (undocumented there; the documents list it for trn2 and trn3)",
        fix="use nisa.activation(op=nl.copy, scale=…, bias=…), or engine=nisa.engine.vector",
        page=_PAGE,
        gens=(2,),
    )
    def no_scalar(self, core: NeuronCore) -> Broken | None:
        return Broken("engine scalar on trn1", "engine") if self.engine is Engine.scalar else None

    @rule("tensor_scalar.scalar_engine_combos", "on trn2 the Scalar Engine has (multiply, add), (multiply, None) and "
          "(add, None)", page=_PAGE, gens=(3,), fix="use engine=nisa.engine.vector")  # fmt: skip
    def scalar_engine(self, core: NeuronCore) -> Broken | None:
        op0, op1 = self._ops()
        if self.engine is Engine.scalar and (op0.name, op1.name if op1 else None) not in _SCALAR_ENGINE:
            return Broken(f"op0 nl.{op0.name}, op1 {op1 and op1.name} on engine scalar", "engine")
        return None

    @rule("tensor_scalar.gpsimd_rsqrt_only", "engine gpsimd is for rsqrt (and power) only", page=_PAGE,
          fix="leave engine out")  # fmt: skip
    def gpsimd(self, core: NeuronCore) -> Broken | None:
        if self.engine is Engine.gpsimd and self._ops()[0].name not in ("rsqrt", "power"):
            return Broken(f"op0 nl.{self._ops()[0].name} on engine gpsimd", "engine")
        return None

    def cycles(self, core: NeuronCore) -> float:
        """As a stream on the Vector Engine, N on the Scalar Engine, 4N on GpSimd (rsqrt: a quarter of ScalarE's rate)."""
        on = self.resolve_engine(core)
        if on is Engine.vector:
            return streamed(core, self.dst, self.data)
        return gpsimd(elements(self, "dst"), 4.0) if on is Engine.gpsimd else at_least(elements(self, "dst"))

    def body(self, core: NeuronCore) -> Body:
        op0, op1 = self._ops()
        shape, ndim = self.dst.shape, self.dst.ndim
        if op0.is_bitvec:
            return self._integer_body(bits_loader(self.data, shape), self.data.info.storage, ndim)
        if self._integers():
            return self._integer_body(integer_loader(self.data, shape), np.dtype(np.int64), ndim)
        col0, col1 = column_loader(self.operand0, ndim), column_loader(self.operand1, ndim)
        if is_plain_f32(self.dst, self.data) and shape == self.data.shape and not self.reverse0:
            one, both = straight(op0), in_place(op0, op1, self.reverse1)
            if one is not None and op1 is None:
                return lambda dst, data, a, _: one(data, col0(a), out=dst)
            if both is not None:
                return lambda dst, data, a, b: both(dst, data, col0(a), col1(b))
        first, second = stage(op0, self.reverse0), stage(op1, self.reverse1)
        load, store = loader(self.data, shape), storer(self.dst)
        return lambda dst, data, a, b: store(dst, second(first(load(data), col0(a)), col1(b)))

    def _integer_body(self, load: Load, dtype: np.dtype[Any], ndim: int) -> Body:
        op0, op1 = self._ops()
        first, second = stage(op0, self.reverse0), stage(op1, self.reverse1)
        cols = [_integer_column(operand, dtype, ndim) for operand in (self.operand0, self.operand1)]

        def run(dst: Array, data: Array, a: Any, b: Any) -> None:
            np.copyto(dst, second(first(load(data), cols[0](a)), cols[1](b)), casting="unsafe")

        return run


def stage(op: Operator | None, reverse: bool) -> Any:
    """One operator stage as a function of (value, operand)."""
    if op is None:
        return lambda x, _: x
    compute = op.compute
    assert compute is not None
    if op.arity == 1:
        return lambda x, _: compute(x)
    if op.name in _TRUTHS:  # NumPy's bool is no float32 to the stage that follows
        return (lambda x, y: compute(y, x).astype(np.float32)) if reverse else (lambda x, y: compute(x, y).astype(np.float32))
    return (lambda x, y: compute(y, x)) if reverse else compute


def straight(op: Operator | None) -> np.ufunc | None:
    """The ufunc of an operator of two values that can write its result straight to a float32 tile."""
    return None if op is None or op.arity != 2 or op.is_comparison else op.ufunc


def in_place(op0: Operator, op1: Operator | None, reverse1: bool) -> Any:
    """Two stages straight into a float32 dst, without temporaries, when the operators are plain ufuncs."""
    f, g = straight(op0), straight(op1)
    if f is None or g is None or reverse1:
        return None

    def both(dst: Array, x: Array, a: Any, b: Any) -> None:
        b = apart(b, dst)
        f(x, a, out=dst)
        g(dst, b, out=dst)

    return both


def _integer_column(operand: Any, dtype: np.dtype[Any], ndim: int) -> Load:
    if isinstance(operand, NkiTensor):
        shape = (operand.shape[0],) + (1,) * (ndim - 1)
        return lambda a: a.astype(dtype).reshape(shape)
    return lambda value: np.array(0 if value is None else int(value)).astype(dtype)
