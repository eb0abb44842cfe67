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
from nki_sim.replay.loads import read_in_place
from nki_sim.replay.products import F32, multiplied
from nki_sim.replay.sums import sums


@dataclass(slots=True)
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
class Product(Node):
    """A whole product: operands are dst [M, N], stationary [K, M], moving [K, N]."""


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
            in_place: leave out loads of what can be read where it is, and make one product of matmuls that add up.
        """
        columns = Columns(machine)
        graph = cls(machine, (columns.written > 0).tolist(), columns.tiles.tolist())
        stays = np.ones(len(columns.numbers), np.bool_)
        products: dict[int, Product] = {}
        if in_place:
            stays[read_in_place(columns)] = False
            made = sums(columns)
            stays[made.steps] = False
            for step, tile, *factors in zip(made.last, made.tile, made.stationary, made.moving, strict=True):
                plan = columns.plans[columns.numbers[step]]
                products[step] = Product(multiplied(F32), [graph.whole(tile), *factors], (0,), (), plan)
        own = stays.copy()
        stays[[*products]] = True
        operands = iter(columns.operands(own))
        steps = np.flatnonzero(stays)
        for step, number in zip(steps.tolist(), columns.numbers[steps].tolist(), strict=True):
            plan = columns.plans[number]
            graph.nodes.append(products.get(step) or Node(plan.body, next(operands), plan.writes, plan.updates, plan))
        kept = stays[columns.step] & ~columns.moved & (columns.writes | ~columns.inputs[columns.tensor])
        graph._note(columns, (np.cumsum(stays) - 1)[columns.step[kept]], columns.place[kept])
        return graph

    def _note(self, columns: Columns, at: Ints, place: Ints) -> None:
        """Note uses: by which of the nodes, and at which place of its plan."""
        nodes, uses, places = self.nodes, self.uses, columns.places
        for number, which in zip(at.tolist(), place.tolist(), strict=True):
            node, (_, operand, writes) = nodes[number], places[which]
            uses[node.operands[operand][0]].append(_use((node, operand, writes)))

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
