"""Who must wait for whom: read after write, write after read, write after write on what really overlaps, ``depends_on``,
and the memory that a tile gets only when an earlier one has died.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from nki_sim.errors import Broken, NkiValidationError, Rule, page, violation
from nki_sim.hw import NeuronCore
from nki_sim.memory import Allocation, MemoryRegion, overlaps
from nki_sim.program import Plan, Program, Slot
from nki_sim.regions import Box, Boxes, box_of

CYCLE = Rule(
    "sched.depends_on_cycle",
    "instructions do not wait for each other in a circle",
    why="each would wait for a semaphore that another one signals only after it",
    fix="let an instruction depend on earlier ones only",
    page=page("guides/how-to-scheduling-apis.html"),
)

ORDER, ANTI, OUTPUT, TRUE = 0, 1, 2, 3
"""``nl.no_reorder``; write after read; write after write; read after write, or ``depends_on``."""

Found = dict[int, int]
"""The steps that one must wait for, and the strongest reason."""

Explicit = Iterable[tuple[int, Sequence[int]]]
"""``depends_on``: a step and those it named."""


@dataclass
class Dependencies:
    """For each step the steps that it waits for: ``producers[first[i]:first[i + 1]]``, without repetition, and ``kinds``."""

    first: array[int]
    producers: array[int]
    kinds: array[int]
    order: Sequence[int]
    """Program order, but for steps that ``depends_on`` puts after later ones."""

    def of(self, step: int) -> array[int]:
        """The steps that a step waits for."""
        return self.producers[self.first[step] : self.first[step + 1]]

    def __len__(self) -> int:
        return len(self.first) - 1


def dependencies(
    program: Program, core: NeuronCore, explicit: Explicit = (), ordered: Iterable[tuple[int, int]] = ()
) -> Dependencies:
    """Find all dependencies of a program.

    Args:
        explicit: those of ``depends_on``.
        ordered: blocks of ``nl.no_reorder``, first step and the one after the last.

    Raises:
        NkiValidationError: instructions depend on each other in a circle.
    """
    named: dict[int, set[int]] = {}
    for consumer, given in explicit:
        named.setdefault(consumer, set()).update(given)
    before = dict(_in_order(program, ordered))
    history, rooms = _History(program), _Rooms(program, core)
    first, producers, kinds = array("q", [0]), array("i"), array("b")
    plans, starts, _ = program.tables
    for step, number in enumerate(plans):
        found: Found = {}
        if step >= rooms.due:
            rooms.enter(step, history, found)
        history.access(step, number, starts[step], found)
        if step in named:
            found.update(dict.fromkeys(named[step], TRUE))
        if step in before:
            found.setdefault(before[step], ORDER)
        steps = sorted(found) if len(found) > 1 else found
        producers.extend(steps)
        kinds.extend(map(found.__getitem__, steps))
        first.append(len(producers))
    forward = any(p >= consumer for consumer, given in named.items() for p in given)
    order = _topological(first, producers, program, core) if forward else range(len(program))
    return Dependencies(first, producers, kinds, order)


def _in_order(program: Program, ordered: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Steps of ordered blocks, and the one before on the same engine or queue."""
    for first, end in ordered:
        last: dict[tuple[int, str], int] = {}
        for step in range(first, end):
            plan = program.plan_at(step)
            name = (plan.core, plan.cost.queue or plan.engine)
            if name in last:
                yield step, last[name]
            last[name] = step


def check_order(program: Program, core: NeuronCore, explicit: Iterable[tuple[int, Sequence[int], object]]) -> None:
    """Refuse ``depends_on`` in a circle. Only what depends on a later step can be part of one.

    Raises:
        NkiValidationError: instructions depend on each other in a circle.
    """
    pairs = [(consumer, producers) for consumer, producers, _ in explicit]
    if any(p >= consumer for consumer, producers in pairs for p in producers):
        dependencies(program, core, pairs)


