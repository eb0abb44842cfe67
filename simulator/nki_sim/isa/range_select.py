"""``nki.isa.range_select``: keep the elements whose position lies between two bounds, with a running maximum."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.accumulator import accumulator
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, free, instruction, partitions, read, write
from nki_sim.isa.checks import one_of_commands
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.enums import reduce_cmd as ReduceCmd  # noqa: N812 - a field has the enum's name
from nki_sim.isa.values import loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("range_select")
_COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
_FP32_MIN = float(np.finfo(np.float32).min)


@instruction
class range_select(ComputeInstruction):
    """``dst = on_true_tile where (i <comp_op0> bound0) and (i <comp_op1> bound1), else on_false_value``; Vector Engine.

    ``i`` is range_start plus the position among the elements of the partition, compared in float32. The maximum is taken
    of the float32 results, before they are rounded to ``dst``'s dtype.

    Args:
        dst, on_true_tile: SBUF or PSUM, equal partitions and elements per partition; on_true_tile of a float dtype.
        comp_op0, comp_op1: equal, less, less_equal, greater or greater_equal.
        bound0, bound1: (P, 1) float32 tiles.
        reduce_cmd: idle, reset_reduce or reduce. reduce_op: ``nl.maximum``.
        reduce_res: (P, 1) tile; None on all but the last step of a chain.
        range_start: a whole number. on_false_value: the smallest float32, -3.4028235e+38.

    Example:
        scores = nl.load(x[:, 0:64])
        low, high = (nl.full((128, 1), bound, dtype=nl.float32) for bound in (8.0, 24.0))
        masked = nl.ndarray(scores.shape, dtype=nl.float32, buffer=nl.sbuf)
        row_max = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.range_select(dst=masked, on_true_tile=scores, comp_op0=nl.greater_equal, comp_op1=nl.less,
                          bound0=low, bound1=high, reduce_res=row_max)
    """

    dst: NkiTensor = write(ON_CHIP)
    on_true_tile: NkiTensor = read(ON_CHIP)
    comp_op0: Any
    comp_op1: Any
    bound0: NkiTensor = read(ON_CHIP)
    bound1: NkiTensor = read(ON_CHIP)
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce
    reduce_res: NkiTensor | None = write(ON_CHIP, default=None)
    reduce_op: Any = ops.TABLE["maximum"]
    range_start: int = 0
    on_false_value: float = _FP32_MIN
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        accumulator("vector").note(self, self.reduce_cmd)

    @rule("range_select.gen3", "range_select exists on trn2 and newer", page=_PAGE, gens=(2,),
          fix="nisa.iota for the positions, nisa.tensor_scalar to compare, nisa.select_reduce to choose")  # fmt: skip
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("range_select.cmp_ops", "comp_op0 and comp_op1 are equal, less, less_equal, greater or greater_equal", page=_PAGE,
          fix="not_equal is what two instructions with less and greater give")  # fmt: skip
    def comparisons(self, core: NeuronCore) -> Broken | None:
        for name, value in (("comp_op0", self.comp_op0), ("comp_op1", self.comp_op1)):
            op = ops.lookup(value)
            if op.name not in _COMPARISONS:
                return Broken(f"{name} nl.{op.name}", name)
        return None

    @rule("range_select.shape", "dst and on_true_tile have the same partition size and elements per partition", page=_PAGE)
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("on_true_tile", "dst")

    @rule("range_select.bounds_shape", "bound0 and bound1 have shape (on_true_tile.shape[0], 1)", page=_PAGE)
    def bounds(self, core: NeuronCore) -> Broken | None:
        return self.column_of("on_true_tile", "bound0", "bound1")

    @rule("range_select.bounds_fp32", "bound0 and bound1 are float32", page=_PAGE,
          why="each lane holds its bounds in float32 registers", fix="convert them with nisa.tensor_copy")  # fmt: skip
    def bounds_dtype(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("bound0", "bound1"):
            if tile.dtype != "float32":
                return Broken(f"{name} is {tile.dtype}", name)
        return None

    @rule("range_select.on_true_fp", "on_true_tile is of a float dtype", page=_PAGE)
    def on_true_dtype(self, core: NeuronCore) -> Broken | None:
        return None if self.on_true_tile.info.is_float else Broken(f"on_true_tile is {self.on_true_tile.dtype}", "on_true_tile")

    @rule("range_select.range_start_const", "range_start is a compile-time whole number", page=_PAGE,
          fix="shift the bounds instead: they are read at run time")  # fmt: skip
    def start_constant(self, core: NeuronCore) -> Broken | None:
        whole = isinstance(self.range_start, (int, np.integer)) and not isinstance(self.range_start, bool)
        return None if whole else Broken(f"range_start is {self.operand_words('range_start')}", "range_start", error=TypeError)

    @rule("range_select.index_2p24", "range_start plus any position is between -2^24 and 2^24", page=_PAGE,
          why="positions are compared in float32, which has all whole numbers up to 2^24")  # fmt: skip
    def exact(self, core: NeuronCore) -> Broken | None:
        first, last = self.range_start, self.range_start + free(self.on_true_tile) - 1
        far = first < -(2**24) or last > 2**24
        return Broken(f"positions are {first} to {last}", "range_start") if far else None

    @rule("range_select.on_false_fp32min", "on_false_value is the smallest float32, -3.4028235e+38", page=_PAGE,
          fix="leave on_false_value out; for other values use nisa.select_reduce")  # fmt: skip
    def on_false(self, core: NeuronCore) -> Broken | None:
        # older release notes have -inf as the default; the reference and the migration guide have this constraint
        value = self.on_false_value
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or np.float32(value) != np.float32(_FP32_MIN):
            return Broken(f"on_false_value is {self.operand_words('on_false_value')}", "on_false_value")
        return None

    @rule("range_select.reduce_op", "reduce_op is nl.maximum", page=_PAGE)
    def reduction(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.reduce_op)
        return None if op.name == "maximum" else Broken(f"reduce_op nl.{op.name}", "reduce_op")

    @rule("range_select.reduce_cmd", "reduce_cmd is idle, reset_reduce or reduce", page=_PAGE,
          why="there is no value that load_reduce could load")  # fmt: skip
    def command(self, core: NeuronCore) -> Broken | None:
        return one_of_commands(self.reduce_cmd, ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce)

    @rule("range_select.reduce_res", "reduce_res has shape (on_true_tile.shape[0], 1)", page=_PAGE)
    def result(self, core: NeuronCore) -> Broken | None:
        return self.column_of("on_true_tile", "reduce_res")

    @rule("range_select.nan_hazard", "with a dst of 16 or 8 bits reduce_res is float32", page=_PAGE, enforce="warn",
          why="a row without any element in range is -inf in such a dst; minus a maximum of -inf that is NaN",
          fix="allocate reduce_res as float32")  # fmt: skip
    def hazard(self, core: NeuronCore) -> Broken | None:
        result = self.reduce_res
        if result is not None and self.dst.info.itemsize < 4 and result.dtype != "float32":
            return Broken(f"dst is {self.dst.dtype}, reduce_res is {result.dtype}", "reduce_res")
        return None

    def cycles(self, core: NeuronCore) -> float:
        """N."""
        return at_least(elements(self, "on_true_tile"))

    def body(self, core: NeuronCore) -> Body:
        rows, n, shape = partitions(self.on_true_tile), free(self.on_true_tile), self.dst.shape
        first = self.on_true_tile.start_partition
        lanes, registers = slice(first, first + rows), accumulator("vector")
        compare0, compare1 = ops.lookup(self.comp_op0).compute, ops.lookup(self.comp_op1).compute
        assert compare0 is not None
        assert compare1 is not None
        at = np.arange(self.range_start, self.range_start + n).astype(np.float32)
        load, store = loader(self.on_true_tile, (rows, n)), storer(self.dst)
        low, high = loader(self.bound0, (rows, 1)), loader(self.bound1, (rows, 1))
        command, fold, other = self.reduce_cmd, ops.lookup(self.reduce_op), np.float32(_FP32_MIN)
        out = None if self.reduce_res is None else storer(self.reduce_res)
        out_shape = None if self.reduce_res is None else self.reduce_res.shape

        def run(dst: Array, on_true: Array, bound0: Array, bound1: Array, result: Array | None) -> None:
            chosen = compare0(at, low(bound0)) & compare1(at, high(bound1))
            values = np.where(chosen, load(on_true), other)
            store(dst, values.reshape(shape))
            registers.accumulate(lanes, fold, values, command, None)
            if out is not None and result is not None:
                out(result, registers.values[lanes].reshape(out_shape))

        return run
