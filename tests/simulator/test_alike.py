"""A run whose record is that of an earlier one takes what was bound for that; any difference that counts makes it another."""

from __future__ import annotations

import threading
import warnings

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st_
from kernels import hb, ld, ps, sb, st
from nki_sim import NkiWarning, replay
from nki_sim.replay import PROGRAMS, Bound, alike
from recordings import assert_lets_go_of_arrays

RANDOM = np.random.default_rng(23)
X, Y = RANDOM.standard_normal((2, 128, 512), dtype=np.float32)

pytestmark = pytest.mark.usefixtures("nothing_kept")


@pytest.fixture
def bindings(monkeypatch):
    """How many records were bound; a list that grows."""
    made: list[int] = []
    before = Bound.__init__

    def counted(self, machine, *arguments, **options):
        made.append(len(machine.program))
        before(self, machine, *arguments, **options)

    monkeypatch.setattr(Bound, "__init__", counted)
    return made


def scaled(factor=2.0, op=nl.multiply, columns=512, first=0, then=None):
    """A kernel of one instruction between a load and a store, and perhaps another one."""

    def kernel(x, y):
        t, u = ld(x[:, first : first + columns]), ld(y[:, 0:columns])
        nisa.tensor_tensor(dst=t, data1=t, data2=u, op=op)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=factor)
        if then is not None:
            nisa.activation(dst=t, op=then, data=t)
        return st(t)

    return kernel


def run(kernel, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NkiWarning)
        return nki_sim.run(kernel, *[a.copy() for a in args], **options)


def fresh(kernel, *args):
    """A result that nothing from before has to do with."""
    replay.forget()
    return run(kernel, *args).result


# -- the same record -------------------------------------------------------------------------------------------------------


def test_it_is_bound_once_whatever_the_values(bindings):
    first, again, other = run(scaled(), X, Y), run(scaled(), X, Y), run(scaled(), Y, X + 1)
    assert len(bindings) == 1 and len(PROGRAMS) == 1
    assert again.result.tobytes() == first.result.tobytes()
    assert other.result.tobytes() == fresh(scaled(), Y, X + 1).tobytes()


def test_each_run_has_a_record_and_inputs_of_its_own():
    first, other = run(scaled(), X, Y), run(scaled(), Y, X)
    assert first.program is not other.program and first.program.listing() == other.program.listing()
    for made, x, y in ((first, X, Y), (other, Y, X)):
        steps = made.replay()
        steps.seek(len(made.program) - 1)
        assert made.result.tobytes() == ((x * y) * np.float32(2)).tobytes()
        assert steps.operand(len(made.program) - 1, 0, after=True).tobytes() == made.result.tobytes()


def test_a_line_may_move_and_names_may_change(bindings):
    def moved(a, b):
        tile = ld(a)

        other = ld(b)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.multiply)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        return st(tile)

    first, second = run(scaled(), X, Y), run(moved, X, Y)
    assert len(bindings) == 1 and second.result.tobytes() == first.result.tobytes()
    assert second.program[2].line != first.program[2].line


def test_a_jitted_kernel_and_a_run_share_it(bindings):
    kernel = nki.jit(scaled())
    run(kernel, X, Y)
    assert kernel(X, Y).tobytes() == kernel(X, Y).tobytes() == ((X * Y) * np.float32(2)).tobytes()
    assert len(bindings) == 1


def test_inputs_that_are_written_are_written(bindings):
    def doubled(x):
        t = ld(x)
        nisa.tensor_tensor(dst=t, data1=t, data2=t, op=nl.add)
        nisa.dma_copy(dst=x, src=t)
        return x

    for values in (X, Y):
        array = values.copy()
        made = nki_sim.run(doubled, array)
        assert array.tobytes() == made.result.tobytes() == (2 * values).tobytes()
        assert next(iter(made.inputs.values())).tobytes() == values.tobytes()
    assert len(bindings) == 1


# -- another record --------------------------------------------------------------------------------------------------------

