"""The machine: issue an instruction = check it, run it, record it.

One machine runs one kernel once on one NeuronCore. Which one is current is a context (:mod:`nki_sim.context`).
"""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from enum import Enum
from types import FunctionType
from typing import Any, ClassVar

import numpy as np

from nki_sim import clobbers, unrolled
from nki_sim.claims import Claim
from nki_sim.config import Configs
from nki_sim.dtypes import Array, DType
from nki_sim.errors import (
    Broken,
    NkiError,
    NkiIndexError,
    NkiTypeError,
    Rule,
    page,
)
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ComputeInstruction, Instruction, OperandSpec, free, partitions
from nki_sim.isa.dma_copy import dma_copy
from nki_sim.isa.enums import dependency, oob_mode
from nki_sim.isa.indirection import OUT_OF_RANGE as OUT_OF_FREE_DIMENSION
from nki_sim.isa.indirection import base_of, chosen, group_of, index_of, is_indirect, reaching
from nki_sim.isa.meeting import Meeting
from nki_sim.isa.tensor_copy import tensor_copy
from nki_sim.memory import FULL, NONE, Allocation, Memory, MemoryRegion
from nki_sim.ops import Operator, UnknownOperatorError
from nki_sim.pending import Pending, Waiting, can_wait, largest
from nki_sim.program import ABSENT, SCALAR, Plan, Slot
from nki_sim.psum import Accumulation, State
from nki_sim.reporting import Reporting
from nki_sim.scalars import RuntimeScalar, now
from nki_sim.source import Site, call_sites
from nki_sim.tensor import NOT_EMPTY, NkiTensor, OutOfRangeError, resolve

NEVER_WRITTEN = Rule(
    "ndarray.uninitialised",
    "a tensor is written before it is read",
    why="new tensors hold whatever was there before; the simulator reads NaN for floats and 4 for integers",
    fix="write all of it first: nisa.dma_copy, nisa.memset, or the instruction whose result it should be",
    page=page("api/generated/nki.language.ndarray.html"),
    enforce="ub",
)
CLOBBERED = Rule(
    "memory.overlap",
    "tensors with explicit addresses that share bytes are not alive at the same time",
    why="address= names real bytes; a second tensor there overwrites the first",
    fix="move one of them, or read the first before the second is written",
    page=page("api/generated/nki.language.ndarray.html"),
    enforce="ub",
)
OUT_OF_RANGE = Rule(
    "dma_copy.oob_error_default",
    "a runtime index lies inside the tensor it indexes",
    why="the DMA engine checks dynamic addresses and stops the kernel",
    fix="clamp the index, or pass oob_mode=nisa.oob_mode.skip to drop the transfer",
    page=page("api/generated/nki.isa.dma_copy.html"),
    enforce="runtime",
)
ENUM_MEMBERS = Rule(
    "kernel.enum_members",
    "engine, dge_mode, oob_mode, reduce_cmd and perf_mode are members of their enumerations",
    page=page("migration/index.html"),
)
ENUM_NUMBERS = dataclasses.replace(ENUM_MEMBERS, enforce="warn")
OPERATOR = Rule(
    "kernel.operator",
    "an operator is a function of nki.language, such as nl.add",
    page=page("api/nki.api.shared.html"),
)
LOOP_SCOPE = Rule(
    "lang.loop_body_tensor_scope",
    "a tensor made in the body of a loop is used in that body only",
    why="the body is built once and runs any number of times, also none",
    fix="allocate it before the loop and write it in the body",
    page=page("deep-dives/nki-dynamic-loops.html"),
)
NESTING = Rule(
    "sched.depends_on_nesting",
    "an instruction depends on one in the same body of a loop at run time, or around it",
    why="the dependency is a semaphore that the device waits for each time; one signalled in another loop may never come",
    fix="put both into the body; what only the compiler shall order takes kind=nisa.dependency.schedule",
    page=page("guides/how-to-scheduling-apis.html"),
)
NOT_A_TILE = Rule(
    "kernel.operand_type", "an operand is a tensor of this kernel", page=page("get-started/nki-language-guide.html")
)


