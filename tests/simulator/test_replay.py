"""A record that runs again does what the kernel did; and calls like earlier ones are answered from the record."""

from __future__ import annotations

import threading
import tracemalloc
import types

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from nki_sim import NkiError, NkiWarning
from nki_sim.cache import KERNELS, Cache, Entry
from nki_sim.replay import Bound, products, scratch
from nki_sim.replay.accesses import Access
from nki_sim.replay.fusion import fuse
from nki_sim.replay.nodes import Graph
from recordings import WORK, assert_lets_go_of_arrays, made

RANDOM = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def empty_cache():
    KERNELS.clear()
    yield
    KERNELS.clear()


def bound(run, *, unfused):
    inputs = [a.id for a in run.program.allocations if a.role == "input"]
    return Bound(run.machine, inputs, (), unfused=unfused), [run.inputs[i] for i in inputs]


@pytest.mark.parametrize("name", WORK)
def test_every_instruction_writes_the_same_bytes_again(name):
    run = made(WORK[name])
    if run is None:
        return
    replay, were = run.replay(), {}
    for step in range(len(run.program)):
        plan = run.program.plan_at(step)
        for place in plan.writes:
            if not plan.slots[place].gathers:
                were[step, place] = replay.operand(step, place, after=True).tobytes()
    again, inputs = bound(run, unfused=True)
    steps = iter(range(len(run.program)))

    def compare(node, arguments):
        step = next(steps)
        for place in node.writes:
            if (step, place) in were:
                assert arguments[place].tobytes() == were.pop((step, place)), (step, node.plan.instruction)

    again(inputs, watch=compare)
    assert were == {} and next(steps, None) is None


def test_most_can_run_again():
    """All but registers, loops at run time, and what has findings or stores low precision as float32."""
    assert sum(made(work) is not None for work in WORK.values()) > 0.75 * len(WORK)


# -- fused ---------------------------------------------------------------------------------------------------------------


def tiled(lhs_t, rhs):
    (k, m), n = lhs_t.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for i in range(0, m, 128):
        for j in range(0, n, 512):
            acc = nl.ndarray((min(128, m - i), min(512, n - j)), dtype=nl.float32, buffer=nl.psum)
            for at in range(0, k, 128):
                stop = min(at + 128, k)
                nisa.nc_matmul(acc, nl.load(lhs_t[at:stop, i : min(i + 128, m)]), nl.load(rhs[at:stop, j : min(j + 512, n)]))
            tile = nl.ndarray(acc.shape, dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=acc)
            nisa.dma_copy(dst=out[i : min(i + 128, m), j : min(j + 512, n)], src=tile)
    return out


def normed(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(0, x.shape[0], 128):
        tile = nl.load(x[i : i + 128])
        nl.store(out[i : i + 128], nl.softmax(tile, axis=1))
    return out


def attention(q, k, v):
    d, length = q.shape
    out = nl.ndarray((length, d), dtype=nl.float32, buffer=nl.shared_hbm)
    keys = nl.load(k)
    for i in range(0, length, 128):
        scores = nl.ndarray((128, length), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=nl.load(q[:, i : i + 128]), moving=keys)
        weights = nl.softmax(nl.copy(scores), axis=1)
        acc = nl.ndarray((128, d), dtype=nl.float32, buffer=nl.psum)
        for j in range(0, length, 128):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=weights[:, j : j + 128])
            nisa.nc_matmul(dst=acc, stationary=nl.copy(turned), moving=nl.load(v[j : j + 128]))
        nl.store(out[i : i + 128], nl.copy(acc))
    return out


def in_place(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(x, tile)
    return x


def views(x):
    """Parts of a loaded tile, with steps and turned dimensions; a tile that is stored twice; one written in two parts."""
    out = nl.ndarray((4, 64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:64, 0:96])
    nl.store(out[0], tile[:, 0:96:3])
    three = tile.reshape((64, 3, 32))
    nl.store(out[1], nl.copy(three[:, 1, :]))
    both = nl.add(tile[:, 0:32], tile[:, 64:96])
    nl.store(out[2], both)
    parts = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=parts[:, 0:10], src=tile[:, 0:10])
    nisa.tensor_copy(dst=parts[:, 10:32], src=both[:, 10:32])
    nl.store(out[3], parts)
    return out


def overlapping(x):
    """Two stores to the same place: the second counts."""
    out = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    for j in (0, 32):
        nl.store(out, nl.load(x[0:64, j : j + 32]))
    return out


