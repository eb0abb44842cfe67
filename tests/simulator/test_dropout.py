"""``nki.isa.dropout`` and ``nl.dropout``: values, special values, limits."""

import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import TARGETS, ld, ps, sb, st
from nki_sim.errors import NkiTypeError
from random_numbers import lanes
from references import FLOATS, INTEGERS, STORED, random, run, same
from rulebook import Book, hx, v, x

book = Book()


def dropped(data, prob, target="trn2", skip=0, first=0):
    """Element by element: dropped when the lane's next 32 bits, as a fraction, are below prob."""
    out = data.copy().reshape(len(data), -1)
    prob = np.broadcast_to(np.asarray(prob, np.float32), (len(data), 1))
    for p, lane in enumerate(lanes(target)[first : first + len(data)]):
        lane.draw(skip)
        for i, number in enumerate(lane.draw(out.shape[1])):
            if number / 2**32 < prob[p, 0]:
                out[p, i] = 0
    return out.reshape(data.shape)


def drop(data, prob):
    t = sb(*data.shape, dt=data.dtype)
    nisa.dropout(dst=t, data=ld(data), prob=ld(prob) if hasattr(prob, "buffer") else prob)
    return st(t)


@given(rows=some.integers(1, 128), n=some.integers(1, 200), prob=some.floats(0, 1), target=some.sampled_from(TARGETS))
@settings(max_examples=40, deadline=None)
def test_element_by_element(rows, n, prob, target):
    data = random((rows, n))
    same(run(lambda d: drop(d, prob), data, target=target), dropped(data, prob, target))


@given(probs=some.lists(some.floats(0, 1, width=32), min_size=5, max_size=5), target=some.sampled_from(TARGETS))
@settings(max_examples=40, deadline=None)
def test_a_probability_per_partition(probs, target):
    data, probs = random((5, 3, 7)), np.array(probs, np.float32).reshape(5, 1)
    same(run(drop, data, probs, target=target), dropped(data, probs, target))


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("target", TARGETS)
def test_every_dtype(target, dtype):
    data = random((6, 40), dtype)
    got = run(lambda d: drop(d, 0.3), data, target=target)
    same(got, dropped(data, 0.3, target))
    assert 0.1 < (got != data).mean() < 0.5


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_tile_of_probabilities_in_every_float(dtype):
    probs = np.array([[0], [0.25], [0.5], [1]]).astype(STORED[dtype])
    data = random((4, 50), "bfloat16")
    same(run(drop, data, probs), dropped(data, probs))


def test_what_is_kept_stays_bit_for_bit():
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-40, 3.4e38], np.float32)
    special[0:1].view(np.uint32)[:] = 0x7FA12345  # a signalling NaN with a payload
    data = np.tile(special, (128, 8))
    kept = run(lambda d: drop(d, 0.0), data)
    np.testing.assert_array_equal(kept.view(np.uint32), data.view(np.uint32))
    gone = run(lambda d: drop(d, 1.0), data)
    assert not gone.view(np.uint32).any()
    half, want = run(lambda d: drop(d, 0.5), data), dropped(data, 0.5)
    np.testing.assert_array_equal(half.view(np.uint32), want.view(np.uint32))
    assert not half.view(np.uint32)[half == 0].min()


def test_integer_extremes_stay():
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        data = np.array([[info.min, info.max, 1, 0] * 4], dtype)
        same(run(lambda d: drop(d, 0.5), data), dropped(data, 0.5))


def test_probabilities_of_a_tile_outside_0_and_1():
    data, probs = np.ones((4, 30), np.float32), np.array([[-1], [100], [np.nan], [np.inf]], np.float32)
    same(run(drop, data, probs), np.repeat(np.array([[1], [0], [1], [0]], np.float32), 30, 1))


