"""Instruction tables and Perfetto traces: what they hold, read back with the libraries that others read them with."""

from __future__ import annotations

import csv
import dataclasses
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import nki_sim
import numpy as np
import pytest
from nki_sim.api import nki
from nki_sim.api.nki import isa as nisa
from nki_sim.api.nki import language as nl
from nki_sim.timing import ENGINES, Profile
from nki_sim.timing.dependencies import TRUE
from runs import HOSTILE, long, matmul_run, named, placed, run, softmax_run

import nki_nb
from nki_nb import kernels
from nki_nb.atomic import whole
from nki_nb.extras import MissingExtraError
from nki_nb.instructions import COLUMNS, rows
from nki_nb.memory_use import bytes_alive, over_time

COLUMN = np.ones((32, 40), np.float32)


@nki.jit
def turned(x: Any) -> Any:
    """A transpose on the tensor engine, an activation, and a fast copy."""
    tile = nl.load(x)
    flat = nl.ndarray((x.shape[1], x.shape[0]), dtype=x.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=flat, data=tile)
    y = nl.ndarray(flat.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.activation(dst=y, op=nl.exp, data=flat)
    z = nl.ndarray(flat.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=z, src=y, engine=nisa.engine.vector)
    out = nl.ndarray(flat.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, z)
    return out


@nki.jit
def formula(x: Any) -> Any:
    """Names that a spreadsheet would compute."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="=1+1")
    nisa.dma_copy(dst=tile, src=x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="@out")
    nisa.dma_copy(dst=out, src=tile)
    return out


RUNS = {
    "matmul": matmul_run,
    "softmax": softmax_run,
    "placed": lambda: run(placed, COLUMN),
    "long": lambda: run(long, COLUMN, 300),
    "turned": lambda: nki_sim.run(turned, np.ones((128, 128), nl.bfloat16)),
}


@pytest.fixture(params=[(name, order) for name in RUNS for order in ("compiler", "program")], ids="-".join)
def profile(request: pytest.FixtureRequest) -> Profile:
    name, order = request.param
    return RUNS[name]().profile(order)


# -- tables ----------------------------------------------------------------------------------------------------------


def test_sums_of_the_table_are_the_profile(profile: Profile) -> None:
    table = list(rows(profile))
    assert [row["id"] for row in table] == list(range(profile.steps))
    assert all(set(row) <= set(COLUMNS) for row in table)
    for name in ("hbm_read_bytes", "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes"):
        assert sum(row[name] for row in table) == getattr(profile, name)
    assert sum(row["raw_flops"] or 0 for row in table) == profile.model_flops + profile.transpose_flops
    for name, engine in profile.engines.items():
        mine = [row for row in table if row["engine"] == name]
        assert len(mine) == engine.instruction_count
        assert sum(row["duration_ns"] for row in mine) == pytest.approx(engine.instruction_time, abs=len(mine) + 1)
        assert sorted(row["pc"] for row in mine) == list(range(len(mine)))


def test_columns_of_single_instructions() -> None:
    by_name = {row["opcode"]: row for row in rows(RUNS["turned"]())}
    transpose, activation, copy, dma = (by_name[n] for n in ("nc_transpose", "activation", "tensor_copy", "dma_copy"))
    assert transpose["tensor_instruction_type"] == "TRANSPOSE" and transpose["raw_flops"] == transpose["flops_transpose"] > 0
    assert activation["scalar_activation_fn"] == "EXP" and activation["tensor_instruction_type"] is None
    assert copy["performance_mode"] is None and copy["engine"] == "vector"  # 128 elements in 64 cycles: the least there is
    assert dma["queue_type"] == "software_dynamic" and dma["read_bytes"] == dma["transfer_bytes"] == 128 * 128 * 2
    assert dma["trigger"] < dma["start_ts"] and dma["timeline_track"].startswith("DMA q")
    assert {row["nki_source_location"].partition(":")[0] for row in by_name.values()} == {"test_exports.py"}


@pytest.mark.parametrize(("dtype", "mode"), [("bfloat16", "4x"), ("float32", "2x")])
def test_performance_mode(dtype: str, mode: str) -> None:
    @nki.jit
    def copied(x: Any) -> Any:
        tile = nl.load(x)
        y = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=y, src=tile, engine=nisa.engine.vector)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, y)
        return out

    told = [nki_sim.estimate(copied, ((128, 4096), dtype), target=target) for target in ("trn2", "trn1")]
    found = [row["performance_mode"] for one in told for row in rows(one) if row["opcode"] == "tensor_copy"]
    assert found == [mode, None]


def test_csv(profile: Profile, tmp_path: Path) -> None:
    path = nki_nb.save_instructions(profile, tmp_path / "x.csv")
    with path.open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    table = list(rows(profile))
    assert list(read[0]) == list(COLUMNS)
    for got, row in zip(read, table, strict=True):
        assert got == {name: "" if row.get(name) is None else str(row[name]) for name in COLUMNS}
    again = nki_nb.save_instructions(profile, tmp_path / "y.CSV")
    assert path.read_bytes() == again.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.csv", "y.CSV"]


def test_text_is_no_formula(tmp_path: Path) -> None:
    path = nki_nb.save_instructions(run(formula, COLUMN), tmp_path / "x.csv")
    with path.open(encoding="utf-8", newline="") as file:
        assert [row["operands"] for row in csv.DictReader(file)] == ["'=1+1 ← x", "'@out ← =1+1"]


def test_pandas_reads_both(profile: Profile, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    one = pandas.read_csv(nki_nb.save_instructions(profile, tmp_path / "x.csv"))
    two = pandas.read_parquet(nki_nb.save_instructions(profile, tmp_path / "x.parquet"))
    assert list(one.columns) == list(two.columns) == list(COLUMNS)
    for name, kind in COLUMNS.items():
        for a, b in zip(one[name], two[name], strict=True):
            assert (_empty(a) and _empty(b)) or kind(a) == kind(b), name
    assert two["duration_ns"].dtype == np.int64


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or str(value) == "<NA>"


def test_parquet_keeps_text_as_it_is(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(nki_nb.save_instructions(run(formula, COLUMN), tmp_path / "x.parquet"))
    assert table["operands"].to_pylist() == ["=1+1 ← x", "@out ← =1+1"]
    about = {b"kernel": b"formula", b"target": b"trn2", b"order": b"compiler", b"times": b"estimates"}
    assert about.items() <= table.schema.metadata.items()


def test_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"x\.xlsx: the name of an instruction table ends in \.csv or \.parquet"):
        nki_nb.save_instructions(matmul_run(), tmp_path / "x.xlsx")


@pytest.mark.parametrize(
    ("file", "package", "extra"), [("x.parquet", "pyarrow", "profile"), ("x.pftrace", "perfetto", "perfetto")]
)
def test_without_the_extra(file: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)

    class Absent:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("sys.meta_path", [Absent(), *sys.meta_path])
    save = nki_nb.save_instructions if package == "pyarrow" else nki_nb.save_perfetto
    with pytest.raises(MissingExtraError, match=rf'{package}: python -m pip install "nki-nb\[{extra}\]"'):
        save(matmul_run(), tmp_path / file)
    assert list(tmp_path.iterdir()) == []


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError), whole(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]
    with whole(path) as file:
        file.write(b"after")
    assert path.read_bytes() == b"after" and list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_not_replaced() -> None:
    with whole("/dev/null") as file:
        file.write(b"gone")
    assert not Path("/dev/null").is_file()


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, whole(tmp_path / "gone" / "x"):
        pass
    assert caught.value.filename == str(tmp_path / "gone" / "x")


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_the_most_bytes_alive_are_the_peak(name: str) -> None:
    made = RUNS[name]()
    for used in (made.memory.sbuf, made.memory.psum):
        alive = bytes_alive(made.program, used.region)
        assert alive.max() == used.peak
        for order in ("program", "compiler"):
            times, most = over_time(alive, made.timeline(order))
            assert most.max() == used.peak and np.all(np.diff(times) > 0) and np.all(np.diff(most) != 0)


# -- Perfetto --------------------------------------------------------------------------------------------------------


def trace_of(profile: Any, path: Path) -> Any:
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = messages.Trace()
    trace.ParseFromString(nki_nb.save_perfetto(profile, path).read_bytes())
    return trace


class Read:
    """A trace, read as a viewer reads it."""

    def __init__(self, trace: Any):
        self.slices: dict[int, dict[str, Any]] = {}
        self.sources: dict[int, int] = {}
        self.sinks: dict[int, int] = {}
        self.counters: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.tracks: dict[int, Any] = {}
        names: dict[str, dict[int, str]] = {}
        open_: dict[int, dict[str, Any]] = {}
        for packet in trace.packet:
            if packet.HasField("interned_data"):
                for kind in ("event_names", "event_categories", "debug_annotation_names"):
                    names[kind] = {entry.iid: entry.name for entry in getattr(packet.interned_data, kind)}
            elif packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            else:
                self._event(packet, names, open_)
        assert not open_, "slices that do not end"

    def _event(self, packet: Any, names: dict[str, dict[int, str]], open_: dict[int, dict[str, Any]]) -> None:
        event = packet.track_event
        track = self.tracks[event.track_uuid]
        if event.type == event.TYPE_COUNTER:
            self.counters[track.name].append((packet.timestamp, event.counter_value))
        elif event.type == event.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in open_, "slices of one track overlap"
            facts = {names["debug_annotation_names"][a.name_iid]: _value(a) for a in event.debug_annotations}
            name, category = names["event_names"][event.name_iid], names["event_categories"][event.category_iids[0]]
            new = {"name": name, "category": category, "track": track.name, "from": packet.timestamp, **facts}
            assert facts["step"] not in self.slices
            self.slices[facts["step"]] = open_[event.track_uuid] = new
            for flow in event.flow_ids:
                assert flow not in self.sources
                self.sources[flow] = facts["step"]
            for flow in event.terminating_flow_ids:
                assert flow not in self.sinks
                self.sinks[flow] = facts["step"]
        else:
            assert event.type == event.TYPE_SLICE_END
            open_.pop(event.track_uuid)["to"] = packet.timestamp


def _value(annotation: Any) -> Any:
    return getattr(annotation, annotation.WhichOneof("value"))


def test_slices_are_the_timeline(profile: Profile, tmp_path: Path) -> None:
    read, line = Read(trace_of(profile, tmp_path / "x.pftrace")), profile.timeline
    assert sorted(read.slices) == list(range(profile.steps))
    for i, found in read.slices.items():
        step, lane = profile.program[i], line.lanes[int(line.lane[i])]
        assert (found["from"], found["to"]) == (round(float(line.start[i])), round(float(line.end[i])))
        assert (found["name"], found["category"], found["operands"]) == (step.instruction, step.engine, step.text)
        assert found["track"].lower() == lane.lower() and found["line"] == step.line
        assert found["source"] in (f"test_exports.py:{step.line}", f"runs.py:{step.line}", f"kernels.py:{step.line}")
        assert found.get("hbm_read_bytes", 0) == sum(
            o.bytes for o in step.reads() if o.allocation and not o.allocation.region.on_chip
        )
    process = read.tracks[1].process
    assert process.process_name == f"{profile.kernel} on {profile.core}: estimate, {profile.order} order"
    assert all(track.parent_uuid == 1 for uuid, track in read.tracks.items() if uuid != 1)


def test_flows_are_the_true_dependencies_between_tracks(profile: Profile, tmp_path: Path) -> None:
    read, line = Read(trace_of(profile, tmp_path / "x.pftrace")), profile.timeline
    known = line.dependencies
    expected = {
        (known.producers[i], step)
        for step in range(len(known))
        for i in range(known.first[step], known.first[step + 1])
        if known.kinds[i] == TRUE and line.lane[known.producers[i]] != line.lane[step]
    }
    assert read.sources.keys() == read.sinks.keys()
    assert {(read.sources[flow], read.sinks[flow]) for flow in read.sources} == expected
    assert all(read.slices[read.sources[f]]["from"] < read.slices[read.sinks[f]]["from"] for f in read.sources)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("order", ["compiler", "program"])
def test_counters_reach_the_peak(name: str, order: Any, tmp_path: Path) -> None:
    made = RUNS[name]()
    read = Read(trace_of(made.profile(order), tmp_path / "x.pftrace"))
    for used in (made.memory.sbuf, made.memory.psum):
        points = read.counters[f"{used.region.value.upper()} bytes per partition"]
        assert max(value for _, value in points) == used.peak
        assert [time for time, _ in points] == sorted(time for time, _ in points)


def test_same_run_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    one, two = (nki_nb.save_perfetto(matmul_run(), tmp_path / name).read_bytes() for name in "ab")
    assert one == two


def test_an_estimate_has_a_trace_too(tmp_path: Path) -> None:
    told = nki_sim.estimate(kernels.softmax, ((300, 640), "float32"))
    assert len(Read(trace_of(told, tmp_path / "x")).slices) == told.steps


def test_hostile_names(tmp_path: Path) -> None:
    made = run(named, COLUMN)
    told = dataclasses.replace(made.profile(), kernel=f"{HOSTILE}\ud800")
    read = Read(trace_of(told, tmp_path / "x"))
    assert HOSTILE in read.slices[0]["operands"]
    assert read.tracks[1].process.process_name.startswith(HOSTILE)


def test_engines_are_named_as_everywhere() -> None:
    from nki_nb.program_listing import ENGINES as DRAWN

    assert {*ENGINES, "dma"} == set(DRAWN)