def read_back(x):
    """Through HBM and back."""
    between, out = (nl.ndarray((64, 32), dtype=x.dtype, buffer=b) for b in (nl.hbm, nl.shared_hbm))
    nl.store(between, nl.exp(nl.load(x[0:64, 0:32])))
    nl.store(out, nl.add(nl.load(between), nl.load(between)))
    return out


WHOLE = RANDOM.integers(-3, 4, (300, 700)).astype(np.float32)
REAL = RANDOM.standard_normal((256, 640)).astype(np.float32)
KERNELS_TO_FUSE = {
    "exact products": (tiled, WHOLE[:, :200], WHOLE),
    "exact products bf16": (tiled, WHOLE[:, :200].astype(ml_dtypes.bfloat16), (WHOLE[:, :512] / 4).astype(ml_dtypes.bfloat16)),
    "softmax": (normed, REAL),
    "in place": (in_place, REAL[:100]),
    "views": (views, REAL),
    "overlapping": (overlapping, REAL),
    "read back": (read_back, REAL),
}


@pytest.mark.parametrize("name", KERNELS_TO_FUSE)
def test_fused_is_bit_for_bit_what_it_was(name):
    function, *args = KERNELS_TO_FUSE[name]
    kernel = nki.jit(function)
    copies = [[np.array(a) for a in args] for _ in range(3)]
    results = [kernel(*copy) for copy in copies]
    assert len(KERNELS) == 1
    for result, copy in zip(results[1:], copies[1:], strict=True):
        assert result.dtype == results[0].dtype and result.tobytes() == results[0].tobytes()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(copy, copies[0], strict=True))


@pytest.mark.parametrize("name", [*KERNELS_TO_FUSE, *WORK])
def test_fusing_keeps_no_use_of_what_it_dropped(name):
    if name in KERNELS_TO_FUSE:
        function, *args = KERNELS_TO_FUSE[name]
        run = nki_sim.run(function, *[np.array(a) for a in args])
    else:
        run = made(WORK[name])
    if run is None:
        return
    graph = Graph.of(run.machine)
    fused = {id(node) for node in fuse(graph)}
    for number, uses in graph.tiles():
        assert all(use.access.key == number and not use.node.dropped for use in uses)
    touched = {operand.key for node in graph.nodes if id(node) in fused for operand in node.operands if type(operand) is Access}
    assert {number for number, _ in graph.tiles()} <= touched


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_sums_in_another_order_are_as_close(dtype):
    a, b = (RANDOM.standard_normal(shape).astype(dtype) for shape in ((384, 256), (384, 1024)))
    kernel, exact = nki.jit(tiled), a.astype(np.float64).T @ b.astype(np.float64)
    once, again = (np.abs(kernel(a, b).astype(np.float64) - exact).max() for _ in range(2))
    assert again <= 4 * once + 1e-6


def test_a_large_product_is_rounded_piece_by_piece(monkeypatch):
    a, b = (RANDOM.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((256, 640), (256, 512)))
    kernel = nki.jit(tiled)
    whole = nki_sim.run(kernel, a, b).result
    monkeypatch.setattr(products, "AT_ONCE", 3 * 128 * 512)
    np.testing.assert_array_equal(nki_sim.run(kernel, a, b).result, whole)
    monkeypatch.setattr(products, "AT_ONCE", 1)  # a row at a time, whose sums may be in another order
    found = nki_sim.run(kernel, a, b).result.astype(np.float32)
    np.testing.assert_allclose(found, whole.astype(np.float32), rtol=2**-7, atol=1e-5)


def test_memory_for_intermediate_values_is_bounded_and_given_back(monkeypatch):
    a, b = (RANDOM.standard_normal((128, columns)).astype(ml_dtypes.bfloat16) for columns in (128, 512))
    kernel = nki.jit(tiled)
    kernel(a, b)
    scratch.forget()
    tracemalloc.start()
    try:
        kernel(a, b)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        kernel(a, b)
        now, peak = tracemalloc.get_traced_memory()
        assert now - held < 40_000 and peak - held < 128 * 512 * 4  # of which the result is half
        monkeypatch.setattr(scratch, "MOST", 0)
        kernel(a, b)
        assert held - tracemalloc.get_traced_memory()[0] > 2 * 128 * 512 * 4
    finally:
        tracemalloc.stop()
        scratch.forget()


def test_attention_again():
    q, k, v = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((64, 256), (64, 256), (256, 64)))
    kernel = nki.jit(attention)
    first = kernel(q, k, v)
    np.testing.assert_allclose(kernel(q, k, v), first, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kernel(2 * q, k, v), nki_sim.run(attention, 2 * q, k, v).result, rtol=1e-5, atol=1e-6)