def _topological(first: array[int], producers: array[int], program: Program, core: NeuronCore) -> array[int]:
    """Program order, but after what was named with ``depends_on``."""
    n = len(first) - 1
    open_ = [first[i + 1] - first[i] for i in range(n)]
    consumers: list[list[int]] = [[] for _ in range(n)]
    for step in range(n):
        for p in producers[first[step] : first[step + 1]]:
            consumers[p].append(step)
    ready = [i for i in range(n) if not open_[i]]
    order = array("i")
    while ready:
        step = heapq.heappop(ready)
        order.append(step)
        for consumer in consumers[step]:
            open_[consumer] -= 1
            if not open_[consumer]:
                heapq.heappush(ready, consumer)
    if len(order) < n:
        step = next(i for i in range(n) if open_[i])
        seen: list[int] = []
        while step not in seen:
            seen.append(step)
            step = next(p for p in producers[first[step] : first[step + 1]] if open_[p])
        raise _circle(seen[seen.index(step) :], program, core)
    return order


def _circle(steps: list[int], program: Program, core: NeuronCore) -> NkiValidationError:
    names = [f"step {i} ({program[i].instruction}, line {program[i].line})" for i in [*steps, steps[0]]]
    sites = tuple(site for site in (program.site_at(steps[0]),) if site is not None)
    broken = Broken(" waits for ".join(names))
    return NkiValidationError(violation(CYCLE, broken, target=core.target, instruction="depends_on", sites=sites))


class _Touched:
    """The accesses to one allocation that a later one may have to wait for."""

    __slots__ = ("all_reads", "all_writes", "reads", "writes")

    def __init__(self) -> None:
        self.all_writes = -1
        """The last step that wrote all of it."""
        self.all_reads: list[int] = []
        self.writes: Boxes | None = None
        """Steps that wrote a part of it since; ``reads``: that read a part of it."""
        self.reads: Boxes | None = None

    def read(self, box: Box | None, step: int, found: Found) -> None:
        if self.all_writes >= 0:
            found[self.all_writes] = TRUE
        if self.writes:
            self.writes.find(box, found, TRUE)
        if box is None:
            self.all_reads.append(step)
            return
        if self.reads is None:
            self.reads = Boxes()
        self.reads.add(box, step)

    def write(self, box: Box | None, step: int, found: Found) -> None:
        for reader in self.all_reads:
            found.setdefault(reader, ANTI)
        if self.reads:
            self.reads.find(box, found, ANTI)
        if self.all_writes >= 0 and found.get(self.all_writes, ANTI) < OUTPUT:
            found[self.all_writes] = OUTPUT
        if self.writes:
            self.writes.find(box, found, OUTPUT)
        if box is None:  # whoever waits for this step waits for all of them
            self.all_writes, self.all_reads = step, []
            self.writes = self.reads = None
            return
        if self.writes is None:
            self.writes = Boxes()
        self.writes.cover(box)
        self.writes.add(box, step)
        if self.reads:
            self.reads.cover(box)

    def pending(self, found: Found, kind: int, reads: bool = True) -> None:
        """Add the steps that write its bytes, and that read them."""
        if self.all_writes >= 0 and found.get(self.all_writes, -1) < kind:
            found[self.all_writes] = kind
        if self.writes:
            self.writes.find(None, found, kind)
        for reader in self.all_reads if reads else ():
            found.setdefault(reader, ANTI)
        if reads and self.reads:
            self.reads.find(None, found, ANTI)


class _History:
    """Who touched what, per allocation."""

    def __init__(self, program: Program):
        self._program = program
        self._touched: dict[int, _Touched] = {}
        self._accesses: dict[int, tuple[tuple[int, Slot, bool], ...]] = {}
        self._shared = aliases(list(program.allocations))
        self._written = _ever_written(program)
        self._operands = program.tables[2]
        self._boxes: dict[tuple[int, int, int], Box] = {}

    def access(self, step: int, number: int, start: int, found: Found) -> None:
        """Add the steps that ``step`` must wait for to ``found``, and note what it touches: the operands from ``start``."""
        program, touched, written, operands = self._program, self._touched, self._written, self._operands
        touches = self._accesses.get(number)
        if touches is None:
            touches = self._accesses[number] = accesses(program.plans[number])
        allocations = program.allocations
        for place, slot, writes in touches:
            a = operands[start + place]
            if a < 0 or not written[a]:
                continue
            offset, box = operands[start + place + 1], None
            if offset or slot.gathers or slot.shape != allocations[a].shape:
                box = self._box(a, slot, offset)
            mine = touched.get(a)
            if mine is None:
                mine = touched[a] = _Touched()
            if writes:
                mine.write(box, step, found)
            else:
                mine.read(box, step, found)
            if self._shared:
                for other in self._shared.get(a, ()):
                    if other in touched:
                        touched[other].pending(found, OUTPUT if writes else TRUE, reads=writes)
        found.pop(step, None)

    def _box(self, a: int, slot: Slot, offset: int) -> Box:
        key = (a, id(slot), offset)
        box = self._boxes.get(key)
        if box is None:
            box = box_of(self._program.allocations[a], slot, offset)
            if not self._program.allocations[a].region.on_chip:
                self._boxes[key] = box
        return box

    def leave(self, allocation: int, found: Found) -> None:
        """An allocation is over: add the steps after which its bytes are free."""
        mine = self._touched.pop(allocation, None)
        if mine:
            mine.pending(found, ANTI)


