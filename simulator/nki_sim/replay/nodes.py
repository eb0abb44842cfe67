"""A recorded program as nodes: bodies and the accesses they are called with; and who touches what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nki_sim.machine import Machine
from nki_sim.memory import Allocation
from nki_sim.program import SCALAR, Plan
from nki_sim.replay.accesses import Access, access, is_pinned, row_major


@dataclass
class Node:
    """One call: a function, and what it is called with, accesses or constants.

    Attributes:
        writes: places of the operands that it writes; ``updates`` those whose old values count.
        plan: the instruction it comes from.
    """

    function: Callable[..., Any]
    operands: list[Any]
    writes: tuple[int, ...]
    updates: tuple[int, ...]
    plan: Plan
    dropped: bool = False


@dataclass
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
        for slot, (where, offset) in zip(plan.slots, program.raw(step), strict=True):
            if where >= 0:
                operands.append(access(self.machine, program.allocations[where], slot, offset))
            else:
                operands.append(program.constants[offset] if where == SCALAR else None)
        return Node(plan.body, operands, plan.writes, plan.updates, plan)

    def whole(self, number: int) -> Access:
        """All of an allocation."""
        tensor = self.machine.program.allocations[number]
        storage = self.machine.memory.stored(tensor.dtype).storage
        return Access(number, tensor.shape, 0, row_major(tensor.shape, storage.itemsize), storage)

    def tiles(self) -> Iterator[tuple[int, list[Use]]]:
        """Tiles on chip that no explicit address places, with their uses."""
        for tensor in self.machine.program.allocations:
            if tensor.region.on_chip and not is_pinned(self.machine, tensor) and tensor.id in self.uses:
                yield tensor.id, self.uses[tensor.id]

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

    def drop(self, node: Node) -> None:
        """Take a node out. Tensors in HBM keep its uses: they may have one from every step."""
        node.dropped = True
        for key in {use.access.key for use in accesses_of(node)}:
            if isinstance(key, int) and self.allocation(key).region.on_chip:
                self.uses[key] = [other for other in self.uses[key] if other.node is not node]

    def allocation(self, number: int) -> Allocation:
        return self.machine.program.allocations[number]


def accesses_of(node: Node) -> Iterator[Use]:
    """The operands of a node that are accesses."""
    return (Use(node, place) for place, operand in enumerate(node.operands) if isinstance(operand, Access))
