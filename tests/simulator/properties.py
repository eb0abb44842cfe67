"""What the property tests share: views with the places of their elements, data full of special values, scalar arithmetic.

A reference is a Python loop over elements. It takes float32 scalars, rounds each result once with :func:`cast`, and puts
it where :class:`Tile` has counted the element to lie; nothing here asks the simulator for a stride, a cast or an operator.
``NKI_NB_EXAMPLES=20`` runs twenty times as many examples, other ones each time.
"""

import itertools
import math
import os

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as some
from kernels import TARGETS, ps, sb, st
from references import STORED

F = np.float32
BY_NAME = {**STORED, "tfloat32": np.float32}
FLOATS = [name for name in BY_NAME if "float" in name]
INTEGERS = [name for name in BY_NAME if "int" in name]
DTYPES = [*BY_NAME]
BY_NAME |= {"float8_e5m2_x4": np.uint32, "float8_e4m3fn_x4": np.uint32, "float4_e2m1fn_x4": np.uint16}
GENERATION = {"trn1": 2, "trn2": 3, "trn3": 4}

targets = some.sampled_from(TARGETS)
dtypes = some.sampled_from([*DTYPES, *["float32"] * 4])
buffers = some.sampled_from(["sbuf", "sbuf", "psum"])
seeds = some.integers(0, 2**32 - 1)


def tried(examples):
    """How often a property is tried: always the same examples, unless more are asked for."""
    factor = float(os.environ.get("NKI_NB_EXAMPLES", "1"))
    return settings(max_examples=max(1, int(examples * factor)), deadline=None, derandomize=factor == 1, database=None,
                    report_multiple_bugs=False, phases=[Phase.generate, *[Phase.shrink] * (factor == 1)],
                    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])  # fmt: skip


# --- numbers ---------------------------------------------------------------------------------------------------------

_FORMATS = {  # exponent bits, mantissa bits
    "float32": (8, 23), "tfloat32": (8, 10), "bfloat16": (8, 7), "float16": (5, 10), "float8_e5m2": (5, 2),
    "float8_e4m3": (4, 3), "float8_e4m3fn": (4, 3),
}  # fmt: skip


def cast(value, dtype):
    """A float32 number as an element of ``dtype``: to nearest even; whole numbers saturate, NaN becomes 0 there."""
    storage, value = BY_NAME[dtype], float(value)
    if dtype in INTEGERS:
        info = np.iinfo(storage)
        if math.isnan(value):
            return storage(0)
        return storage(min(max(round(min(max(value, -1e12), 1e12)), int(info.min)), int(info.max)))
    return storage(_nearest(value, dtype))


def _nearest(value, dtype):
    exponent_bits, mantissa_bits = _FORMATS[dtype]
    finite_only = dtype == "float8_e4m3fn"
    if math.isnan(value) or value == 0:
        return value
    bias = 2 ** (exponent_bits - 1) - 1
    largest = (2 - 2.0**-mantissa_bits) * 2.0**bias if not finite_only else 448.0
    beyond = math.nan if finite_only else math.copysign(math.inf, value)
    if math.isinf(value):
        return beyond
    exponent = max(math.frexp(value)[1] - 1, 1 - bias)
    step = 2.0 ** (exponent - mantissa_bits)
    result = round(abs(value) / step) * step
    return beyond if result > largest else math.copysign(result, value)


def wide(value):
    """An element as an engine reads it."""
    return F(value)


def truth(x):
    return F(1.0 if x else 0.0)


def _larger(x, y):
    return F(math.nan) if np.isnan(x) or np.isnan(y) else (x if x > y else y)


def _smaller(x, y):
    return F(math.nan) if np.isnan(x) or np.isnan(y) else (x if x < y else y)


