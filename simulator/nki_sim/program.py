"""The recorded program: what every instruction was, on which bytes, from which line; and its listing.

The record is a struct of arrays of integers: per step a plan (the instruction with its shapes and static parameters,
shared by all steps that are alike), a site (the user's line) and, per operand, an allocation and an offset. It holds no
data: tiles die when the kernel lets go of them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from types import FrameType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nki_sim import unrolled
from nki_sim.isa.base import Cost
from nki_sim.memory import Allocation
from nki_sim.source import Site, outside
from nki_sim.tensor import span

Ints = npt.NDArray[np.int64]
Order = Literal["program", "compiler"]
"""That in which a kernel is written, or one that a device's compiler may take."""

ABSENT = -2
SCALAR = -1


@dataclass(frozen=True)
class Slot:
    """One operand place of a plan.

    Attributes:
        name: parameter name (``dst``, ``data1``…); a runtime index of it is ``name.index``.
        access: ``read``, ``write`` or ``update`` (both).
        shape, strides: of the tensor given, in elements; empty for scalars.
        dtype: NKI dtype name, or the scalar's Python type.
    """

    name: str
    access: str
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: str = ""
    itemsize: int = 0
    on_chip: bool = False
    gathers: bool = False
    """Whether indices pick its rows, or its elements, at run time."""
    picked: int = 0
    """Of an indirect view: how many elements per partition."""


def _no_way(*_: Any) -> Any:
    raise AssertionError("a machine writes out what its plans do")


@dataclass(slots=True, eq=False)
class Plan:
    """What all alike steps share: checked, resolved and ready to run."""

    instruction: str
    engine: str
    slots: tuple[Slot, ...]
    params: dict[str, Any]
    body: Callable[..., None]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    updates: tuple[int, ...] = ()
    """Written operands whose old values count (predicated copies, accumulation)."""
    decided: dict[str, Any] = field(default_factory=dict)
    """What was decided when the instruction was issued (a matmul's mode), beside its parameters."""
    runtime: tuple[int, ...] = ()
    """Operands whose address a runtime value decides."""
    flops: int = 0
    cost: Cost = field(default_factory=Cost)
    waits: bool = False
    """Whether steps may run later than they are issued (:mod:`nki_sim.pending`)."""
    plays: bool = False
    """Whether :attr:`play` does all of a step."""
    speaks: bool = False
    """Whether its body may have something to report about values."""
    elements: int = 0
    """Of the largest operand."""
    core: int = 0
    """Which core of the run does it."""
    orders: tuple[int, ...] = ()
    """Operands that are not written, but whose accesses before and after it do not cross it."""
    depth: int = 2
    """How many frames above the machine's record its instructions' caller is, at most."""
    lasting: tuple[str, ...] = ()
    """What it uses that lasts in its engine from instruction to instruction, by name; ``goes_on``: it needs what was there."""
    goes_on: bool = False
    origin: Plan | None = None
    """What it was copied from, where nothing else decides what it does: the plan of all runs, whose checks were silent."""
    spill: Literal["", "save", "reload"] = ""
    """Of a transfer that a compiler adds where tiles do not fit: to HBM, or back (:mod:`nki_sim.spilling`)."""
    look: Callable[..., None] = _no_way
    """Asks memory about the operands: ``look(machine, instruction, slots, values)`` (:mod:`nki_sim.unrolled`)."""
    do: Callable[..., None] = _no_way
    """Calls the body with the operands' NumPy views: ``do(body, values)``."""
    note: Callable[..., Sequence[int]] = _no_way
    """What the record has of the operands: ``note(constant, values, step)``."""

    play: Callable[..., None] = _no_way
    """All of it at once: ``play(machine, instruction, number, plan, values, step)``, for plans that wait."""

    def unroll(self, values: Sequence[Any], *, adds: bool = False) -> None:
        """Write out what it does with operands such as ``values``; ``adds``: what it writes goes on with a sum."""
        kinds = unrolled.kinds_of(values)
        asked = (*[("read", i) for i in self.reads], *[("add" if adds else "write", i) for i in self.writes])
        self.look, self.do = unrolled.look(kinds, self.runtime, asked), unrolled.do(kinds)
        self.note = unrolled.note(kinds, SCALAR, ABSENT)
        if self.waits:
            self.play = unrolled.play(kinds, asked, self.speaks, SCALAR, ABSENT)

    def running(self, body: Callable[..., None]) -> Plan:
        """The same with another body."""
        made = Plan(*_all_of(self))
        made.body = body
        return made

    def only_order(self, values: Sequence[Any]) -> None:
        """What it read, it does not cross; operands are such as ``values``."""
        self.orders, self.reads = self.reads, ()
        self.unroll(values)

    @property
    def cycles(self) -> float:
        """Cycles of its engine until that can take the next instruction."""
        return self.cost.cycles


