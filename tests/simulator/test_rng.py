"""Random numbers: ``rng``, ``rand2``, seeds and states, ``nl.rand`` and ``nl.random_seed``."""

import random as order

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
from nki_sim.isa import prng
from nki_sim.machine import Machine
from random_numbers import WIDTH, Lane, lanes
from references import INTEGERS, STORED, rounded, run, same
from rulebook import Book, hx, v, x

book = Book()
NEW = "trn2 trn3"
RAND2 = [name for name in STORED if name != "float8_e4m3fn"]
ENGINES = list(WIDTH)
VECTOR, GPSIMD = nisa.engine.vector, nisa.engine.gpsimd


def table(of, *sizes, rows=slice(0, 128)):
    """What the lanes ``rows`` draw in instructions of these sizes, side by side."""
    return np.array([[number for n in sizes for number in lane.draw(n)] for lane in of[rows]], np.uint32)


def drawn(shape, dtype="uint32", engine=VECTOR, first=0, **where):
    whole = sb(128, *shape[1:], dt=dtype)
    t = whole[first : first + shape[0]]
    nisa.rng(dst=t, engine=engine)
    return t


def seed_of(number, dtype=nl.uint32):
    t = sb(1, 1, dt=dtype)
    nisa.memset(dst=t, value=number)
    return t


# --- bits ------------------------------------------------------------------------------------------------------------


def test_the_published_first_numbers():
    assert prng.XORSHIFT.run(np.array([[2463534242]], np.uint32), 1)[1, 0] == 723471715

    def kernel(state):
        t, s = sb(1, 1, dt=nl.uint32), ld(state)
        nisa.rand_set_state(src_seeds=s)
        nisa.rng(dst=t, engine=GPSIMD)
        return st(t)

    state = np.array([[123456789, 362436069, 521288629, 88675123, 5783321, 6615241]], np.uint32)
    assert run(kernel, state, target="trn2").tolist() == [[246875399]]


@given(which=some.sampled_from(ENGINES), n=some.integers(1, 330), again=some.integers(1, 9),
       rows=some.integers(1, 128), seed=some.integers(0, 2**32 - 1))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_number_by_number(which, n, again, rows, seed):
    target, engine = which
    seed = seed if engine == "vector" else 0

    @nki.jit
    def kernel(seed):
        if engine == "vector":
            nisa.set_rng_seed(src_seeds=ld(seed))
        return tuple(st(drawn((rows, size), engine=nisa.engine[engine])) for size in (n, again))

    first, second = run(kernel, np.array([[seed]], np.uint32), target=target)
    same(np.concatenate([first, second], 1), table(lanes(target, engine, seed), n, again, rows=slice(0, rows)))


@pytest.mark.parametrize("n", [63, 64, 65, 128, 129, 1000, 4097])
@pytest.mark.parametrize("which", ENGINES)
def test_around_the_blocks_of_a_long_sequence(which, n):
    target, engine = which

    def kernel():
        return tuple(st(drawn((2, size), engine=nisa.engine[engine])) for size in (n, 5))

    got = np.concatenate(run(kernel, target=target), 1)
    same(got, table(lanes(target, engine), n, 5, rows=slice(0, 2)))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("target", TARGETS)
def test_narrow_integers_get_the_low_bits(target, dtype):
    def kernel():
        t = sb(4, 2, 3, 7, dt=dtype)
        nisa.rng(dst=t)
        return st(t)

    bits = table(lanes(target), 42, rows=slice(0, 4)).astype(np.int64)
    width = np.dtype(dtype).itemsize * 8
    want = bits % 2**width
    if dtype[0] == "i":
        want = np.where(want >= 2 ** (width - 1), want - 2**width, want)
    same(run(kernel, target=target), want.astype(dtype).reshape(4, 2, 3, 7))


