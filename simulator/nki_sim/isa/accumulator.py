"""Accumulator registers: one float32 per lane on the Vector and on the Scalar Engine, kept between instructions."""

from __future__ import annotations

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Rule, isa_page
from nki_sim.isa.base import Instruction
from nki_sim.isa.enums import reduce_cmd
from nki_sim.isa.values import reduce_rows
from nki_sim.ops import Operator

DIRTY = Rule(
    "vector.accumulator_idle_dirty",
    "an accumulation starts with reset_reduce (or load_reduce)",
    why="the registers hold what the last instruction left; after one with reduce_cmd.idle that is unspecified",
    fix="pass reduce_cmd=nisa.reduce_cmd.reset_reduce in the first instruction of the chain",
    page=isa_page("select_reduce"),
    enforce="ub",
)
SHARED = Rule(
    "vector.accumulators_shared",
    "instructions that share an engine's accumulator registers do not interleave in one chain",
    why="tensor_scalar_reduce, select_reduce, range_select, exponential and tensor_scalar_cumulative use the same registers",
    fix="finish one chain before the next begins",
    page=isa_page("tensor_scalar_reduce"),
    enforce="ub",
)


SHARED_SCALAR = Rule(
    "activation_reduce.shared_regs",
    "activation and activation_reduce do not interleave in one chain of sums",
    why="both use the Scalar Engine's reduce registers",
    fix="use activation with reduce_cmd throughout",
    page=isa_page("activation_reduce"),
    enforce="ub",
)


class Accumulator:
    """The registers of one engine, and which instruction left them as they are ('' where unspecified)."""

    initial = float("nan")
    """What the registers hold before the first instruction."""

    def __init__(self, shared: Rule) -> None:
        self.values: Array = np.full(128, self.initial, np.float32)
        self.owner = ""
        self._shared = shared

    def note(self, ins: Instruction, command: reduce_cmd) -> None:
        """After an instruction: report a chain that continues what nobody or somebody else began."""
        if command is reduce_cmd.reduce:
            what = "continues an accumulation that was never started"
            if not self.owner:
                context.machine().finding(ins, DIRTY, Broken(what, "reduce_cmd"))
            elif self.owner != type(ins).__name__:
                what = f"continues an accumulation that {self.owner} left"
                context.machine().finding(ins, self._shared, Broken(what, "reduce_cmd"))
        self.owner = "" if command is reduce_cmd.idle else type(ins).__name__

    def accumulate(self, lanes: slice, op: Operator, values: Array, command: reduce_cmd, initial: Array | None) -> None:
        """Fold (lanes, n) float32 values into the registers as ``command`` says."""
        if command is reduce_cmd.reset:
            self.values[lanes] = op.reduce
        elif command is not reduce_cmd.idle:
            reduced = reduce_rows(op, values)
            compute = op.compute
            assert compute is not None
            if command is reduce_cmd.reduce:
                reduced = compute(self.values[lanes], reduced)
            elif command is reduce_cmd.load_reduce and initial is not None:
                reduced = compute(initial, reduced)
            self.values[lanes] = reduced


def accumulator(engine: str) -> Accumulator:
    """The current machine's registers of one engine."""
    registers = context.machine().lasting(engine, lambda: Accumulator(SHARED_SCALAR if engine == "scalar" else SHARED))
    assert isinstance(registers, Accumulator)
    return registers
