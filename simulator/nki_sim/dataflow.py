"""What a kernel does for nothing: tiles nobody loads for, results nobody reads, values that are overwritten before anybody
reads them. A function of the record.

A value is used when an instruction reads an element of the box it was written to, when it lies in a tensor that outlives the
kernel, or when Python looked at it. Boxes may be larger than accesses, which can only make a value count as used; so only what
fills its box overwrites. A line is reported when all that it did was for nothing. In a loop, the last round may well leave what
only a further round would read: a tile whose earlier value was read, written once more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from nki_sim.claims import Patch
from nki_sim.errors import Broken, Diagnosis, Rule, page, violation
from nki_sim.isa import INSTRUCTIONS
from nki_sim.isa.enums import oob_mode, reduce_cmd
from nki_sim.memory import Allocation
from nki_sim.program import Plan, Program, Slot, Step
from nki_sim.regions import Box, Boxes, box_of, volume, whole
from nki_sim.source import Site
from nki_sim.timing.touched import accesses, patches

_PERFORMANCE = page("deep-dives/nki_perf_guide.html")

UNUSED_LOAD = Rule(
    "dataflow.unused_load",
    "what is loaded from HBM is read by an instruction",
    why="a load takes HBM bandwidth and room in SBUF whether or not anybody reads it",
    fix="read the tile, or leave the load out",
    page=_PERFORMANCE,
    enforce="warn",
)
NEVER_READ = Rule(
    "dataflow.never_read",
    "what an instruction computes is read by another one, or stored in an output",
    why="the engine works on it all the same; often the next instruction reads another tile than was meant",
    fix="read it, or leave the instruction out",
    page=_PERFORMANCE,
    enforce="warn",
)
OVERWRITTEN = Rule(
    "dataflow.overwritten",
    "a value is read before it is overwritten",
    why="the first write was for nothing; where an index was forgotten, one result overwrites the other",
    fix="write to a place of its own, with the loop's index in the slice, or leave the first write out",
    page=_PERFORMANCE,
    enforce="warn",
)
UNUSED_TILE = Rule(
    "dataflow.unused_tile",
    "a tensor that is allocated is used",
    why="it takes no room, but a kernel that does not use what it allocates seldom does what was meant",
    fix="use it, or leave the allocation out",
    page=page("api/generated/nki.language.ndarray.html"),
    enforce="warn",
)

LASTING = ("input", "output")
"""Roles of tensors that outlive the kernel."""


def wasted(program: Program, target: str) -> list[Diagnosis]:
    """What a finished program did for nothing, by line.

    Args:
        program: the whole record of a run that ended well, with data or dry.
        target: the generation that diagnoses name.
    """
    found = [*_wasted_steps(program, target), *_unused_tiles(program.allocations, target)]
    return sorted(found, key=lambda diagnosis: (diagnosis.line or 0, diagnosis.rule.id if diagnosis.rule else ""))


# -- steps ---------------------------------------------------------------------------------------------------------------


@dataclass
class _Flow:
    """Follows values through a program, from who writes them to who reads them.

    Attributes:
        used: per step whether anybody reads something that it wrote.
        over: for steps that were overwritten unread, who did it.
    """

    program: Program
    used: bytearray
    over: dict[int, int] = field(default_factory=dict)
    _unread: dict[int, Boxes] = field(default_factory=lambda: defaultdict(Boxes))
    """Per allocation the steps whose values wait for a reader."""
    _at: dict[Patch, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Per patch the explicit placements there that have such steps."""

    @classmethod
    def through(cls, program: Program) -> _Flow:
        flow = cls(program, bytearray(len(program)))
        shared = patches(list(program.allocations))
        numbers, starts, operands = program.tables
        touched: dict[int, tuple[tuple[int, Slot, bool], ...]] = {}
        for step, number in enumerate(numbers):
            plan = program.plans[number]
            if number not in touched:
                touched[number] = accesses(plan)
            if plan.runtime:
                flow._read_indices()
            for place, slot, writes in touched[number]:
                at = starts[step] + 2 * place
                a, offset = operands[at], operands[at + 1]
                if a < 0 or place in plan.orders:  # a barrier touches no values
                    continue
                box = flow._box(plan, place, a, offset)
                if not writes or place in plan.updates:
                    flow._read(a, box)
                    for near in shared[a].near if a in shared else ():
                        there = flow._at[near]
                        for other in there - {a}:
                            flow._read(other, None)
                        there &= {a}
                if writes:
                    if a in shared:
                        flow._at[shared[a]].add(a)
                    flow._write(step, a, box, fills=_fills(plan, place, slot, program.allocations[a], box))
        return flow

    def _box(self, plan: Plan, place: int, a: int, offset: int) -> Box:
        allocation = self.program.allocations[a]
        return whole(allocation.shape) if place in plan.runtime else box_of(allocation, plan.slots[place], offset)

    def _read(self, a: int, box: Box | None) -> None:
        if a in self._unread:
            for step in self._unread[a].take(box):
                self.used[step] = True

    def _read_indices(self) -> None:
        """An access whose place a tile decides reads that tile; the record does not say which."""
        for a in self._unread:
            allocation = self.program.allocations[a]
            if allocation.region.on_chip and allocation.dtype.is_integer:
                self._read(a, None)

    def _write(self, step: int, a: int, box: Box, fills: bool) -> None:
        unread = self._unread[a]
        if fills:
            for before in unread.inside(box):
                if before != step:
                    self.over.setdefault(before, step)
            unread.cover(box)
        unread.add(box, step)


