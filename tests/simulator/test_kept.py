"""Specialised kernels in files: what one process kept, the next one runs; whatever is wrong with a file, results are right."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import textwrap
import threading

import kernels_on_two
import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from nki_sim import NkiWarning
from nki_sim.cache import KERNELS, Entry
from nki_sim.kept import layer
from nki_sim.kept.digest import Unkept, digest
from nki_sim.kept.encoding import decode, encode
from nki_sim.kept.files import MAGIC, Kept
from nki_sim.replay.nodes import Graph
from recordings import WORK, made

X = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The layer on, in a folder of its own, without its warning."""
    monkeypatch.setenv("NKI_TRACE_CACHE_URL", str(tmp_path / "kept"))
    monkeypatch.setenv("NKI_TRACE_CACHE_VERBOSE", "1")
    monkeypatch.delenv("NKI_ENABLE_TRACE_CACHE", raising=False)
    monkeypatch.setattr(layer, "default", True)
    KERNELS.clear()
    yield tmp_path / "kept"
    KERNELS.clear()


def doubled(x, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nl.store(out, tile)
    return out


def as_next_process(*arguments, function=doubled):
    """A call of a kernel that this process has not seen."""
    KERNELS.clear()
    return nki.jit(function)(*arguments)


def said(capsys):
    return re.findall(r"NKI trace cache: ([A-Z ]+?) (?:doubled|kernel)", capsys.readouterr().err)


# -- round trip ----------------------------------------------------------------------------------------------------------


def entry_of(run):
    """A run as it would be kept."""
    graph = Graph.of(run.machine)
    outputs = [graph.whole(a.id) for a in run.program.allocations if a.role == "output"]
    inputs = [a.id for a in run.program.allocations if a.role == "input"]
    return Entry(run.machine, tuple(inputs), tuple(outputs), None), [run.inputs[i] for i in inputs]


def written(run):
    """The content of its file, or None where files cannot hold it."""
    try:
        return encode(entry_of(run)[0])
    except Unkept:
        return None


@pytest.mark.parametrize("name", WORK)
def test_what_is_read_back_does_the_same(name):
    run = made(WORK[name])
    content = written(run) if run is not None else None
    if content is None:
        return
    first, inputs = entry_of(run)
    second = decode(content, run.core)
    (values, changed), (others, also) = first(inputs), second(inputs)
    assert [v.tobytes() for v in values] == [v.tobytes() for v in others]
    assert {i: v.tobytes() for i, v in changed.items()} == {i: v.tobytes() for i, v in also.items()}
    assert encode(second) == content


def test_most_kernels_can_be_kept():
    """All but those whose addresses data decide."""
    runs = [run for run in map(made, WORK.values()) if run is not None]
    assert sum(written(run) is not None for run in runs) > 0.85 * len(runs)


# -- calls ---------------------------------------------------------------------------------------------------------------


def test_the_next_process_does_not_run_the_python(capsys):
    ran = []

    def kernel(x):
        ran.append(1) if False else None
        return doubled(x)

    first = as_next_process(X, function=kernel)
    assert said(capsys) == ["MISS", "KEPT"]
    second = as_next_process(X + 1, function=kernel)
    assert said(capsys) == ["HIT"] and np.array_equal(first, X * 2) and np.array_equal(second, (X + 1) * 2)


@pytest.mark.parametrize("change", ["shape", "dtype", "value", "code", "target"])
def test_another_kernel_is_another_file(change, capsys, monkeypatch):
    as_next_process(X)
    capsys.readouterr()
    if change == "target":
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    def other(x, factor=2.0):
        return doubled(x, factor + 1)

    other.__name__ = "doubled"
    call = {"shape": (X[:64],), "dtype": (X.astype(np.float16),), "value": (X, 3.0), "code": (X,), "target": (X,)}[change]
    as_next_process(*call, function=other if change == "code" else doubled)
    assert said(capsys)[0] == "MISS"


SCRIPT = textwrap.dedent("""
    import sys
    import numpy as np
    import nki_sim
    nki_sim.install()
    import nki, nki.language as nl, nki.isa as nisa

    scale = float(sys.argv[1])

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.activation(dst=tile, op=nl.exp, data=tile, scale=scale)
        nl.store(out, tile)
        return out

    print(float(kernel(np.ones((128, 8), np.float32))[0, 0]))
""")


def process(folder, tmp_path, name, *arguments, **environment):
    path = tmp_path / name
    path.write_text(SCRIPT)
    where = {"NKI_TRACE_CACHE_URL": str(folder), "NKI_TRACE_CACHE_VERBOSE": "1", "NKI_ENABLE_TRACE_CACHE": "1", **environment}
    done = subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True, check=True,
                          env={**os.environ, **where})  # fmt: skip
    return done.stdout.strip(), done.stderr