OTHERS = {
    "a constant": scaled(3.0),
    "its sign": scaled(-0.0),
    "zero": scaled(0.0),
    "its type": scaled(2),
    "an operator": scaled(op=nl.subtract),
    "a size": scaled(columns=256),
    "an offset": scaled(columns=256, first=256),
    "one more instruction": scaled(then=nl.tanh),
    "a function": scaled(then=nl.square),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_is_computed_as_if_nothing_was_kept(name, bindings):
    for before in (scaled(), *OTHERS.values()):
        run(before, X, Y)
    bound = len(bindings)
    assert bound == len(PROGRAMS) == 1 + len(OTHERS)
    found = run(OTHERS[name], X, Y).result
    assert len(bindings) == bound and found.tobytes() == fresh(OTHERS[name], X, Y).tobytes()


def with_constant(values):
    def kernel(x, y):
        t = ld(x)
        nisa.tensor_tensor(dst=t, data1=t, data2=ld(nl.shared_constant(values)), op=nl.add)
        nisa.tensor_tensor(dst=t, data1=t, data2=ld(y), op=nl.add)
        return st(t)

    return kernel


def returning(which):
    def kernel(x, y):
        outs = [st(ld(x)), st(ld(y))]
        return outs[which]

    return kernel


def at(byte):
    def kernel(x, y):
        t = sb(128, 512, address=(0, byte))
        nisa.dma_copy(dst=t, src=x)
        nisa.tensor_tensor(dst=t, data1=t, data2=ld(y), op=nl.add)
        return st(t)

    return kernel


@pytest.mark.parametrize(
    "kernels",
    [
        [with_constant(X), with_constant(-X), with_constant(X.astype(np.float16).astype(np.float32))],
        [returning(which) for which in (0, 1, slice(None), slice(None, None, -1))],
        [at(0), at(4096)],
    ],
    ids=["the values of a constant", "what is returned", "an address"],
)
def test_what_the_steps_do_not_say_counts_too(kernels, bindings):
    for _ in range(2):
        for number, kernel in enumerate(kernels):
            for found, wanted in zip(np.asarray(run(kernel, X, Y).result), np.asarray(run_unfused(kernel, X, Y)), strict=True):
                assert found.tobytes() == wanted.tobytes(), number
    assert len(bindings) == len(kernels)


def run_unfused(kernel, *args):
    """The result when each instruction runs at its line."""
    return run(kernel, *args, strict=True).result


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_a_generation_has_its_own(target, bindings):
    def kernel(x, y):
        total = ps(128, 512)
        nisa.nc_matmul(dst=total, stationary=ld(x[:, 0:128]), moving=ld(y))
        return st(total)

    for each in ("trn1", "trn2", "trn3"):
        run(kernel, X, Y, target=each)
    assert len(bindings) == 3
    found = run(kernel, X, Y, target=target).result
    np.testing.assert_allclose(found, X[:, :128].T @ Y, rtol=1e-4, atol=1e-3)
    assert len(bindings) == 3


@given(data=st_.data())
def test_runs_before_change_no_bit(data):
    """Kernels of random steps, one after the other: each gives what it gives alone."""
    steps = st_.lists(
        st_.tuples(
            st_.sampled_from(["tensor", "scalar", "activate", "copy", "memset"]),
            st_.integers(0, 2),
            st_.integers(0, 2),
            st_.sampled_from([0.0, -0.0, 1, 1.0, 0.5, float("inf")]),
            st_.sampled_from([slice(0, 512), slice(0, 256), slice(256, 512)]),
        ),
        min_size=1,
        max_size=4,
    )
    dtype = st_.sampled_from([np.float32, ml_dtypes.bfloat16])
    made = data.draw(st_.lists(st_.tuples(steps, dtype), min_size=2, max_size=4))
    replay.forget()
    together = [run(stepping(mine), X.astype(kind), Y.astype(kind)).result.tobytes() for mine, kind in made * 2]
    alone = [fresh(stepping(mine), X.astype(kind), Y.astype(kind)).tobytes() for mine, kind in made]
    assert together == alone * 2


def stepping(steps):
    def kernel(x, y):
        tiles = [ld(x), ld(y), sb(128, 512, dt=x.dtype)]
        nisa.memset(dst=tiles[2], value=1.0)
        for what, to, of, number, part in steps:
            dst, src = tiles[to][:, part], tiles[of][:, part]
            if what == "tensor":
                nisa.tensor_tensor(dst=dst, data1=dst, data2=src, op=nl.subtract)
            elif what == "scalar":
                nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=number)
            elif what == "activate":
                nisa.activation(dst=dst, op=nl.tanh, data=src, scale=number)
            elif what == "copy":
                nisa.tensor_copy(dst=dst, src=src)
            else:
                nisa.memset(dst=dst, value=number)
        out = hb(3, 128, 512, dt=x.dtype)
        for number, tile in enumerate(tiles):
            nisa.dma_copy(dst=out[number], src=tile)
        return out

    return kernel


