"""A recorded program as nodes: bodies and the accesses they are called with; and who touches what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.program import Ints, Plan
from nki_sim.replay.accesses import Access, made_of, row_major
from nki_sim.replay.columns import Columns
from nki_sim.replay.loads import Loads, read_in_place


@dataclass(slots=True)
class Node:
    """One call: a function, and what it is called with, accesses or constants.

    Attributes:
        writes: places of the operands that it writes; ``updates`` those whose old values count.
        plan: the instruction it comes from; ``at``, its place among the nodes of a graph.
    """

    function: Callable[..., Any]
    operands: list[Any]
    writes: tuple[int, ...]
    updates: tuple[int, ...]
    plan: Plan
    dropped: bool = False
    at: int = -1


class Use(NamedTuple):
    """One operand of one node."""

    node: Node
    place: int
    writes: bool

    @property
    def access(self) -> Access:
        found: Access = self.node.operands[self.place]
        return found


_use = partial(tuple.__new__, Use)
"""A use of its three fields, as accesses are made."""


@dataclass
class Graph:
    """The nodes in program order, and the uses of every allocation, but who reads an input.

    Who drops a node sees to it that no tile keeps its uses.
    """

    machine: Machine
    _written: list[bool]
    _is_tile: list[bool]
    nodes: list[Node] = field(default_factory=list)
    uses: defaultdict[Any, list[Use]] = field(default_factory=partial(defaultdict, list))
    _whole: dict[int, Access] = field(default_factory=dict)

    @classmethod
    def of(cls, machine: Machine, *, in_place: bool = True) -> Graph:
        """The graph of a finished run.

        Args:
            in_place: leave out loads of what can be read where it is.
        """
        columns = Columns(machine)
        loads = read_in_place(columns) if in_place else Loads()
        graph = cls(machine, (columns.written > 0).tolist(), columns.tiles.tolist())
        stays = np.ones(len(columns.numbers), np.bool_)
        stays[loads.steps] = False
        steps, plans = np.flatnonzero(stays), columns.plans
        operands = _operands(columns, steps, loads.read)
        for at, (number, given) in enumerate(zip(columns.numbers[steps].tolist(), operands, strict=True)):
            plan = plans[number]
            graph.nodes.append(Node(plan.body, given, plan.writes, plan.updates, plan, False, at))
        moved = np.zeros(len(columns.flat), np.bool_)
        moved[[*loads.read]] = True
        inputs = np.array([tensor.role == "input" for tensor in columns.allocations], np.bool_)
        kept = stays[columns.step] & ~moved[columns.at] & (columns.writes | ~inputs[columns.tensor])
        graph._note(columns, (np.cumsum(stays) - 1)[columns.step[kept]], columns.place[kept])
        return graph

    def _note(self, columns: Columns, at: Ints, place: Ints) -> None:
        """Note uses: by which of the nodes, and at which place of its plan."""
        nodes, uses, places = self.nodes, self.uses, columns.places
        for number, which in zip(at.tolist(), place.tolist(), strict=True):
            node, (_, operand, _, writes) = nodes[number], places[which]
            uses[node.operands[operand][0]].append(_use((node, operand, writes)))

    def replace(self, node: Node, other: Node) -> None:
        """Put another node in one's place."""
        self.nodes[node.at] = other

    def whole(self, number: int) -> Access:
        """All of an allocation."""
        found = self._whole.get(number)
        if found is None:
            tensor = self.machine.program.allocations[number]
            storage = self.machine.memory.stored(tensor.dtype).storage
            strides = row_major(tensor.shape, storage.itemsize)
            found = self._whole[number] = made_of((number, tensor.shape, 0, strides, storage))
        return found

    def forget(self, number: int) -> None:
        """Nobody uses a tile any more."""
        del self.uses[number]

    def tiles(self) -> Iterator[tuple[int, list[Use]]]:
        """Tiles on chip that no explicit address places, with their uses."""
        for number, uses in self.uses.items():
            if isinstance(number, int) and self._is_tile[number]:
                yield number, uses

    def written(self, number: int) -> bool:
        """Whether any step writes an allocation."""
        return self._written[number]

    def move(self, use: Use, to: Access) -> None:
        """Let an operand be elsewhere."""
        use.node.operands[use.place] = to
        self.uses[to[0]].append(use)

    def allocation(self, number: int) -> Allocation:
        return self.machine.program.allocations[number]


def _operands(columns: Columns, kept: Ints, read: dict[int, Access]) -> list[list[Any]]:
    """The operands of the kept steps, in their order: accesses and constants. Those at one place of a plan are made at once."""
    found: list[list[Any]] = [[]] * len(columns.numbers)
    for plan, mine, first in columns.of_plans(kept):
        given = [_column(columns, plan, place, first + 2 * place, read) for place in range(len(plan.slots))]
        for step, operands in zip(mine.tolist(), zip(*given, strict=True), strict=bool(given)):
            found[step] = [*operands]
    return [found[step] for step in kept.tolist()]


def _column(columns: Columns, plan: Plan, place: int, at: Ints, read: dict[int, Access]) -> list[Any]:
    """What steps of a plan have at one place."""
    if place in plan.orders:
        return [None] * len(at)  # the order of the nodes is what a barrier is for
    moved = [read.get(each) for each in at.tolist()] if read and place in plan.reads else []
    if moved and None not in moved:
        return moved
    made = columns.operands(plan.slots[place], at)
    return [to or own for to, own in zip(moved, made, strict=True)] if moved else made
