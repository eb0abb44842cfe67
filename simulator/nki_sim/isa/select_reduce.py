"""``nki.isa.select_reduce``: choose between a tile and a value by a predicate, with an optional running maximum."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.accumulator import accumulator
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, column, free, instruction, partitions, read, write
from nki_sim.isa.checks import one_of_commands
from nki_sim.isa.cost import READ_REGISTERS, at_least, elements
from nki_sim.isa.enums import reduce_cmd as ReduceCmd  # noqa: N812 - a field has the enum's name
from nki_sim.isa.values import column_loader, loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("select_reduce")


@instruction
class select_reduce(ComputeInstruction):
    """``dst = on_true where predicate, else on_false`` on the Vector Engine; optionally the maximum per partition.

    Args:
        dst: SBUF or PSUM.
        predicate: int8, uint8, int16 or uint16; not in PSUM together with on_true.
        on_true: any dtype but tfloat32, int32 and uint32.
        on_false: a float32 scalar or a (P, 1) tile.
        reduce_res: (P, 1) float tile. reduce_cmd: idle, reset_reduce or reduce. reduce_op: ``nl.maximum``.
        reverse_pred: swap the meaning of predicate.

    Example:
        a = nl.load(x[:, 0:64])
        chosen = nl.greater(a, 1.0, dtype=nl.uint8)
        kept = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.select_reduce(dst=kept, predicate=chosen, on_true=a, on_false=0.0)
    """

    dst: NkiTensor = write(ON_CHIP)
    predicate: NkiTensor = read(ON_CHIP)
    on_true: NkiTensor = read(ON_CHIP)
    on_false: float | NkiTensor = column(ON_CHIP)
    reduce_res: NkiTensor | None = write(ON_CHIP, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    reduce_op: Any = ops.TABLE["maximum"]
    reverse_pred: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        accumulator("vector").note(self, self.reduce_cmd)

    @rule("select_reduce.shape", "on_true, dst and predicate have equal partition sizes and elements per partition",
          page=_PAGE)  # fmt: skip
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("on_true", "dst", "predicate")

    @rule("select_reduce.not_both_psum", "on_true and predicate are not both in PSUM", page=_PAGE,
          why="the engine has one read port to PSUM")  # fmt: skip
    def psum(self, core: NeuronCore) -> Broken | None:
        return self.not_both_psum("on_true", "predicate")

    @rule("select_reduce.on_true_dtype", "on_true is of any dtype but tfloat32, int32 and uint32", page=_PAGE)
    def on_true_dtype(self, core: NeuronCore) -> Broken | None:
        bad = self.on_true.dtype in ("tfloat32", "int32", "uint32")
        return Broken(f"on_true is {self.on_true.dtype}", "on_true") if bad else None

    @rule("select_reduce.on_false", "on_false is a float32 scalar or a tile of shape (on_true.shape[0], 1)", page=_PAGE)
    def on_false_shape(self, core: NeuronCore) -> Broken | None:
        return self.column_of("on_true", "on_false")

    @rule("select_reduce.predicate_dtype", "predicate is int8, uint8, int16 or uint16", page=_PAGE)
    def predicate_dtype(self, core: NeuronCore) -> Broken | None:
        good = self.predicate.dtype in ("int8", "uint8", "int16", "uint16")
        return None if good else Broken(f"predicate is {self.predicate.dtype}", "predicate")

    @rule("select_reduce.reduce_res", "reduce_res has shape (on_true.shape[0], 1) and a float dtype", page=_PAGE)
    def result(self, core: NeuronCore) -> Broken | None:
        if self.reduce_res is not None and not self.reduce_res.info.is_float:
            return Broken(f"reduce_res is {self.reduce_res.dtype}", "reduce_res")
        return self.column_of("on_true", "reduce_res")

    @rule("select_reduce.reduce_op", "reduce_op is nl.maximum", page=_PAGE)
    def reduction(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.reduce_op)
        return None if op.name == "maximum" else Broken(f"reduce_op nl.{op.name}", "reduce_op")

    @rule("select_reduce.reduce_cmd", "reduce_cmd is idle, reset_reduce or reduce", page=_PAGE)
    def command(self, core: NeuronCore) -> Broken | None:
        return one_of_commands(self.reduce_cmd, ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce)

    def cycles(self, core: NeuronCore) -> float:
        """2N, plus 64 with a result: undocumented, taken from tensor_copy_predicated."""
        return at_least(2 * elements(self, "dst")) + (READ_REGISTERS if self.reduce_res is not None else 0.0)

    def body(self, core: NeuronCore) -> Body:
        rows, n, shape = partitions(self.on_true), free(self.on_true), self.dst.shape
        first = self.on_true.start_partition
        lanes, registers = slice(first, first + rows), accumulator("vector")
        load, store, other = loader(self.on_true, shape), storer(self.dst), column_loader(self.on_false, self.dst.ndim)
        command, fold, reverse = self.reduce_cmd, ops.lookup(self.reduce_op), self.reverse_pred
        out = None if self.reduce_res is None else storer(self.reduce_res)
        out_shape = None if self.reduce_res is None else self.reduce_res.shape

        def run(dst: Array, predicate: Array, on_true: Array, on_false: Any, result: Array | None) -> None:
            chosen = predicate.reshape(shape).astype(bool) != reverse
            values = np.asarray(np.where(chosen, load(on_true), other(on_false)))
            store(dst, values)
            registers.accumulate(lanes, fold, values.reshape(rows, n), command, None)
            if out is not None and result is not None:
                out(result, registers.values[lanes].reshape(out_shape))

        return run