_all_of = attrgetter(*(one.name for one in fields(Plan)))


@dataclass(frozen=True)
class Operand:
    """One operand of one step: bytes of an allocation, or a constant."""

    slot: Slot
    allocation: Allocation | None
    offset: int = 0
    value: Any = None

    @property
    def label(self) -> str:
        """``x[0:128, 512:1024]``-like text, or the constant."""
        if self.writes_register:
            return f"register ({format_value(self.value)})"
        if self.allocation is None:
            return "-" if self.value is None else format_value(self.value)
        return self.allocation.label + _subscript(self)

    @property
    def writes_register(self) -> bool:
        """Whether it is a register that the step writes; its value is the one written."""
        return self.allocation is None and self.slot.access == "write" and self.value is not None

    @property
    def bytes(self) -> int:
        n = self.slot.itemsize
        for size in self.slot.shape:
            n *= size
        return n


@dataclass(frozen=True)
class Step:
    """One instruction of the program, decoded."""

    index: int
    plan: Plan
    site: Site | None
    operands: tuple[Operand, ...]
    name: str = ""

    @property
    def instruction(self) -> str:
        return self.plan.instruction

    @property
    def engine(self) -> str:
        return self.plan.engine

    @property
    def line(self) -> int | None:
        return self.site.line if self.site else None

    def reads(self) -> Iterator[Operand]:
        return (self.operands[i] for i in self.plan.reads)

    def writes(self) -> Iterator[Operand]:
        return (self.operands[i] for i in self.plan.writes)

    @property
    def text(self) -> str:
        """``dst ← operands`` in one line."""
        written = {i for i, o in enumerate(self.operands) if i in self.plan.writes or o.writes_register}
        target = ", ".join(self.operands[i].label for i in sorted(written))
        given = [o for i, o in enumerate(self.operands) if i not in written and not o.slot.name.startswith("peer")]
        others = [o.label for o in given if o.label != "-"]
        others += [f"{k}={format_value(v)}" for k, v in self.plan.params.items()]
        arrow = "+=" if self.plan.decided.get("mode") == "add" else "←"
        return f"{target} {arrow} {', '.join(others)}" if target else ", ".join(others)


