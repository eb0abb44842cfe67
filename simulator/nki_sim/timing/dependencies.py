"""Who must wait for whom: read after write, write after read, write after write on what really overlaps, on accumulator
registers and random states, ``depends_on``, and the memory that a tile gets only when an earlier one has died.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nki_sim.errors import Broken, NkiValidationError, Rule, page, violation
from nki_sim.hw import NeuronCore
from nki_sim.program import Program
from nki_sim.timing.cells import ANTI, ORDER, OUTPUT, TRUE, Cells, Edges
from nki_sim.timing.history import History
from nki_sim.timing.rooms import leaving
from nki_sim.timing.touched import patches, touched

CYCLE = Rule(
    "sched.depends_on_cycle",
    "instructions do not wait for each other in a circle",
    why="each would wait for a semaphore that another one signals only after it",
    fix="let an instruction depend on earlier ones only",
    page=page("guides/how-to-scheduling-apis.html"),
)

Explicit = Sequence[tuple[int, Sequence[int], object]]
"""``depends_on``, as a machine keeps it: a step, those it named, and the kind."""


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
    program: Program,
    core: NeuronCore,
    explicit: Explicit = (),
    ordered: Iterable[Sequence[int]] = (),
    *,
    room: bool = True,
) -> Dependencies:
    """Find all dependencies of a program.

    Args:
        explicit: those of ``depends_on``.
        ordered: the steps of each block of ``nl.no_reorder``.
        room: also those of tiles that wait until earlier ones have left.

    Raises:
        NkiValidationError: instructions depend on each other in a circle.
    """
    named = [(consumer, producer, TRUE) for consumer, given, _ in explicit for producer in given]
    found = [
        *_on_memory(program, core, room),
        _listed(named),
        _listed([(*pair, ORDER) for pair in _in_order(program, ordered)]),
        _listed([(*pair, TRUE) for pair in _in_engines(program)]),
    ]
    first, producers, kinds = _merged(found, len(program))
    order: Sequence[int] = range(len(program))
    if names_later(explicit):
        order = _topological(first, producers, program, core)
    return Dependencies(first, producers, kinds, order)


def _on_memory(program: Program, core: NeuronCore, room: bool) -> Iterator[Edges]:
    """Who waits for whom because of what both touch, and because of the room that a tile needs."""
    n, allocations = len(program), list(program.allocations)
    if not n:
        return
    shared = patches(allocations)
    all_ = touched(program, shared)
    apart = np.zeros(len(allocations) + 1, bool)
    apart[list(shared)] = True
    alone = ~apart[all_.allocation]
    cells = Cells(all_.only(alone), allocations, n)
    rest = ~alone
    rest[alone] = cells.others
    history = History(all_.only(rest), allocations, shared)
    places, gone = leaving(allocations, core, n) if room else ([], [])
    steps = np.array(places, np.int64)
    yield cells.edges()
    yield cells.endings(steps, np.array(gone, np.int64))
    yield history.edges(zip(steps.tolist(), gone, strict=True))


def _listed(edges: list[tuple[int, int, int]]) -> Edges:
    return Edges(*np.array(edges, np.int64).reshape(-1, 3).T)


def _merged(found: list[Edges], n: int) -> tuple[array[int], array[int], array[int]]:
    """All of them by consumer, each pair once, with the strongest reason."""
    consumer, producer, kind = (np.concatenate(column) for column in zip(*found, strict=True))
    key = ((consumer * n + producer) << 2) | kind
    key.sort()
    last = np.ones(len(key), bool)
    last[:-1] = key[1:] >> 2 != key[:-1] >> 2
    key = key[last]
    consumer, producer = np.divmod(key >> 2, max(n, 1))
    first = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(consumer, minlength=n), out=first[1:])
    made = array("q"), array("i"), array("b")
    for table, values in zip(made, (first, producer.astype(np.int32), (key & 3).astype(np.int8)), strict=True):
        table.frombytes(values.tobytes())
    return made


def _in_order(program: Program, ordered: Iterable[Sequence[int]]) -> Iterable[tuple[int, int]]:
    """Steps of ordered blocks, and the one before on the same engine or queue."""
    for block in ordered:
        last: dict[tuple[int, str], int] = {}
        for step in block:
            plan = program.plan_at(step)
            name = (plan.core, plan.cost.queue or plan.engine)
            if name in last:
                yield step, last[name]
            last[name] = step


def names_later(explicit: Explicit) -> bool:
    """Whether ``depends_on`` names a step that comes later in the program: only such can be part of a circle."""
    return any(producer >= consumer for consumer, given, _ in explicit for producer in given)


def _in_engines(program: Program) -> Iterable[tuple[int, int]]:
    """Steps that use what lasts in an engine, and the one before that does; where any of them needs what was left there."""
    users: dict[tuple[int, str], list[int]] = {}
    for number, plan in enumerate(program.plans):
        for name in plan.lasting:
            users.setdefault((plan.core, name), []).append(number)
    numbers = program.plan_numbers()
    for plans in users.values():
        if any(program.plans[number].goes_on for number in plans):
            steps = np.flatnonzero(np.isin(numbers, plans)).tolist()
            yield from zip(steps[1:], steps[:-1], strict=True)


def check_order(program: Program, core: NeuronCore, explicit: Explicit) -> None:
    """Refuse ``depends_on`` in a circle.

    Raises:
        NkiValidationError: instructions depend on each other in a circle.
    """
    if names_later(explicit):
        dependencies(program, core, explicit)


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


__all__ = ["ANTI", "ORDER", "OUTPUT", "TRUE", "Dependencies", "check_order", "dependencies", "names_later"]
