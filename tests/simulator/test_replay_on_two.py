"""Calls of kernels on two cores like earlier ones: answered from the record, and what must be said is said each time."""

from __future__ import annotations

import importlib.util
import json
import random
import threading
import warnings
from pathlib import Path

import kernels_on_two as two
import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from nki_sim import NkiValidationError, NkiWarning
from nki_sim.cache import KERNELS
from nki_sim.cores import interleaved
from nki_sim.replay import Bound
from recordings import WORK, assert_lets_go_of_arrays, copied, made

X = two.X


@pytest.fixture(autouse=True)
def empty_cache():
    KERNELS.clear()
    yield
    KERNELS.clear()


def unfused(run):
    """The record of a run that kept its inputs, bound instruction by instruction, and the values of its inputs and outputs."""
    allocations = run.program.allocations
    inputs = [a.id for a in allocations if a.role == "input"]
    return Bound(run.machine, inputs, (), unfused=True), [run.inputs[i] for i in inputs]


# -- the same bits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", two.KERNELS)
def test_calls_again_give_the_same_bits(name):
    function, args, expected = two.KERNELS[name]
    kernel = nki.jit(function)[2]
    copies = [[copied(a) for a in args] for _ in range(3)]
    results = [kernel(*copy) for copy in copies]
    assert len(KERNELS) == 1 and made(WORK[f"{name} on two cores"]) is not None
    if name == "registers":
        np.testing.assert_allclose(results[0], expected, rtol=1e-6)
    else:
        np.testing.assert_array_equal(results[0], expected)
    for result, copy in zip(results[1:], copies[1:], strict=True):
        assert result.tobytes() == results[0].tobytes()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(copy, copies[0], strict=True) if isinstance(a, np.ndarray))


@pytest.mark.parametrize("name", [name for name in two.KERNELS if name not in ("gathered", "exchanged by gpsimd")])
def test_other_values_as_a_run_of_their_own(name):
    function, args, _ = two.KERNELS[name]
    kernel, others = nki.jit(function)[2], [(a * 2 + 1).astype(a.dtype) for a in args]
    kernel(*[copied(a) for a in args])
    again, run = kernel(*[copied(a) for a in others]), nki_sim.run(kernel, *[copied(a) for a in others])
    assert len(KERNELS) == 1 and again.tobytes() == run.result.tobytes()