def test_processes(folder, tmp_path):
    first, err = process(folder, tmp_path, "a.py", "1.0")
    assert "KEPT kernel" in err and "UserWarning: NKI_ENABLE_TRACE_CACHE=1" in err
    second, err = process(folder, tmp_path, "b.py", "1.0")  # a notebook's cells have another file each time
    assert "HIT kernel" in err and first == second == str(float(np.exp(np.float32(1))))
    third, err = process(folder, tmp_path, "b.py", "2.0")
    assert "MISS kernel" in err and third != first
    assert "trace cache" not in process(folder, tmp_path, "b.py", "1.0", NKI_ENABLE_TRACE_CACHE="0")[1]
    assert "HIT" not in process(folder, tmp_path, "b.py", "1.0", NKI_TRACE_CACHE_VERBOSE="0")[1]


def test_off_unless_asked_for(folder, monkeypatch):
    monkeypatch.setattr(layer, "default", False)
    as_next_process(X)
    assert not folder.exists()


def test_a_value_with_something_to_report_runs_the_kernel_itself():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.sqrt(nl.load(x)))
        return out

    as_next_process(X + 1, function=kernel)
    with pytest.warns(NkiWarning, match="outside its valid range"):
        assert np.isnan(as_next_process(-X - 1, function=kernel)).all()


