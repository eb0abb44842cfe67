"""A finished record with other steps than the kernel issued: in another order, or with transfers between them.

What is known of steps follows: names, dependencies, findings, and how long tensors are alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nki_sim.machine import Machine
from nki_sim.program import Ints, Program

Row = tuple[int, int, Sequence[int]]
"""The plan, the site and the operands of a step."""


def rows_of(program: Program, operands: Sequence[int] | None = None) -> list[Row]:
    """The steps of a program, with other ``operands`` than its own where they are given."""
    steps, first, own = program.tables
    table = own if operands is None else operands
    return [(steps[i], program.site_number(i), table[first[i] : first[i + 1]]) for i in range(len(program))]


def reorder(machine: Machine, order: Sequence[int]) -> None:
    """Have a machine's record list its steps in another order."""
    rows, count = rows_of(machine.program), len(order)
    place = np.empty(count + 1, np.int64)
    place[np.array(order, np.int64)] = np.arange(count)
    place[count] = count
    record(machine, [rows[step] for step in order], place)


def record(machine: Machine, rows: Sequence[Row], place: Ints) -> None:
    """Have a machine's record consist of ``rows``.

    Args:
        place: the number that each old step has now, and how many there are.
    """
    machine.catch_up()  # what has not run yet knows itself by its number
    program, new = machine.program, place.tolist()
    program.record_again(rows)
    program.names = {new[step]: name for step, name in program.names.items()}
    machine.dependencies[:] = [(new[step], tuple(new[p] for p in named), kind) for step, named, kind in machine.dependencies]
    machine.ordered[:] = [sorted(new[step] for step in block) for block in machine.ordered]
    findings = machine.report.findings
    findings[:] = [one if one.step is None else replace(one, step=new[min(one.step, len(new) - 1)]) for one in findings]
    _set_lives(program, new)


def _set_lives(program: Program, new: Sequence[int]) -> None:
    """Tiles that the compiler places are alive from their first use to their last; other tensors from where they were made."""
    steps, tensors = program.uses()
    first, last = program.first_uses(), np.full(len(program.allocations), -1)
    np.maximum.at(last, tensors, steps)
    for tensor in program.allocations:
        placed_here = tensor.region.on_chip and tensor.address is None
        begins, ends = int(first[tensor.id]), int(last[tensor.id])
        made = new[min(tensor.born, len(new) - 1)]
        tensor.born = begins if placed_here and ends >= 0 else min(made, begins)
        tensor.last = ends if ends >= 0 or tensor.last < 0 else new[tensor.last]


__all__ = ["Row", "record", "reorder", "rows_of"]