class Program:
    """Every instruction of one run, in program order."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.sites: list[Site | None] = []
        self.allocations: list[Allocation] = []
        self.constants: list[Any] = []
        self.names: dict[int, str] = {}
        self.cores: tuple[str, ...] = ("core 0",)
        """What the cores are called that did it."""
        self.steps = array("i")
        """The number of every step's plan."""
        self._site = array("i")
        self._known_first = array("q", [0])
        self._operands = array("q")
        self.site_numbers: dict[tuple[int, int], int] = {}
        """Of a call site, by its code's identity and the offset in it."""

    def __len__(self) -> int:
        return len(self.steps)

    def append(self, plan: int, site: int, operands: Sequence[int]) -> None:
        """Record one step; ``operands`` alternates allocation and offset."""
        self.steps.append(plan)
        self._site.append(site)
        self._operands.extend(operands)

    def record_again(self, rows: Iterable[tuple[int, int, Sequence[int]]]) -> None:
        """Record other steps instead: plan, site and operands of each, as for :meth:`append`."""
        self.steps, self._site, self._operands = array("i"), array("i"), array("q")
        self._known_first = array("q", [0])
        for row in rows:
            self.append(*row)

    @property
    def _first(self) -> array[int]:
        """Where the operands of each step begin, and where the last one's end. What each step has says its plan."""
        known, steps = self._known_first, len(self.steps)
        if len(known) <= steps:
            widths = np.array([2 * len(plan.slots) for plan in self.plans], np.int64)
            new = known[-1] + np.cumsum(widths[np.array(self.steps[len(known) - 1 : steps], np.int64)])
            self._known_first = known = known + array("q", new.tobytes())
        return known

    def site_of(self, frame: FrameType) -> int:
        """The number of the call site in the user's code that a frame is, or was called from; made on first sight."""
        frame = outside(frame) or frame
        key = (id(frame.f_code), frame.f_lasti)
        found = self.site_numbers.get(key)
        if found is None:
            found = self.site_numbers[key] = len(self.sites)
            self.sites.append(Site(frame.f_code, frame.f_lasti))
        return found

    def constant(self, value: Any) -> int:
        self.constants.append(value)
        return len(self.constants) - 1

    def plan_number(self, index: int) -> int:
        """The number of a step's plan."""
        return self.steps[index]

    def plan_numbers(self) -> npt.NDArray[np.int32]:
        """The number of every step's plan."""
        return np.array(self.steps, np.int32)

    def plan_at(self, index: int) -> Plan:
        return self.plans[self.steps[index]]

    def site_number(self, index: int) -> int:
        """The number of a step's call site."""
        return self._site[index]

    def site_at(self, index: int) -> Site | None:
        number = self._site[index]
        return self.sites[number] if number >= 0 else None

    def __getitem__(self, index: int) -> Step:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"step {index} of {len(self)}")
        plan = self.plan_at(index)
        flat = self.flat(index)
        operands = []
        for slot, where, offset in zip(plan.slots, flat[::2], flat[1::2], strict=True):
            if where >= 0:
                operands.append(Operand(slot, self.allocations[where], offset))
            else:
                operands.append(Operand(slot, None, value=self.constants[offset] if where == SCALAR else None))
        return Step(index, plan, self.site_at(index), tuple(operands), self.names.get(index, ""))

    def __iter__(self) -> Iterator[Step]:
        return (self[i] for i in range(len(self)))

    def counts(self) -> dict[str, int]:
        """Instructions by name, most frequent first, then by name."""
        tally: Counter[str] = Counter()
        for number, n in Counter(self.steps).items():
            tally[self.plans[number].instruction] += n
        return dict(sorted(tally.items(), key=lambda item: (-item[1], item[0])))

    def engines(self) -> dict[str, int]:
        """Instructions by engine, in the order of first use."""
        tally: dict[str, int] = {}
        for number, n in Counter(self.steps).items():
            plan = self.plans[number]
            tally[plan.engine] = tally.get(plan.engine, 0) + n
        return tally

    def flat(self, index: int) -> array[int]:
        """Allocation and offset of each operand of a step, one after the other."""
        first = self._first
        return self._operands[first[index] : first[index + 1]]

    @property
    def tables(self) -> tuple[array[int], array[int], array[int]]:
        """The record itself: per step its plan and where its operands begin, and the operands of all steps."""
        return self.steps, self._first, self._operands

    def operands_at(self, places: Sequence[Sequence[int]]) -> tuple[Ints, Ints, Ints]:
        """What all steps have at operand places of their plans, in program order: the step, which of all the places one after
        the other it is, and where in the table of operands it begins.

        Args:
            places: per plan, the operand places wanted.
        """
        plan = np.array(self.steps, np.int64)
        counts = np.array([len(chosen) for chosen in places], np.int64)
        step, within = spread(counts[plan])
        entry = (np.cumsum(counts) - counts)[plan][step] + within
        place = np.array([i for chosen in places for i in chosen], np.int64)
        return step, entry, np.array(self._first, np.int64)[step] + 2 * place[entry]

    def has_at(self, places: Sequence[Sequence[int]]) -> npt.NDArray[np.bool_]:
        """Per allocation whether any step has it at one of the operand places of its plan."""
        found = np.zeros(len(self.allocations) + 2, np.bool_)
        found[np.array(self._operands, np.int64)[self.operands_at(places)[2]]] = True  # no tensor is one of the two too many
        return found[:-2]

    def uses(self) -> tuple[Ints, Ints]:
        """Of every operand that is a tensor its step and the tensor's number, in program order."""
        first, tensors = np.frombuffer(self._first, np.int64), np.frombuffer(self._operands, np.int64)[::2]
        steps = np.repeat(np.arange(len(self)), np.diff(first) // 2)
        used = tensors >= 0
        return steps[used], tensors[used]

    def first_uses(self) -> Ints:
        """By allocation number the first step that has the tensor as an operand; where none has, the number of steps."""
        steps, tensors = self.uses()
        found = np.full(len(self.allocations), len(self))
        np.minimum.at(found, tensors, steps)
        return found

    def raw(self, index: int) -> list[tuple[int, int]]:
        """``(allocation, offset)`` of each operand of a step; ``SCALAR`` and ``ABSENT`` stand for no tensor."""
        flat = self.flat(index)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def dma_bytes(self) -> int:
        """Bytes written by DMA instructions."""
        total = 0
        for number, n in Counter(self.steps).items():
            plan = self.plans[number]
            if plan.engine == "dma":
                total += n * sum(Operand(plan.slots[i], None).bytes for i in plan.writes)
        return total

    def flops(self) -> int:
        """Multiply-adds of the tensor engine, counted as two operations each; transposes do not count."""
        return sum(n * self.plans[number].flops for number, n in Counter(self.steps).items())

    def listing(self, start: int = 0, stop: int | None = None, *, only: Sequence[int] | None = None) -> str:
        """The program, or ``only`` some steps of it, as text: step, core where there are several, line, engine, operands."""
        rows = [self[i] for i in (range(start, len(self) if stop is None else min(stop, len(self))) if only is None else only)]
        width = max((len(r.instruction) for r in rows), default=0)
        names = [f"{name}  " if len(self.cores) > 1 else "" for name in self.cores]
        return "\n".join(
            f"{r.index:>5}  {names[r.plan.core]}line {r.line or '-':>4}  {r.engine:<7} {r.instruction:<{width}}  {r.text}"
            for r in rows
        )


def spread(counts: Ints) -> tuple[Ints, Ints]:
    """Each index as often as it counts, and which time it is: ``[2, 0, 1]`` gives ``[0, 0, 2]`` and ``[0, 1, 0]``."""
    index = np.repeat(np.arange(len(counts)), counts)
    return index, np.arange(len(index)) - (np.cumsum(counts) - counts)[index]


def format_value(value: Any) -> str:
    """A parameter or constant as the user would write it, the same on every machine."""
    if isinstance(value, float):
        return f"{value:g}"
    name = getattr(value, "__name__", None)
    if name and callable(value):
        return f"nl.{name}"
    if hasattr(value, "name") and hasattr(value, "value"):
        return str(value.name)
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(format_value, value)) + ")"
    return str(value)