BINARY = {
    nl.add: lambda x, y: F(x + y), nl.subtract: lambda x, y: F(x - y), nl.multiply: lambda x, y: F(x * y),
    nl.maximum: _larger, nl.minimum: _smaller,
    nl.equal: lambda x, y: truth(x == y), nl.not_equal: lambda x, y: truth(x != y),
    nl.less: lambda x, y: truth(x < y), nl.less_equal: lambda x, y: truth(x <= y),
    nl.greater: lambda x, y: truth(x > y), nl.greater_equal: lambda x, y: truth(x >= y),
    nl.logical_and: lambda x, y: truth(x != 0 and y != 0), nl.logical_or: lambda x, y: truth(x != 0 or y != 0),
    nl.logical_xor: lambda x, y: truth((x != 0) != (y != 0)),
}  # fmt: skip
"""The operators of every generation whose float32 result is exact or correctly rounded."""
NEWEST_BINARY = {
    nl.abs_max: lambda x, y: x if abs(x) > abs(y) else y,
    nl.abs_min: lambda x, y: x if abs(x) < abs(y) else y,
}
"""Those of trn3; the documents give no rule for a tie or NaN (here: the second)."""
UNARY = {nl.abs: lambda x: F(abs(x)), nl.reciprocal: lambda x: F(F(1) / x)}
NEWEST_UNARY = {nl.square: lambda x: F(x * x), nl.relu: lambda x: F(math.nan) if np.isnan(x) else (x if x > 0 else F(0))}
BITS = {nl.bitwise_and: lambda x, y: x & y, nl.bitwise_or: lambda x, y: x | y, nl.bitwise_xor: lambda x, y: x ^ y}
ZERO_OF_EITHER_SIGN = {nl.maximum, nl.minimum, nl.relu}
"""Of 0 and -0 these may give either."""


def binary(target):
    """The binary operators of a generation."""
    return {**BINARY, **NEWEST_BINARY} if target == "trn3" else BINARY


def bits_of(value):
    """The bits of a whole number."""
    return int(value) & (1 << 8 * value.itemsize) - 1


def from_bits(bits, dtype):
    """The whole number with these low bits."""
    storage = np.dtype(BY_NAME[dtype])
    bits &= (1 << 8 * storage.itemsize) - 1
    signed = storage.kind == "i" and bits >> (8 * storage.itemsize - 1)
    return storage.type(bits - (1 << 8 * storage.itemsize) if signed else bits)


SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, -1.1754944e-38, 3.4028235e38,
           -3.4028235e38, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 126.5, 127.5, -128.5, 254.5, 255.5, 32767.5, -32768.5, 65535.5,
           2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 4294967040.0, 4294967296.0, 16777216.0, 16777217.0,
           240.0, 248.0, 448.0, 464.0, 465.0, 57344.0, 61440.0, 65504.0, 65520.0, 1.0009765625, 1.00048828125,
           1.00390625, 1.01171875, 2.0**-9, 2.0**-10, 2.0**-16, 2.0**-17, 2.0**-24, 2.0**-25]  # fmt: skip


def contents(generator, shape, dtype, kind="special"):
    """Elements of a dtype: ``special`` every kind of number, ``plain`` numbers of everyday size, ``few`` many equal ones."""
    n, storage = math.prod(shape), np.dtype(BY_NAME[dtype])
    if kind == "few":
        made = generator.integers(0 if storage.kind == "u" else -2, 3, n).astype(storage)
    elif storage.kind in "iu":
        info = np.iinfo(storage)
        made = generator.integers(max(info.min, -20), min(info.max, 20), n, endpoint=True).astype(storage)
        if kind == "special":
            anything = generator.integers(0, 256, n * storage.itemsize).astype(np.uint8).view(storage)
            ends = generator.choice(np.array([info.min, info.max, info.max - 1, 0, 1], storage), n)
            made = np.where(generator.random(n) < 0.4, made, np.where(generator.random(n) < 0.5, anything, ends))
    else:
        made = (generator.standard_normal(n) * 4).astype(F)
        if kind == "special":
            bits = generator.integers(0, 2**32, n).astype(np.uint32)
            anything = np.where(np.isnan(bits.view(F)), bits | 1 << 22, bits).view(F)  # quiet NaNs, with any payload
            tail = 1 << 22 - generator.choice(np.array([2, 3, 7, 10]), n)  # half a unit of a dtype's mantissa
            halves = (made.view(np.uint32) & ~(2 * tail - 1) | tail).astype(np.uint32).view(F)
            odd = [generator.choice(np.array(SPECIAL, F), n), anything, halves, made]
            made = np.choose(generator.integers(0, 5, n) % 4, odd)
        with np.errstate(all="ignore"):
            made = made.astype(storage)
        if dtype == "tfloat32":
            made = (made.view(np.uint32) & np.uint32(0xFFFFE000)).view(F)
    return made.reshape(shape)


# --- views -----------------------------------------------------------------------------------------------------------


