"""A recorded program as nodes: bodies and the accesses they are called with; and who touches what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.program import SCALAR, Plan
from nki_sim.replay.accesses import Access, is_pinned, places, row_major


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


@dataclass(slots=True)
class Use:
    """One operand of one node."""

    node: Node
    place: int
    writes: bool

    @property
    def access(self) -> Access:
        found: Access = self.node.operands[self.place]
        return found


@dataclass
class Graph:
    """The nodes in program order, and the uses of every allocation."""

    machine: Machine
    nodes: list[Node] = field(default_factory=list)
    uses: dict[Any, list[Use]] = field(default_factory=dict)
    _written: dict[Any, bool] = field(default_factory=dict)
    _whole: dict[int, Access] = field(default_factory=dict)

    @classmethod
    def of(cls, machine: Machine) -> Graph:
        """The graph of a finished run."""
        graph, program, found = cls(machine), machine.program, _Places(machine)
        numbers, _, flat = program.tables
        operands, at = flat.tolist(), 0
        for step, number in enumerate(numbers.tolist()):
            plan = program.plans[number]
            end = at + 2 * len(plan.slots)
            graph._add(Node(plan.body, found.of(number, operands[at:end]), plan.writes, plan.updates, plan, step=step))
            at = end
        return graph

    def _add(self, node: Node) -> None:
        """Append a node and note its uses."""
        self.nodes.append(node)
        uses, writes = self.uses, node.writes
        for place, operand in enumerate(node.operands):
            if type(operand) is Access:
                found = uses.get(operand.key)
                if found is None:
                    found = uses[operand.key] = []
                found.append(Use(node, place, place in writes))

    def replace(self, node: Node, other: Node) -> None:
        """Put another node in a step's place."""
        self.nodes[node.step] = other

    def whole(self, number: int) -> Access:
        """All of an allocation."""
        found = self._whole.get(number)
        if found is None:
            tensor = self.machine.program.allocations[number]
            storage = self.machine.memory.stored(tensor.dtype).storage
            found = self._whole[number] = Access(number, tensor.shape, 0, row_major(tensor.shape, storage.itemsize), storage)
        return found

    def tiles(self) -> Iterator[tuple[int, list[Use]]]:
        """Tiles on chip that no explicit address places, with their uses."""
        for tensor in self.machine.program.allocations:
            if tensor.region.on_chip and tensor.id in self.uses and not is_pinned(self.machine, tensor):
                uses = self.users(tensor.id)
                if uses:
                    yield tensor.id, uses

    def written(self, number: Any) -> bool:
        """Whether any node writes an allocation."""
        found = self._written.get(number)
        if found is None:
            found = self._written[number] = any(use.writes for use in self.uses.get(number, ()))
        return found

    def move(self, use: Use, to: Access) -> None:
        """Let an operand be elsewhere."""
        use.node.operands[use.place] = to
        self.uses.setdefault(to.key, []).append(use)

    def users(self, number: Any) -> list[Use]:
        """The uses of an allocation that remain."""
        uses = self.uses.get(number, [])
        return [use for use in uses if not use.node.dropped and use.node.operands[use.place].key == number]

    def allocation(self, number: int) -> Allocation:
        return self.machine.program.allocations[number]


class _Places:
    """Recorded operands as accesses. Those of one place in a plan, in tensors that lie in memory alike, are made in one way."""

    def __init__(self, machine: Machine):
        self._machine = machine
        self._constants, self._orders = machine.program.constants, [plan.orders for plan in machine.program.plans]
        self._ways: dict[tuple[int, int, int], Callable[[int, int], Access]] = {}
        """By plan, place and layout; ``_alike`` by what decides them."""
        self._alike: dict[Any, Callable[[int, int], Access]] = {}
        layouts: dict[Any, int] = {}
        self._layout = [
            layouts.setdefault((t.region, t.core, t.row_bytes, t.dtype.itemsize, t.address), len(layouts))
            for t in machine.program.allocations
        ]

    def of(self, number: int, flat: list[int]) -> list[Any]:
        """The operands of a step of plan ``number``, of which the record has ``flat``."""
        ways, layouts = self._ways, self._layout
        operands: list[Any] = []
        for i in range(0, len(flat), 2):
            where, offset = flat[i], flat[i + 1]
            if where >= 0:
                way = ways.get((number, i, layouts[where])) or self._way(number, i, where)
                operands.append(way(where, offset))
            else:
                operands.append(self._constants[offset] if where == SCALAR else None)
        for place in self._orders[number]:
            operands[place] = None  # the order of the nodes is what a barrier is for
        return operands

    def _way(self, number: int, i: int, where: int) -> Callable[[int, int], Access]:
        program = self._machine.program
        layout, slot = self._layout[where], program.plans[number].slots[i // 2]
        alike = slot.shape, slot.strides, slot.dtype, layout
        made = self._alike.get(alike)
        if made is None:
            made = self._alike[alike] = places(self._machine, program.allocations[where], slot)
        self._ways[number, i, layout] = made
        return made
