"""A team of cores: their machines, what they share, and the meetings at which they wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from nki_sim import context
from nki_sim.copies import PrivateCopies
from nki_sim.cores.crew import Crew, Stuck
from nki_sim.cores.deadlock import MOST_NOTES, Arrival, explained
from nki_sim.cores.machine import CoreMachine
from nki_sim.cores.order import Suspect, report
from nki_sim.cores.races import Races
from nki_sim.cores.shared import SharedHbm
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Diagnosis, NkiValidationError, Report, Rule, page, violation
from nki_sim.hw import NeuronCore
from nki_sim.isa.enums import dependency
from nki_sim.isa.meeting import Meeting
from nki_sim.memory import Allocation, MemoryRegion, Storage
from nki_sim.program import Program
from nki_sim.source import call_chain

SAME_FLOW = Rule(
    "kernel.lnc2_same_control_flow",
    "a loop at run time goes round equally often on both logical cores",
    why="the cores run one program; what happens when they part is not defined, and may be a deadlock",
    fix="give both cores the same bounds, and let the data of one be empty",
    page=page("get-started/about/lnc.html"),
    gens=(3, 4),
    enforce="ub",
)


ALONE = Rule(
    "coll.executor",
    "ranks that run as jobs of an executor do not meet",
    why="each is in a process of its own, and collectives are simulated within one",
    fix="leave executor= out: nki_sim.run_ranks(kernel, inputs, ranks=n) runs all ranks here",
    page=page("api/nki.collectives.html"),
)
UNTRIGGERED = Rule(
    "coll.v_prepare_done",
    "a kernel triggers what it prepared",
    why="the device keeps one prepared collective, which the next kernel would find",
    fix="call all_to_all_v_trigger, or all_gather_v_trigger, with what the prepare returned",
    page=page("api/generated/nki.collectives.all_to_all_v.html"),
)


class Team:
    """Cores that run one kernel, and one record of what all of them do, in the order in which they did it.

    Args:
        core: the generation.
        cores: logical cores of each rank, which share HBM.
        ranks: which share nothing.
        grid: dimensions of the launch grid.
        ranks_per_node: ranks of one machine of the cluster; what the documents say, when not given.
        alone: of a rank that runs without the others, its number and how many there are.
        options: of every machine.
    """

    def __init__(
        self,
        core: NeuronCore,
        cores: int,
        ranks: int = 1,
        grid: int = 1,
        ranks_per_node: int | None = None,
        alone: tuple[int, int] | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ):
        self.core, self.cores, self.ranks, self.grid = core, cores, ranks, grid
        self.ranks_per_node = ranks_per_node or core.links.cores_per_chip // cores * core.links.chips_per_node
        self.program = Program()
        self.allocations: list[Allocation] = []
        self.program.allocations = self.allocations
        self.program.cores = tuple(self.name(worker) for worker in range(ranks * cores))
        self.report = Report()
        self.constants: dict[int, Array] = {}
        self.registers: dict[str, Any] = {}
        self.dependencies: list[tuple[int, tuple[int, ...], dependency | None]] = []
        self.ordered: list[Sequence[int]] = []
        self.hbm = [SharedHbm() for _ in range(ranks)]
        self.races = [Races(cores) for _ in range(ranks)]
        self.machines = [CoreMachine(self, worker, core, **options) for worker in range(ranks * cores)]
        for machine in self.machines if alone else ():
            machine.rank, machine.ranks = alone or (0, 1)
        self._alone = alone is not None
        self._copies = PrivateCopies()
        for machine in self.machines if ranks > 1 else ():
            machine.memory.copies = self._copies
        self.unwritten: list[tuple[CoreMachine, Storage, Diagnosis]] = []
        """Reads of shared HBM that nobody had written."""
        self.meetings: set[int] = set()
        """The numbers of plans that cores do together."""
        self._suspects: dict[Any, Suspect] = {}
        self.raced: set[int] = set()
        """Tensors in shared HBM of which a race was found."""
        self._waiting: dict[int, Arrival] = {}
        self.crew = Crew([])

    def name(self, worker: int) -> str:
        """A core, as diagnoses call it."""
        rank, core = divmod(worker, self.cores)
        parts = ([f"rank {rank}"] if self.ranks > 1 else []) + ([f"core {core}"] if self.cores > 1 else [])
        return " ".join(parts) or "core 0"

    def run(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run one function on each core; their results.

        Raises:
            NkiValidationError: a core waits for one that does not come, among all that the functions raise.
        """
        self.crew = Crew([_on(machine, work) for machine, work in zip(self.machines, works, strict=True)])
        try:
            results = self.crew.run()
        except Stuck:
            raise explained(self, self._waiting) from None
        finally:
            self._copies.clear()
        self._compare_loops()
        self._decide_static()
        report(self, self._suspects.values())
        for reader, storage, diagnosis in self.unwritten:
            if id(storage) not in self.raced:
                reader.found(diagnosis)
        for machine in self.machines:
            if machine.prepared is not None:
                broken = Broken(f"{machine.prepared!r} on {machine.title} was never triggered")
                raise NkiValidationError(violation(UNTRIGGERED, broken, target=self.core.target, sites=()))
        self._let_go()
        return results

    def _let_go(self) -> None:
        """Forget what holds data: from here on there is only the record."""
        self.crew = Crew([])
        self.unwritten.clear()
        self._suspects.clear()
        for rank in range(self.ranks):
            self.hbm[rank].clear()
            self.races[rank].clear()
        for machine in self.machines:
            machine.memory.forget_pools()

    def _decide_static(self) -> None:
        """What data decide on one core, they decide for all."""
        static = all(machine.static for machine in self.machines) and not (self.cores > 1 and self._data_may_race())
        for machine in self.machines:
            machine.static = static

    def _data_may_race(self) -> bool:
        """Whether indices at run time decide which elements are touched of what is written in HBM that cores share."""
        plans = self.program.plans
        gathered = [[i for i, slot in enumerate(plan.slots) if slot.gathers] for plan in plans]
        if not any(gathered):
            return False
        both = self.program.has_at(gathered) & self.program.has_at([plan.writes for plan in plans])
        return any(self.allocations[n].region is MemoryRegion.shared_hbm for n in np.flatnonzero(both).tolist())

    def _compare_loops(self) -> None:
        """Report loops at run time that went round more often on one core of a rank than on another."""
        for rank in range(self.ranks):
            first, *others = self.machines[rank * self.cores : (rank + 1) * self.cores]
            for other in others:
                for site in dict.fromkeys([*first.rounds, *other.rounds]):
                    counts = first.rounds.get(site, 0), other.rounds.get(site, 0)
                    if counts[0] != counts[1]:
                        a, b = self.name(first.worker), self.name(other.worker)
                        broken = Broken(f"{counts[0]} rounds on {a}, {counts[1]} on {b}")
                        sites = (site,) if site is not None else ()
                        first.found(violation(SAME_FLOW, broken, target=self.core.target, sites=sites))

    # -- meetings ----------------------------------------------------------------------------------------------------------

    def meet(self, machine: CoreMachine, ins: Meeting) -> None:
        """Wait until all members have come; then do it, one after the other.

        Raises:
            NkiValidationError: what they brought does not go together.
        """
        machine.check(ins)
        if self._alone and ins.across == "ranks" and len(ins.ranks) > 1:
            broken = Broken(f"{ins.called()}, of which each runs as a job of its own")
            raise machine.error(ins, ALONE, broken)
        members = self._members(machine, ins)
        sites = (*machine._site_again(), *call_chain(2))
        self._waiting[machine.worker] = Arrival(ins, members, sites)
        together = self._come(members)
        if together:
            self._take(machine, together)
            self._know(together)
            for worker in members:
                del self._waiting[worker]
            self.crew.in_turn(members)
        self.crew.hand_over(machine.worker, blocked=not together)
        machine.execute(ins)
        self.crew.hand_over(machine.worker)

    def _members(self, machine: CoreMachine, ins: Meeting) -> tuple[int, ...]:
        """Who meets: the cores of this rank, or of all ranks that work together."""
        ranks = ins.ranks if ins.across == "ranks" and not self._alone else (machine.worker // self.cores,)
        return tuple(rank * self.cores + core for rank in sorted(ranks) for core in range(self.cores))

    def _come(self, members: Sequence[int]) -> dict[int, Meeting]:
        """The members' instructions, when all of them wait for the same."""
        waiting = [self._waiting.get(worker) for worker in members]
        found = {worker: arrival.ins for worker, arrival in zip(members, waiting, strict=True) if arrival is not None}
        kinds = {(type(ins), ins.key()) for ins in found.values()}
        return found if len(found) == len(members) and len(kinds) == 1 else {}

    def _take(self, machine: CoreMachine, together: dict[int, Meeting]) -> None:
        for worker, ins in together.items():
            wrong = ins.take(*self._companions(worker, ins, together))
            if wrong is None:
                continue
            rule, broken = wrong
            others = self._grouped(worker, together)
            sites = self._waiting[worker].sites
            diagnosis = violation(rule, broken, target=self.core.target, instruction=type(ins).__name__,
                                  operand_words=ins.operand_words(broken.operand), notes=others,
                                  sites=sites, step=len(self.program))  # fmt: skip
            if rule.enforce == "error":
                raise NkiValidationError(diagnosis)
            machine.found(diagnosis)
            return

    def _grouped(self, worker: int, together: dict[int, Meeting]) -> tuple[str, ...]:
        """What the other members came for and where, those who came alike in one line."""
        alike: dict[str, list[str]] = {}
        for other, ins in together.items():
            if other != worker:
                alike.setdefault(f"{ins.called()} at {self._waiting[other].line}", []).append(self.name(other))
        return tuple(f"{', '.join(names)}: {what}" for what, names in list(alike.items())[:MOST_NOTES])

    def _companions(self, worker: int, ins: Meeting, together: dict[int, Meeting]) -> tuple[int, dict[int, Meeting]]:
        """A member's number, and by such numbers whom it gives to and takes from."""
        rank, core = divmod(worker, self.cores)
        if ins.across == "cores":
            return core, {other % self.cores: its for other, its in together.items()}
        return rank, {other // self.cores: its for other, its in together.items() if other % self.cores == core}

    def _know(self, together: dict[int, Meeting]) -> None:
        for rank, races in enumerate(self.races):
            members = [worker for worker in together if worker // self.cores == rank]
            if not members:
                continue
            ordered = [together[worker].orders() for worker in members]
            if None in ordered:
                races.met([worker % self.cores for worker in members], len(self.program))
                continue
            named = {id(tile.storage): tile.storage for tiles in ordered for tile in tiles or ()}
            labels = " and ".join(storage.allocation.label for storage in named.values())
            between = f"the {type(together[members[0]]).__name__} at {self._waiting[members[0]].line} is for {labels} only"
            races.passed(next(iter(named.values())) if len(named) == 1 else None, len(self.program), between)

    def suspect(self, machine: CoreMachine, diagnosis: Diagnosis, earlier: int, later: int) -> None:
        """Keep an access of two between which there is only a barrier for another tensor, until all dependencies are known."""
        key = machine.worker, diagnosis.headline, diagnosis.line
        self._suspects.setdefault(key, Suspect(machine, diagnosis)).pairs.append((earlier, later))


def _on(machine: CoreMachine, work: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with context.running(machine):
            return work()

    return run


__all__ = ["Team"]