def _subscript(operand: Operand) -> str:
    allocation, slot = operand.allocation, operand.slot
    assert allocation is not None
    if slot.shape == allocation.shape and operand.offset == 0:
        return ""
    sizes = allocation.shape
    if slot.gathers:
        return "[…]"  # rows that an index decides; the index is an operand of its own
    if slot.itemsize != allocation.dtype.itemsize:
        return f".view({slot.dtype})[…]"
    steps = [1] * len(sizes)
    for i in range(len(sizes) - 2, -1, -1):
        steps[i] = steps[i + 1] * sizes[i + 1]
    remaining, first = operand.offset, []
    for step in steps:
        first.append(remaining // step)
        remaining %= step
    last, remaining = [], operand.offset + span(slot.shape, slot.strides)
    for step in steps:
        last.append(remaining // step)
        remaining %= step
    moves: list[set[int]] = [set() for _ in steps]
    for count, stride in zip(slot.shape, slot.strides, strict=True):
        if count > 1 and stride > 0:
            dim = next(d for d, step in enumerate(steps) if stride % step == 0)
            moves[dim].add(stride // steps[dim])
    parts = []
    for low, high, size, taken in zip(first, last, sizes, moves, strict=True):
        every = f":{min(taken)}" if taken and min(taken) > 1 else ""
        if low == 0 and high == size - 1 and not every:
            parts.append(":")
        elif low == high:
            parts.append(str(low))
        else:
            parts.append(f"{low}:{high + 1}{every}")
    return f"[{', '.join(parts)}]"


__all__ = ["ABSENT", "SCALAR", "Operand", "Order", "Plan", "Program", "Slot", "Step", "format_value", "spread"]
