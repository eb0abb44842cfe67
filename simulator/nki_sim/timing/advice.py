"""What a profile says in words: what bounds the kernel, whom engines wait for, and what could be otherwise.

Thresholds are the documents': an engine that is active 90 % of the time bounds the kernel, transfers of 2 KiB per partition
and more are efficient, transposes of more than 10 % of the operations are worth a look, and so are spills of more than 25 % of
what is read from HBM (performance guide, DMA guide, the profiler's summary page).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nki_sim.program import Plan, Program
from nki_sim.timing.descriptors import dma_shape, rows_bytes
from nki_sim.timing.profile import Profile, format_time
from nki_sim.timing.timeline import ENGINES

BOUND_PERCENT = 90.0
GOOD_ROW = 2048
MANY_TRANSPOSES = 0.10
MANY_RELOADS = 0.25
IDLE_PERCENT = 5.0
BUSY_PERCENT = 60.0
WORTH_MOVING = 0.05
"""Of the engine's time."""
MOVABLE = {"tensor_copy": ("scalar", "gpsimd"), "tensor_scalar": ("scalar", "gpsimd"), "memset": ("gpsimd",)}
"""Instructions of the Vector Engine that take ``engine=``, and the others that can run them."""


@dataclass(frozen=True)
class Advice:
    """One finding: what it is about, the words, and the lines of the kernel that cause it."""

    kind: str
    text: str
    lines: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f" (line{'s' * (len(self.lines) > 1)} {', '.join(map(str, self.lines))})" if self.lines else ""
        return self.text + where


def advise(profile: Profile) -> list[Advice]:
    """What a profile says, most important first."""
    if not profile.steps:
        return []
    return [
        *_bound(profile),
        *_spills(profile),
        *_gaps(profile),
        *_short_rows(profile),
        *_transposes(profile),
        *_movable(profile),
        *_idle(profile),
    ]


# -- what bounds it ------------------------------------------------------------------------------------------------------


def _bound(profile: Profile) -> Iterator[Advice]:
    work = profile.timeline.total
    shares = {name: 100 * engine.active_time / work for name, engine in profile.engines.items()}
    issuing, queue = _issuing(profile)
    name = max((n for n in shares if n != "dma"), key=lambda n: shares[n])
    if shares[name] >= BOUND_PERCENT:
        lines = _lines(profile.program, profile.timeline.lane_in_core == ENGINES.index(name))
        yield Advice(
            "bound", f"the {name} engine bounds the kernel: active {shares[name]:.0f} % of its {format_time(work)}", lines
        )
    elif 100 * issuing / work >= BOUND_PERCENT:
        yield Advice(
            "bound",
            f"issuing DMA instructions bounds the kernel: {profile.dma_transfer_count} transfers, "
            f"{format_time(profile.core.latencies.dma_issue)} apart on the {queue}; larger transfers are fewer",
            _lines(profile.program, profile.timeline.lane_in_core >= len(ENGINES)),
        )
    elif shares["dma"] >= BOUND_PERCENT:
        moved = profile.hbm_read_bytes + profile.hbm_write_bytes
        yield Advice(
            "bound",
            f"moving data bounds the kernel: DMA is active {shares['dma']:.0f} % of {format_time(work)} "
            f"and reaches {moved / work:.0f} GB/s",
            _lines(profile.program, profile.timeline.lane_in_core >= len(ENGINES)),
        )
    else:
        path = _path_shares(profile)
        longest = ", ".join(f"{share:.0f} % {name}" for name, share in path)
        yield Advice("bound", f"nothing is busy all the time: instructions wait for each other; the critical path is {longest}")


def _issuing(profile: Profile) -> tuple[float, str]:
    """ns in which the busiest queue issues, and its name."""
    queues: Counter[tuple[int, str]] = Counter()
    for number in profile.program.plan_numbers()[profile.timeline.lane_in_core >= len(ENGINES)]:
        plan = profile.program.plans[int(number)]
        queues[plan.core, plan.cost.queue] += 1
    if not queues:
        return 0.0, ""
    (_, queue), count = queues.most_common(1)[0]
    return count * profile.core.latencies.dma_issue, f"{queue} queue"


def _path_shares(profile: Profile) -> list[tuple[str, float]]:
    """Engines on the critical path and their share of it, largest first; DMA's start and end count as DMA."""
    line = profile.timeline
    spent: dict[str, float] = {}
    path = line.critical_path()
    for step, following in zip(path, [*path[1:], None], strict=True):
        until = line.start[following] if following is not None else line.done[step]
        lane = int(line.lane[step]) % line.lanes_per_core
        name = ENGINES[lane] if lane < len(ENGINES) else "dma"
        spent[name] = spent.get(name, 0.0) + float(until - line.start[step])
    total = sum(spent.values()) or 1.0
    return sorted(((name, 100 * ns / total) for name, ns in spent.items()), key=lambda pair: -pair[1])


# -- what could be otherwise ---------------------------------------------------------------------------------------------


