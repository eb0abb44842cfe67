"""What a timeline says, in the terms of the official profiler, and in words.

Definitions are those of the profile schema reference (tools/neuron-explorer/profile-schema-reference): active time is the
union of the intervals in which an engine works, without waits; MFU is relative to bf16 matmuls at the tensor engine's
clock; MBU to one stack of HBM. All times are estimates; counts and bytes are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from nki_sim.hw import NeuronCore
from nki_sim.memory import MemoryRegion
from nki_sim.program import Plan, Program
from nki_sim.timing.descriptors import dma_shape
from nki_sim.timing.timeline import ENGINES, Floats, Timeline


@dataclass(frozen=True)
class EngineProfile:
    """One engine, or all DMA engines together.

    Attributes:
        instruction_count: instructions; for DMA, transfers.
        instruction_time: ns, durations added up, overlaps too.
        active_time: ns in which at least one of them works.
        active_percent: of the total time.
    """

    instruction_count: int
    instruction_time: float
    active_time: float
    active_percent: float


@dataclass(frozen=True)
class Profile:
    """One run, or one estimate, in numbers. Times in ns, sizes in bytes.

    Attributes:
        total_time: on the device, from launch to end; ``launch_time`` of it is the same for every kernel.
        order: in which order instructions were taken: ``program`` or ``compiler``.
        model_flops: two for each multiply-add of the tensor engine; ``transpose_flops`` those that only move data.
        matmul_count: MATMUL instructions; an fp32 ``nc_matmul`` is two.
        mfu, hfu: model flops, and those with transposes, relative to the peak; ``mfu_max`` is what HBM allows.
        mbu: HBM traffic relative to what one core can draw.
        arithmetic_intensity: model flops per byte of HBM traffic.
        spill_save_bytes, spill_reload_bytes: of the HBM traffic, what a compiler adds where tiles do not fit
            (``fit="compiler"``; without it they are an error).
        engines: by name; of several cores the average, with their instructions added up, and in ``cores`` each core's own.
    """

    kernel: str
    target: str
    order: str
    total_time: float
    launch_time: float
    steps: int
    engines: dict[str, EngineProfile]
    dma_transfer_count: int
    dma_transfer_average_bytes: float
    dma_packet_time: float
    hbm_read_bytes: int
    hbm_write_bytes: int
    sbuf_read_bytes: int
    sbuf_write_bytes: int
    psum_read_bytes: int
    psum_write_bytes: int
    model_flops: int
    transpose_flops: int
    matmul_count: int
    mfu: float
    hfu: float
    mfu_max: float
    mbu: float
    arithmetic_intensity: float
    spill_save_bytes: int = 0
    spill_reload_bytes: int = 0
    cores: tuple[dict[str, EngineProfile], ...] = ()
    timeline: Timeline = field(repr=False, compare=False, kw_only=True)
    program: Program = field(repr=False, compare=False, kw_only=True)
    core: NeuronCore = field(repr=False, compare=False, kw_only=True)

    def as_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        hidden = ("timeline", "program", "core", "engines", "cores")
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in hidden}
        several = {"cores": [_plain(engines) for engines in self.cores]} if self.cores else {}
        return {**plain, "engines": _plain(self.engines), **several}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.kernel} · {self.target} · {self.order} order · estimated"
        yield f"total time          {format_time(self.total_time)}, of which launch {format_time(self.launch_time)}"
        for number, engines in enumerate(self.cores or (self.engines,)):
            prefix = f"{self.program.cores[number]} " if self.cores else ""
            for name, engine in engines.items():
                if engine.instruction_count:
                    what = "transfers" if name == "dma" else "instructions"
                    active = f"{format_time(engine.active_time):>10} active ({engine.active_percent:5.1f} %)"
                    yield f"{prefix + name:<20}{active}   {engine.instruction_count} {what}"
        mfu, most, hfu, mbu = (100 * share for share in (self.mfu, self.mfu_max, self.hfu, self.mbu))
        yield f"MFU {mfu:.2f} % (HBM allows {most:.2f} %), HFU {hfu:.2f} %, MBU {mbu:.2f} %"
        yield f"arithmetic intensity {self.arithmetic_intensity:.1f} flops per byte"
        spilled = f"{format_size(self.spill_save_bytes)} spilled, {format_size(self.spill_reload_bytes)} read back"
        yield (
            f"HBM read {format_size(self.hbm_read_bytes)}, written {format_size(self.hbm_write_bytes)}; "
            + (f"of that {spilled}" if self.spill_save_bytes or self.spill_reload_bytes else "no spills")
        )
        if self.dma_transfer_count:
            yield f"DMA transfers {self.dma_transfer_count}, {format_size(self.dma_transfer_average_bytes)} on average"


def _plain(engines: dict[str, EngineProfile]) -> dict[str, Any]:
    return {name: asdict(engine) for name, engine in engines.items()}


def profile(program: Program, timeline: Timeline, core: NeuronCore, kernel: str = "") -> Profile:
    """The profile of a scheduled program."""
    counts, firsts = _plans_used(program)
    sums = _Sums()
    for number, count in counts.items():
        sums.add(program, program.plans[number], firsts[number], count)
    launch = core.latencies.launch
    total = timeline.total + launch
    moved = sums.bytes["hbm", "read"] + sums.bytes["hbm", "write"]
    cores = len(timeline.lanes) // timeline.lanes_per_core
    seconds, peak, bandwidth = total * 1e-9, cores * core.peak_flops, cores * core.hbm_gb_s * 1e9
    intensity = sums.flops / moved if moved else 0.0
    return Profile(
        kernel=kernel,
        target=core.target,
        order=timeline.order,
        total_time=total,
        launch_time=launch,
        steps=len(program),
        engines=_engines(timeline, total),
        cores=_each_core(timeline, total) if cores > 1 else (),
        dma_transfer_count=sums.transfers,
        dma_transfer_average_bytes=sums.transferred / sums.transfers if sums.transfers else 0.0,
        dma_packet_time=_packet_time(program, timeline),
        **{f"{memory}_{access}_bytes": n for (memory, access), n in sums.bytes.items()},
        **{f"spill_{way}_bytes": n for way, n in sums.spilled.items()},
        model_flops=sums.flops,
        transpose_flops=sums.transposes,
        matmul_count=sums.matmuls,
        mfu=sums.flops / peak / seconds,
        hfu=(sums.flops + sums.transposes) / peak / seconds,
        mfu_max=min(1.0, intensity / (peak / bandwidth)),
        mbu=moved / seconds / bandwidth,
        arithmetic_intensity=intensity,
        timeline=timeline,
        program=program,
        core=core,
    )


def _plans_used(program: Program) -> tuple[dict[int, int], dict[int, int]]:
    """How often each plan is used, and the first step that does."""
    numbers, first, counts = np.unique(program.plan_numbers(), return_index=True, return_counts=True)
    keys = [int(n) for n in numbers]
    return dict(zip(keys, map(int, counts), strict=True)), dict(zip(keys, map(int, first), strict=True))


class _Sums:
    """Bytes, flops and transfers over all plans."""

    def __init__(self) -> None:
        self.bytes = {(memory, access): 0 for memory in ("hbm", "sbuf", "psum") for access in ("read", "write")}
        self.spilled = {"save": 0, "reload": 0}
        self.flops = self.transposes = self.matmuls = self.transfers = self.transferred = 0

    def add(self, program: Program, plan: Plan, step: int, count: int) -> None:
        operands = program[step].operands
        for places, access in ((plan.reads, "read"), (plan.writes, "write")):
            for operand in (operands[i] for i in places):
                if operand.allocation is not None:
                    self.bytes[_memory(operand.allocation.region), access] += count * operand.bytes
        self.flops += count * plan.flops
        self.transposes += count * plan.cost.transpose_flops
        self.matmuls += count * plan.cost.passes
        if plan.engine == "dma":
            self.transfers += count
            self.transferred += count * dma_shape(plan).bytes
            if plan.spill:
                self.spilled[plan.spill] += count * dma_shape(plan).bytes


def _memory(region: MemoryRegion) -> str:
    return region.value if region.on_chip else "hbm"


def _engines(timeline: Timeline, total: float) -> dict[str, EngineProfile]:
    """Of each engine, and of the DMA engines; of several cores the average, with their instructions added up."""
    each = _each_core(timeline, total)
    if len(each) == 1:
        return each[0]
    return {name: _together([core[name] for core in each]) for name in each[0]}


def _each_core(timeline: Timeline, total: float) -> tuple[dict[str, EngineProfile], ...]:
    found = []
    one = timeline.lanes_per_core
    for first in range(0, len(timeline.lanes), one):
        here = (timeline.lane >= first) & (timeline.lane < first + one)
        engines = {}
        for number, name in enumerate(ENGINES):
            mine = timeline.lane == first + number
            engines[name] = _engine(timeline.start[mine], timeline.done[mine], total)
        dma = here & (timeline.lane >= first + len(ENGINES))
        engines["dma"] = _engine(timeline.begin[dma], timeline.end[dma], total)
        found.append(engines)
    return tuple(found)


def _together(cores: list[EngineProfile]) -> EngineProfile:
    n = len(cores)
    counts, times = sum(e.instruction_count for e in cores), sum(e.instruction_time for e in cores)
    return EngineProfile(counts, times, sum(e.active_time for e in cores) / n, sum(e.active_percent for e in cores) / n)


def _engine(start: Floats, end: Floats, total: float) -> EngineProfile:
    active = union(start, end)
    return EngineProfile(len(start), float((end - start).sum()), active, 100.0 * active / total if total else 0.0)


def union(start: Floats, end: Floats) -> float:
    """How long at least one of some intervals is open."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    covered = np.maximum(start, np.concatenate(([-np.inf], reached[:-1])))
    return float(np.maximum(reached - covered, 0.0)[end >= covered].sum())


def _packet_time(program: Program, timeline: Timeline) -> float:
    """ns, over all DMA engines."""
    dma = np.flatnonzero(timeline.lane_in_core >= len(ENGINES))
    plans = program.plan_numbers()[dma]
    engines = {int(n): dma_shape(program.plans[int(n)]).engines for n in np.unique(plans)}
    held = timeline.end[dma] - timeline.begin[dma]
    return float(sum(held[plans == number].sum() * count for number, count in engines.items()))


def format_time(ns: float) -> str:
    """A time in the unit that suits it."""
    if ns < 1e4:
        return f"{ns:.0f} ns"
    return f"{ns / 1e3:.2f} µs" if ns < 1e6 else f"{ns / 1e6:.3f} ms"


def format_size(n: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.4g} GiB"