_NOTHING = (ABSENT, 0)


class Known:
    """Plans whose checks passed without a word, for all machines of one kind: of the run, only what instructions that several
    cores do together are checked against depends on how many there are."""

    MOST = 4096
    _all: ClassVar[dict[Any, Known]] = {}

    def __init__(self) -> None:
        self._plans: dict[Any, Plan] = {}
        self.get = self._plans.get

    @classmethod
    def of(cls, core: NeuronCore, precise: bool) -> Known:
        """Those for a core."""
        return cls._all.setdefault((core, precise), cls())

    def add(self, key: Any, plan: Plan) -> None:
        """Keep a plan."""
        if len(self._plans) >= self.MOST:
            self._plans.clear()
        self._plans[key] = plan


class Machine(Reporting):
    """One NeuronCore running one kernel: memories, program, accumulator registers, findings.

    Args:
        core: the generation.
        strict: turn findings (undefined behaviour, soft rules) into errors.
        precise: store low-precision floats as they are; ``False`` keeps them as float32 (``NKI_PRECISE_FP=0``).
        dry: check and record only; no instruction is executed, and memory has no content.
        watch: when dry, follow what is written, to report what is read, or returned, without.

    Attributes:
        number: which of the logical cores it is; ``programs`` is how many there are, ``grid`` the launch grid's dimensions.
        rank: which of the ranks; ``ranks`` is how many there are, ``ranks_per_node`` how many of them in one machine.
    """

    number, programs, grid = 0, 1, 0
    rank, ranks, ranks_per_node = 0, 1, 1
    prepared: Any = None
    """The variable-length collective that waits for its trigger."""

    def __init__(self, core: NeuronCore, *, strict: bool = False, precise: bool = True, dry: bool = False, watch: bool = False):
        super().__init__(core, strict)
        self.dry, self.watch = dry, watch
        self.memory = Memory(core, precise)
        self.memory.hollow = dry
        self.program.allocations = self.memory.allocations
        self.configs = Configs()
        """The options of the kernel that runs."""
        self.constants: dict[int, Array] = {}
        """Values of the constants in HBM, by allocation number."""
        self.registers: MutableMapping[str, Any] = {}
        """What engines keep: accumulators (:mod:`nki_sim.isa.accumulator`), random states (:mod:`nki_sim.isa.prng`)."""
        self._asked: set[str] = set()
        """Which of them were asked for."""
        self.dependencies: list[tuple[int, tuple[int, ...], dependency | None]] = []
        self.round: list[tuple[Instruction, int] | Callable[[], None]] | None = None
        """What a loop's body does, while it is traced: to be done again in each further round (:mod:`nki_sim.lang.loops`)."""
        self._alive: list[weakref.ref[Any]] = []
        self.scopes: tuple[object, ...] = ()
        """The loops whose bodies are being traced, outermost first."""
        self.loops = False
        """Whether there were loops at run time."""
        self.in_order = 0
        """How many ``nl.no_reorder`` blocks are open."""
        self.ordered: list[Sequence[int]] = []
        """The steps of each such block."""
        self._opened = 0
        self.pending: Pending | None = None
        self._scoped = False
        self.static = True
        """Whether what it does is the same for all data: no registers, no loops at run time."""
        self._plans: dict[Any, tuple[int, Plan]] = {}
        self._known = Known.of(core, precise)
        self._targets: dict[type[Instruction], tuple[Any, Any]] = {}

    @property
    def title(self) -> str:
        """What diagnoses call it."""
        return "core 0"

    # -- tensors -----------------------------------------------------------------------------------------------------

    def allocate(
        self, shape: tuple[int, ...], dtype: DType, region: MemoryRegion, name: str = "", address: Any = None
    ) -> NkiTensor:
        """A new tensor at the user's current line."""
        site, caller = call_sites()
        step = len(self.program.steps)
        storage = self.memory.allocate(shape, dtype, region, name=name, address=address, site=site, step=step)
        storage.allocation.caller = caller
        if region is MemoryRegion.psum:
            storage.accumulation = Accumulation()
        return NkiTensor.fresh(storage, self.memory)

    def take_in(self, array: Array, dtype: DType, name: str, writable: bool) -> NkiTensor:
        """An argument's array as a tensor in shared HBM."""
        return NkiTensor.fresh(self.memory.adopt(array, dtype, name, writable), self.memory)

    def constant(self, values: Array, dtype: DType) -> NkiTensor:
        """A tensor in shared HBM that holds ``values`` from the start."""
        site, caller = call_sites()
        storage = self.memory.adopt(np.ascontiguousarray(values), dtype, "", role="constant")
        allocation = storage.allocation
        allocation.site, allocation.caller, allocation.born = site, caller, len(self.program)
        self.constants[allocation.id] = values.copy()
        return NkiTensor.fresh(storage, self.memory)

    def count_register(self, made: Any) -> int:
        """Note a new register; how many the kernel holds on to now."""
        self._alive = [r for r in self._alive if r() is not None]
        self._alive.append(weakref.ref(made))
        return len(self._alive)

    def lasting(self, name: str, make: Callable[[], Any]) -> Any:
        """Registers of an engine that last from instruction to instruction, by name; made when they are first asked for."""
        self._asked.add(name)
        found = self.registers.get(name)
        if found is None:
            found = self.registers[name] = make()
        return found

    def assign(self, dst: NkiTensor, value: NkiTensor) -> None:
        """``t[…] = value``: the copy that reaches both."""
        if dst.on_chip and value.on_chip:
            tensor_copy(dst=dst, src=value)
        else:
            dma_copy(dst=dst, src=value)

    # -- issue -------------------------------------------------------------------------------------------------------

    def issue(self, ins: Instruction) -> None:
        """Check, execute and record one instruction.

        Raises:
            NkiValidationError: a limit of the hardware is broken.
        """
        program = self.program
        step = len(program.steps)
        values, key, name = type(ins).keyed(ins, step)
        if self.memory.indirect:
            indices = [index_of(v) for v in values if is_indirect(v)]
            values, key = (*values, *indices), (*key, *[v.sig if type(v) is NkiTensor else type(v) for v in indices])
        try:
            found = self._plans.get(key)
        except TypeError:
            key = _hashable(key)
            found = self._plans.get(key)
        if found is None:
            try:
                found = self._plans[key] = self._specialise(ins, values)
            except UnknownOperatorError as error:
                raise self._no_operator(ins, error) from None
        number, plan = found
        if self._scoped and self._again is None:
            self._check_scopes(ins)
        if plan.plays and not self.dry:
            plan.play(self, ins, number, plan, values, step)
        else:
            if self.dry:
                if self.watch:
                    self._before(ins, plan, values)
                _run_dry(plan, values)
            else:
                self._run(ins, plan, values, step)
            self._record(ins, number, values, step)
        if name:
            program.names[step] = name
        if self.round is not None:
            ins.scopes = self.scopes
            self.round.append((ins, program.site_number(step)))

    def effect(self, action: Callable[[], None]) -> None:
        """Do what is no instruction, now and in each further round of the loop being traced."""
        self.static = False
        self.catch_up()
        action()
        if self.round is not None:
            self.round.append(action)

    def keep_order(self, begins: bool) -> None:
        """Begin or end a block of ``nl.no_reorder``, now and in each further round of the loop being traced."""

        def action() -> None:
            if begins and not self.in_order:
                self._opened = len(self.program)
            self.in_order += 1 if begins else -1
            if not begins and not self.in_order:
                self.ordered.append(range(self._opened, len(self.program)))

        action()
        if self.round is not None:
            self.round.append(action)

    def round_of(self, loop: object) -> None:
        """A loop at run time begins a round."""

    def repeat(self, ins: Instruction, site: int) -> None:
        """Issue an instruction of a loop's body again, in a further round."""
        self._again = site
        try:
            ins.__post_init__()
        finally:
            self._again = None

    def wait(self) -> None:
        """Let instructions wait until they run together, or until somebody looks."""
        self.pending = Pending(self.program)
        self.memory.waiting = self.catch_up

    def catch_up(self) -> None:
        """Run what waits, in order; from now on each instruction runs when it is issued."""
        pending = self.forget_pending()
        if pending is not None:
            self.run_late(pending.drain())

    def run_late(self, waiting: Iterable[Waiting]) -> None:
        """Run instructions that waited; what they have to say is said at their lines."""
        try:
            for late in waiting:
                self._late = late
                late.plan.do(late.plan.body, late.values)
        finally:
            self._late = None

    def forget_pending(self) -> Pending | None:
        """What waits; it is somebody else's now."""
        pending, self.pending, self.memory.waiting = self.pending, None, None
        return pending

    def _before(self, ins: Instruction, plan: Plan, values: tuple[Any, ...]) -> None:
        """What memory has to say of an instruction, and what it will know of it."""
        plan.look(self, ins, plan.slots, values)

    def _run(self, ins: Instruction, plan: Plan, values: tuple[Any, ...], step: int) -> None:
        plan.look(self, ins, plan.slots, values)
        if self.pending is not None and not self.runs_now(plan, values):
            return
        try:
            plan.do(plan.body, values)
        except OutOfRangeError as oob:
            if getattr(ins, "oob_mode", None) is oob_mode.skip:
                return  # the transfer is dropped: dst stays as it was
            what = f"runtime index {oob.index} is outside its dimension of size {oob.size}"
            raise self.error(ins, OUT_OF_RANGE, Broken(what)) from None

    def runs_now(self, plan: Plan, values: tuple[Any, ...]) -> bool:
        """Whether an instruction is not kept waiting; then neither are those before it."""
        if self.pending is not None and self.pending.take(plan, values):
            return False
        self.catch_up()
        return True

    def _record(self, ins: Instruction, number: int, values: tuple[Any, ...], step: int) -> None:
        plan = self.program.plans[number]
        flat = plan.note(self.program.constant, values, step) if plan.waits else self._as_they_are(values, step)
        unrolled.record(self, number, plan, flat)

    def _as_they_are(self, values: tuple[Any, ...], step: int) -> list[int]:
        """Operands as the record has them, registers and offsets at run time as what they are in this run."""
        flat: list[int] = []
        for value in values:
            if type(value) is NkiTensor:
                allocation = value.storage.allocation
                allocation.last = step
                offset = value.offset
                if value.dynamic is not None:
                    self.static = self.static and not isinstance(value.dynamic.index, RuntimeScalar)
                    offset = offset if self.dry else _offset_now(value)
                    if isinstance(value.dynamic.index, NkiTensor):
                        value.dynamic.index.storage.allocation.last = step
                flat += allocation.id, offset
            elif value is None or (self.dry and isinstance(value, RuntimeScalar)):
                flat += _NOTHING
            else:
                self.static = self.static and not isinstance(value, RuntimeScalar)
                flat += SCALAR, self.program.constant(now(value))
        return flat

    # -- plans: what is checked once ---------------------------------------------------------------------------------

    def _specialise(self, ins: Instruction, values: tuple[Any, ...]) -> tuple[int, Plan]:
        """The plan for an instruction: checked here, or by an earlier run on such a core; its body is this machine's own."""
        params = _hashable(type(ins).get_params(ins))
        seen = [v.memory.signed[v.sig] if isinstance(v, NkiTensor) else type(v) for v in values]
        around = (self.programs, self.ranks, self.ranks_per_node) if isinstance(ins, Meeting) else ()
        key = (type(ins), params, _types(params), around, *seen)
        plan = self._known.get(key) if self.owns(ins, values) else None
        shared = plan is not None
        if plan is None:
            findings, given = len(self.report.findings), _types(type(ins).get_params(ins))
            plan = self._checked(ins, values)
            silent = len(self.report.findings) == findings and _types(type(ins).get_params(ins)) == given  # no enum's number
            shared = plan.waits and _is_plain(params) and silent and not self._muted
            if shared:
                self._known.add(key, plan)
        self._asked = set()
        made = plan.running(self._body(ins, values[: len(type(ins).operand_names)]))
        made.lasting, made.goes_on = tuple(sorted(self._asked)), bool(self._asked) and ins.goes_on()
        made.origin = plan if shared else None
        made.plays = self.plays(made)
        self.program.plans.append(made)
        return len(self.program.plans) - 1, made

    def plays(self, plan: Plan) -> bool:
        """Whether nothing comes between what memory says of a plan's steps, their run and their record."""
        return plan.waits

    def owns(self, ins: Instruction, values: Iterable[Any]) -> bool:
        """Whether all tensors among an instruction's operands are of this run."""
        return all(v.memory is self.memory for v in values if isinstance(v, NkiTensor))

    def _checked(self, ins: Instruction, values: tuple[Any, ...]) -> Plan:
        kind = type(ins)
        indirect = [n for n, v in zip(kind.operand_names, values, strict=False) if is_indirect(v)]
        names = (*kind.operand_names, *[f"{n}_index" for n in indirect])
        specs = {**kind.specs, **{f"{n}_index": _INDEX for n in indirect}}
        for name, value in zip(names, values, strict=True):
            self._check_operand(ins, name, value, specs[name])
        number = ins.enum_members()
        if number is not None:
            self.broken(ins, ENUM_MEMBERS if number.error else ENUM_NUMBERS, number)
        self._check_rules(ins)
        slots = tuple(
            _slot(n, specs[n].access, v) if isinstance(v, NkiTensor) else Slot(n, specs[n].access, dtype=type(v).__name__)
            for n, v in zip(names, values, strict=True)
        )
        tensors = [i for i, v in enumerate(values) if isinstance(v, NkiTensor)]
        shown = zip(kind.param_names, kind.get_params(ins), strict=True)
        defaults = {n: getattr(kind, n, None) for n in kind.param_names}
        plan = Plan(
            instruction=kind.__name__,
            engine=ins.resolve_engine(self.core).name,
            slots=slots,
            params={n: v for n, v in shown if n not in kind.decided_params and not (v is None or v is defaults[n])},
            decided={n: getattr(ins, n) for n in kind.decided_params},
            body=_no_body,
            reads=tuple(i for i in tensors if slots[i].access == "read"),
            writes=tuple(i for i in tensors if slots[i].access != "read"),
            updates=tuple(i for i in tensors if slots[i].access != "read" and ins.keeps(slots[i].name)),
            runtime=tuple(i for i in tensors if values[i].dynamic is not None and values[i].dynamic.base is None),
            flops=ins.flops(),
            cost=ins.cost(self.core),
            waits=can_wait(ins, values),
            speaks=ins.speaks(),
            elements=largest(values),
            depth=kind.depth,
        )
        plan.unroll(values, adds=kind.accumulates)
        return plan

    def _no_operator(self, ins: Instruction, error: UnknownOperatorError) -> NkiError:
        return self.error(ins, OPERATOR, Broken(str(error), "op", error=NkiTypeError))

    def _check_rules(self, ins: Instruction) -> None:
        for checked in type(ins).checks:
            if self.core.gen not in checked.rule.gens:
                continue
            broken = checked.check(ins, self.core)
            if broken is not None:
                self.broken(ins, checked.rule, broken)

    def _body(self, ins: Instruction, values: Sequence[Any]) -> Callable[..., None]:
        """The body, reaching through the offsets of indirect operands."""
        body, kind = ins.body(self.core), type(ins)
        if not any(map(is_indirect, values)):
            return body
        named = zip(kind.operand_names, values, strict=True)
        places = [(n, kind.specs[n].access != "read", v) if is_indirect(v) else None for n, v in named]
        return reaching(body, places, self._group(ins), lambda broken: self.finding(ins, OUT_OF_FREE_DIMENSION, broken))

    def _group(self, ins: Instruction) -> int:
        """Partitions that share the offsets of an indirect operand."""
        return group_of(ins.resolve_engine(self.core))

    def _check_scopes(self, ins: Instruction) -> None:
        for name, tile in ins.tiles():
            for tensor in (tile, tile.dynamic.index if tile.dynamic is not None else None):
                if not isinstance(tensor, NkiTensor):
                    continue
                owner = tensor.storage.allocation.loop
                if owner is not None and owner not in self.scopes:
                    label = tensor.storage.allocation.label
                    raise self.error(
                        ins, LOOP_SCOPE, Broken(f"{name} uses {label}, made in the body of a loop that is over", name)
                    )

    def close_scope(self, loop: object, first: int) -> None:
        """The tensors allocated since number ``first`` belong to a loop's body."""
        for allocation in self.memory.allocations[first:]:
            if allocation.loop is None:
                allocation.loop = loop
                self._scoped = True

    def _check_operand(self, ins: Instruction, name: str, value: Any, spec: OperandSpec) -> None:
        if spec.internal:
            return
        if spec.register and not isinstance(value, RuntimeScalar) and not (spec.scalar and isinstance(value, int)):
            raise self.error(ins, type(ins).space_rule(name), Broken(f"{name} is {_kind_of(value)}", name, error=NkiTypeError))
        if isinstance(value, RuntimeScalar):
            if spec.register:
                return
            fix = "put it into a tile first: nisa.register_store(<(1, 1) tile>, reg)"
            raise self.error(ins, NOT_A_TILE, Broken(f"{name} is {value.words()}", name, fix=fix, error=NkiTypeError))
        if isinstance(value, NkiTensor):
            if value.memory is not self.memory:
                fix = "tensors belong to one run: allocate or load it in this kernel"
                raise self.error(ins, NOT_A_TILE, Broken(f"{name} is a tensor of another kernel run", name, fix=fix))
            if value.buffer not in spec.spaces:
                found = Broken(*_wrong_space(name, value, spec)) if spec.spaces else Broken(f"{name} is a tile", name)
                self.broken(ins, type(ins).space_rule(name), found)
            if not value.size:
                raise self.error(ins, NOT_EMPTY, Broken(f"{name} is empty, of shape {value.shape}", name, error=NkiIndexError))
            return
        optional = value is None and (spec.none or getattr(type(ins), name, ...) is None)
        if optional or (spec.scalar and isinstance(value, (int, float, np.number)) and not isinstance(value, bool)):
            return
        what = f"{name} is {_kind_of(value)}, not a tile" + (" or a scalar" if spec.scalar else "")
        fix = (
            "load it first: nl.load(x), or nisa.dma_copy(dst=<tile>, src=x)"
            if hasattr(value, "__array__")
            else ("pass x.data of a grid cell" if hasattr(value, "data") else "pass a tensor made by nl.ndarray")
        )
        raise self.error(ins, NOT_A_TILE, Broken(what, name, fix=fix, error=NkiTypeError))

    # -- what memory has to say --------------------------------------------------------------------------------------

    def before_index(self, ins: Instruction, operand: str, tile: NkiTensor) -> None:
        """What memory has to say of the index that decides an operand's address."""
        index = tile.dynamic.index if tile.dynamic is not None else None
        if isinstance(index, NkiTensor) and index.storage.state:
            self.before_read(ins, f"index of {operand}", index)

    def before_read(self, ins: Instruction, operand: str, tile: NkiTensor) -> None:
        """What memory has to say of a tile that is read next."""
        storage = tile.storage
        if storage.claim is not None and storage.claim.disturbed:
            self._check_clobbers(ins, operand, tile, storage.claim)
        if storage.state != FULL and not tile.written:
            self._check_written(ins, operand, tile)
        if storage.accumulation is not None:
            storage.accumulation.read(base_of(tile))

    def _check_written(self, ins: Instruction, operand: str, tile: NkiTensor) -> None:
        storage = tile.storage
        if storage.state == NONE:
            missing = tile.size
        elif tile.dynamic is not None and (self.dry or not is_indirect(tile)):
            return  # which elements it means is not known
        elif is_indirect(tile):
            missing = storage.missing(tile.pattern, chosen(tile, self._group(ins)))
        else:
            missing = storage.missing(tile.pattern)
            tile.written = not missing
            tile.quiet = tile.written and storage.is_plain
        if not missing:
            return
        writer = clobbers.writer(base_of(tile), storage.claim) if storage.claim is not None else None
        if writer is not None:
            self._overlap(ins, operand, tile, writer)
            return
        storage.poison()
        label = storage.allocation.label
        all_of_it = storage.state == NONE
        what = f"{operand} reads {label}, " + (
            "which was never written" if all_of_it else f"of which {missing} of {tile.size} elements were never written"
        )
        self.finding(ins, NEVER_WRITTEN, Broken(what, operand))

    def _check_clobbers(self, ins: Instruction, operand: str, tile: NkiTensor, claim: Claim) -> None:
        for other in clobbers.read(base_of(tile), claim):
            self._overlap(ins, operand, tile, other)

    def _overlap(self, ins: Instruction, operand: str, tile: NkiTensor, its: Allocation) -> None:
        mine = tile.storage.allocation
        what = f"{operand} reads {mine.label} at {mine.address}, whose bytes were last written as {its.label}"
        notes = tuple(f"{a.label}: {a.words()} at {a.address}, line {a.line}" for a in (mine, its))
        self.finding(ins, CLOBBERED, Broken(what, operand), notes)

    def before_write(self, ins: Instruction, operand: str, tile: NkiTensor) -> None:
        """What memory will know of a tile that is written next."""
        storage = tile.storage
        if storage.host is not None:
            self.memory.detach(storage)
        if storage.claim is not None:
            clobbers.write(base_of(tile), storage.claim)
        if storage.state != FULL and not tile.written:
            self._mark_written(ins, tile)
        if storage.accumulation is not None and not ins.accumulates:
            if is_indirect(tile) and not self.dry:
                storage.accumulation.set(base_of(tile), State.EMPTY, chosen(tile, self._group(ins)))
            else:
                storage.accumulation.set(base_of(tile), State.EMPTY)

    def _mark_written(self, ins: Instruction, tile: NkiTensor) -> None:
        storage = tile.storage
        if tile.dynamic is None and ins.writes_all:
            if tile.is_whole:
                storage.fill()
            else:
                storage.mark(tile.pattern)
                tile.written, tile.quiet = True, storage.is_plain
        elif not ins.writes_all and not self.dry:
            pass  # the instruction itself says which elements
        elif is_indirect(tile) and not self.dry:
            storage.poison()
            storage.mark(tile.pattern, chosen(tile, self._group(ins)))
        else:  # which elements is not known before it runs
            storage.fill()

    # -- dependencies ------------------------------------------------------------------------------------------------

    def add_dependency(self, consumer: Instruction, producers: Iterable[Instruction], kind: dependency | None) -> None:
        """Keep an explicit order between instructions for the timing model.

        Raises:
            NkiValidationError: an instruction is in a loop that the other is not in.
        """
        producers = tuple(producers)
        for producer in producers:
            if kind is not dependency.schedule and consumer.scopes[: len(producer.scopes)] != producer.scopes:
                what = f"{type(producer).__name__} is in the body of a loop that {type(consumer).__name__} is not in"
                raise self.error(consumer, NESTING, Broken(what))
        self.dependencies.append((consumer.step, tuple(p.step for p in producers), kind))


