"""``nki.isa.tensor_tensor``: an element-wise operator on two tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, instruction, read, write
from nki_sim.isa.checks import bitvec_integers, operator_gen
from nki_sim.isa.cost import elements, gpsimd, two_tiles
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.isa.indirection import aligned, allowed
from nki_sim.isa.values import bits_loader, integer_loader, is_plain_f32, loader, storer
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("tensor_tensor")
_WORDS = ("int32", "uint32")


@instruction
class tensor_tensor(ComputeInstruction):
    """``dst = data1 <op> data2``, element by element.

    The engine decides the arithmetic: when all tiles are int32 or uint32 the operation goes to GpSimd, whose integer
    arithmetic is exact; on the Vector Engine (asked for, or because a tile is in PSUM) it runs in float32.

    Args:
        dst, data1, data2: SBUF or PSUM, not both inputs in PSUM; equal partitions and elements per partition.
        op: a binary operator of ``nl`` (``nl.power`` runs on GpSimd).
        engine: vector, gpsimd (SBUF only) or unknown.

    Example:
        a, b = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
        c = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.subtract)
    """

    dst: NkiTensor = write(ON_CHIP)
    data1: NkiTensor = read(ON_CHIP)
    data2: NkiTensor = read(ON_CHIP)
    op: Any
    engine: Engine = Engine.unknown
    name: str | None = None

    indirect_operands = allowed("tensor_tensor", ("dst", "data1"), (Engine.vector, Engine.gpsimd))
    indirect_partitions = aligned("tensor_tensor", "data1")

    def resolve_engine(self, core: NeuronCore) -> Engine:
        if self.engine is not Engine.unknown:
            return self.engine
        if ops.lookup(self.op).name == "power":
            return Engine.gpsimd
        in_psum = any(t.buffer is MemoryRegion.psum for _, t in self.tiles())
        words = all(t.dtype in _WORDS for _, t in self.tiles())
        return Engine.gpsimd if words and not in_psum and ops.lookup(self.op).is_arithmetic else Engine.vector

    @rule("tensor_tensor.op", "op is a binary operator: arithmetic, comparison, logical, bitwise, or nl.power",
          page=_PAGE)  # fmt: skip
    def operator(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op)
        if op.compute is None or op.arity != 2:
            fix = "a function of one tile is nisa.activation(op=…)" if op.activate else "choose a binary operator"
            return Broken(f"op nl.{op.name} does not take two tiles", "op", fix=fix)
        return operator_gen(core, op)

    @rule("tensor_tensor.engines", "engine is vector, gpsimd or unknown", page=_PAGE)
    def engines(self, core: NeuronCore) -> Broken | None:
        return self.one_of_engines(Engine.vector, Engine.gpsimd)

    @rule(
        "tensor_tensor.shape",
        "data1, data2 and dst have the same partition size and elements per partition",
        page=_PAGE,
    )
    def shape(self, core: NeuronCore) -> Broken | None:
        wide = "for a (P, 1) column against a (P, N) tile use nisa.tensor_scalar(data=…, op0=…, operand0=<column>)"
        return self.alike("data1", "data2", "dst", free_too=False) or self.alike("data1", "data2", "dst", fix=wide)

    @rule(
        "tensor_tensor.not_both_psum",
        "data1 and data2 are not both in PSUM",
        why="the engine has one read port to PSUM",
        page=_PAGE,
    )
    def psum(self, core: NeuronCore) -> Broken | None:
        return self.not_both_psum("data1", "data2")

    @rule("tensor_tensor.power_no_psum", "with nl.power no tile is in PSUM", page=_PAGE,
          why="power runs on GpSimd, which has no path to PSUM", fix="copy to SBUF first")  # fmt: skip
    def power(self, core: NeuronCore) -> Broken | None:
        if ops.lookup(self.op).name == "power":
            for name, tile in self.tiles():
                if tile.buffer is MemoryRegion.psum:
                    return Broken(f"{name} is in PSUM with op nl.power", name)
        return None

    @rule("tensor_tensor.bitvec_int", "bitwise operators take and give integers", page=_PAGE,
          fix="reinterpret the bits with t.view(nl.int32)")  # fmt: skip
    def bitvec(self, core: NeuronCore) -> Broken | None:
        return bitvec_integers(self, ops.lookup(self.op), "dst", "data1", "data2")

    def cycles(self, core: NeuronCore) -> float:
        """N or 2N on the Vector Engine; GpSimd's integer cost is undocumented and taken as 150 + 2N."""
        if self.resolve_engine(core) is Engine.gpsimd:
            return gpsimd(elements(self, "dst"), 2.0)
        return two_tiles(core, self.data1, self.data2)

    def body(self, core: NeuronCore) -> Body:
        op, shape = ops.lookup(self.op), self.dst.shape
        compute = op.compute
        assert compute is not None
        same = shape == self.data1.shape == self.data2.shape
        if op.is_bitvec:
            left, right = bits_loader(self.data1, shape), bits_loader(self.data2, shape)

            def bits(dst: Array, a: Array, b: Array) -> None:
                dst[...] = compute(left(a), right(b).astype(a.dtype, copy=False))

            return bits
        words = all(t.dtype in _WORDS for _, t in self.tiles())
        if self.resolve_engine(core) is Engine.gpsimd and words and op.name != "power":
            load1, load2 = integer_loader(self.data1, shape), integer_loader(self.data2, shape)

            def integers(dst: Array, a: Array, b: Array) -> None:
                np.copyto(dst, compute(load1(a), load2(b)), casting="unsafe")  # wraps, as 32-bit adders do

            return integers
        if op.ufunc is not None and is_plain_f32(self.dst, self.data1, self.data2) and same:
            ufunc = op.ufunc
            return lambda dst, a, b: ufunc(a, b, out=dst)
        f1, f2, store = loader(self.data1, shape), loader(self.data2, shape), storer(self.dst)
        return lambda dst, a, b: store(dst, compute(f1(a), f2(b)))