# -- the cache -----------------------------------------------------------------------------------------------------------

FACTOR = 2.0
TABLE = [1.0, 2.0]
SETTINGS = types.SimpleNamespace(factor=2.0)


def helper(tile):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=FACTOR)


def scaled(x, plus=0.0):
    print("traced")
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    helper(tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=plus + TABLE[0] + SETTINGS.factor)
    nl.store(out, tile)
    return out


def traces(capsys):
    return capsys.readouterr().out.count("traced")


X = np.arange(24, dtype=np.float32).reshape(4, 6)


def test_a_call_like_an_earlier_one_does_not_run_python(capsys):
    kernel = nki.jit(scaled)
    np.testing.assert_array_equal(kernel(X), X * 2 + 3)
    np.testing.assert_array_equal(kernel(X + 1), (X + 1) * 2 + 3)
    np.testing.assert_array_equal(kernel(np.asfortranarray(X)), X * 2 + 3)
    np.testing.assert_array_equal(nki.jit(scaled)(X[::-1]), X[::-1] * 2 + 3)
    assert traces(capsys) == 1


def test_what_the_key_names_makes_another_kernel(capsys, monkeypatch):
    kernel = nki.jit(scaled)
    kernel(X)
    kernel(X[:2]), kernel(X.astype(np.float16)), kernel(X, plus=1.0), kernel(X, 2.0)
    assert traces(capsys) == 5
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    kernel(X)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    kernel(X)
    assert traces(capsys) == 2


def test_globals_that_changed_are_seen(capsys, monkeypatch):
    kernel = nki.jit(scaled)
    kernel(X)
    monkeypatch.setattr(f"{__name__}.FACTOR", 3.0)  # named by the helper that the kernel names
    np.testing.assert_array_equal(kernel(X), X * 3 + 3)
    TABLE[0] = 5.0
    np.testing.assert_array_equal(kernel(X), X * 3 + 7)
    TABLE[0] = 1.0
    monkeypatch.setattr(SETTINGS, "factor", 0.0)
    np.testing.assert_array_equal(kernel(X), X * 3 + 1)
    assert traces(capsys) == 4
    monkeypatch.setattr(SETTINGS, "factor", 2.0)
    kernel(X)
    assert traces(capsys) == 0


def test_closures_that_changed_are_seen():
    size = 2.0

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=size)
        nl.store(out, tile)
        return out

    made_kernel = nki.jit(kernel)
    np.testing.assert_array_equal(made_kernel(X), X * 2)
    size = 4.0
    np.testing.assert_array_equal(made_kernel(X), X * 4)


class Odd:
    __slots__ = ("factor",)


ODD = Odd()
ODD.factor = 2.0


def depends_on_who_knows(x):
    print("traced")
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=ODD.factor)
    nl.store(out, tile)
    return out


def test_what_cannot_be_compared_is_not_kept(capsys):
    kernel = nki.jit(depends_on_who_knows)
    kernel(X), kernel(X)
    assert traces(capsys) == 2 and len(KERNELS) == 0


def test_data_that_has_something_to_report_is_reported_at_its_line():
    @nki.jit
    def rows(x, index):
        out = nl.ndarray((4, 6), dtype=x.dtype, buffer=nl.shared_hbm)
        tile, at = nl.ndarray((4, 6), dtype=x.dtype, buffer=nl.sbuf), nl.load(index)
        nisa.dma_copy(dst=tile, src=x.ap(pattern=[[6, 4], [1, 6]], vector_offset=at))
        nl.store(out, tile)
        return out

    index = np.array([[3], [2], [1], [0]], np.int32)
    for _ in range(2):
        np.testing.assert_array_equal(rows(X, index), X[::-1])
    assert len(KERNELS) == 1
    with pytest.raises(NkiError, match="runtime index 9 is outside") as caught:
        rows(X, np.array([[3], [9], [1], [0]], np.int32))
    assert "vector_offset=at" in str(caught.value)
    np.testing.assert_array_equal(rows(X, index), X[::-1])


def test_a_course_that_data_decides_is_not_kept():
    @nki.jit
    def rounds(x, n):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.fori_loop(0, nisa.scalar_load(nl.load(n)), lambda i: nisa.tensor_scalar(tile, tile, nl.add, 1.0) and None)
        nl.store(out, tile)
        return out

    for n in (3, 1):
        np.testing.assert_array_equal(rounds(X, np.array([[n]], np.int32)), X + n)
    assert len(KERNELS) == 0


