"""Pseudo random numbers: the generators of the Vector and the GpSimd Engine, with a state per lane kept between instructions.

What is documented: the Vector Engine has a linear feedback shift register before trn3, and from trn3 on XORWOW with four
states of six words per lane, which together give four numbers a cycle; GpSimd's state, which trn2 and newer load and store,
is one XORWOW state of six words. Not documented: which shift register, how a seed becomes the states of 128 lanes, the order
of the words of a state and of the four states' numbers, what an engine holds before it is seeded. So a device draws other
numbers than these: the published algorithms (G. Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003),
the 32-bit xorshift with shifts 13, 17, 5 as the shift register, and xorwow with its state in the paper's order x, y, z, w,
v, d. Element i of a partition is of state i mod 4; all four step together, so nothing but the states need be kept. A seed is
spread with MurmurHash3's finaliser, and 0 is the seed that a run starts with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array
from nki_sim.hw import NeuronCore
from nki_sim.isa.enums import engine
from nki_sim.tensor import NkiTensor

LANES = 128
XORWOW_WORDS = 6
WEYL = 362437
"""What xorwow's counter grows by with each number."""
_BLOCK = 64
"""Numbers of one sequence that are worked out one after the other; blocks of them side by side."""
_GOLDEN = 0x9E3779B9


@dataclass(frozen=True)
class Recurrence:
    """Words of 32 bits, each a linear function of the word before it and of the one ``order`` before it."""

    order: int
    xorwow: bool

    def next(self, oldest: Array, newest: Array) -> Array:
        """The word that follows."""
        if self.xorwow:
            mixed = oldest ^ (oldest >> 2)
            return np.asarray(newest ^ (newest << 4) ^ mixed ^ (mixed << 1))
        word = newest ^ (newest << 13)
        word ^= word >> 17
        return np.asarray(word ^ (word << 5))

    def run(self, words: Array, count: int) -> Array:
        """(order + count, …) words that begin with the ``order`` given ones."""
        out = np.empty((self.order + count, *words.shape[1:]), np.uint32)
        out[: self.order] = words
        for i in range(count):
            out[self.order + i] = self.next(out[i], out[self.order + i - 1])
        return out

    def stream(self, words: Array, count: int) -> Array:
        """As :meth:`run` for (order, n) words, in blocks whose first words are found by leaps."""
        if count <= _BLOCK:
            return self.run(words, count)
        starts = words[:, :, None]
        while (have := starts.shape[2]) * _BLOCK < count:
            starts = np.concatenate([starts, _leap(_leaps(self, have.bit_length() - 1), starts)], axis=2)
        starts = starts[:, :, : -(-count // _BLOCK)]
        blocks = self.run(starts, _BLOCK)[self.order :]
        following = blocks.transpose(2, 0, 1).reshape(-1, words.shape[1])
        return np.concatenate([words, following])[: self.order + count]


XORSHIFT = Recurrence(1, xorwow=False)
XORWOW = Recurrence(5, xorwow=True)


@cache
def _leaps(recurrence: Recurrence, doublings: int) -> Array:
    """What each byte of the words contributes to the words ``_BLOCK · 2**doublings`` later: (bytes, 256, order).

    The recurrences are linear over bits, so the words later are the exclusive or of what the single bits become.
    """
    order = recurrence.order
    if doublings:
        earlier = _leaps(recurrence, doublings - 1)
        later = _leap(earlier, _leap(earlier, _single_bits(order)))
    else:
        later = recurrence.run(_single_bits(order), _BLOCK)[-order:]
    bits = later.T.reshape(4 * order, 8, order)
    table = np.zeros((4 * order, 256, order), np.uint32)
    for bit in range(8):
        table[:, 1 << bit : 2 << bit] = table[:, : 1 << bit] ^ bits[:, bit, None]
    return table


def _single_bits(order: int) -> Array:
    """(order, 32 · order) words with one bit set in each column."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return np.kron(np.eye(order, dtype=np.uint32), bits)


def _leap(table: Array, words: Array) -> Array:
    out = np.zeros((*words.shape[1:], len(words)), np.uint32)
    for number, word in enumerate(words):
        for byte in range(4):
            out ^= table[4 * number + byte][(word >> (8 * byte)) & 255]
    return np.moveaxis(out, -1, 0)


def scramble(values: Array) -> Array:
    """MurmurHash3's finaliser: no two words become the same."""
    values = (values ^ (values >> 16)) * np.uint32(0x85EBCA6B)
    values = (values ^ (values >> 13)) * np.uint32(0xC2B2AE35)
    return np.asarray(values ^ (values >> 16))


class Generator:
    """The generator of one engine: 128 lanes with ``states`` states each.

    Attributes:
        values: the states as ``rand_get_state`` stores them, (128, words per lane).
        initial: the same before the first instruction.
        seeded: whether the kernel has seeded it.
    """

    def __init__(self, recurrence: Recurrence, states: int):
        self._recurrence, self._states = recurrence, states
        self._words = recurrence.order + recurrence.xorwow
        self.initial = self.spread(0)
        self.values: Array = self.initial.copy()
        self.seeded = False

    def spread(self, seed: int) -> Array:
        """The states of all lanes for one seed of 32 bits."""
        width = self._states * self._words
        counted = np.arange(1, LANES * width + 1, dtype=np.uint32) * np.uint32(_GOLDEN)
        words = scramble(counted + np.uint32(seed)).reshape(LANES, width)
        return words if self._recurrence.xorwow else np.maximum(words, np.uint32(1))  # 0 would stay 0

    def draw(self, lanes: slice, count: int) -> Array:
        """(lanes, count) numbers of 32 bits: the next of each lane."""
        rows = len(self.values[lanes])
        each, order = -(-count // self._states), self._recurrence.order
        states = self.values[lanes].reshape(-1, self._words).T
        words = self._recurrence.stream(states[:order], each)
        out = words[order:]
        kept = words[each:]
        if self._recurrence.xorwow:
            counter = states[5] + np.arange(1, each + 1, dtype=np.uint32)[:, None] * np.uint32(WEYL)
            out, kept = out + counter, np.concatenate([kept, counter[-1:]])
        self.values[lanes] = kept.T.reshape(rows, -1)
        return out.reshape(each, rows, self._states).transpose(1, 0, 2).reshape(rows, -1)[:, :count]


def states_per_lane(core: NeuronCore, of: engine) -> int:
    """XORWOW states of a lane, 0 where the generator is a shift register."""
    return 1 if of is engine.gpsimd else 4 if core.gen >= 4 else 0


def generator(of: engine) -> Generator:
    """The current machine's generator of an engine."""
    machine = context.machine()
    states = states_per_lane(machine.core, of)
    found = machine.lasting(f"{of.name} prng", lambda: Generator(XORWOW if states else XORSHIFT, states or 1))
    assert isinstance(found, Generator)
    return found


def lanes_of(tile: NkiTensor) -> slice:
    """The lanes that a tile's partitions belong to."""
    first = tile.start_partition
    return slice(first, first + tile.shape[0])