@pytest.mark.parametrize("first", [0, 32, 64, 96])
def test_partitions_draw_from_their_own_lanes_and_leave_the_others(first):
    def kernel():
        return st(drawn((5, 9), first=first)), st(drawn((128, 3)))

    some_rows, all_rows = run(kernel, target="trn3")
    of = lanes("trn3")
    same(some_rows, table(of, 9, rows=slice(first, first + 5)))
    same(all_rows, table(of, 3))


def test_a_view_in_psum():
    def kernel():
        p = ps(4, 6, 5, dt=nl.int32)
        nisa.memset(dst=p, value=-7)
        nisa.rng(dst=p[:, 1:6:2, :].permute((0, 2, 1)))
        return st(p)

    got, bits = run(kernel, target="trn2"), table(lanes("trn2"), 15, rows=slice(0, 4)).view(np.int32).reshape(4, 5, 3)
    same(got[:, 1::2], bits.transpose(0, 2, 1))
    assert (got[:, ::2] == -7).all()


def test_engines_keep_their_own_states():
    def kernel():
        return st(drawn((8, 5), engine=GPSIMD)), st(drawn((8, 5))), st(drawn((8, 5), engine=GPSIMD)), st(drawn((8, 5)))

    g0, v0, g1, v1 = run(kernel, target="trn3")
    same(np.concatenate([g0, g1], 1), table(lanes("trn3", "gpsimd"), 5, 5, rows=slice(0, 8)))
    same(np.concatenate([v0, v1], 1), table(lanes("trn3"), 5, 5, rows=slice(0, 8)))


def test_every_run_begins_alike():
    def kernel():
        return st(drawn((128, 4)))

    same(run(kernel), run(kernel))


def test_bits_are_fair():
    bits = run(lambda: st(drawn((128, 2000))), target="trn1"), run(lambda: st(drawn((128, 2000))), target="trn3")
    for numbers in bits:
        ones = np.unpackbits(numbers.view(np.uint8)).reshape(-1, 8).mean(0)
        assert (abs(ones - 0.5) < 0.003).all()
        assert len(np.unique(numbers)) > 0.9999 * numbers.size


# --- seeds and states ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_seed_gives_the_same_numbers(target):
    def kernel():
        out = []
        for seed in (5, 6, 5):
            nisa.set_rng_seed(seed_of(seed))
            out.append(st(drawn((128, 33))))
        return tuple(out)

    five, six, again = run(kernel, target=target)
    same(five, again)
    assert (five != six).mean() > 0.99
    same(five, table(lanes(target, seed=5), 33))


@pytest.mark.parametrize("dtype", ["uint32", "int32", "float32"])
@pytest.mark.parametrize("number", [0, 1, -1, 2**31 - 1, 0.5, float("nan")])
def test_a_seed_is_32_bits_of_any_kind(dtype, number):
    def kernel(seed):
        p = ps(1, 1, dt=dtype)
        nisa.tensor_copy(dst=p, src=ld(seed), engine=VECTOR)
        nisa.set_rng_seed(src_seeds=p)
        return st(drawn((3, 4)))

    given_seed = (
        np.array([[number]], np.float32) if dtype == "float32" else np.array([[int(np.nan_to_num(number))]]).astype(dtype)
    )
    bits = int(given_seed.view(np.uint32)[0, 0])
    same(run(kernel, given_seed, target="trn3"), table(lanes("trn3", seed=bits), 4, rows=slice(0, 3)))


def test_no_seed_leaves_a_shift_register_at_zero():
    stuck = -0x9E3779B9 % 2**32  # lane 0 would get the word 0

    def kernel():
        nisa.set_rng_seed(seed_of(stuck))
        return st(drawn((1, 6)))

    same(run(kernel, target="trn1"), np.array([Lane([1]).draw(6)], np.uint32))


def states(engine, target):
    return WIDTH[target, engine.name]


LOADS = [("trn2", GPSIMD), ("trn3", GPSIMD), ("trn3", VECTOR), ("trn3", nisa.engine.unknown)]