def _no_body(*_: Any) -> None:
    raise AssertionError("each machine makes the bodies of its plans itself")


def _is_plain(value: Any) -> bool:
    """Whether it is a compile-time value that holds no tensor."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    if isinstance(value, FunctionType):  # nl.add and its like
        return value.__module__.startswith("nki_sim.")
    return value is None or isinstance(value, (bool, int, float, str, Enum, Operator, np.generic))


def _types(value: Any) -> Any:
    """What tells 1 from 1.0 and True, and 0.0 from -0.0, which are equal."""
    if isinstance(value, tuple):
        return tuple([_types(v) if isinstance(v, (tuple, float, np.floating)) else type(v) for v in value])
    return (type(value), math.copysign(1.0, value)) if isinstance(value, (float, np.floating)) else type(value)


def _run_dry(plan: Plan, values: tuple[Any, ...]) -> None:
    """Of an instruction only what registers know of it: those it writes hold what data would tell, but for plain numbers."""
    for value, slot in zip(values, plan.slots, strict=True):
        if isinstance(value, RuntimeScalar) and slot.access == "write":
            value.forget()
            if not plan.reads and all(v is value or isinstance(v, int) for v in values):
                plan.body(*values)


def _offset_now(tile: NkiTensor) -> int:
    """The offset that a runtime index gives, or the view's own for a transfer that was dropped."""
    assert tile.dynamic is not None
    try:
        return tile.offset + resolve(tile.dynamic, tile)
    except OutOfRangeError:
        return tile.offset