class Tile:
    """A tile in SBUF or PSUM, a view of it, and where the view's elements lie in the tile, counted one by one.

    Attributes:
        array: what the whole tile holds before.
        where: for each partition of the view and each of its elements in order, the place in the flat tile.
        shape: of the view.
    """

    def __init__(self, dtype, buffer, array, where, shape, make):
        self.dtype, self.buffer, self.array, self.where, self.shape, self.make = dtype, buffer, array, where, shape, make

    @property
    def rows(self):
        return self.where.shape[0]

    @property
    def n(self):
        return self.where.shape[1]

    def __repr__(self):
        return f"<{self.buffer} {self.dtype} {self.array.shape}, {self.make.words}>"

    def raw(self, p, i):
        """An element as it is stored."""
        return self.array.reshape(-1)[self.where[p, i]]

    def __getitem__(self, at):
        """An element as float32."""
        return wide(self.raw(*at))

    def holding(self, values):
        """The whole tile with (rows, n) stored elements put where the view lies."""
        out = self.array.copy().reshape(-1)
        for p, row in enumerate(values):
            for i, value in enumerate(row):
                out[self.where[p, i]] = value
        return out.reshape(self.array.shape)

    def open(self, source):
        """In a kernel: the whole tile, filled from HBM, and the view."""
        whole = sb(*self.array.shape, dt=self.dtype)
        nisa.dma_copy(dst=whole, src=source.view(self.dtype) if self.dtype.endswith("_x4") else source)
        if self.buffer == "psum":
            moved = ps(*self.array.shape, dt=self.dtype)
            nisa.tensor_copy(dst=moved, src=whole, engine=nisa.engine.vector)
            whole = moved
        return whole, self.make(whole)


class _View:
    """How a kernel makes the view, by slices and permute or by an explicit pattern."""

    def __init__(self, words, step):
        self.words, self.step = words, step

    def __call__(self, whole):
        return self.step(whole)


def _factors(draw, n, most):
    """Sizes of at most ``most`` free dimensions with n elements in all."""
    sizes = []
    while n > 1 and len(sizes) < most - 1 and draw(some.booleans()):
        size = draw(some.sampled_from([k for k in range(1, n + 1) if n % k == 0]))
        sizes.append(size)
        n //= size
    return (*sizes, n)


def starts(rows):
    """The partitions where an access by an engine may begin."""
    return [0, 32, 64, 96] if rows <= 32 else [0, 64] if rows <= 64 else [0]


@some.composite
def tiles(draw, rows, n, dtype, kind="special", buffer=None, shape=None, repeats=True, dense=False, first=None, most=3,
          values=None):  # fmt: skip
    """A :class:`Tile` whose view has ``rows`` partitions with n elements each.

    Args:
        buffer: sbuf or psum; either by default.
        shape: the free sizes of the view; any by default.
        repeats: whether a dimension may be a broadcast (not where the view is written).
        dense: the view is the whole tile.
        first: the first partition.
        most: free dimensions.
        values: the elements, where they are not random.
    """
    buffer = buffer or draw(buffers)
    sizes = tuple(shape) if shape is not None else _factors(draw, n, most)
    rank = len(sizes)
    seed, plainly = draw(seeds), dense or draw(some.integers(0, 3)) == 0
    order = list(range(rank)) if plainly else draw(some.permutations(range(rank)))
    begin, step, end = [0] * rank, [1] * rank, [0] * rank
    repeated = [False] * rank
    start = draw(some.sampled_from(starts(rows))) if first is None and not dense else first or 0
    if not plainly:
        for d in range(rank):
            begin[d], step[d], end[d] = draw(some.sampled_from([(0, 1, 0), (1, 1, 0), (0, 2, 1), (2, 3, 0), (0, 1, 2)]))
            repeated[d] = repeats and sizes[d] > 1 and draw(some.integers(0, 5)) == 0
    memory = [begin[d] + ((sizes[d] - 1) * step[d] if not repeated[d] else 0) + 1 + end[d] for d in order]
    aside = None  # one more dimension in memory, of which the view takes one index
    if not plainly and rank < 3 and draw(some.booleans()):
        aside = draw(some.integers(0, rank)), draw(some.integers(0, 1))
    total = start + rows + (0 if plainly or start + rows >= 128 else draw(some.integers(0, 1)))

    # where the elements lie, by counting
    lines, keys = [*order], [slice(begin[d], begin[d] + 1 if repeated[d] else begin[d] + (sizes[d] - 1) * step[d] + 1,
                                   step[d]) for d in order]  # fmt: skip
    if aside is not None:
        memory.insert(aside[0], 2)
        lines.insert(aside[0], None)
        keys.insert(aside[0], aside[1])
    where = np.zeros((rows, math.prod(sizes)), np.int64)
    for p in range(rows):
        for i, index in enumerate(itertools.product(*map(range, sizes))):
            place = start + p
            for size, d in zip(memory, lines, strict=True):
                at = aside[1] if d is None else begin[d] + (0 if repeated[d] else step[d] * index[d])
                place = place * size + at
            where[p, i] = place

    generator = np.random.default_rng(seed)
    array = contents(generator, (total, *memory), dtype, kind)
    if values is not None:
        flat = array.reshape(-1)
        for p in range(rows):
            for i in range(where.shape[1]):
                flat[where[p, i]] = values[p][i]

    row = math.prod(memory)
    if plainly and start == 0 and total == rows:
        view = _View("whole", lambda t: t)
    elif draw(some.integers(0, 3)) == 0:
        after = {d: math.prod(memory[k + 1 :]) for k, d in enumerate(lines)}
        pattern = [[row, rows], *([0 if repeated[d] else step[d] * after[d], sizes[d]] for d in range(rank))]
        skipped = start * row + sum(begin[d] * after[d] for d in range(rank)) + (aside[1] * after[None] if aside else 0)
        view = _View(f"ap({pattern}, offset={skipped})", lambda t: t.ap(pattern=pattern, offset=skipped))
    else:
        turn = (0, *(1 + order.index(d) for d in range(rank)))

        def cut(t):
            t = t[(slice(start, start + rows), *keys)]
            if turn != tuple(range(rank + 1)):
                t = t.permute(turn)
            for d in range(rank):
                if repeated[d]:
                    t = t.broadcast(d + 1, sizes[d])
            return t

        view = _View(f"[{start}:{start + rows}, {keys}].permute({turn}), repeated {repeated}", cut)
    return Tile(dtype, buffer, array, where, (rows, *sizes), view)