def test_a_kernel_whose_addresses_data_decide_is_not_kept(capsys, folder):
    def kernel(x, rows):
        tile = nl.ndarray((8, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.ap([[64, 8], [1, 64]], vector_offset=nl.load(rows), indirect_dim=0))
        out = nl.ndarray((8, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    picked = np.arange(8, dtype=np.uint32).reshape(8, 1)
    for _ in range(2):
        assert np.array_equal(as_next_process(X, picked, function=kernel), X[:8])
    assert "HIT" not in said(capsys) and not list(folder.glob("*"))


def two_cores(x):
    print("traced")
    return kernels_on_two.through_memory(x)


def test_a_kernel_of_two_cores_is_kept_for_both(capsys, folder):
    for values in (kernels_on_two.X, kernels_on_two.X + 1):
        KERNELS.clear()
        assert np.array_equal(nki.jit(two_cores)[2](values), np.roll(values, 64, axis=0))
    assert capsys.readouterr().out.count("traced") == 2 and len(list(folder.glob("*"))) == 1


def test_ranks_are_not_kept():
    run = nki_sim.run_ranks(doubled, [(X,), (X,)], ranks=2)
    with pytest.raises(Unkept, match="ranks"):
        encode(Entry(run.machine, (), (), None))


# -- files ---------------------------------------------------------------------------------------------------------------


def only(folder):
    (found,) = folder.glob("*.kernel")
    return found


def corrupted(data, how):
    if how == "empty":
        return b""
    if how == "truncated":
        return data[: len(data) // 2]
    if how == "flipped":
        return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]
    if how == "foreign":
        return b"PK\x03\x04" + data
    return MAGIC + b"\0" * 32


@pytest.mark.parametrize("how", ["empty", "truncated", "flipped", "foreign", "other"])
def test_a_file_that_is_not_whole_is_made_again(how, folder, capsys):
    as_next_process(X)
    path = only(folder)
    path.write_bytes(corrupted(path.read_bytes(), how))
    capsys.readouterr()
    assert np.array_equal(as_next_process(X), X * 2)
    assert said(capsys) == ["MISS", "KEPT"]
    as_next_process(X)
    assert said(capsys) == ["HIT"]


def rewritten(path, change):
    """The file with another head, whose checksum is right."""
    import hashlib

    content = path.read_bytes()[len(MAGIC) + 32 :]
    size = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + size])
    change(head)
    text = json.dumps(head).encode()
    content = len(text).to_bytes(8, "little") + text + content[8 + size :]
    path.write_bytes(MAGIC + hashlib.sha256(content).digest() + content)


CHANGES = {
    "instruction": lambda head: head["plans"][0].update(instruction="no_such_thing"),
    "private": lambda head: head["plans"][0]["params"].update(__class__=1),
    "enum": lambda head: head["plans"][0]["params"].update(engine={"enum": ["Any", "x"]}),
    "method": lambda head: head["plans"][0]["params"].update(engine={"_init__": ["x"]}),
    "operand": lambda head: head.update(sizes=[s + 8 for s in head["sizes"]]),
    "allocation": lambda head: head["allocations"].pop(),
    "cores": lambda head: head.update(cores=3),
    "core": lambda head: head["plans"][0].update(core=1),
    "missing": lambda head: head.pop("outputs"),
    "outside": lambda head: head["outputs"][0].__setitem__(2, 1 << 40),
    "negative": lambda head: head["outputs"][0].__setitem__(2, -64),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_somebody_else_wrote_is_data_only(change, folder, capsys):
    as_next_process(X)
    rewritten(only(folder), CHANGES[change])
    capsys.readouterr()
    assert np.array_equal(as_next_process(X), X * 2)
    assert said(capsys)[-1] == "KEPT"


def test_a_full_disk_is_said_once_and_nothing_stays(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(layer, "_made", {})
    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        assert np.array_equal(as_next_process(X), X * 2)
    assert np.array_equal(as_next_process(X[:64]), X[:64] * 2)
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NKI_TRACE_CACHE_URL", str(tmp_path / "file" / "folder"))
    with pytest.warns(UserWarning, match="kernels are not kept"):
        assert np.array_equal(as_next_process(X), X * 2)
    assert np.array_equal(as_next_process(X[:64]), X[:64] * 2)


def test_writers_at_the_same_time_leave_a_whole_file(tmp_path):
    kept, contents = Kept(tmp_path), [bytes([i]) * 100_000 for i in range(8)]

    def write(content):
        for _ in range(10):
            kept.save("one", "kernel", content)
            assert kept.load("one", "kernel") in contents

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.load("one", "kernel") in contents and [p.name for p in tmp_path.iterdir()] == ["one.kernel"]


def test_what_was_not_used_for_longest_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr("nki_sim.kept.files.MOST_BYTES", 2500)
    kept = Kept(tmp_path)
    for i, name in enumerate("abc"):
        kept.save(name, "kernel", b"x" * 1000)
        os.utime(tmp_path / f"{name}.kernel", (i, i))
    kept.save("d", "kernel", b"x" * 1000)
    assert sorted(p.stem for p in tmp_path.iterdir()) == ["c", "d"]


def test_the_folder_is_the_users_alone(folder):
    as_next_process(X)
    assert folder.stat().st_mode & 0o077 == 0


def test_a_key_is_the_same_name_in_every_process():
    key = ("a", 1, 1.0, True, None, b"x", frozenset({"b", "a"}), doubled.__code__, int, nki_sim.hw.core("trn2"), nl.sbuf)
    assert digest(key) == digest(key) and len({digest((part,)) for part in key}) == len(key)
    with pytest.raises(Unkept):
        digest((object(),))