@pytest.mark.parametrize(("target", "engine"), LOADS)
def test_a_state_that_was_stored_gives_the_same_numbers_again(target, engine):
    draws = GPSIMD if engine is nisa.engine.unknown else engine

    def kernel():
        nisa.rng(dst=sb(128, 5, dt=nl.uint32), engine=draws)
        kept, left = (sb(128, states(draws, target), dt=nl.uint32) for _ in range(2))
        nisa.rand_get_state(dst=kept, engine=engine)
        once = drawn((128, 70), engine=draws)
        nisa.rand_get_state(dst=left, engine=engine)
        nisa.rand_set_state(src_seeds=kept, engine=engine)
        again = drawn((128, 70), engine=draws)
        return st(kept), st(once), st(left), st(again)

    kept, once, left, again = run(kernel, target=target)
    same(once, again)
    assert (kept != left).any(1).all()
    same(once, np.array([Lane(words).draw(70) for words in kept.tolist()], np.uint32))
    for before, after in zip(kept.tolist(), left.tolist(), strict=True):
        lane = Lane(before)
        lane.draw(70)
        assert Lane(after).draw(8) == lane.draw(8)


@given(words=some.lists(some.integers(0, 2**32 - 1), min_size=24, max_size=24), n=some.integers(1, 200))
@settings(max_examples=25, deadline=None)
def test_any_state_can_be_loaded(words, n):
    def kernel(seeds):
        nisa.rand_set_state(src_seeds=ld(seeds), engine=VECTOR)
        kept = sb(1, 24, dt=nl.uint32)
        nisa.rand_get_state(dst=kept, engine=VECTOR)
        return st(kept), st(drawn((1, n)))

    seeds = np.array([words], np.uint32)
    kept, numbers = run(kernel, seeds, target="trn3")
    same(kept, seeds)
    same(numbers, np.array([Lane(words).draw(n)], np.uint32))


def test_lanes_without_a_new_state_keep_theirs():
    def kernel(seeds):
        t = sb(128, 6, dt=nl.uint32)
        nisa.dma_copy(dst=t[64:96, :], src=seeds)
        nisa.rand_set_state(src_seeds=t[64:96, :])
        back = sb(128, 6, dt=nl.uint32)
        nisa.rand_get_state(dst=back)
        return st(back), st(drawn((128, 4), engine=GPSIMD))

    seeds = np.arange(1, 193, dtype=np.uint32).reshape(32, 6)
    back, numbers = run(kernel, seeds, target="trn2")
    same(back[64:96], seeds)
    of = lanes("trn2", "gpsimd")
    of[64:96] = [Lane(words) for words in seeds.tolist()]
    same(numbers, table(of, 4))


def test_a_state_goes_to_psum_from_the_vector_engine():
    def kernel(seeds):
        nisa.rand_set_state(src_seeds=ld(seeds), engine=VECTOR)
        p = ps(16, 24, dt=nl.uint32)
        nisa.rand_get_state(dst=p, engine=VECTOR)
        return st(p)

    seeds = np.arange(16 * 24, dtype=np.uint32).reshape(16, 24)
    same(run(kernel, seeds, target="trn3"), seeds)


# --- between two bounds ----------------------------------------------------------------------------------------------


def between(bits, low, high):
    """Element by element, in double precision, rounded to float32 once."""
    low, high = np.broadcast_to(low, (len(bits), 1)), np.broadcast_to(high, (len(bits), 1))
    return np.array([[float(low[p, 0]) + (int(b) >> 8) / 2**24 * (float(high[p, 0]) - float(low[p, 0])) for b in row]
                     for p, row in enumerate(bits)]).astype(np.float32)  # fmt: skip


def uniform(shape, low, high, dtype="float32", make=sb):
    t = make(*shape, dt=dtype)
    low, high = (ld(b) if hasattr(b, "buffer") else b for b in (low, high))
    nisa.rand2(dst=t, min=low, max=high)
    return st(t)


F32 = some.floats(-(2.0**100), 2.0**100, width=32)