def test_runs_with_findings_are_not_kept():
    @nki.jit
    def forgetful(x):
        out = nl.ndarray((8, 6), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[0:4], nl.load(x))
        return out

    for _ in range(2):
        with pytest.warns(NkiWarning, match="24 of 48 elements"):
            forgetful(X)
    assert len(KERNELS) == 0


def test_results_belong_to_the_caller():
    kernel = nki.jit(scaled)
    kernel(X)
    first, second = kernel(X), kernel(X)
    first[...] = 0
    assert second[0, 0] == 3 and not np.shares_memory(first, second)


def large_calls():
    """Results that are large enough to be lent, all alike."""
    scratch.forget()
    kernel, x = nki.jit(scaled), np.ones((128, 4096), np.float32)
    kernel(x)
    return lambda: kernel(x)


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_of_a_result_that_is_gone_is_the_next_ones():
    call = large_calls()
    first = call()
    place = address(first)
    second = call()
    assert address(second) != place
    del first
    third = call()
    assert address(third) == place
    np.testing.assert_array_equal(third, second)
    assert third.flags.writeable


@pytest.mark.parametrize(
    "view", [lambda a: a[5:, ::2], lambda a: a.view(np.int32).reshape(-1)[7:], memoryview, lambda a: a.T[3]]
)
def test_memory_of_a_result_is_its_views_too(view):
    call = large_calls()
    seen = view(call())
    before = np.array(seen)
    others = [call() for _ in range(3)]
    for other in others:
        assert not np.shares_memory(other, np.asarray(seen))
        other[...] = 0
    np.testing.assert_array_equal(np.array(seen), before)


def test_memory_of_results_is_kept_within_bounds(monkeypatch):
    call = large_calls()
    monkeypatch.setattr(scratch, "MOST", 5 << 20)
    results = [call() for _ in range(6)]
    del results
    assert 0 < scratch.kept() <= 5 << 20
    scratch.forget()
    assert scratch.kept() == 0


def test_a_result_may_go_while_another_call_looks_for_memory():
    """The collector of garbage ends arrays at any time, in any thread."""
    result = large_calls()()
    with scratch._lock:
        del result
    assert scratch.kept() > 0


def test_arrays_of_a_call_are_not_kept_alive():
    assert_lets_go_of_arrays(nki.jit(scaled), X)


def test_read_only_inputs_and_the_same_array_twice():
    @nki.jit
    def added(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.add(nl.load(a), nl.load(b)))
        return out

    fixed = X.copy()
    fixed.flags.writeable = False
    for _ in range(2):
        np.testing.assert_array_equal(added(fixed, fixed), 2 * X)
        np.testing.assert_array_equal(added(X, fixed), 2 * X)
    assert len(KERNELS) == 2


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_many_threads_at_once(dtype):
    kernel, wrong = nki.jit(tiled), []
    a, b = (WHOLE[:, :columns].astype(dtype) for columns in (128, 512))
    expected = kernel(a, b)
    powers = [dtype(2.0**n) for n in range(6)]  # which low precision multiplies by exactly

    def work(factor):
        wrong.extend(factor for _ in range(5) if not np.array_equal(kernel(a * factor, b), expected * factor))

    threads = [threading.Thread(target=work, args=(factor,)) for factor in powers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_cache_is_bounded():
    run = nki_sim.run(scaled, X)
    cache = Cache(kernels=3, steps=100)
    for i in range(10):
        cache.put(i, Entry(run.machine, (), (), None))
    assert len(cache) == 3 and cache.get(9) is not None and cache.get(0) is None
    small = Cache(kernels=100, steps=2 * len(run.program))
    for i in range(10):
        small.put(i, Entry(run.machine, (), (), None))
    assert len(small) == 2


def test_stepping_through_a_run_is_not_disturbed_by_calls():
    @nki.jit
    def running(x):
        out = nl.ndarray((4, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        total, square = (
            nl.ndarray((4, 1), dtype=nl.float32, buffer=nl.sbuf),
            nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.sbuf),
        )
        tile, command = nl.load(x), nisa.reduce_cmd
        nisa.activation(dst=square, op=nl.square, data=tile, reduce_op=nl.add, reduce_cmd=command.reset_reduce)
        nisa.activation(dst=square, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total, reduce_cmd=command.reduce)
        nl.store(out, total)
        return out

    expected = 2 * (X * X).sum(1, keepdims=True)
    np.testing.assert_array_equal(running(X), expected)
    entry = next(iter(KERNELS._entries.values()))
    held = {name: state.values.copy() for name, state in entry.machine.registers.items()}
    np.testing.assert_array_equal(running(X), expected)
    assert held
    for name, values in held.items():
        np.testing.assert_array_equal(entry.machine.registers[name].values, values)
