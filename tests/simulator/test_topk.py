"""``nki.isa.topk``: values, their numbers, ties, special values, limits."""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays
from kernels import TARGETS, copied, hb, ld, ps, sb, st
from references import run, same
from rulebook import Book, v, x

book = Book()
NEW = "trn2 trn3"
BF16 = ml_dtypes.bfloat16
NOTHING = -5.0
"""What the results hold before."""


def largest(src, n, k):
    """Sixteen partitions at a time: pick the largest k times, of equal ones the first; the last pick is value 0."""
    rows, values, numbers = len(src), np.full((len(src), k), NOTHING, BF16), np.full((len(src), k), 77, np.uint32)
    columns = src.reshape(rows, -1)
    for base in range(0, rows, 16):
        left = [(columns[base + i % 16, i // 16], i) for i in range(n)]
        for j in reversed(range(k)):
            best = max(left, key=lambda e: (np.isnan(e[0]), e[0] if not np.isnan(e[0]) else 0, -e[1]))
            left.remove(best) if not np.isnan(best[0]) else left.pop([i for _, i in left].index(best[1]))
            values[base + j % 16, j // 16], numbers[base + j % 16, j // 16] = best
    return values, numbers


def results(rows, k):
    values, numbers = sb(rows, k, dt=nl.bfloat16), sb(rows, k, dt=nl.uint32)
    nisa.memset(dst=values, value=NOTHING)
    nisa.memset(dst=numbers, value=77)
    return values, numbers


def top(src, n, k):
    values, numbers = results(src.shape[0], k)
    nisa.topk(val_dst=values, idx_dst=numbers, src=ld(src), n=n)
    return st(values), st(numbers)


def check(src, n, k, **how):
    got = run(lambda s: top(s, n, k), src, **how)
    for mine, want in zip(got, largest(src, n, k), strict=True):
        same(mine, want)


@given(data=some.data())
@settings(max_examples=50, deadline=None)
def test_pick_by_pick(data):
    rows, columns = data.draw(some.sampled_from([16, 32, 48, 128])), data.draw(some.integers(1, 5))
    n = data.draw(some.integers(min(8, 16 * columns), 16 * columns))
    k = data.draw(some.integers(1, n))
    few = data.draw(some.booleans())  # few different values: many ties
    elements = some.integers(-2, 2) if few else some.floats(-60000, 60000, width=16)
    src = data.draw(arrays.arrays(np.float32, (rows, columns), elements=elements)).astype(BF16)
    check(src, n, k, target=data.draw(some.sampled_from(TARGETS)))


@pytest.mark.parametrize("k", [1, 2, 15, 16, 17, 31, 32, 33, 42])
@pytest.mark.parametrize("target", TARGETS)
def test_every_place_of_a_result(target, k):
    src = np.random.default_rng(k).permutation(96).reshape(32, 3).astype(BF16)
    check(src, 42, k, target=target)


def test_of_equal_values_the_first_is_the_larger_and_ascending_is_from_small_to_large():
    src = np.zeros((16, 1), BF16)
    src[[2, 5, 9], 0] = 4
    values, numbers = run(lambda s: top(s, 16, 5), src)
    assert values[:5, 0].tolist() == [0, 0, 4, 4, 4]
    assert numbers[:5, 0].tolist() == [1, 0, 9, 5, 2]


def test_special_values_keep_their_bits():
    special = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, np.nan, 3.3e38, -3.3e38, 2.0, 1.0, 0.5, -2.0, -1.0, -0.5]
    src = np.array(special, np.float32).astype(BF16).reshape(16, 1)
    src.view(np.uint16)[7] = 0xFFC1  # a negative NaN with a payload
    values, numbers = run(lambda s: top(s, 16, 16), src)
    assert numbers[:, 0].tolist() == [2, 9, 13, 14, 15, 6, 4, 3, 5, 12, 11, 10, 8, 1, 7, 0]
    np.testing.assert_array_equal(values[:, 0].view(np.uint16), src[numbers[:, 0], 0].view(np.uint16))


def test_what_lies_beyond_n_does_not_count_and_need_not_be_written():
    def kernel(src):
        whole = sb(16, 9, dt=nl.bfloat16)
        nisa.dma_copy(dst=whole[:, 0:2], src=src)
        values, numbers = results(16, 3)
        nisa.topk(val_dst=values, idx_dst=numbers, src=whole, n=20)
        return st(values), st(numbers)

    src = np.arange(32).reshape(16, 2).astype(BF16)
    src[4:, 1] = 500
    for mine, want in zip(run(kernel, src), largest(src, 20, 3), strict=True):
        same(mine, want)


def test_only_the_places_of_results_are_written():
    def kernel(src, filled):
        values, numbers = sb(16, 20, dt=nl.bfloat16), sb(16, 20, dt=nl.uint32)
        nisa.topk(val_dst=values, idx_dst=numbers, src=ld(src), n=64)
        return st(values[:, 0:1]), st(numbers[0:4, 1:2]), st(values[0:5, 1:2] if filled else values[0:4, 1:2])

    src = np.random.default_rng(0).permutation(64).reshape(16, 4).astype(BF16)
    want, numbers = largest(src, 64, 20)
    first, second, third = run(lambda s: kernel(s, False), src)
    same(first, want[:, 0:1])
    same(second, numbers[0:4, 1:2])
    same(third, want[0:4, 1:2])
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        run(lambda s: kernel(s, True), src)
    assert caught.value.diagnosis.rule.id == "ndarray.uninitialised"
    assert "1 of 5 elements" in str(caught.value)


def test_views_from_partition_32_and_a_source_of_three_dimensions():
    def kernel(src):
        t = sb(128, 4, 3, dt=nl.bfloat16)
        nisa.dma_copy(dst=t[32:64], src=src)
        values, numbers = results(128, 12)
        nisa.topk(val_dst=values[32:64, 1:11:2], idx_dst=numbers[32:64, 4:9], src=t[32:64].permute((0, 2, 1)), n=180)
        return st(values[32:64]), st(numbers[32:64])

    src = np.random.default_rng(1).permutation(32 * 12).reshape(32, 4, 3).astype(BF16)
    values, numbers = run(kernel, src)
    want = largest(np.ascontiguousarray(src.transpose(0, 2, 1)).reshape(32, 12), 180, 5)
    same(values[:, 1:11:2], want[0])
    same(numbers[:, 4:9], want[1])
    assert (values[:, [0, 2, 4, 6, 8, 10, 11]] == NOTHING).all()
    assert (numbers[:, [0, 1, 2, 3, 9, 10, 11]] == 77).all()


def test_a_large_one():
    src = np.random.default_rng(2).standard_normal((128, 512)).astype(BF16)

    @nki.jit
    def kernel(src):
        return top(src, 8192, 256)

    values, numbers = run(kernel, src)
    for g in range(8):
        row = src[16 * g : 16 * g + 16].T.reshape(-1)
        found, at = (t[16 * g : 16 * g + 16].T.reshape(-1)[:256] for t in (values, numbers))
        same(found, np.sort(row.astype(np.float32))[-256:].astype(BF16))
        same(row[at], found)
        assert len(set(at.tolist())) == 256


def test_wide_storage_picks_the_same():
    src = np.random.default_rng(3).standard_normal((16, 5)).astype(BF16)
    values, numbers = nki_sim.run(lambda s: top(s, 70, 9), src, precise=False, strict=True).result
    want = largest(src, 70, 9)
    np.testing.assert_array_equal(np.asarray(values, np.float32), want[0].astype(np.float32))
    same(numbers, want[1])


def test_a_replay_gives_the_same():
    src = np.random.default_rng(4).standard_normal((16, 5)).astype(BF16)
    done = nki_sim.run(lambda s: top(s, 70, 9), src)
    step = next(i for i in range(len(done.program)) if done.program.plan_at(i).instruction == "topk")
    replay = done.replay()
    for i, want in enumerate(largest(src, 70, 9)):
        same(replay.operand(step, i, after=True), want)
        assert len(np.unique(replay.operand(step, i))) == 1


def test_cost():
    plans = nki_sim.run(lambda s: top(s, 70, 9), np.zeros((16, 5), BF16)).program.plans
    assert [(p.engine, p.cycles) for p in plans if p.instruction == "topk"] == [("gpsimd", 4 * 70 + 9)]


# --- limits ----------------------------------------------------------------------------------------------------------


def want(rows=16, columns=4, n=64, k=6):
    return largest(v(rows, columns).astype(BF16), n, k)[0].astype(np.float32)


@book.breaks("topk.src")
def _(bad):
    t, i = results(16, 6)
    nisa.topk(val_dst=t, idx_dst=i, src=x(16, 4, dt=nl.float16 if bad else nl.bfloat16), n=64)
    return t, want()


@book.breaks("topk.engine")
def _(bad):
    t, i = results(16, 6)
    nisa.topk(val_dst=t, idx_dst=i, src=x(16, 4, dt=nl.bfloat16, buffer=nl.psum if bad else nl.sbuf), n=64)
    return t, want()


@book.breaks("topk.engine")
def _(bad):
    t, i = results(16, 6)
    nisa.topk(val_dst=ps(16, 6, dt=nl.bfloat16) if bad else t, idx_dst=i, src=x(16, 4, dt=nl.bfloat16), n=64)
    return t, want()


@book.breaks("topk.engine")
def _(bad):
    t, i = results(16, 6)
    nisa.topk(val_dst=t, idx_dst=hb(16, 6, dt=nl.uint32) if bad else i, src=x(16, 4, dt=nl.bfloat16), n=64)
    return t, want()


@book.breaks("topk.val_dst")
def _(bad):
    t, i = results(16, 6)
    nisa.topk(val_dst=sb(16, 6) if bad else t, idx_dst=i, src=x(16, 4, dt=nl.bfloat16), n=64)
    return t, want()


@book.breaks("topk.val_dst")
def _(bad):
    t, i = results(32, 6)
    rows = 32 if bad else 16
    nisa.topk(val_dst=t[0:rows], idx_dst=i[0:rows], src=x(16, 4, dt=nl.bfloat16), n=64)
    return copied(t[0:16]), want()


@book.breaks("topk.val_dst")
def _(bad):
    t, i = results(16, 6)
    whole = t.reshape((16, 2, 3)) if bad else t
    nisa.topk(val_dst=whole, idx_dst=i, src=x(16, 4, dt=nl.bfloat16), n=64)
    return t, want()


@book.breaks("topk.idx_dst")
def _(bad):
    t, i = results(16, 6)
    signed = sb(16, 6, dt=nl.int32)
    nisa.topk(val_dst=t, idx_dst=signed if bad else i, src=x(16, 4, dt=nl.bfloat16), n=64)
    return t, want()


@book.breaks("topk.idx_dst")
def _(bad):
    t, i = results(16, 6)
    nisa.topk(val_dst=t, idx_dst=i[:, 0:5] if bad else i, src=x(16, 4, dt=nl.bfloat16), n=64)
    return t, want()


@book.breaks("topk.n_range")
def _(bad):
    t, i = results(16, 6)
    nisa.topk(val_dst=t, idx_dst=i, src=x(16, 4, dt=nl.bfloat16), n=7 if bad else 8)
    return t, want(n=8)


@book.breaks("topk.n_range")
def _(bad):
    t, i = results(16, 1)
    src = sb(16, 4096, dt=nl.bfloat16)
    nisa.memset(dst=src, value=3.0)
    nisa.topk(val_dst=t, idx_dst=i, src=src, n=65536 if bad else 65535)
    return copied(t[0:1, 0:1]), 3


@book.breaks("topk.n_range")
def _(bad):
    t, i = results(16, 6)
    nisa.topk(val_dst=t, idx_dst=i, src=x(16, 4, dt=nl.bfloat16), n=64.0 if bad else np.int64(64))
    return t, want()


@book.breaks("topk.k_range")
def _(bad):
    t, i = results(16, 11 if bad else 10)
    nisa.topk(val_dst=t, idx_dst=i, src=x(16, 1, dt=nl.bfloat16), n=10)
    return t, want(columns=1, n=10, k=10)


@book.breaks("topk.k_range", on=NEW)  # trn1 cannot hold it
def _(bad):
    k = 32768 if bad else 32767
    t, i, src = sb(16, k, dt=nl.bfloat16), sb(16, k, dt=nl.uint32), sb(16, 2048, dt=nl.bfloat16)
    nisa.memset(dst=src, value=3.0)
    nisa.topk(val_dst=t, idx_dst=i, src=src, n=32768)
    return copied(t[0:15, 0:2048]), 3


@book.breaks("topk.src_free")
def _(bad):
    t, i = results(16, 6)
    nisa.topk(val_dst=t, idx_dst=i, src=x(16, 4, dt=nl.bfloat16), n=65 if bad else 64)
    return t, want()


@book.breaks("topk.partition_mult_16")
def _(bad):
    rows = 17 if bad else 16
    t, i = results(rows, 6)
    nisa.topk(val_dst=t, idx_dst=i, src=x(rows, 4, dt=nl.bfloat16), n=64)
    return t, want()


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
