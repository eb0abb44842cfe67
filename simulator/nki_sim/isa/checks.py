"""Checks of operators and other parameters that several instructions share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nki_sim.errors import Broken
from nki_sim.hw import NeuronCore
from nki_sim.isa.enums import reduce_cmd
from nki_sim.ops import Operator

if TYPE_CHECKING:
    from nki_sim.isa.base import Instruction


def operator_gen(core: NeuronCore, op: Operator, operand: str = "op") -> Broken | None:
    """The operator exists on this generation's ALU."""
    if core.gen not in op.gens:
        return Broken(f"op nl.{op.name} exists on trn3 only", operand, fix="choose another operator or target trn3")
    return None


def bitvec_integers(ins: Instruction, op: Operator | None, *names: str) -> Broken | None:
    """Bit operators work on integer tiles."""
    if op is not None and op.is_bitvec:
        for name, tile in ins._named(*names):
            if not tile.info.is_integer:
                return Broken(f"{name} is {tile.dtype} with bitwise op nl.{op.name}", name)
    return None


def arithmetic(op: Operator | None, operand: str) -> Broken | None:
    """The operator is an arithmetic one of the ALU."""
    if op is not None and not op.is_arithmetic:
        return Broken(f"{operand} nl.{op.name} is not an arithmetic operator", operand)
    return None


def one_of_commands(command: reduce_cmd, *allowed: reduce_cmd) -> Broken | None:
    """The accumulator command is an enum member this instruction has."""
    names = ", ".join(c.name for c in allowed)
    if command not in allowed:
        return Broken(f"reduce_cmd {command.name} is none of {names}", "reduce_cmd")
    return None


def between_8_and_16384(ins: Instruction, operand: str) -> Broken | None:
    """The elements per partition that the eight-value instructions of the Vector Engine take."""
    n = math.prod(getattr(ins, operand).shape[1:])
    return None if 8 <= n <= 16384 else Broken(f"{operand} has {n} elements per partition", operand)


def eight_columns(ins: Instruction, data: str, operand: str) -> Broken | None:
    """A tile of shape (data's partitions, 8)."""
    rows, shape = getattr(ins, data).shape[0], getattr(ins, operand).shape
    return None if shape == (rows, 8) else Broken(f"{operand} has shape {shape}, not ({rows}, 8)", operand)
