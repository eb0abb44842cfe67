"""A recorded program as nodes: bodies and the accesses they are called with; and who touches what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.program import SCALAR, Plan, Slot
from nki_sim.replay.accesses import Access, Way, is_pinned, made_of, row_major, way_of


@dataclass(slots=True)
class Node:
    """One call: a function, and what it is called with, accesses or constants.

    Attributes:
        writes: places of the operands that it writes; ``updates`` those whose old values count.
        plan: the instruction it comes from; ``step``, which one.
    """

    function: Callable[..., Any]
    operands: list[Any]
    writes: tuple[int, ...]
    updates: tuple[int, ...]
    plan: Plan
    dropped: bool = False
    step: int = -1


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
    """The nodes in program order, and the uses of every allocation. Who drops a node sees to it that no tile keeps its uses."""

    machine: Machine
    nodes: list[Node] = field(default_factory=list)
    uses: defaultdict[Any, list[Use]] = field(default_factory=partial(defaultdict, list))
    _written: dict[Any, bool] = field(default_factory=dict)
    _whole: dict[int, Access] = field(default_factory=dict)

    @classmethod
    def of(cls, machine: Machine) -> Graph:
        """The graph of a finished run."""
        graph, program = cls(machine), machine.program
        nodes, uses = graph.nodes, graph.uses
        touched = [[(place, place in plan.writes) for place in sorted((*plan.reads, *plan.writes))] for plan in program.plans]
        for step, (number, operands) in enumerate(zip(program.steps, _operands(machine), strict=True)):
            plan = program.plans[number]
            node = Node(plan.body, operands, plan.writes, plan.updates, plan, False, step)
            nodes.append(node)
            for place, writes in touched[number]:
                uses[operands[place][0]].append(_use((node, place, writes)))
        return graph

    def replace(self, node: Node, other: Node) -> None:
        """Put another node in a step's place."""
        self.nodes[node.step] = other

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
        for number in self._tiles:
            if number in self.uses:
                yield number, self.uses[number]

    @cached_property
    def _tiles(self) -> list[int]:
        tensors = self.machine.program.allocations
        return [tensor.id for tensor in tensors if tensor.region.on_chip and not is_pinned(self.machine, tensor)]

    def written(self, number: Any) -> bool:
        """Whether any node writes an allocation."""
        found = self._written.get(number)
        if found is None:
            found = self._written[number] = any(use.writes for use in self.uses.get(number, ()))
        return found

    def move(self, use: Use, to: Access) -> None:
        """Let an operand be elsewhere."""
        use.node.operands[use.place] = to
        self.uses[to[0]].append(use)

    def allocation(self, number: int) -> Allocation:
        return self.machine.program.allocations[number]


def _operands(machine: Machine) -> list[list[Any]]:
    """The operands of every step: accesses and constants. Those at one place of a plan are made together."""
    program, columns = machine.program, _Columns(machine)
    numbers, first, flat = (np.array(table, np.int64) for table in program.tables)
    steps = np.argsort(numbers, kind="stable")
    found: list[list[Any]] = [[]] * len(numbers)
    for mine in np.split(steps, np.cumsum(np.bincount(numbers, minlength=len(program.plans)))[:-1]):
        plan = program.plans[numbers[mine[0]]]
        recorded = flat[first[mine] + np.arange(2 * len(plan.slots))[:, None]].tolist()
        given = [columns.of(*column) for column in zip(plan.slots, recorded[::2], recorded[1::2], strict=True)]
        for place in plan.orders:
            given[place] = [None] * len(mine)  # the order of the nodes is what a barrier is for
        for step, operands in zip(mine.tolist(), zip(*given, strict=True), strict=bool(given)):
            found[step] = [*operands]
    return found


class _Columns:
    """Recorded operands as accesses. Those of one shape, in tensors that lie in memory alike, are made in one way."""

    def __init__(self, machine: Machine):
        self._machine = machine
        self._ways: dict[Any, Way] = {}
        layouts: dict[Any, int] = {}
        self._layout = [
            layouts.setdefault((t.region, t.core, t.row_bytes, t.dtype.itemsize, t.address), len(layouts))
            for t in machine.program.allocations
        ]

    def of(self, slot: Slot, tensors: list[int], offsets: list[int]) -> list[Any]:
        """What the record has of one place of a plan, in the order of its steps."""
        if tensors[0] < 0:
            constants = self._machine.program.constants
            return [constants[at] if kind == SCALAR else None for kind, at in zip(tensors, offsets, strict=True)]
        layouts = [self._layout[number] for number in tensors]
        if layouts.count(layouts[0]) == len(layouts):
            return self._way(slot, tensors[0])(tensors, offsets)
        alike: dict[int, list[int]] = {}
        for i, layout in enumerate(layouts):
            alike.setdefault(layout, []).append(i)
        found: list[Any] = [None] * len(tensors)
        for places in alike.values():
            way = self._way(slot, tensors[places[0]])
            for i, made in zip(places, way([tensors[i] for i in places], [offsets[i] for i in places]), strict=True):
                found[i] = made
        return found

    def _way(self, slot: Slot, number: int) -> Way:
        alike = slot.shape, slot.strides, slot.dtype, self._layout[number]
        made = self._ways.get(alike)
        if made is None:
            made = self._ways[alike] = way_of(self._machine, self._machine.program.allocations[number], slot)
        return made