def test_products_that_are_rounded_give_the_same_bits_unfused():
    """Each core's accumulation groups, step by step as recorded; fused they may differ in their last bits."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((384, 512)).astype(np.float32) for _ in range(2))
    run = nki_sim.run(nki.jit(two.matmul)[2], a, b)
    replay, last = run.replay(), {}
    for step in range(len(run.program)):
        for place in run.program.plan_at(step).writes:
            last[step, place] = replay.operand(step, place, after=True).tobytes()
    again, inputs = unfused(run)
    steps = iter(range(len(run.program)))

    def compare(node, arguments):
        step = next(steps)
        for place in node.writes:
            assert arguments[place].tobytes() == last.pop((step, place))

    again(inputs, watch=compare)
    assert last == {}
    kernel = nki.jit(two.matmul)[2]
    first = kernel(a, b)
    assert first.tobytes() == run.result.tobytes()
    np.testing.assert_allclose(kernel(a, b), first, rtol=1e-5, atol=1e-4)


TUTORIAL = Path(__file__).parents[2] / "tutorials" / "17_cores_and_ranks.ipynb"
TAUGHT = {
    "doubled": lambda x: 2 * x,
    "through_memory": lambda x: np.roll(x, 128, axis=0),
    "stripes": lambda x: x,
    "exchanged": lambda x: np.roll(x, 128, axis=0),
}


def of_the_tutorial(folder):
    """The cells that run a kernel on two cores with a reference, as a module."""
    cells = ["".join(cell["source"]) for cell in json.loads(TUTORIAL.read_text(encoding="utf-8"))["cells"]]
    run = [c for c in cells if c.startswith("%%nki c =") and "--lnc 2" in c and "--check" in c and "--no-run" not in c]
    path = folder / "two_cores_of_the_tutorial.py"
    head = "import nki, nki.isa as nisa, nki.language as nl\n"
    path.write_text(head + "\n".join(c.partition("\n")[2] for c in run), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if isinstance(value, nki_sim.Kernel)}


def test_the_tutorials_kernels(tmp_path):
    found = of_the_tutorial(tmp_path)
    assert set(found) == set(TAUGHT)
    x = np.random.default_rng(17).integers(-9, 10, (256, 64)).astype(np.float32)
    for name, kernel in found.items():
        for values in (x, x, 3 * x):
            np.testing.assert_array_equal(kernel[2](values), TAUGHT[name](values))
    assert len(KERNELS) == len(TAUGHT)


# -- the cache -----------------------------------------------------------------------------------------------------------


def test_neither_cores_python_runs_again(capsys):
    def told(x):
        print("traced")
        return two.through_memory(x)

    for _ in range(3):
        np.testing.assert_array_equal(nki.jit(told)[2](X), two.SWAPPED)
    assert capsys.readouterr().out.count("traced") == 2


def test_one_core_and_two_are_different_kernels(monkeypatch):
    def whole(x):
        n, i = nl.num_programs(), nl.program_id(0)
        out, rows = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), slice(128 // n * i, 128 // n * (i + 1))
        nl.store(out[rows], nl.add(nl.load(x[rows]), float(n)))
        return out

    kernel = nki.jit(whole)
    for _ in range(2):
        np.testing.assert_array_equal(kernel(X), X + 1)
        np.testing.assert_array_equal(kernel[1](X), X + 1)
        np.testing.assert_array_equal(kernel[2](X), X + 2)
    assert len(KERNELS) == 3
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    for _ in range(2):
        np.testing.assert_array_equal(kernel(X), X + 2)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    np.testing.assert_array_equal(kernel(X), X + 2)
    assert len(KERNELS) == 5


def test_arrays_of_a_call_are_not_kept_alive():
    assert_lets_go_of_arrays(nki.jit(two.through_memory)[2], X)


def test_many_threads_at_once():
    """The first call of each is a run with threads of its own; all are the same kernel."""
    kernel, wrong = nki.jit(two.back_and_forth)[2], []

    def work(factor):
        wrong.extend(factor for _ in range(6) if not np.array_equal(kernel(X * factor), X * factor + 1))

    threads = [threading.Thread(target=work, args=(factor,)) for factor in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(KERNELS) == 1


def test_who_asks_for_an_interleaving_gets_a_run():
    kernel = nki.jit(two.through_memory)[2]
    kernel(X)
    asked = []

    def choose(ready):
        asked.append(ready)
        return random.Random(len(asked)).choice(ready)

    with interleaved(choose):
        np.testing.assert_array_equal(kernel(X), two.SWAPPED)
    assert asked


# -- what is said, is said on each call ----------------------------------------------------------------------------------


def racing(x):
    return two.through_memory(x, sync=False)


def twice(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


@pytest.mark.parametrize(("function", "rule"), [(racing, "memory.race"), (twice, "memory.written_twice")])
def test_a_race_is_reported_each_time(function, rule):
    kernel = nki.jit(function)[2]
    for _ in range(3):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            kernel(X)
        assert rule in [w.message.diagnosis.rule.id for w in said if isinstance(w.message, NkiWarning)]
    assert len(KERNELS) == 0


def test_a_deadlock_is_explained_each_time():
    def alone(x):
        if nl.program_id(0) == 1:
            nisa.core_barrier(data=x, cores=(0, 1))
        return x

    kernel, threads = nki.jit(alone)[2], threading.active_count()
    for _ in range(3):
        with pytest.raises(NkiValidationError, match="core 1 waits at line"):
            kernel(X)
    assert len(KERNELS) == 0 and threading.active_count() == threads


def scattered(x, index):
    """Each core writes rows that data decide, of one shared tensor."""
    i, _ = two.me()
    out = nl.ndarray((8, 48), dtype=x.dtype, buffer=nl.shared_hbm)
    at = nl.load(index[4 * i : 4 * i + 4])
    view = out.ap(pattern=[[48, 4], [1, 48]], offset=0, vector_offset=at, indirect_dim=0)
    nisa.dma_copy(dst=view, src=nl.load(x[4 * i : 4 * i + 4]))
    return out


def test_a_race_that_data_decides_is_found_on_a_later_call():
    kernel = nki.jit(scattered)[2]
    apart = np.array([0, 2, 4, 6, 1, 3, 5, 7], np.int32).reshape(8, 1)
    rows = X[:8]
    expected = np.empty((8, 48), np.float32)
    expected[apart[:, 0]] = rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            np.testing.assert_array_equal(kernel(rows, apart), expected)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kernel(rows, np.array([0, 2, 4, 6, 1, 2, 5, 7], np.int32).reshape(8, 1))
    assert "memory.race" in [w.message.diagnosis.rule.id for w in said if isinstance(w.message, NkiWarning)]


def test_values_that_one_core_has_to_report_are_reported_at_its_line():
    def roots(x):
        i, _ = two.me()
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[two.half(i)], nl.sqrt(nl.load(x[two.half(i)])))
        return out

    kernel, bad = nki.jit(roots)[2], X + 1
    bad[100] = -1  # core 1's
    for _ in range(2):
        np.testing.assert_allclose(kernel(X + 1), np.sqrt(X + 1), rtol=1e-6)
        with pytest.warns(NkiWarning, match="outside its valid range") as said:
            kernel(bad)
        assert [w.message.diagnosis.line for w in said] == [roots.__code__.co_firstlineno + 3]
    assert len(KERNELS) == 1


def test_a_loop_whose_rounds_data_decide_on_one_core_is_not_kept():
    def rounds(x, n):
        i, _ = two.me()
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[two.half(i)])
        if i == 1:
            nl.fori_loop(0, nisa.scalar_load(nl.load(n)), lambda _: nisa.tensor_scalar(tile, tile, nl.add, 1.0) and None)
        nl.store(out[two.half(i)], tile)
        return out

    kernel = nki.jit(rounds)[2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NkiWarning)
        for n in (3, 1):
            np.testing.assert_array_equal(kernel(X, np.array([[n]], np.int32)), X + n * two.ONES)
    assert len(KERNELS) == 0