@given(n=some.integers(1, 90), low=some.lists(F32, min_size=3, max_size=3), high=some.lists(F32, min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_uniform_number_by_number(n, low, high):
    low, high = np.sort(np.array([low, high], np.float32), axis=0)[:, :, None]
    high = np.where(low < high, high, np.nextafter(low, np.float32(np.inf))).astype(np.float32)
    got = run(lambda low, high: uniform((3, n), low, high), low, high, target="trn3")
    same(got, between(table(lanes("trn3"), n, rows=slice(0, 3)), low, high))
    assert (got >= low).all()
    assert (got <= high).all()


@pytest.mark.parametrize("dtype", RAND2)
def test_uniform_in_every_dtype(dtype):
    got = run(lambda: uniform((5, 3, 20), -100, 200.5, dtype), target="trn3")
    same(got, rounded(between(table(lanes("trn3"), 60, rows=slice(0, 5)), -100.0, 200.5), dtype).reshape(5, 3, 20))


def test_uniform_in_tfloat32_has_ten_bits():
    got = run(lambda: uniform((4, 100), 0, 1, "tfloat32", ps), target="trn3")
    bits = got.view(np.uint32)
    assert not (bits & 0x1FFF).any()
    exact = between(table(lanes("trn3"), 100, rows=slice(0, 4)), 0.0, 1.0)
    assert (abs(got - exact) <= exact * 2.0**-11).all()


def test_bounds_may_be_far_apart_and_close_together():
    largest = float(np.finfo(np.float32).max)
    wide = run(lambda: uniform((2, 500), -largest, largest), target="trn3")
    assert np.isfinite(wide).all()
    assert (abs(wide) > 1e38).mean() > 0.5
    tiny = float(np.float32(1e-45))
    assert set(run(lambda: uniform((2, 500), 0.0, tiny), target="trn3").ravel().tolist()) == {0.0, tiny}
    assert np.isnan(run(lambda: uniform((1, 3), -np.inf, 1.0), target="trn3")).all()


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (1.0, 1.0), (0.0, -0.0), (float("nan"), 1.0), (0.0, float("nan"))])
def test_bounds_in_the_wrong_order_stop_the_kernel(low, high):
    for bounds in ((low, high), (np.array([[0], [low]], np.float32), np.array([[1], [high]], np.float32))):
        arrays = [b for b in bounds if isinstance(b, np.ndarray)]

        def kernel(*given, bounds=bounds):
            return uniform((2, 3), *(given or bounds))

        with pytest.raises(nki_sim.NkiValidationError, match="partition 1" if arrays else "min is") as caught:
            nki_sim.run(kernel, *arrays, target="trn3")
        assert caught.value.diagnosis.rule.id == "rand2.min_lt_max"
        assert caught.value.diagnosis.rule.enforce == "runtime"


# --- nki.language ----------------------------------------------------------------------------------------------------


def test_rand_is_24_bits_of_the_vector_engine():
    for target in TARGETS:
        got = run(lambda: st(nl.rand((128, 2, 30), dtype=nl.float32)), target=target)
        same(got, between(table(lanes(target), 60), 0.0, 1.0).reshape(128, 2, 30))
        assert (got < 1).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e5m2", "int32"])
@pytest.mark.parametrize("target", TARGETS)
def test_rand_in_every_memory(target, dtype):
    def kernel():
        p = nl.rand((16, 9), dtype=dtype, buffer=nl.psum)
        h = nl.rand((3, 5, 7), dtype=dtype, buffer=nl.shared_hbm, name="noise")
        return st(p), h

    in_psum, in_hbm = run(kernel, target=target)
    of = lanes(target)
    same(in_psum, rounded(between(table(of, 9, rows=slice(0, 16)), 0.0, 1.0), dtype))
    same(in_hbm.reshape(1, 105), rounded(between(table(of, 105, rows=slice(0, 1)), 0.0, 1.0), dtype))


