"""The published generators, number by number in Python's integers, for the tests of what draws from them."""

MASK = 2**32 - 1


def xorshift(state):
    """Marsaglia's 32-bit xorshift, shifts 13, 17, 5."""
    (x,) = state
    while True:
        x ^= x << 13 & MASK
        x ^= x >> 17
        x ^= x << 5 & MASK
        yield x


def xorwow(state):
    """Marsaglia's xorwow; the state is x, y, z, w, v, d."""
    x, y, z, w, v, d = state
    while True:
        t = x ^ x >> 2
        x, y, z, w = y, z, w, v
        v = (v ^ v << 4) & MASK ^ (t ^ t << 1) & MASK
        d = (d + 362437) & MASK
        yield (v + d) & MASK


def scrambled(h):
    """MurmurHash3's finaliser."""
    h ^= h >> 16
    h = h * 0x85EBCA6B & MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def seeded(seed, width):
    """The states of 128 lanes, ``width`` words each."""
    words = [scrambled((seed + 0x9E3779B9 * (i + 1)) & MASK) for i in range(128 * width)]
    return [words[lane * width : (lane + 1) * width] for lane in range(128)]


class Lane:
    """One lane: element i of an instruction is of state i mod the number of states, which all step together."""

    def __init__(self, words):
        split = [words] if len(words) == 1 else [words[i : i + 6] for i in range(0, len(words), 6)]
        self.sequences = [(xorshift if len(words) == 1 else xorwow)(s) for s in split]

    def draw(self, count):
        each = -(-count // len(self.sequences))
        rounds = [[next(s) for s in self.sequences] for _ in range(each)]
        return [number for numbers in rounds for number in numbers][:count]


WIDTH = {("trn1", "vector"): 1, ("trn2", "vector"): 1, ("trn2", "gpsimd"): 6, ("trn3", "vector"): 24, ("trn3", "gpsimd"): 6}
"""Words of a lane's state."""


def lanes(target, engine="vector", seed=0):
    """All lanes of an engine after a seed (0: as a run begins)."""
    return [Lane(words) for words in seeded(seed, WIDTH[target, engine])]