def accesses(plan: Plan) -> tuple[tuple[int, Slot, bool], ...]:
    """Per operand of a plan: its place, its slot, and whether it is written; reads first."""
    changing = (*plan.writes, *plan.orders)
    return tuple((2 * i, plan.slots[i], i in changing) for i in (*plan.reads, *changing))


def _ever_written(program: Program) -> list[bool]:
    """Per allocation whether any step writes it; nobody waits for reads of the others."""
    written = np.zeros(len(program.allocations) + 1, bool)
    numbers = program.plan_numbers()
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(program.plans) + 1))
    for number, plan in enumerate(program.plans):
        steps = order[bounds[number] : bounds[number + 1]]
        for place in plan.writes if len(steps) else ():
            written[program.allocations_at(steps, place)] = True  # what is no tensor counts as the one too many
    return [bool(w) for w in written[:-1]]


class _Rooms:
    """SBUF and PSUM as rooms: a tile without an address comes in when those that died before it leave enough bytes.

    Which bytes it gets is the compiler's choice; that there must be enough is not. The tiles that die first leave first.
    """

    def __init__(self, program: Program, core: NeuronCore):
        tiles = [a for a in program.allocations if a.region.on_chip and a.last >= a.born]
        pinned = [a for a in tiles if a.address is not None]
        self._coming = sorted((a for a in tiles if a.address is None), key=attrgetter("born"))
        self._next = 0
        self.due = 0
        """The step before which :meth:`enter` has nothing to do."""
        self._bank = core.psum_bank_bytes
        sizes = {MemoryRegion.sbuf: core.sbuf_usable_bytes, MemoryRegion.psum: core.psum_usable_bytes}
        rooms = [(number, region) for number in range(1 + max((a.core for a in tiles), default=0)) for region in sizes]
        self._free = {room: sizes[room[1]] for room in rooms}
        for tile in pinned:
            self._free[tile.core, tile.region] -= tile.row_bytes
        self._inside: dict[tuple[int, MemoryRegion], list[tuple[int, int, int]]] = {room: [] for room in rooms}

    def enter(self, step: int, history: _History, found: Found) -> None:
        """Let in what was allocated before ``step``; add the steps whose tiles had to leave for it."""
        coming = self._coming
        while self._next < len(coming) and coming[self._next].born <= step:
            self._admit(coming[self._next], history, found)
            self._next += 1
        self.due = coming[self._next].born if self._next < len(coming) else sys.maxsize

    def _admit(self, tile: Allocation, history: _History, found: Found) -> None:
        room, size = (tile.core, tile.region), tile.row_bytes
        if tile.region is MemoryRegion.psum and size > self._bank:
            size = -(-size // self._bank) * self._bank
        inside = self._inside[room]
        while self._free[room] < size and inside and inside[0][0] < tile.born:
            _, number, bytes_ = heapq.heappop(inside)
            self._free[room] += bytes_
            history.leave(number, found)
        self._free[room] -= size
        heapq.heappush(inside, (tile.last, tile.id, size))


def aliases(allocations: list[Allocation]) -> dict[int, tuple[int, ...]]:
    """Explicit placements that share bytes with each other."""
    pinned = [a for a in allocations if a.address is not None]
    shared: dict[int, tuple[int, ...]] = {}
    for a in pinned:
        others = tuple(b.id for b in pinned if b is not a and (b.core, b.region) == (a.core, a.region) and overlaps(a, b))
        if others:
            shared[a.id] = others
    return shared