def test_rand_fills_hbm_part_by_part():
    got = run(lambda: nl.rand((128, 20000), dtype=nl.float32, buffer=nl.shared_hbm), target="trn2")
    assert len(np.unique(got[0])) > 19900
    assert abs(got.mean() - 0.5) < 0.002
    assert 0 <= got.min() < got.max() < 1


def test_a_seed_repeats_rand_as_the_reference_has_it():
    @nki.jit
    def kernel():
        seed = nl.full((1, 1), 42, dtype=nl.int32, buffer=nl.sbuf)
        nl.random_seed(seed)
        a = nl.rand((128, 512), dtype=nl.float32)
        nl.random_seed(seed)
        b = nl.rand((128, 512), dtype=nl.float32)
        return st(a), st(b)

    a, b = run(kernel, target="trn3")
    same(a, b)
    same(a, between(table(lanes("trn3", seed=42), 512), 0.0, 1.0))


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_before_trn3_a_seeded_rand_is_reported(target):
    def kernel():
        nl.random_seed(seed_of(1))
        return st(nl.rand((2, 2), dtype=nl.float32))

    with pytest.warns(nki_sim.NkiWarning, match="release notes"):
        done = nki_sim.run(kernel, target=target)
    assert [d.rule.id for d in done.findings] == ["nl.rand_seed_engine"]
    same(done.result, between(table(lanes(target, seed=1), 2, rows=slice(0, 2)), 0.0, 1.0))


# --- loops, replay, cost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_each_round_of_a_loop_draws_further_numbers(target):
    def kernel():
        out = nl.ndarray((4, 6, 5), dtype=nl.uint32, buffer=nl.shared_hbm)

        def body(i):
            t = sb(4, 5, dt=nl.uint32)
            nisa.rng(dst=t)
            nisa.dma_copy(dst=out.ap(pattern=[[30, 4], [1, 5]], scalar_offset=i, indirect_dim=1), src=t)

        nl.fori_loop(0, 6, body)
        return out

    same(run(kernel, target=target).reshape(4, 30), table(lanes(target), *[5] * 6, rows=slice(0, 4)))


def all_of_them():
    """Twenty rounds of everything that draws from a state or changes one."""
    target = nisa.get_nc_version()
    t, data = sb(128, 9, dt=nl.uint32), sb(128, 9)
    nisa.memset(dst=data, value=1.0)
    for k in range(20):
        nisa.rng(dst=t)
        nisa.dropout(dst=data, data=data, prob=0.05)
        if k == 7:
            nisa.set_rng_seed(src_seeds=t[0:1, 3:4])
        if target > nisa.nc_version.gen2:
            nisa.rng(dst=t, engine=GPSIMD)
            if k % 5 == 2:
                nisa.rand_set_state(src_seeds=t[:, 0:6])
            nisa.rand_get_state(dst=t[:, 0:6])
        if target > nisa.nc_version.gen3:
            nisa.rand2(dst=data, min=0.0, max=1.0 + k)
    return st(t), st(data)


