"""``nki.isa.tensor_reduce``: reduce the last free dimensions of a tile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, free, instruction, read, write
from nki_sim.isa.checks import bitvec_integers
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - fields have the enums\' names
from nki_sim.isa.indirection import aligned, allowed
from nki_sim.isa.values import loader, reduce_rows, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("tensor_reduce")


@instruction
class tensor_reduce(ComputeInstruction):
    """``dst = op over the last free axes of data`` on the Vector Engine, element after element in float32.

    Args:
        dst: SBUF or PSUM, one element per partition for each combination of the axes that stay.
        op: a reduction operator: add, subtract, multiply, maximum, minimum, logical or bitwise and, or, xor.
        data: SBUF or PSUM.
        axis: an int or ints: the last dimension, or the last few; never 0, the partition axis.
        negate: multiply the result by -1 (arithmetic operators).
        keepdims: leaves the reduced axes as size 1; the element count is the same.

    Example:
        a = nl.load(x[:, 0:64])
        row_max = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=row_max, op=nl.maximum, data=a, axis=1)
    """

    dst: NkiTensor = write(ON_CHIP, "tensor_reduce.buffers")
    op: Any
    data: NkiTensor = read(ON_CHIP, "tensor_reduce.buffers")
    axis: int | Sequence[int]
    negate: bool = False
    keepdims: bool = False
    name: str | None = None

    indirect_operands = allowed("tensor_reduce", ("dst", "data"), (Engine.vector,))
    indirect_partitions = aligned("tensor_reduce", "data")

    def axes(self) -> tuple[int, ...]:
        """The axes as given, negative ones counted from the end."""
        given = (self.axis,) if isinstance(self.axis, (int, np.integer)) else tuple(self.axis)
        return tuple(sorted(int(a) + self.data.ndim if a < 0 else int(a) for a in given))

    @rule("tensor_reduce.op", "op is a legal reduction operator", page=_PAGE,
          fix=f"reductions are {', '.join('nl.' + n for n in sorted(ops.REDUCTIONS))}")  # fmt: skip
    def operator(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op)
        return Broken(f"op nl.{op.name} is no reduction", "op") if op.reduce is None else None

    @rule(
        "tensor_reduce.axis_absolute",
        "axis counts the dimensions of data: axis=1 is dimension 1, also of a 3-D tile",
        page=_PAGE,
    )
    def in_range(self, core: NeuronCore) -> Broken | None:
        given = (self.axis,) if isinstance(self.axis, (int, np.integer)) else self.axis
        if not isinstance(given, Sequence) or not all(isinstance(a, (int, np.integer)) for a in given):
            return Broken(f"axis is {self.axis!r}", "axis", error=TypeError)
        axes = self.axes()
        if not axes or axes[-1] >= self.data.ndim or axes[0] < 0 or len(set(axes)) != len(axes):
            return Broken(f"axis {self.axis} of a {self.data.ndim}-D tile", "axis")
        return None

    @rule(
        "tensor_reduce.no_axis0",
        "axis 0, the partition axis, cannot be reduced here",
        why="each lane sees only its own partition",
        fix="multiply with ones: nisa.nc_matmul(stationary=ones [P, 1], moving=data), or transpose first",
        page=_PAGE,
    )
    def no_partition(self, core: NeuronCore) -> Broken | None:
        return Broken(f"axis {self.axis} contains the partition axis", "axis") if 0 in self.axes() else None

    @rule(
        "tensor_reduce.axis_suffix",
        "the axes are the last contiguous dimension(s) of the tile, up to the final one",
        why="the engine reduces what streams by last",
        fix="permute the free dimensions so that the reduced ones come last: t.permute((0, 2, 1))",
        page=_PAGE,
    )
    def suffix(self, core: NeuronCore) -> Broken | None:
        axes = self.axes()
        if axes != tuple(range(self.data.ndim - len(axes), self.data.ndim)):
            what = f"axis must be the last contiguous dim(s) of the tile: axis {self.axis} of {self.data.ndim} dimensions"
            return Broken(what, "axis")
        return None

    @rule("tensor_reduce.partition", "data and dst have the same partition size", page=_PAGE)
    def rows(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst", free_too=False)

    @rule("tensor_reduce.dst_elems", "dst has one element per partition for each unreduced element", page=_PAGE)
    def elements(self, core: NeuronCore) -> Broken | None:
        kept = math.prod(self.data.shape[1 : self.data.ndim - len(self.axes())])
        if free(self.dst) != kept:
            return Broken(f"dst has {free(self.dst)} elements per partition, the reduction gives {kept}", "dst")
        return None

    @rule("tensor_reduce.negate_arith", "negate goes with arithmetic operators", page=_PAGE)
    def negated(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.op)
        return Broken(f"negate with nl.{op.name}", "negate") if self.negate and op.is_bitvec else None

    @rule("tensor_reduce.bitvec_int", "a bitwise reduction takes and gives integers", page=_PAGE)
    def bitvec(self, core: NeuronCore) -> Broken | None:
        return bitvec_integers(self, ops.lookup(self.op), "dst", "data")

    def cycles(self, core: NeuronCore) -> float:
        """N; half of that for bf16 additions and maxima with a bf16 result."""
        half = self.data.dtype == self.dst.dtype == "bfloat16" and ops.lookup(self.op).name in ("add", "maximum")
        return at_least(elements(self, "data") / (2 if half else 1))

    def body(self, core: NeuronCore) -> Body:
        op, shape = ops.lookup(self.op), self.dst.shape
        n = math.prod(self.data.shape[self.data.ndim - len(self.axes()) :])
        if op.is_bitvec:
            ufunc = op.ufunc
            assert ufunc is not None

            def bits(dst: Array, data: Array) -> None:
                dst[...] = ufunc.reduce(data.reshape(-1, n), axis=-1).reshape(shape)

            return bits
        load, store, sign = loader(self.data), storer(self.dst), np.float32(-1.0)
        if self.negate:
            return lambda dst, data: store(dst, (reduce_rows(op, load(data).reshape(-1, n)) * sign).reshape(shape))
        return lambda dst, data: store(dst, reduce_rows(op, load(data).reshape(-1, n)).reshape(shape))