def test_bits_equal_to_the_probability_keep_the_element():
    def kernel(state, limits):
        nisa.rand_set_state(src_seeds=ld(state), engine=nisa.engine.vector)
        t = sb(3, 1)
        nisa.memset(dst=t, value=1.0)
        nisa.dropout(dst=t, data=t, prob=ld(limits))
        return st(t)

    state = np.zeros((3, 24), np.uint32)  # the numbers of such a state are its last word, counted up
    state[:, 5] = np.array([0, 2**31, 2**31 - 1], np.int64) - 362437 & 0xFFFFFFFF
    limits = np.array([[0], [0.5], [0.5]], np.float32)
    assert run(kernel, state, limits, target="trn3").ravel().tolist() == [1, 1, 0]


def test_the_share_that_is_dropped():
    data = np.ones((128, 4000), np.float32)
    for prob in (0.01, 0.5, 0.9):
        for target in TARGETS:
            kept = run(lambda d, p=prob: drop(d, p), data, target=target)
            assert abs(kept.mean() - (1 - prob)) < 4 * np.sqrt(prob * (1 - prob) / data.size)


def test_one_number_per_element_of_the_vector_engine_after_what_was_drawn():
    def kernel(d):
        nisa.rng(dst=sb(3, 8, dt=nl.uint32))
        return drop(d, 0.5)

    data = np.ones((3, 60), np.float32)
    for target in TARGETS:
        same(run(kernel, data, target=target), dropped(data, 0.5, target, skip=8))


def test_the_same_seed_drops_the_same():
    def kernel(d, seed):
        out = []
        for _ in range(2):
            nisa.set_rng_seed(src_seeds=ld(seed))
            out.append(drop(d, 0.5))
        return (*out, drop(d, 0.5))

    a, b, c = run(kernel, np.ones((16, 100), np.float32), np.array([[7]], np.int32))
    same(a, b)
    assert (a != c).any()


def test_in_place_in_psum_from_a_view_at_partition_64():
    def kernel(d):
        p = ps(128, 4, 6, dt=nl.bfloat16)
        nisa.tensor_copy(dst=p[64:72], src=ld(d), engine=nisa.engine.vector)
        turned = p[64:72, :, 0:5].permute((0, 2, 1))
        nisa.dropout(dst=turned, data=turned, prob=0.4)
        return st(p[64:72])

    data = random((8, 4, 6), "bfloat16")
    want = data.copy()
    want[:, :, :5] = dropped(data[:, :, :5].transpose(0, 2, 1).copy(), 0.4, first=64).transpose(0, 2, 1)
    same(run(kernel, data), want)


def test_packed_values_are_dropped_whole():
    def kernel(d):
        t = ld(d.view(nl.float8_e5m2_x4))
        nisa.dropout(dst=t, data=t, prob=0.5)
        return st(t.view(nl.uint32))

    data = np.arange(1, 65, dtype=np.uint32).reshape(2, 32)
    same(run(kernel, data, target="trn3"), dropped(data, 0.5, "trn3"))


def test_wide_storage_drops_the_same():
    data = random((4, 64), "bfloat16")
    got = nki_sim.run(lambda d: drop(d, 0.5), data, precise=False, strict=True).result
    np.testing.assert_array_equal(np.asarray(got, np.float32), dropped(data, 0.5).astype(np.float32))


@pytest.mark.parametrize("dtype", [None, nl.float32, nl.int8])
@pytest.mark.parametrize("target", TARGETS)
def test_the_function_of_the_language(target, dtype):
    @nki.jit
    def kernel(d, rate):
        return st(nl.dropout(ld(d), 0.25, dtype)), st(nl.dropout(ld(d), ld(rate), dtype=dtype))

    data, rate = np.round(random((4, 40), "bfloat16")), np.array([[0], [0.3], [0.6], [1]], np.float32)
    first, second = run(kernel, data, rate, target=target)
    stored = STORED[dtype or "bfloat16"]
    same(first, dropped(data, 0.25, target).astype(stored))
    same(second, dropped(data, rate, target, skip=40).astype(stored))