def _spills(profile: Profile) -> Iterator[Advice]:
    """Tiles that are written to HBM and read back because they do not fit."""
    if not profile.spill_reload_bytes + profile.spill_save_bytes:
        return
    share = profile.spill_reload_bytes / max(1, profile.hbm_read_bytes)
    much = f"more than {100 * MANY_RELOADS:.0f} %, so " if share > MANY_RELOADS else ""
    mine = np.isin(profile.program.plan_numbers(), _plans(profile.program, lambda plan: bool(plan.spill)))
    yield Advice(
        "spills",
        f"tiles that do not fit in SBUF are {100 * share:.0f} % of what is read from HBM: {much}"
        "use smaller tiles, or use each up before the next one is made",
        _lines(profile.program, mine),
    )


def _gaps(profile: Profile, most: int = 3) -> Iterator[Advice]:
    """The longest waits of the engine that does most, after its first instruction."""
    line = profile.timeline
    busiest = max(range(len(ENGINES)), key=lambda lane: profile.engines[ENGINES[lane]].active_time)
    mine = np.flatnonzero(line.lane_in_core == busiest)
    if len(mine) < 2:
        return
    mine = mine[np.argsort(line.start[mine], kind="stable")][1:]
    waits = line.waited[mine]
    for at in np.argsort(-waits, kind="stable")[:most]:
        step, ns = int(mine[at]), float(waits[at])
        blocker = int(line.blocker[step])
        if ns < 0.01 * line.total or blocker < 0:
            return
        cause = profile.program[blocker]
        yield Advice(
            "gap",
            f"the {ENGINES[busiest]} engine waits {format_time(ns)} before step {step} for step {blocker}, {cause.instruction}",
            tuple(n for n in (cause.line,) if n is not None),
        )


def _short_rows(profile: Profile) -> Iterator[Advice]:
    """Transfers with less than 2 KiB in each partition."""
    program = profile.program
    short = {i for i, plan in enumerate(program.plans) if plan.engine == "dma" and 0 < rows_bytes(plan) < GOOD_ROW}
    mine = np.isin(program.plan_numbers(), list(short))
    count = int(mine.sum())
    if not count:
        return
    transferred = sum(dma_shape(program.plans[int(n)]).bytes for n in program.plan_numbers()[mine])
    total = profile.dma_transfer_average_bytes * profile.dma_transfer_count
    yield Advice(
        "short rows",
        f"{count} of {profile.dma_transfer_count} transfers bring less than 2 KiB to a partition: "
        f"{100 * transferred / total:.0f} % of the bytes; wider tiles, or blocks of tiles, move faster",
        _lines(program, mine),
    )


def _transposes(profile: Profile) -> Iterator[Advice]:
    every = profile.model_flops + profile.transpose_flops
    if every and profile.transpose_flops / every > MANY_TRANSPOSES:
        share = 100 * profile.transpose_flops / every
        mine = np.isin(profile.program.plan_numbers(), _plans(profile.program, lambda plan: plan.cost.transpose_flops > 0))
        yield Advice(
            "transposes",
            f"transposes are {share:.0f} % of the tensor engine's operations: load data in the layout it is used in, "
            "or transpose while loading (dma_transpose)",
            _lines(profile.program, mine),
        )


def _movable(profile: Profile) -> Iterator[Advice]:
    """Work of a busy Vector Engine that an idle engine could do."""
    work = profile.timeline.total
    share = {name: 100 * engine.active_time / work for name, engine in profile.engines.items()}
    if share["vector"] < BUSY_PERCENT:
        return
    for instruction, others in MOVABLE.items():
        free = [name for name in others if share[name] < share["vector"] / 2]
        same = _plans(profile.program, lambda plan, wanted=instruction: plan.instruction == wanted)  # type: ignore[misc]
        mine = np.isin(profile.program.plan_numbers(), same) & (profile.timeline.lane_in_core == ENGINES.index("vector"))
        held = float((profile.timeline.end - profile.timeline.start)[mine].sum())
        if free and held > WORTH_MOVING * profile.engines["vector"].active_time:
            yield Advice(
                "movable",
                f"{int(mine.sum())} {instruction} on the vector engine (active {share['vector']:.0f} %) could run with "
                f"engine=nisa.engine.{free[0]} (active {share[free[0]]:.0f} %)",
                _lines(profile.program, mine),
            )


def _idle(profile: Profile) -> Iterator[Advice]:
    idle = [n for n in ("tensor", "vector", "scalar", "gpsimd") if profile.engines[n].active_percent < IDLE_PERCENT]
    if idle:
        yield Advice("idle", f"idle, or nearly: {', '.join(idle)}")


def _plans(program: Program, wanted: Callable[[Plan], bool]) -> list[int]:
    return [i for i, plan in enumerate(program.plans) if wanted(plan)]


def _lines(program: Program, steps: npt.NDArray[np.bool_], most: int = 4) -> tuple[int, ...]:
    """The kernel's lines of some steps, the most frequent first."""
    counted = Counter(program.site_number(int(i)) for i in np.flatnonzero(steps))
    sites = [(program.sites[number], count) for number, count in counted.items() if number >= 0]
    ranked = sorted(((-count, site.line) for site, count in sites if site is not None and site.line is not None))
    return tuple(dict.fromkeys(line for _, line in ranked))[:most]
