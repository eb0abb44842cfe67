"""A run as a native Perfetto trace, for https://ui.perfetto.dev: written packet by packet, the same bytes every time.

One process for the core, a track for each engine and DMA queue in use, a slice per instruction with its source line and
operands, flows along the true dependencies between tracks, and counters for SBUF and PSUM. Times are estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from nki_sim.memory import MemoryRegion
from nki_sim.program import Step
from nki_sim.run import Run
from nki_sim.timing import Profile, Timeline
from nki_sim.timing.dependencies import TRUE

from nki_nb import extras
from nki_nb.atomic import whole
from nki_nb.bars import Lane, lanes
from nki_nb.memory_use import bytes_alive, over_time
from nki_nb.recorded import Recorded, as_profile

MESSAGES = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
SEQUENCE = 1
PROCESS, FIRST_COUNTER, FIRST_LANE = 1, 2, 16
"""Track uuids."""
COUNTERS = (MemoryRegion.sbuf, MemoryRegion.psum)
BEGIN, END, COUNT = 0, 1, 2
PACKET_TAG = b"\x0a"
"""Field 1 of ``Trace``, with a length."""

Ints = npt.NDArray[np.int64]


def save_perfetto(run: Run | Profile, path: str | Path) -> Path:
    """Write a trace that the Perfetto UI opens.

    Args:
        run: a run, of which ``run.profile()`` is taken, or a profile.
        path: the file; ``.pftrace`` by custom.

    Raises:
        MissingExtraError: the package perfetto is not installed.
    """
    profile, target = as_profile(run), Path(path)
    messages = extras.load(MESSAGES, "perfetto", "a Perfetto trace")
    with whole(target) as file:
        _Trace(profile, messages, file).write()
    return target


@dataclass(frozen=True)
class Flows:
    """True dependencies between lanes: of each step those that it is the source of, and those that it ends.

    Flow ``i`` leads from ``source[i]`` to ``sink[i]``, and they are in the order of their sinks; ``by_source`` has their
    numbers in that of their sources, which are ``sources``.
    """

    source: Ints
    sink: Ints
    by_source: Ints
    sources: Ints

    @classmethod
    def of(cls, line: Timeline) -> Flows:
        """The flows of a timeline."""
        known = line.dependencies
        first = np.array(known.first, np.int64)
        sink = np.repeat(np.arange(len(first) - 1), np.diff(first))
        source = np.array(known.producers, np.int64)
        kept = (np.array(known.kinds, np.int8) == TRUE) & (line.lane[source] != line.lane[sink])
        source, sink = source[kept], sink[kept]
        by_source = np.argsort(source, kind="stable")
        return cls(source, sink, by_source, source[by_source])

    def out_of(self, step: int) -> list[int]:
        """Ids, from 1, of the flows that start at a step."""
        first, end = np.searchsorted(self.sources, (step, step + 1))
        return self._ids(self.by_source[first:end])

    def into(self, step: int) -> list[int]:
        """Ids of the flows that end at a step."""
        first, end = np.searchsorted(self.sink, (step, step + 1))
        return self._ids(np.arange(first, end))

    @staticmethod
    def _ids(numbers: Ints) -> list[int]:
        return [int(n) + 1 for n in numbers]


class _Trace:
    """A trace under way: names are sent once and referred to by number."""

    def __init__(self, profile: Profile, messages: Any, file: BinaryIO):
        self.profile, self.messages, self.file = profile, messages, file
        self.recorded, self.lanes, self.flows = Recorded(profile), lanes(profile.timeline), Flows.of(profile.timeline)
        plans = profile.program.plans
        self.names = _numbered(plan.instruction for plan in plans)
        self.categories = _numbered(plan.engine for plan in plans)
        self.arguments: dict[str, int] = _numbered(_ARGUMENTS)

    def write(self) -> None:
        self._send(self._preamble())
        for packet in self._tracks():
            self._send(packet)
        counts = [self._counts(region) for region in COUNTERS]
        for time, track, kind, number in _events(self.profile.timeline, self.lanes, [times for times, _ in counts]):
            if kind == COUNT:
                self._send(self._counter(time, track, int(counts[track][1][number])))
            elif kind == END:
                self._send(self._event(time, FIRST_LANE + track, "TYPE_SLICE_END"))
            else:
                self._send(self._begin(time, FIRST_LANE + track, self.recorded.step(number)))

    def _send(self, packet: Any) -> None:
        """Write one packet, as field ``packet`` of the message ``Trace``: its tag, its length, its bytes."""
        packet.trusted_packet_sequence_id = SEQUENCE
        data = packet.SerializeToString(deterministic=True)
        self.file.write(PACKET_TAG + _varint(len(data)) + data)

    # -- what comes first ----------------------------------------------------------------------------------------------

    def _preamble(self) -> Any:
        packet = self.messages.TracePacket()
        packet.sequence_flags = self.messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        data = packet.interned_data
        for entries, names in (
            (data.event_names, self.names),
            (data.event_categories, self.categories),
            (data.debug_annotation_names, self.arguments),
        ):
            for name, number in names.items():
                entries.add(iid=number, name=name)
        return packet

    def _tracks(self) -> Iterator[Any]:
        yield self._process()
        for i, region in enumerate(COUNTERS):
            packet = self._track(FIRST_COUNTER + i, f"{region.value.upper()} bytes per partition", i)
            packet.track_descriptor.counter.unit = self.messages.CounterDescriptor.UNIT_SIZE_BYTES
            yield packet
        for i, lane in enumerate(self.lanes):
            yield self._track(FIRST_LANE + i, lane.label, len(COUNTERS) + i)

    def _process(self) -> Any:
        profile = self.profile
        packet = self.messages.TracePacket()
        track = packet.track_descriptor
        track.uuid = PROCESS
        track.process.pid = 1
        track.process.process_name = f"{_plain(profile.kernel)} on {profile.core}: estimate, {profile.order} order"
        track.child_ordering = self.messages.TrackDescriptor.EXPLICIT
        return packet

    def _track(self, uuid: int, name: str, rank: int) -> Any:
        packet = self.messages.TracePacket()
        track = packet.track_descriptor
        track.uuid, track.parent_uuid, track.name, track.sibling_order_rank = uuid, PROCESS, name, rank
        return packet

    # -- events --------------------------------------------------------------------------------------------------------

    def _event(self, time: int, uuid: int, kind: str) -> Any:
        packet = self.messages.TracePacket()
        packet.timestamp = time
        packet.sequence_flags = self.messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        packet.track_event.track_uuid = uuid
        packet.track_event.type = self.messages.TrackEvent.Type.Value(kind)
        return packet

    def _begin(self, time: int, uuid: int, step: Step) -> Any:
        packet = self._event(time, uuid, "TYPE_SLICE_BEGIN")
        event = packet.track_event
        event.name_iid = self.names[step.instruction]
        event.category_iids.append(self.categories[step.engine])
        event.flow_ids.extend(self.flows.out_of(step.index))
        event.terminating_flow_ids.extend(self.flows.into(step.index))
        for name, value in self._facts(step):
            entry = event.debug_annotations.add(name_iid=self.arguments[name])
            if isinstance(value, str):
                entry.string_value = _plain(value)
            elif isinstance(value, float):
                entry.double_value = value
            else:
                entry.int_value = value
        return packet

    def _facts(self, step: Step) -> Iterator[tuple[str, str | int | float]]:
        """What a slice says of its instruction; see :data:`_ARGUMENTS`."""
        line, index = self.profile.timeline, step.index
        yield "step", index
        if step.site is not None:
            yield "line", step.site.line
            yield "source", self.recorded.place(step)
        yield "operands", step.text
        if step.plan.cost.cycles:
            yield "cycles", step.plan.cost.cycles
        for name, size in self.recorded.bytes(step).items():
            if size:
                yield name, size
        if step.plan.flops:
            yield "flops", step.plan.flops
        if step.plan.cost.queue:
            yield "queue", step.plan.cost.queue
            yield "first_byte_ns", round(float(line.begin[index]))
        yield "result_ns", round(float(line.done[index]))
        yield "waited_ns", round(float(line.waited[index]))

    def _counts(self, region: MemoryRegion) -> tuple[Ints, Ints]:
        program = self.profile.program
        times, alive = over_time(bytes_alive(program, region), self.profile.timeline)
        return np.rint(times).astype(np.int64), alive

    def _counter(self, time: int, number: int, value: int) -> Any:
        packet = self._event(time, FIRST_COUNTER + number, "TYPE_COUNTER")
        packet.track_event.counter_value = value
        return packet


_ARGUMENTS = (
    "step", "line", "source", "operands", "cycles",
    *(f"{memory}_{access}_bytes" for memory in ("hbm", "sbuf", "psum") for access in ("read", "write")),
    "flops", "queue", "first_byte_ns", "result_ns", "waited_ns",
)  # fmt: skip


def _numbered(names: Iterable[str]) -> dict[str, int]:
    """Names with numbers from 1, each once."""
    return {name: i + 1 for i, name in enumerate(dict.fromkeys(names))}


def _events(line: Timeline, used: list[Lane], counters: list[Ints]) -> Iterator[tuple[int, int, int, int]]:
    """Time, track, kind and step (of a counter, its entry) of all events, by time; in a track in their own order."""
    times, tracks, kinds, numbers = [], [], [], []
    for i, changes in enumerate(counters):
        times.append(changes)
        tracks.append(np.full(len(changes), i))
        kinds.append(np.full(len(changes), COUNT))
        numbers.append(np.arange(len(changes)))
    for i, lane in enumerate(used):
        times.append(np.rint(np.stack((line.start[lane.steps], line.end[lane.steps]), 1).ravel()).astype(np.int64))
        tracks.append(np.full(2 * len(lane.steps), i))
        kinds.append(np.tile((BEGIN, END), len(lane.steps)))
        numbers.append(np.repeat(lane.steps, 2))
    time, track, kind, number = (np.concatenate(parts) for parts in (times, tracks, kinds, numbers))
    for at in np.argsort(time, kind="stable"):
        yield int(time[at]), int(track[at]), int(kind[at]), int(number[at])


def _varint(number: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _plain(text: str) -> str:
    """Text that UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
