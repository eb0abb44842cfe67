"""A recorded program, bound to storage: what it did, done again on other inputs of the same shapes, without its Python."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from nki_sim.dtypes import Array, assign
from nki_sim.machine import Machine
from nki_sim.replay import scratch
from nki_sim.replay.accesses import Access
from nki_sim.replay.fusion import factors, fuse
from nki_sim.replay.nodes import Graph, Node
from nki_sim.reporting import Disturbed

Call = tuple[Callable[..., Any], list[Any]]


class Bound:
    """A program whose operands are NumPy views made once; it serves one call at a time.

    Tiles share bytes when they are never alive together, as they did in the run that was recorded. Views of inputs and
    outputs are made again when these are other arrays than before. What several cores did is done by one thread, in the order
    of the record, which keeps barriers and exchanges.

    Args:
        machine: of a run whose course does not depend on data.
        inputs: allocation numbers of the inputs, in the order of the arrays of a call.
        outputs: accesses that a call returns the values of, each in an array of its own.
        unfused: do every instruction by itself.

    Attributes:
        steps: instructions of the record; ``nbytes``: of storage between the inputs and the outputs.
    """

    def __init__(self, machine: Machine, inputs: Sequence[int], outputs: Sequence[Access], *, unfused: bool = False):
        self._machine, self._lock = machine, threading.Lock()
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        graph = Graph.of(machine, in_place=not unfused)
        self._written = {number for number in inputs if graph.written(number)}
        nodes = graph.nodes if unfused else fuse(graph)
        self._nodes, self._wide = nodes, self._widen(nodes)
        outside = {*self._inputs, *self._wide.values(), *(o.key for o in self._outputs)}
        data = _Bytes(machine, nodes, outside)
        self.steps, self.nbytes = len(machine.program), data.nbytes
        self._calls: list[Call] = []
        self._loose: dict[Any, list[tuple[list[Any], int, Access]]] = {key: [] for key in outside}
        for node in nodes:
            arguments: list[Any] = [*node.operands]
            self._calls.append((node.function, arguments))
            for place, operand in enumerate(arguments):
                if type(operand) is Access:
                    if operand.key in outside:
                        self._loose[operand.key].append((arguments, place, operand))
                    else:
                        arguments[place] = operand.view(data.of(operand.key))
        self._bound: dict[Any, Array] = {}

    @staticmethod
    def _widen(nodes: list[Node]) -> dict[int, str]:
        """Let products read float32 copies of low-precision inputs, one for each; return their keys by input."""
        wide: dict[int, str] = {}
        for product, place, found in list(factors(nodes)):
            key = wide.setdefault(found.key, f"float32 of {found.key}")
            step = 4 // found.dtype.itemsize
            strides = tuple(s * step for s in found.strides)
            product.operands[place] = Access(key, found.shape, found.offset * step, strides, np.dtype(np.float32))
        return wide

    def __call__(
        self, arrays: Sequence[Array], watch: Callable[[Node, list[Any]], None] | None = None
    ) -> tuple[list[Array], dict[int, Array]]:
        """Run on new inputs: C-contiguous arrays of the recorded shapes and dtypes.

        Args:
            watch: called after each node, with its arguments.

        Returns:
            the outputs, and the new values of the inputs that the kernel writes, by their place in ``arrays``.

        Raises:
            Disturbed: an instruction has something to say about these values; nothing was returned.
        """
        with self._lock:
            return self._run(arrays, watch)

    def _run(
        self, arrays: Sequence[Array], watch: Callable[[Node, list[Any]], None] | None
    ) -> tuple[list[Array], dict[int, Array]]:
        written: dict[int, Array] = {}
        for place, (number, array) in enumerate(zip(self._inputs, arrays, strict=True)):
            if number in self._written:
                written[place] = array = array.copy()
            self._bind(number, array)
        wide = [self._copy(key, arrays[self._inputs.index(number)]) for number, key in self._wide.items()]
        made = {access.key: self._fresh(access.key) for access in self._outputs if access.key not in self._inputs}
        before = {name: held.values.copy() for name, held in self._machine.registers.items()}
        for held in self._machine.registers.values():
            held.values[...] = held.initial
        try:
            with self._machine.disturbed(), np.errstate(all="ignore"):
                if watch is None:
                    for function, arguments in self._calls:
                        function(*arguments)
                else:
                    for node, (function, arguments) in zip(self._nodes, self._calls, strict=True):
                        function(*arguments)
                        watch(node, arguments)
            return [self._out(access, made, arrays, written) for access in self._outputs], written
        finally:
            self._release()
            for copy in wide:
                scratch.give_back(copy)
            for name, values in before.items():  # somebody may be stepping through the recorded run
                self._machine.registers[name].values[...] = values

    def _bind(self, key: Any, array: Array) -> None:
        """Make the views of an array that a call brings."""
        if self._bound.get(key) is array:
            return
        data = array.reshape(-1).view(np.uint8)
        for arguments, place, access in self._loose.get(key, ()):
            arguments[place] = access.view(data)
        self._bound[key] = array

    def _copy(self, key: Any, array: Array) -> Array:
        """A float32 copy of an input, for this call."""
        made = scratch.take(array.shape)
        assign(made, array)
        self._bind(key, made)
        return made

    def _fresh(self, number: int) -> Array:
        tensor = self._machine.program.allocations[number]
        made = scratch.lend(tensor.row_bytes)
        self._bind(number, made)
        return made

    def _out(self, access: Access, made: dict[Any, Array], arrays: Sequence[Array], written: dict[int, Array]) -> Array:
        if access.key in made:
            return np.ascontiguousarray(access.view(made[access.key]))
        place = self._inputs.index(access.key)
        values = written.get(place, arrays[place])
        return np.array(access.view(values.reshape(-1).view(np.uint8)))

    def _release(self) -> None:
        """Let go of the arrays of a call."""
        for key, loose in self._loose.items():
            for arguments, place, access in loose:
                arguments[place] = access
            self._bound.pop(key, None)


@dataclass(eq=False)
class _Place:
    """Bytes that one allocation after the other has: as many as the largest of them needs."""

    size: int
    data: Array | None = None

    @property
    def bytes(self) -> Array:
        if self.data is None:
            self.data = np.zeros(self.size, np.uint8)
        return self.data


class _Bytes:
    """Bytes for all allocations that a program uses, shared by those that are never alive together."""

    def __init__(self, machine: Machine, nodes: list[Node], outside: set[Any]):
        self._machine = machine
        self._places: list[_Place] = []
        self._of: dict[Any, _Place] = {}
        births, deaths = _lives(nodes, outside)
        free: list[_Place] = []
        for at in sorted({*births, *deaths}):
            for key in births.get(at, ()):
                self._of[key] = self._own(key) or self._taken(free, self._size(key))
            for key in deaths.get(at, ()):
                if isinstance(key, int) and key not in machine.constants:
                    insort(free, self._of[key], key=_size_of)

    def of(self, key: Any) -> Array:
        return self._of[key].bytes

    @property
    def nbytes(self) -> int:
        return sum(place.size for place in self._places)

    def _own(self, key: Any) -> _Place | None:
        """What a constant's values are in."""
        constant = self._machine.constants.get(key)
        if constant is None:
            return None
        return self._made(constant.nbytes, np.ascontiguousarray(constant).reshape(-1).view(np.uint8))

    def _taken(self, free: list[_Place], size: int) -> _Place:
        """The smallest free place that is large enough, or else the largest one, which grows."""
        at = min(bisect_left(free, size, key=_size_of), len(free) - 1)
        if at < 0:
            return self._made(size)
        found = free.pop(at)
        found.size = max(found.size, size)
        return found

    def _made(self, size: int, data: Array | None = None) -> _Place:
        self._places.append(_Place(size, data))
        return self._places[-1]

    def _size(self, key: Any) -> int:
        if not isinstance(key, int):  # the real bytes of a core's memory
            core, region = self._machine.core, key[0]
            return core.partitions * (core.sbuf_partition_bytes if region.value == "sbuf" else core.psum_partition_bytes)
        tensor = self._machine.program.allocations[key]
        stored = self._machine.memory.stored(tensor.dtype).itemsize
        return tensor.partitions * tensor.row_bytes // tensor.dtype.itemsize * stored


_size_of = attrgetter("size")


def _lives(nodes: list[Node], outside: set[Any]) -> tuple[dict[int, list[Any]], dict[int, list[Any]]]:
    """Which allocations are first used, and last used, at each node."""
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for at, node in enumerate(nodes):
        for operand in node.operands:
            if type(operand) is Access and operand.key not in outside:
                first.setdefault(operand.key, at)
                last[operand.key] = at
    births: dict[int, list[Any]] = {}
    deaths: dict[int, list[Any]] = {}
    for key, at in first.items():
        births.setdefault(at, []).append(key)
        deaths.setdefault(last[key], []).append(key)
    return births, deaths


__all__ = ["Bound", "Disturbed"]
