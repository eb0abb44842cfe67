"""Random numbers into views, with states loaded and stored in between, against the generators number by number."""

import math

import nki.isa as nisa
import numpy as np
import properties as pr
from hypothesis import given
from hypothesis import strategies as some
from nki.isa import engine
from properties import BY_NAME, INTEGERS, F, Tile, cast, columns, equal, execute, extents, tiles, tried
from random_numbers import WIDTH, Lane, lanes

COVERS = {
    "rand2": "test_uniform_numbers",
    "rand_get_state": "test_bits_between_states",
    "rand_set_state": "test_bits_between_states",
    "rng": "test_bits_between_states",
    "set_rng_seed": "test_bits_after_a_seed",
}
ENGINES = [(target, on) for target, on in WIDTH]
STATES = [(target, on) for target, on in ENGINES if (target, on) not in (("trn1", "vector"), ("trn2", "vector"))]


def start(tile):
    """The first partition of a view."""
    return int(tile.where[0, 0]) // math.prod(tile.array.shape[1:])


def bits(of, tile):
    """What the lanes of a tile draw for its elements: the low bits of each number."""
    return [[pr.from_bits(number, tile.dtype) for number in lane.draw(tile.n)] for lane in of[start(tile) :][: tile.rows]]


def memories(on):
    return some.sampled_from(["sbuf", "psum"] if on == "vector" else ["sbuf"])


@given(data=some.data(), which=some.sampled_from(STATES), size=extents())
@tried(40)
def test_bits_between_states(data, which, size):
    """Draw, load a state into some lanes, draw, store the states of some lanes."""
    target, on = which
    words = WIDTH[which]
    first, second = (
        data.draw(tiles(*size, dtype, buffer=data.draw(memories(on)), repeats=False))
        for dtype in data.draw(some.tuples(some.sampled_from(INTEGERS), some.sampled_from(INTEGERS)))
    )
    loaded = data.draw(
        tiles(data.draw(some.sampled_from([1, 5, 33])), words, "uint32", buffer="sbuf", shape=(words,), repeats=False)
    )
    stored = data.draw(tiles(size[0], words, "uint32", buffer=data.draw(memories(on)), shape=(words,), repeats=False))
    of = lanes(target, on)
    want = [first.holding(bits(of, first))]
    words_of = [[int(loaded.raw(p, i)) for i in range(words)] for p in range(loaded.rows)]
    of[start(loaded) : start(loaded) + loaded.rows] = [Lane(state) for state in words_of]
    want.append(second.holding(bits(of, second)))

    def issue(a, state, b, out):
        nisa.rng(dst=a, engine=engine[on])
        nisa.rand_set_state(src_seeds=state, engine=engine[on])
        nisa.rng(dst=b, engine=engine[on])
        nisa.rand_get_state(dst=out, engine=engine[on])

    got = execute(issue, [first, loaded, second, stored], [first, second, stored], target)
    for mine, wanted in zip(got, want, strict=False):
        equal(mine, wanted)
    for p, row in enumerate(got[2].reshape(-1)[stored.where]):  # a stored state goes on as its lane does
        assert Lane([int(word) for word in row]).draw(9) == of[start(stored) + p].draw(9)
    equal(got[2], stored.holding(got[2].reshape(-1)[stored.where]))


@given(data=some.data(), target=pr.targets, size=extents(), seed=some.integers(0, 2**32 - 1))
@tried(40)
def test_bits_after_a_seed(data, target, size, seed):
    """Any 32 bits are a seed, of whatever dtype and in either memory."""
    dtype = data.draw(some.sampled_from(["int32", "uint32", "float32"]))
    value = np.array([seed], np.uint32).view(BY_NAME[dtype])
    seeds = data.draw(
        tiles(1, 1, dtype, values=[value], shape=(1,), repeats=False, first=data.draw(some.sampled_from([0, 32])))
    )
    dst = data.draw(tiles(*size, data.draw(some.sampled_from(INTEGERS)), repeats=False))

    def issue(s, d):
        nisa.set_rng_seed(src_seeds=s)
        nisa.rng(dst=d)

    (got,) = execute(issue, [seeds, dst], [dst], target)
    equal(got, dst.holding(bits(lanes(target, "vector", seed), dst)))


@given(data=some.data(), size=extents())
@tried(60)
def test_uniform_numbers(data, size):
    """The upper 24 bits as a fraction, between the bounds in double precision, rounded to float32, then to the dtype."""
    dst = data.draw(tiles(*size, data.draw(some.sampled_from([d for d in pr.DTYPES if d != "float8_e4m3fn"])), repeats=False))
    low = data.draw(columns(size[0], kind="plain"))
    if isinstance(low, Tile):
        span = data.draw(some.sampled_from([1.0, 100.0]))
        high = data.draw(tiles(size[0], 1, "float32", values=[[F(low[p, 0] + F(span))] for p in range(size[0])], repeats=False))
    else:
        high = float(F(F(low) + F(3)))
    (got,) = execute(lambda d, a, b: nisa.rand2(dst=d, min=a, max=b), [dst, low, high], [dst], "trn3")
    values = []
    for p, lane in enumerate(lanes("trn3")[start(dst) :][: dst.rows]):
        least, most = float(pr.at(low, p)), float(pr.at(high, p))
        values.append([cast(F(least + (number >> 8) / 2**24 * (most - least)), dst.dtype) for number in lane.draw(dst.n)])
    equal(got, dst.holding(values))
