"""One core of several: a machine of its own, whose record, shared HBM and meetings are the team's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

from nki_sim.cores.races import RACE, TWICE, Race
from nki_sim.cores.shared import SAME_CONSTANT, check_same, differs
from nki_sim.dtypes import Array, DType
from nki_sim.errors import Broken, Rule, violation
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import Instruction
from nki_sim.isa.meeting import Meeting
from nki_sim.machine import NEVER_WRITTEN, Machine
from nki_sim.memory import MemoryRegion, Storage
from nki_sim.ops import UnknownOperatorError
from nki_sim.pending import Pending
from nki_sim.program import Plan
from nki_sim.tensor import NkiTensor

if TYPE_CHECKING:
    from nki_sim.cores.team import Team


class CoreMachine(Machine):
    """A machine of a team.

    Args:
        team: whose.
        worker: its number in the team.
        core: the generation.
        options: as of :class:`Machine`.

    Attributes:
        worker, rank: its number among all cores of the team, and its rank's.
    """

    def __init__(self, team: Team, worker: int, core: NeuronCore, **options: Any):
        super().__init__(core, **options)
        self.team, self.worker = team, worker
        self.rank, self.number = divmod(worker, team.cores)
        self.programs, self.grid = team.cores, team.grid
        self.ranks, self.ranks_per_node = team.ranks, team.ranks_per_node
        self.program, self.report, self.constants = team.program, team.report, team.constants
        self.dependencies, self.ordered = team.dependencies, team.ordered
        self.memory.allocations, self.memory.number = team.allocations, worker
        self.registers = _Registers(team.registers, worker) if worker else team.registers
        self._hbm = team.hbm[self.rank]
        self._races = team.races[self.rank] if team.cores > 1 else None
        self.rounds: dict[Any, int] = {}
        """How often loops at run time went round, by the line that makes them."""
        self._touching: dict[int, tuple[int, ...]] = {}
        """Of a plan, by its identity, the operands in HBM that others may touch."""

    @property
    def title(self) -> str:
        return self.team.name(self.worker)

    # -- tensors -----------------------------------------------------------------------------------------------------------

    def allocate(
        self, shape: tuple[int, ...], dtype: DType, region: MemoryRegion, name: str = "", address: Any = None
    ) -> NkiTensor:
        def make() -> Storage:
            made = super(CoreMachine, self).allocate(shape, dtype, region, name, address)
            made.storage.allocation.core = self.worker
            made_storage: Storage = made.storage
            return made_storage

        if region is not MemoryRegion.shared_hbm or self.programs == 1:
            return NkiTensor.fresh(make(), self.memory)
        storage, new = self._hbm.get(self._hbm.key(self.number, "tensor", name), make)
        if not new:
            check_same(storage, tuple(shape), dtype, self.core)
        return self._shared(storage)

    def _shared(self, storage: Storage) -> NkiTensor:
        if storage.views is None:
            storage.views = []
        return NkiTensor.fresh(storage, self.memory)

    def constant(self, values: Array, dtype: DType) -> NkiTensor:
        def make() -> Storage:
            made: Storage = super(CoreMachine, self).constant(values, dtype).storage
            return made

        storage, new = self._hbm.get(self._hbm.key(self.number, "constant"), make)
        if not new and differs(self.constants[storage.allocation.id], values):
            label, line = storage.allocation.label, storage.allocation.line
            broken = Broken(f"its values differ from those of {label}, which the other core made at line {line}")
            self.found(violation(SAME_CONSTANT, broken, target=self.core.target, instruction="nl.shared_constant"))
        return self._shared(storage)

    def take_in(self, array: Array, dtype: DType, name: str, writable: bool) -> NkiTensor:
        """An argument's array in HBM, the same tensor on all cores of the rank."""
        key = self._hbm.key(self.number, "input")
        storage, _ = self._hbm.get(key, lambda: self.memory.adopt(array, dtype, name, writable))
        return NkiTensor.fresh(storage, self.memory)

    def close_scope(self, loop: object, first: int) -> None:
        for allocation in self.memory.allocations[first:]:
            if allocation.loop is None and allocation.core == self.worker and allocation.region is not MemoryRegion.shared_hbm:
                allocation.loop = loop
                self._scoped = True

    def round_of(self, loop: Any) -> None:
        self.rounds[loop.site] = self.rounds.get(loop.site, 0) + 1

    # -- issue -------------------------------------------------------------------------------------------------------------

    def issue(self, ins: Instruction) -> None:
        if isinstance(ins, Meeting):
            self.team.meet(self, ins)
            return
        super().issue(ins)
        if self.team.crew.in_small_steps:
            self.team.crew.hand_over(self.worker)

    def check(self, ins: Instruction) -> None:
        """Refuse what no other core could mend."""
        kind = type(ins)
        for name, value in zip(kind.operand_names, kind.get_operands(ins), strict=True):
            self._check_operand(ins, name, value, kind.specs[name])
        try:
            self._check_rules(ins)
        except UnknownOperatorError as error:
            raise self._no_operator(ins, error) from None

    def execute(self, ins: Instruction) -> None:
        """Do what all members of a meeting have come for."""
        super().issue(ins)

    def wait(self) -> None:
        """Let the instructions of all cores wait, in the order in which they are issued."""
        pending = Pending(self.program)
        for machine in self.team.machines:
            machine.pending, machine.memory.waiting = pending, self.catch_up

    def catch_up(self) -> None:
        pending = self.forget_pending()
        for worker, waiting in groupby(pending.drain() if pending else (), lambda late: late.plan.core):
            self.team.machines[worker].run_late(waiting)

    def forget_pending(self) -> Pending | None:
        pending = self.pending
        for machine in self.team.machines:
            super(CoreMachine, machine).forget_pending()
        return pending

    def _specialise(self, ins: Instruction, values: tuple[Any, ...]) -> tuple[int, Plan]:
        number, plan = super()._specialise(ins, values)
        plan.core, plan.depth = self.worker, plan.depth + 1  # issue here calls that of all machines
        if isinstance(ins, Meeting):
            self.team.meetings.add(number)
            if not plan.writes:
                plan.only_order(values)
        elif self._races is not None:  # who meets is in step
            in_hbm = self._touching[id(plan)] = tuple([i for i in (*plan.reads, *plan.writes) if not plan.slots[i].on_chip])
            plan.plays = plan.plays and not in_hbm
        return number, plan

    def owns(self, ins: Instruction, values: Iterable[Any]) -> bool:
        theirs = ins.received if isinstance(ins, Meeting) else None
        return super().owns(ins, [v for v in values if v is not theirs])

    def _before(self, ins: Instruction, plan: Plan, values: tuple[Any, ...]) -> None:
        super()._before(ins, plan, values)
        for race in self._races_of(ins, plan, values, ins.step) if self.dry else ():
            if self._may_be_twice(plan, values, race):  # what only values tell
                race.agree()
            else:
                self._race(ins, plan, values, race, RACE)

    def _run(self, ins: Instruction, plan: Plan, values: tuple[Any, ...], step: int) -> None:
        races = self._races_of(ins, plan, values, step)
        before = [values[r.place].array.tobytes() if self._may_be_twice(plan, values, r) else None for r in races]
        super()._run(ins, plan, values, step)
        for race, was in zip(races, before, strict=True):
            same = was is not None and values[race.place].array.tobytes() == was
            if same:
                race.agree()
            self._race(ins, plan, values, race, TWICE if same else RACE)

    def _races_of(self, ins: Instruction, plan: Plan, values: tuple[Any, ...], step: int) -> list[Race]:
        """With what of the other core an instruction races, or may."""
        if self._races is None:
            return []
        found: list[Race] = []
        for i in self._touching.get(id(plan), ()):
            unknown = self.dry and values[i].dynamic is not None  # which elements it means, only data tells
            if values[i].storage.allocation.region is MemoryRegion.shared_hbm and not unknown:
                found += self._races.access(self.number, step, values[i], plan.slots[i], i in plan.writes, i)
        return next(([race] for race in found if not race.between), found)

    def _may_be_twice(self, plan: Plan, values: tuple[Any, ...], race: Race) -> bool:
        """Whether both write all of the same, so that it is work done twice when the values are the same too."""
        tile = values[race.place]
        wrote = any(o.allocation is tile.storage.allocation for o in self.program[race.step].writes())
        return race.whole and race.place in plan.writes and wrote and tile.dynamic is None

    def _race(self, ins: Instruction, plan: Plan, values: tuple[Any, ...], race: Race, rule: Rule) -> None:
        """Say that an instruction races with an earlier step of another core; or keep it until it is known whether it does."""
        tile, other = values[race.place], self.program[race.step]
        wrote = any(o.allocation is tile.storage.allocation for o in other.writes())
        name, label, its = plan.slots[race.place].name, tile.storage.allocation.label, self.team.name(other.plan.core)
        did = "writes" if race.place in plan.writes else "reads"
        what = f"{name} {did} {label} on {self.title}, which {its} {'wrote' if wrote else 'read'} at line {other.line}, "
        what += "with the same values" if rule is TWICE else "and nothing orders the two"
        where = other.site.place if other.site else f"step {race.step}"
        notes = (f"{its}: {other.instruction} {other.text}", f"at {where}")
        if race.between:
            diagnosis = self.diagnose(ins, rule, Broken(what, name), (*notes, race.between))
            self.team.suspect(self, diagnosis, race.step, ins.step)
            return
        self.team.raced.add(id(tile.storage))
        self.finding(ins, rule, Broken(what, name), notes)

    def finding(self, ins: Instruction, rule: Rule, broken: Broken, notes: tuple[str, ...] = ()) -> None:
        """As any machine's; but what was not written of shared HBM may be another core's to write, which a race would say."""
        tile = getattr(ins, broken.operand, None) if rule is NEVER_WRITTEN and self._races is not None else None
        if isinstance(tile, NkiTensor) and tile.buffer is MemoryRegion.shared_hbm and not self._muted:
            self.team.unwritten.append((self, tile.storage, self.diagnose(ins, rule, broken, notes)))
            return
        super().finding(ins, rule, broken, notes)

    # -- quiet while bodies are run again ------------------------------------------------------------------------------------

    @contextmanager
    def muted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for machine in self.team.machines:
                stack.enter_context(super(CoreMachine, machine).muted())
            yield

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        with ExitStack() as stack:
            for machine in self.team.machines:
                stack.enter_context(super(CoreMachine, machine).disturbed())
            yield


class _Registers(MutableMapping[str, Any]):
    """The engines' registers of one core among those of the team."""

    def __init__(self, all_of_them: dict[str, Any], worker: int):
        self._all, self._prefix = all_of_them, f"{worker}:"

    def __getitem__(self, name: str) -> Any:
        return self._all[self._prefix + name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._all[self._prefix + name] = value

    def __delitem__(self, name: str) -> None:
        del self._all[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (name[len(self._prefix) :] for name in self._all if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