def _wrong_space(name: str, tile: NkiTensor, spec: OperandSpec) -> tuple[str, str, str]:
    """What is wrong with an operand's memory: in words, the operand, and the way out."""
    where = {"sbuf": "SBUF", "psum": "PSUM"}.get(tile.buffer.value, "HBM")
    if spec.access != "read":
        fix = f"allocate it with buffer=nl.{spec.spaces[0].value}"
        store = ", and store that: nisa.dma_copy(dst=…, src=<tile>)" if where == "HBM" else ""
        return f"{name} is in {where}", name, fix + store
    fix = {
        "HBM": "bring it to SBUF first: nisa.dma_copy(dst=<sbuf tile>, src=…)",
        "PSUM": "nisa.tensor_copy(dst=<sbuf tile>, src=…) to SBUF first",
        "SBUF": "allocate it with buffer=nl.psum",
    }[where]
    return f"{name} is in {where}", name, fix


def _kind_of(value: Any) -> str:
    if hasattr(value, "__array__") or isinstance(value, (list, tuple, dict, str)):
        return f"a {type(value).__module__.partition('.')[0]}.{type(value).__name__}".replace("a builtins.", "a ")
    return f"{value!r}"


_INDEX = OperandSpec("read", (), "", internal=True)


def _slot(name: str, access: str, tile: NkiTensor) -> Slot:
    """An operand's place in a plan; of an indirect view all that it may pick from."""
    seen = base_of(tile)
    gathers = tile.dynamic is not None and tile.dynamic.kind in ("vector", "indirect")
    picked = tile.shape[1] if is_indirect(tile) else 0
    return Slot(name, access, seen.shape, seen.strides, seen.dtype, seen.info.itemsize, seen.on_chip, gathers, picked)


@dataclasses.dataclass(frozen=True)
class _Unhashable:
    """What has no hash, in a key of one run."""

    identity: int


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        if isinstance(value, (list, tuple)):
            return tuple(_hashable(v) for v in value)
        if isinstance(value, dict):
            return tuple(sorted((k, _hashable(v)) for k, v in value.items()))
        return _Unhashable(id(value))
    return value


__all__ = ["ComputeInstruction", "Machine", "Site", "free", "partitions"]