def test_cost():
    def kernel(d):
        return drop(d, 0.5), drop(d[:, 0:9], 0.5)

    plans = [p for p in nki_sim.run(kernel, np.ones((2, 700), np.float32)).program.plans if p.instruction == "dropout"]
    assert [(p.engine, p.cycles) for p in plans] == [("vector", 700), ("vector", 64)]


# --- limits ----------------------------------------------------------------------------------------------------------


def target():
    return f"trn{int(nisa.get_nc_version()) - 1}"


@book.breaks("dropout.buffers")
def _(bad):
    t = sb(4, 8)
    nisa.dropout(dst=t, data=hx(4, 8) if bad else x(4, 8), prob=0.5)
    return t, dropped(v(4, 8), 0.5, target())


@book.breaks("dropout.shape")
def _(bad):
    t = sb(4, 9 if bad else 8)
    nisa.dropout(dst=t, data=x(4, 2, 4), prob=0.5)
    return t, dropped(v(4, 8), 0.5, target())


@book.breaks("dropout.shape")
def _(bad):
    t = sb(4, 8)
    nisa.dropout(dst=t, data=x(5 if bad else 4, 8), prob=0.5)
    return t, dropped(v(4, 8), 0.5, target())


@book.breaks("dropout.dtype_match")
def _(bad):
    t = sb(4, 8, dt=nl.float32 if bad else nl.bfloat16)
    nisa.dropout(dst=t, data=x(4, 8, dt=nl.bfloat16), prob=0.5)
    return t, dropped(v(4, 8), 0.5, target())


@book.breaks("dropout.prob_dtype")
def _(bad):
    t, prob = sb(4, 8, dt=nl.int16), sb(4, 1, dt=nl.bfloat16 if bad else nl.float32)
    nisa.memset(dst=prob, value=0.5)
    nisa.dropout(dst=t, data=x(4, 8, dt=nl.int16), prob=prob)
    return t, dropped(v(4, 8), 0.5, target())


@book.breaks("dropout.prob_dtype")
def _(bad):
    t, prob = sb(4, 8), sb(4, 1, dt=nl.int8 if bad else nl.float8_e5m2)
    nisa.memset(dst=prob, value=1)
    nisa.dropout(dst=t, data=x(4, 8), prob=prob)
    return t, 0


@book.breaks("dropout.prob_shape")
def _(bad):
    t, prob = sb(4, 8), sb(4, 2)
    nisa.memset(dst=prob, value=0.5)
    nisa.dropout(dst=t, data=x(4, 8), prob=prob if bad else prob[:, 1:2])
    return t, dropped(v(4, 8), 0.5, target())


@book.breaks("dropout.prob_shape")
def _(bad):
    t, data = sb(4, 8), x(4, 8)
    for prob in (0.0, 1.0000001 if bad else 1.0):  # the second of one plan is checked too
        nisa.dropout(dst=t, data=data, prob=prob)
    return t, 0


@book.breaks("dropout.prob_shape")
def _(bad):
    t = sb(4, 8)
    nisa.dropout(dst=t, data=x(4, 8), prob=float("nan") if bad else np.float32(0.5))
    return t, dropped(v(4, 8), 0.5, target())


@book.breaks("nl.dropout_rate")
def _(bad):
    rate = sb(4, 2)
    nisa.memset(dst=rate, value=0.5)
    return nl.dropout(x(4, 8), rate if bad else rate[:, 0:1]), dropped(v(4, 8), 0.5, target())


@book.breaks("nl.dropout_rate", error=NkiTypeError)
def _(bad):
    return nl.dropout(x(4, 8), "0.5" if bad else 0.5), dropped(v(4, 8), 0.5, target())


@book.breaks("nl.dropout_rate")
def _(bad):
    return nl.dropout(x(4, 8), hx(4, 1) if bad else 0.5), dropped(v(4, 8), 0.5, target())


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