def _fills(plan: Plan, place: int, slot: Slot, allocation: Allocation, box: Box) -> bool:
    """Whether a write leaves nothing of what was in its box."""
    kind = INSTRUCTIONS.get(plan.instruction)
    partly = kind is None or not kind.writes_all or plan.params.get("oob_mode") is oob_mode.skip
    if partly or place in plan.runtime or slot.gathers or 0 in slot.strides:
        return False
    return int(np.prod(slot.shape)) * slot.itemsize == volume(box) * allocation.dtype.itemsize


_Line = tuple[int, "Site | None", "Site | None"]
"""A call site, and where the tensor that it writes was allocated: a helper's line counts once for each of its callers."""


def _wasted_steps(program: Program, target: str) -> Iterator[Diagnosis]:
    flow = _Flow.through(program)
    read: set[int] = set()
    lines: dict[_Line, list[int]] = {}
    useful: dict[_Line, int] = {}
    for step in range(len(program)):
        numbers = _written(program, step)
        written = [program.allocations[a] for a in numbers]
        if not written:
            continue
        line = (program.site_number(step), written[0].site, written[0].caller)
        if flow.used[step] or _has_effect(program.plan_at(step)) or any(_lasts(a, step, flow) for a in written):
            useful[line] = useful.get(line, 0) + 1
            read.update(numbers)
        elif not read.isdisjoint(numbers) and written[0].region.on_chip and _may_repeat(program, step):
            useful[line] = useful.get(line, 0) + 1
        else:
            lines.setdefault(line, []).append(step)
    for line, steps in lines.items():
        first = program[steps[0]]
        stored = steps[0] in flow.over and not any(o.allocation and o.allocation.region.on_chip for o in first.writes())
        if line not in useful or stored:  # a result that another one overwrites is for nothing, whatever becomes of that one
            yield _wasted(first, len(steps), len(steps) + useful.get(line, 0), flow, target)


def _written(program: Program, step: int) -> list[int]:
    flat, plan = program.flat(step), program.plan_at(step)
    return [flat[2 * place] for place in plan.writes if flat[2 * place] >= 0]


def _may_repeat(program: Program, step: int) -> bool:
    site = program.site_at(step)
    return site is None or site.may_repeat()


def _lasts(allocation: Allocation, step: int, flow: _Flow) -> bool:
    """Whether a value that no instruction reads is seen by somebody else."""
    return allocation.looked_at or (allocation.role in LASTING and step not in flow.over)


def _has_effect(plan: Plan) -> bool:
    """Whether it leaves something in its engine's accumulator registers; what else it must write may be of no interest."""
    usual = getattr(INSTRUCTIONS.get(plan.instruction), "reduce_cmd", reduce_cmd.idle)
    return plan.params.get("reduce_cmd", usual) is not reduce_cmd.idle


def _wasted(step: Step, times: int, of: int, flow: _Flow, target: str) -> Diagnosis:
    written = list(step.writes())
    labels = " and ".join(dict.fromkeys(operand.label for operand in written))
    sources = [o for o in step.reads() if o.allocation is not None and not o.allocation.region.on_chip]
    onto_chip = all(o.allocation is not None and o.allocation.region.on_chip for o in written)
    often = f", {times} of {of} times" if of > 1 else ""
    rule, what = NEVER_READ, f"writes {labels}, which nothing reads{often}"
    if step.index in flow.over:
        line = flow.program[flow.over[step.index]].line
        rule, what = OVERWRITTEN, f"writes {labels}, which line {line} overwrites before anything reads it{often}"
    elif step.engine == "dma" and sources and onto_chip:
        rule, what = UNUSED_LOAD, f"loads {sources[0].label} into {labels}, which nothing reads{often}"
    sites = () if step.site is None else (step.site,)
    broken = Broken(what, written[0].slot.name)
    return violation(rule, broken, target=target, instruction=step.instruction, sites=sites, step=step.index)


# -- tiles ---------------------------------------------------------------------------------------------------------------


def _unused_tiles(allocations: Iterable[Allocation], target: str) -> Iterator[Diagnosis]:
    lines: dict[tuple[Site | None, Site | None], list[Allocation]] = {}
    for allocation in allocations:
        if allocation.role == "tile":
            lines.setdefault((allocation.site, allocation.caller), []).append(allocation)
    for (site, _), made in lines.items():
        if site is None or any(a.last >= 0 or a.looked_at for a in made):
            continue
        often = f", {len(made)} times" if len(made) > 1 else ""
        what = f"{made[0].label} ({made[0].words()}) is never used{often}"
        yield violation(UNUSED_TILE, Broken(what), target=target, instruction="nl.ndarray", sites=(site,), step=made[0].born)