@pytest.mark.parametrize("precise", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_a_replay_draws_the_same_numbers_at_every_step(monkeypatch, target, precise):
    seen, record = {}, Machine._record

    def spy(self, ins, number, values, step):
        record(self, ins, number, values, step)
        seen[step] = [value.array.copy() if hasattr(value, "array") else None for value in values]

    monkeypatch.setattr(Machine, "_record", spy)
    monkeypatch.setattr(Machine, "plays", lambda self, plan: False)
    done = nki_sim.run(all_of_them, target=target, precise=precise, strict=True)
    monkeypatch.undo()
    replay = done.replay()
    visits = [(step, i) for step, held in seen.items() for i, values in enumerate(held) if values is not None]
    order.Random(3).shuffle(visits)
    for step, i in visits:
        np.testing.assert_array_equal(replay.operand(step, i, after=True), seen[step][i])
    kinds = {"rng", "dropout", "set_rng_seed"} | ({"rand_set_state", "rand_get_state"} if target != "trn1" else set())
    assert kinds | ({"rand2"} if target == "trn3" else set()) <= {plan.instruction for plan in done.program.plans}


COSTS = [
    ("trn1", lambda: nisa.rng(sb(2, 512, dt=nl.int8)), "vector", 512),
    ("trn2", lambda: nisa.rng(sb(2, 9, dt=nl.int8)), "vector", 64),
    ("trn2", lambda: nisa.rng(sb(2, 512, dt=nl.int8), engine=GPSIMD), "gpsimd", 662),
    ("trn3", lambda: nisa.rand2(sb(2, 512), 0.0, 1.0), "vector", 128),
    ("trn3", lambda: nisa.set_rng_seed(seed_of(1)), "vector", 64),
    ("trn2", lambda: nisa.rand_get_state(sb(2, 6, dt=nl.uint32)), "gpsimd", 174),
    ("trn3", lambda: nisa.rand_get_state(sb(2, 24, dt=nl.uint32), engine=VECTOR), "vector", 64),
]


@pytest.mark.parametrize(("target", "issue", "engine", "cycles"), COSTS)
def test_cost(target, issue, engine, cycles):
    def kernel():
        issue()
        return st(nl.zeros((1, 1), dtype=nl.float32))

    plan = next(p for p in nki_sim.run(kernel, target=target).program.plans if p.instruction.startswith(("r", "set")))
    assert (plan.engine, plan.cycles) == (engine, cycles)


# --- limits ----------------------------------------------------------------------------------------------------------


def first(engine, n, target=None):
    """Four lanes' first numbers on the running machine."""
    target = nisa_target() if target is None else target
    return table(lanes(target, engine), n, rows=slice(0, 4))


def nisa_target():
    return f"trn{int(nisa.get_nc_version()) - 1}"


@book.breaks("rng.buffers")
def _(bad):
    t = sb(4, 8, dt=nl.uint16)
    nisa.rng(dst=nl.ndarray((4, 8), dtype=nl.uint16, buffer=nl.shared_hbm) if bad else t)
    return t, first("vector", 8) & 0xFFFF


@book.breaks("rng.dtype")
def _(bad):
    t = sb(4, 8, dt=nl.float16 if bad else nl.int8)
    nisa.rng(dst=t)
    return t, first("vector", 8).astype(np.int8)


@book.breaks("rng.engine", on="trn1")
def _(bad):
    t = sb(4, 8, dt=nl.uint8)
    nisa.rng(dst=t, engine=GPSIMD if bad else VECTOR)
    return t, first("vector", 8).astype(np.uint8)


@book.breaks("rng.engine", on=NEW)
def _(bad):
    t = sb(4, 8, dt=nl.uint8)
    nisa.rng(dst=t, engine=nisa.engine.scalar if bad else GPSIMD)
    return t, first("gpsimd", 8).astype(np.uint8)


@book.breaks("rng.gpsimd_sbuf", on=NEW)
def _(bad):
    t = ps(4, 8, dt=nl.uint16)
    nisa.rng(dst=t, engine=GPSIMD if bad else nisa.engine.unknown)
    return t, first("vector", 8) & 0xFFFF


@book.breaks("rand2.gen4_only", on="trn1 trn2")
def _(bad):
    t = x(4, 8)
    if bad:
        nisa.rand2(dst=t, min=0.0, max=1.0)
    return t, v(4, 8)


@book.breaks("rand2.buffers", on="trn3")
def _(bad):
    t = sb(4, 8)
    nisa.rand2(dst=t, min=hx(4, 1) if bad else 0.0, max=8.0)
    return t, between(first("vector", 8), 0.0, 8.0)


@book.breaks("rand2.dtype", on="trn3")
def _(bad):
    t = sb(4, 8, dt=nl.float8_e4m3fn if bad else nl.float8_e4m3)
    nisa.rand2(dst=t, min=0.0, max=8.0)
    return t, rounded(between(first("vector", 8), 0.0, 8.0), "float8_e4m3").astype(np.float32)


@book.breaks("rand2.minmax_fp32", on="trn3")
def _(bad):
    t, low = sb(4, 8), sb(4, 1, dt=nl.bfloat16 if bad else nl.float32)
    nisa.memset(dst=low, value=-2.0)
    nisa.rand2(dst=t, min=low, max=8.0)
    return t, between(first("vector", 8), -2.0, 8.0)


@book.breaks("rand2.minmax_fp32", on="trn3")
def _(bad):
    t, high = sb(4, 8), sb(4, 2)
    nisa.memset(dst=high, value=4.0)
    nisa.rand2(dst=t, min=-2.0, max=high if bad else high[:, 0:1])
    return t, between(first("vector", 8), -2.0, 4.0)


@book.breaks("rand2.min_lt_max", on="trn3")
def _(bad):
    t = sb(4, 8)
    nisa.rand2(dst=t, min=3.0 if bad else 2.9999998, max=3.0)
    return t, between(first("vector", 8), np.float32(2.9999998), 3.0)


@book.breaks("set_rng_seed.buffers")
def _(bad):
    t, seed = sb(4, 8, dt=nl.uint8), seed_of(9)
    hbm = nl.ndarray((1, 1), dtype=nl.uint32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=hbm, src=seed)
    nisa.set_rng_seed(src_seeds=hbm if bad else seed)
    nisa.rng(dst=t)
    return t, table(lanes(nisa_target(), seed=9), 8, rows=slice(0, 4)).astype(np.uint8)


@book.breaks("set_rng_seed.shape")
def _(bad):
    t, seeds = sb(4, 8, dt=nl.uint8), sb(1, 2, dt=nl.int32)
    nisa.memset(dst=seeds, value=9)
    nisa.set_rng_seed(src_seeds=seeds if bad else seeds[:, 1:2])
    nisa.rng(dst=t)
    return t, table(lanes(nisa_target(), seed=9), 8, rows=slice(0, 4)).astype(np.uint8)


@book.breaks("set_rng_seed.shape")
def _(bad):
    t, seed = sb(4, 8, dt=nl.uint8), seed_of(9, nl.uint16 if bad else nl.uint32)
    nisa.set_rng_seed(src_seeds=seed)
    nisa.rng(dst=t)
    return t, table(lanes(nisa_target(), seed=9), 8, rows=slice(0, 4)).astype(np.uint8)


def held(words, engine=GPSIMD):
    """The state of four lanes as it is now."""
    t = sb(4, words, dt=nl.uint32)
    nisa.rand_get_state(dst=t, engine=engine)
    return t


def loaded(words, engine=GPSIMD):
    """Give four lanes a known state."""
    nisa.rand_set_state(src_seeds=x(4, words, dt=nl.uint32), engine=engine)
    return v(4, words)


@book.breaks("rand_set_state.gen3", on="trn1")
def _(bad):
    t = x(4, 6, dt=nl.uint32)
    if bad:
        nisa.rand_set_state(src_seeds=t)
    return t, v(4, 6)


@book.breaks("rand_get_state.gen3", on="trn1")
def _(bad):
    t = x(4, 6, dt=nl.uint32)
    if bad:
        nisa.rand_get_state(dst=t)
    return t, v(4, 6)


@book.breaks("rand_set_state.engine", on="trn2", elsewhere="trn3")
def _(bad):
    n, engine = (24, VECTOR) if bad else (6, GPSIMD)
    nisa.rand_set_state(src_seeds=x(4, n, dt=nl.uint32), engine=engine)
    return held(n, engine), v(4, n)


@book.breaks("rand_set_state.engine", on="trn3")
def _(bad):
    nisa.rand_set_state(src_seeds=x(4, 24, dt=nl.uint32), engine=nisa.engine.scalar if bad else VECTOR)
    return held(24, VECTOR), v(4, 24)


@book.breaks("rand_set_state.sbuf", on=NEW)
def _(bad):
    nisa.rand_set_state(src_seeds=x(4, 6, dt=nl.uint32, buffer=nl.psum if bad else nl.sbuf))
    return held(6), v(4, 6)


@book.breaks("rand_set_state.dtype", on=NEW)
def _(bad):
    nisa.rand_set_state(src_seeds=x(4, 6, dt=nl.int32 if bad else nl.uint32))
    return held(6), v(4, 6)


@book.breaks("rand_set_state.dtype", on=NEW)
def _(bad):
    nisa.rand_set_state(src_seeds=x(4, 2, 3, dt=nl.uint32) if bad else x(4, 6, dt=nl.uint32))
    return held(6), v(4, 6)


@book.breaks("rand_set_state.count", on=NEW)
def _(bad):
    nisa.rand_set_state(src_seeds=x(4, 24 if bad else 6, dt=nl.uint32))
    return held(6), v(4, 6)


@book.breaks("rand_set_state.count", on="trn3")
def _(bad):
    nisa.rand_set_state(src_seeds=x(4, 6 if bad else 24, dt=nl.uint32), engine=VECTOR)
    return held(24, VECTOR), v(4, 24)


@book.breaks("rand_get_state.engine", on="trn2", elsewhere="trn3")
def _(bad):
    n, engine = (24, VECTOR) if bad else (6, GPSIMD)
    t = sb(4, n, dt=nl.uint32)
    nisa.rand_get_state(dst=t, engine=engine)
    return t, prng.generator(engine).initial[:4].astype(np.float32)


@book.breaks("rand_get_state.engine", on="trn3")
def _(bad):
    want, t = loaded(24, VECTOR), sb(4, 24, dt=nl.uint32)
    nisa.rand_get_state(dst=t, engine=nisa.engine.tensor if bad else VECTOR)
    return t, want


@book.breaks("rand_get_state.buffer", on=NEW)
def _(bad):
    want, t = loaded(6), (ps if bad else sb)(4, 6, dt=nl.uint32)
    nisa.rand_get_state(dst=t)
    return t, want


@book.breaks("rand_get_state.buffer", on="trn3")
def _(bad):
    want, t = loaded(24, VECTOR), ps(4, 24, dt=nl.uint32)
    hbm = nl.ndarray((4, 24), dtype=nl.uint32, buffer=nl.shared_hbm)
    nisa.rand_get_state(dst=hbm if bad else t, engine=VECTOR)
    return t, want


@book.breaks("rand_get_state.dtype", on=NEW)
def _(bad):
    want, t = loaded(6), sb(4, 6, dt=nl.int32 if bad else nl.uint32)
    nisa.rand_get_state(dst=t)
    return t, want


@book.breaks("rand_get_state.count", on=NEW)
def _(bad):
    want, t = loaded(6), sb(4, 5 if bad else 6, dt=nl.uint32)
    nisa.rand_get_state(dst=t)
    return t, want


@book.breaks("nl.random_seed_tensor")
def _(bad):
    t, seed = sb(4, 8, dt=nl.uint8), seed_of(3)
    wide = sb(2, 1, dt=nl.uint32)
    nl.random_seed(wide if bad else seed)
    nisa.rng(dst=t)
    return t, table(lanes(nisa_target(), seed=3), 8, rows=slice(0, 4)).astype(np.uint8)


@book.breaks("nl.random_seed_tensor", error=NkiTypeError)
def _(bad):
    t, seed = sb(4, 8, dt=nl.uint8), seed_of(3)
    nl.random_seed(3 if bad else seed)
    nisa.rng(dst=t)
    return t, table(lanes(nisa_target(), seed=3), 8, rows=slice(0, 4)).astype(np.uint8)


@book.breaks("nl.rand_seed_engine", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    if bad:
        nl.random_seed(seed_of(0))
    return nl.rand((4, 8), dtype=nl.float32), between(first("vector", 8), 0.0, 1.0)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)