@some.composite
def columns(draw, rows, dtype="float32", kind="special", scalar=True, buffer=None):
    """An operand with one value per partition: a Python number or a Tile of one element per partition."""
    if scalar and draw(some.booleans()):
        value = contents(np.random.default_rng(draw(seeds)), (1,), dtype, kind)[0]
        return float(value) if dtype in FLOATS else int(value)
    return draw(tiles(rows, 1, dtype, kind, buffer))


def at(operand, p):
    """The value of a column operand on a partition, as float32."""
    return operand[p, 0] if isinstance(operand, Tile) else F(operand)


@some.composite
def extents(draw, rows=(1, 2, 3, 5, 33, 65, 128), n=12):
    """Partitions and elements per partition; fewer elements where there are many partitions."""
    p = draw(some.sampled_from([r for r in rows for _ in range(1 if r > 32 else 4)]))
    return p, draw(some.integers(1, n if p <= 32 else 3))


# --- running ---------------------------------------------------------------------------------------------------------


def execute(issue, operands, out, target="trn2"):
    """Run ``issue(*views)`` and give back what the whole tiles of ``out`` hold afterwards.

    Args:
        operands: Tiles, which become views, and anything else, which stays; the same Tile twice is one tile.
        out: the Tiles to give back.
    """
    apart = list({id(o): o for o in [*operands, *out] if isinstance(o, Tile)}.values())

    def kernel(*sources):
        opened = {id(tile): tile.open(source) for tile, source in zip(apart, sources, strict=True)}
        issue(*(opened[id(o)][1] if isinstance(o, Tile) else o for o in operands))
        return tuple(st(opened[id(tile)][0]) for tile in out)

    got = nki_sim.run(kernel, *(tile.array for tile in apart), target=target, strict=True).result
    return got if isinstance(got, tuple) else (got,)


def equal(got, want, zeros=True):
    """Equal element by element, NaN to NaN; ``zeros``: 0 and -0 differ."""
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    if zeros:
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[got == 0]))


def same_bits(got, want):
    """Equal bit by bit."""
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), want.view(f"u{want.itemsize}"))


def ulps(got, want, most, least=0.0):
    """Within ``most`` units in the last place of ``want``'s dtype, or ``least`` absolutely; NaN and infinity where wanted."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    special = ~np.isfinite(want)
    np.testing.assert_array_equal(got[special], want[special])
    unit = 2 * np.spacing((np.abs(want[~special]) / 2).astype(F)).astype(np.float64)
    far = np.abs(got[~special] - want[~special]) - np.maximum(most * unit, least)
    assert (far <= 0).all(), (got[~special][far > 0][:4], want[~special][far > 0][:4])
