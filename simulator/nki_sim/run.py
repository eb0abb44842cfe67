"""A finished run of a kernel, and the options of one."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
import numpy.typing as npt

from nki_sim.errors import Diagnosis
from nki_sim.fitting import FIT_VARIABLE
from nki_sim.hw import NeuronCore
from nki_sim.inputs import Inputs
from nki_sim.machine import Machine
from nki_sim.placement import MemoryMap
from nki_sim.program import Order, Program
from nki_sim.trace import Replay

if TYPE_CHECKING:
    from nki_sim.timing import Profile, Timeline


def _check_fit(name: str, asked: str) -> Order:
    if asked not in get_args(Order):
        raise ValueError(f"{name} is {asked!r}: it is 'program' or 'compiler'")
    return cast(Order, asked)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run a kernel.

    Attributes:
        target: trn1, trn2 or trn3 (or their other names); ``None``: from the environment, then trn2.
        strict: findings (undefined behaviour, soft rules) are errors.
        precise: ``False`` stores low-precision floats as float32; ``None``: as ``NKI_PRECISE_FP`` says.
        keep_inputs: keep the inputs, so that the run can be stepped through later: copies, but of arrays of over 1 MiB only
            when somebody looks, and if they are still what they were.
        dry: trace shapes only: nothing is computed, and there is no result.
        fit: ``program``: tiles must fit in memory as the kernel is written; ``compiler``: in some order that its dependencies
            allow, or with some of them written to HBM and read again, which is reported (:mod:`nki_sim.fitting`); ``None``:
            as ``NKI_SIM_FIT`` says, also for kernels that are called by themselves, or else ``program``.
        watch: of a dry run, also report what is read, or returned, without having been written. (Other runs always do.)

    Raises:
        ValueError: another ``fit``.
    """

    target: str | NeuronCore | None = None
    strict: bool = False
    precise: bool | None = None
    keep_inputs: bool = True
    dry: bool = False
    fit: Order | None = None
    watch: bool = False

    def __post_init__(self) -> None:
        if self.fit is not None:
            _check_fit("fit", self.fit)

    @property
    def fits(self) -> Order:
        """``fit``, with the environment asked where it is ``None``.

        Raises:
            ValueError: the environment has another word.
        """
        return _check_fit(FIT_VARIABLE, os.environ.get(FIT_VARIABLE) or "program") if self.fit is None else self.fit

    @property
    def of_machine(self) -> dict[str, bool]:
        """The options that a machine has."""
        return {"strict": self.strict, "precise": self.stores_precisely, "dry": self.dry, "watch": self.watch}

    @property
    def stores_precisely(self) -> bool:
        """``precise``, with the environment asked where it is ``None``."""
        return os.environ.get("NKI_PRECISE_FP", "1") != "0" if self.precise is None else self.precise


@dataclass(frozen=True)
class CoreRecord:
    """What one core of a run did.

    Attributes:
        number: the core; ``name`` is what diagnoses call it.
        program: of all cores; ``steps`` are this one's numbers in it.
        memory: where its tiles lay.
    """

    number: int
    program: Program = field(repr=False)
    steps: npt.NDArray[np.int64] = field(repr=False)
    memory: MemoryMap = field(repr=False)
    name: str = "core 0"

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def counts(self) -> dict[str, int]:
        """Instructions by name, most frequent first."""
        names = Counter(self.program.plan_at(int(step)).instruction for step in self.steps)
        return dict(sorted(names.items(), key=lambda item: (-item[1], item[0])))

    def listing(self) -> str:
        """Its program as text."""
        return self.program.listing(only=self.steps.tolist())


@dataclass
class Run:
    """One finished run of a kernel.

    Attributes:
        name: the kernel's name.
        core: the NeuronCore.
        lnc: logical cores.
        ranks: how many ran it.
        result: what the kernel returned, as arrays of the caller's kind (a tuple where it returned several); of several ranks
            a list with what each returned.
        machine: what recorded it.
        memory: where the tiles lay; ``memories`` of each core.
        inputs: the inputs' values before the run, by allocation number; empty when they were not kept.
        seconds: how long it took here; says nothing about the device.
    """

    name: str
    core: NeuronCore
    lnc: int
    result: Any
    machine: Machine = field(repr=False)
    memory: MemoryMap = field(repr=False)
    inputs: Inputs = field(default_factory=Inputs, repr=False)
    seconds: float = 0.0
    precise: bool = True
    memories: tuple[MemoryMap, ...] = field(default=(), repr=False)
    ranks: int = 1
    _timelines: dict[Order, Timeline] = field(default_factory=dict, repr=False)

    @property
    def program(self) -> Program:
        """Every instruction; of several cores in the order in which they were executed."""
        return self.machine.program

    @property
    def names(self) -> tuple[str, ...]:
        """What the cores are called."""
        return self.program.cores

    @property
    def cores(self) -> tuple[CoreRecord, ...]:
        """What each core did."""
        plans = self.program.plan_numbers()
        owner = np.array([plan.core for plan in self.program.plans] or [0])[plans] if len(plans) else plans
        each = enumerate(zip(self.memories, self.names, strict=True))
        return tuple(CoreRecord(n, self.program, np.flatnonzero(owner == n), memory, name) for n, (memory, name) in each)

    @property
    def findings(self) -> list[Diagnosis]:
        """What was let through but may be wrong on hardware."""
        return self.machine.report.findings

    def timeline(self, order: Order = "program") -> Timeline:
        """When each instruction runs on the device: an estimate.

        Args:
            order: ``program``, or ``compiler``: engines may take what is ready first, within the dependencies.
        """
        found = self._timelines.get(order)
        if found is None:
            from nki_sim.timing import dependencies, schedule  # the model of time: for who asks about it

            known = next((line.dependencies for line in self._timelines.values()), None)
            if known is None:
                known = dependencies(self.program, self.core, self.machine.dependencies, self.machine.ordered)
            found = self._timelines[order] = schedule(self.program, self.core, known, order=order)
        return found

    def profile(self, order: Order = "compiler") -> Profile:
        """The run in the official profiler's terms: an estimate."""
        from nki_sim.timing import profile

        return profile(self.program, self.timeline(order), self.core, self.name)

    def replay(self) -> Replay:
        """Step through the run: what was in memory at any step.

        Raises:
            ValueError: the run did not keep its inputs, or a large one was changed since.
        """
        if not self.inputs and any(a.role == "input" for a in self.program.allocations):
            raise ValueError("this run did not keep its inputs: run it with nki_sim.run(kernel, …)")
        return Replay(self.machine, {**self.inputs, **self.machine.constants})

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The outputs as a tuple, also when there is one or none."""
        if self.result is None:
            return ()
        return tuple(self.result) if isinstance(self.result, (tuple, list)) else (self.result,)

    @property
    def counts(self) -> dict[str, int]:
        """Instructions by name, most frequent first."""
        return self.program.counts()