# -- what is said, and what is kept -----------------------------------------------------------------------------------------


def test_a_value_that_is_reported_is_reported_at_its_line():
    def kernel(x):
        t = ld(x)
        nisa.activation(dst=t, op=nl.sqrt, data=t)
        return st(t)

    assert not run(kernel, np.abs(X)).findings
    made = run(kernel, X)
    (finding,) = made.findings
    with np.errstate(invalid="ignore"):
        assert finding.step == 1 and np.array_equal(made.result, np.sqrt(X), equal_nan=True)
    assert not run(kernel, np.abs(X)).findings


def test_one_call_at_a_time():
    results: dict[int, bool] = {}

    def work(number):
        values = X + np.float32(number)
        results[number] = all(
            run(scaled(), values, Y).result.tobytes() == ((values * Y) * np.float32(2)).tobytes() for _ in range(20)
        )

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with warnings.catch_warnings():  # which are a process's own, not a thread's
        warnings.simplefilter("ignore")
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert results == dict.fromkeys(range(4), True) and len(PROGRAMS) == 1


@pytest.mark.parametrize("limit, most", [("MOST_PROGRAMS", 2), ("MOST_STEPS", 10), ("MOST_BYTES", 600_000)])
def test_as_many_are_kept_as_fit(monkeypatch, bindings, limit, most):
    """A program here has 5 steps, and 262,144 bytes of storage."""
    monkeypatch.setattr(alike, limit, most)
    for factor in (3.0, 4.0, 5.0):
        run(scaled(factor), X, Y)
    assert len(PROGRAMS) == 2
    run(scaled(5.0), X, Y)
    run(scaled(4.0), X, Y)
    assert len(bindings) == 3
    assert run(scaled(3.0), X, Y).result.tobytes() == ((X * Y) * np.float32(3)).tobytes()
    assert len(bindings) == 4 and len(PROGRAMS) == 2


def test_what_alone_is_too_large_is_not_kept_and_drives_out_nothing(monkeypatch, bindings):
    run(scaled(columns=128), X, Y)
    monkeypatch.setattr(alike, "MOST_BYTES", 100_000)
    for _ in range(2):
        assert run(scaled(), X, Y).result.tobytes() == ((X * Y) * np.float32(2)).tobytes()
    assert len(PROGRAMS) == 1 and len(bindings) == 3
    run(scaled(columns=128), X, Y)
    assert len(bindings) == 3


def test_no_array_of_a_run_is_kept():
    assert_lets_go_of_arrays(lambda given: nki_sim.run(scaled(), given, Y).result, X)
    assert len(PROGRAMS) == 1


def test_tiles_that_are_never_alive_together_share_bytes():
    """Tiles of growing sizes, one after the other: the bytes of the largest serve all; beside them there is the output."""

    def growing(x):
        out = hb(128, 512)
        for columns in range(128, 513, 128):
            t = ld(x[:, 0:columns])
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=out[:, columns - 128 : columns], src=t[:, columns - 128 : columns])
        return out

    made = run(growing, X)
    assert made.result.tobytes() == ((X + np.float32(1)) * 2).tobytes()
    assert Bound(made.machine, [0], ()).nbytes == 2 * 128 * 512 * 4
