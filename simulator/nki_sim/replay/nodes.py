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

    @property
    def access(self) -> Access:
        found: Access = self.node.operands[self.place]
        return found

    @property
    def writes(self) -> bool:
        return self.place in self.node.writes


@dataclass
class Graph:
    """The nodes in program order, and the uses of every allocation."""

    machine: Machine
    nodes: list[Node] = field(default_factory=list)
    uses: dict[Any, list[Use]] = field(default_factory=dict)
    _written: dict[Any, bool] = field(default_factory=dict)
    _whole: dict[int, Access] = field(default_factory=dict)
    _placing: dict[Any, Callable[[int, int], Access]] = field(default_factory=dict)

    @classmethod
    def of(cls, machine: Machine) -> Graph:
        """The graph of a finished run."""
        graph = cls(machine)
        for step in range(len(machine.program)):
            graph.add(graph._node(step))
        return graph

    def add(self, node: Node) -> None:
        """Append a node and note its uses."""
        self.nodes.append(node)
        for use in accesses_of(node):
            self.uses.setdefault(use.access.key, []).append(use)

    def _node(self, step: int) -> Node:
        program = self.machine.program
        plan = program.plan_at(step)
        operands: list[Any] = []
        for at, (slot, (where, offset)) in enumerate(zip(plan.slots, program.raw(step), strict=True)):
            if at in plan.orders:
                operands.append(None)  # the order of the nodes is what a barrier is for
            elif where >= 0:
                tensor = program.allocations[where]
                alike = (id(slot), tensor.region, tensor.core, tensor.row_bytes, tensor.dtype.itemsize, tensor.address)
                place = self._placing.get(alike)
                if place is None:
                    place = self._placing[alike] = places(self.machine, tensor, slot)
                operands.append(place(where, offset))
            else:
                operands.append(program.constants[offset] if where == SCALAR else None)
        return Node(plan.body, operands, plan.writes, plan.updates, plan, step=step)

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
        return [use for use in uses if not use.node.dropped and use.access.key == number]

    def allocation(self, number: int) -> Allocation:
        return self.machine.program.allocations[number]


def accesses_of(node: Node) -> Iterator[Use]:
    """The operands of a node that are accesses."""
    return (Use(node, place) for place, operand in enumerate(node.operands) if type(operand) is Access)
