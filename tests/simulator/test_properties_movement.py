"""Copies, transposes, shuffles, gathers and scatters over views, dtypes and memories, against loops over elements."""

import itertools
import math

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import properties as pr
from hypothesis import given
from hypothesis import strategies as some
from kernels import hb, ld, st
from nki.isa import engine, oob_mode
from properties import BY_NAME, FLOATS, INTEGERS, F, Tile, cast, columns, equal, execute, extents, same_bits, tiles, tried
from random_numbers import lanes

COVERS = {
    "dma_compute": "test_dma_compute",
    "dma_copy": "test_dma_copy",
    "dma_transpose": "test_dma_transpose",
    "dropout": "test_dropout",
    "local_gather": "test_local_gather",
    "max8": "test_max8",
    "nc_find_index8": "test_nc_find_index8",
    "nc_match_replace8": "test_nc_match_replace8",
    "nc_n_gather": "test_nc_n_gather",
    "nc_stream_shuffle": "test_nc_stream_shuffle",
    "nc_transpose": "test_nc_transpose",
}
kinds = some.sampled_from(["special", "few"])


class Far(Tile):
    """A view of a tensor in HBM; its elements are one row of places."""

    def open(self, source):
        whole = hb(*self.array.shape, dt=self.dtype)
        nisa.dma_copy(dst=whole, src=source)
        return whole, self.make(whole)


@some.composite
def far(draw, n, dtype, kind="special", repeats=True, shape=None):
    """A view of n elements in HBM: any order of the dimensions, any step, broadcasts."""
    sizes = tuple(shape) if shape is not None else pr._factors(draw, n, 4)
    rank = len(sizes)
    order = draw(some.permutations(range(rank)))
    begin = [draw(some.integers(0, 2)) for _ in sizes]
    step = [draw(some.integers(1, 3)) for _ in sizes]
    repeated = [repeats and size > 1 and draw(some.integers(0, 5)) == 0 for size in sizes]
    memory = [begin[d] + (0 if repeated[d] else (sizes[d] - 1) * step[d]) + 1 + draw(some.integers(0, 1)) for d in order]
    where = []
    for index in itertools.product(*map(range, sizes)):
        place = 0
        for size, d in zip(memory, order, strict=True):
            place = place * size + begin[d] + (0 if repeated[d] else step[d] * index[d])
        where.append(place)
    keys = tuple(slice(begin[d], begin[d] + (0 if repeated[d] else (sizes[d] - 1) * step[d]) + 1, step[d]) for d in order)
    turn = tuple(order.index(d) for d in range(rank))

    def cut(t):
        t = t[keys].permute(turn)
        for d in range(rank):
            if repeated[d]:
                t = t.broadcast(d, sizes[d])
        return t

    array = pr.contents(np.random.default_rng(draw(pr.seeds)), memory, dtype, kind)
    return Far(dtype, "hbm", array, np.array([where]), sizes, pr._View(f"[{keys}].permute({turn}), repeated {repeated}", cut))


@some.composite
def anywhere(draw, n, dtype, kind="special", repeats=True):
    """A view in HBM or SBUF of n elements in all."""
    if draw(some.booleans()):
        return draw(far(n, dtype, kind, repeats))
    rows = draw(some.sampled_from([r for r in (1, 2, 3, 4, 6, 8, 12, 24) if n % r == 0]))
    first = draw(some.sampled_from([0, 1, 5, 31, 50, 128 - rows]))  # a DMA begins at any partition
    return draw(tiles(rows, n // rows, dtype, kind, "sbuf", repeats=repeats, first=first))


def flat(tile):
    """The places of a view's elements, in order."""
    return tile.where.reshape(-1)


def moved(dst, values):
    """The whole of ``dst`` after these elements were put where its view lies, in order."""
    out = dst.array.copy().reshape(-1)
    for place, value in zip(flat(dst), values, strict=True):
        out[place] = value
    return out.reshape(dst.array.shape)


def by_dma(value, dtype):
    """One element converted by a DMA, through float32."""
    return cast(F(value), dtype)


# --- dma_copy, dma_compute -------------------------------------------------------------------------------------------


@given(data=some.data(), target=pr.targets, n=some.sampled_from([1, 2, 6, 12, 24]))
@tried(130)
def test_dma_copy(data, target, n):
    src = data.draw(anywhere(n, data.draw(pr.dtypes)))
    dst = data.draw(anywhere(n, data.draw(some.sampled_from([src.dtype, data.draw(pr.dtypes)])), repeats=False))
    modes = [nisa.dge_mode.unknown, nisa.dge_mode.none, nisa.dge_mode.swdge]
    mode = data.draw(some.sampled_from([*modes, *[nisa.dge_mode.hwdge] * (target != "trn1" and src.dtype == dst.dtype)]))
    (got,) = execute(lambda d, s: nisa.dma_copy(dst=d, src=s, dge_mode=mode), [dst, src], [dst], target)
    source = src.array.reshape(-1)
    if src.dtype == dst.dtype:
        same_bits(got, moved(dst, [source[k] for k in flat(src)]))
    else:
        equal(got, moved(dst, [by_dma(source[k], dst.dtype) for k in flat(src)]))


INDICES = ["int32", "uint32"]


@given(data=some.data(), target=pr.targets, rows=some.integers(1, 12), gather=some.booleans(), skip=some.booleans())
@tried(90)
def test_dma_copy_of_chosen_rows(data, target, rows, gather, skip):
    """Row i of the gather, or of the scatter, is row index[i] of the table; one outside is skipped where that is asked for."""
    free = data.draw(some.sampled_from([(5,), (3, 2), (1,), (2, 2, 2)]))
    n, dtype = math.prod(free), data.draw(pr.dtypes)
    height = data.draw(some.integers(rows, 20))
    index_dtype = data.draw(some.sampled_from(INDICES))
    places = data.draw(some.permutations(range(height)))[:rows]
    if gather:
        places = [data.draw(some.sampled_from(range(height))) for _ in range(rows)]
    if skip:
        outside = [height, height + 7, *[-1, -5] * (index_dtype == "int32")]
        places = [data.draw(some.sampled_from(outside)) if data.draw(some.integers(0, 3)) == 0 else k for k in places]
    index = data.draw(tiles(rows, 1, index_dtype, buffer="sbuf", first=0, values=[[k] for k in places], repeats=False))
    generator = np.random.default_rng(data.draw(pr.seeds))
    table = pr.contents(generator, (height, *free), dtype)
    other = data.draw(some.sampled_from([dtype, data.draw(pr.dtypes)]))
    tile = data.draw(tiles(rows, n, other, buffer="sbuf", repeats=False, first=data.draw(some.integers(0, 20))))
    by_pattern = data.draw(some.booleans())

    def kernel(table, index_source, tile_source):
        far = hb(height, *free, dt=dtype)
        nisa.dma_copy(dst=far, src=table)
        _, at = index.open(index_source)
        whole, view = tile.open(tile_source)
        if by_pattern:
            chosen = far.ap(pattern=[[n, rows], [1, n]], vector_offset=at, indirect_dim=0)
        else:
            chosen = far.vector_select(0, at)
        mode = oob_mode.skip if skip else oob_mode.error
        nisa.dma_copy(dst=view if gather else chosen, src=chosen if gather else view, oob_mode=mode)
        return st(whole) if gather else far

    got = nki_sim.run(kernel, table, index.array, tile.array, target=target, strict=True).result
    if gather:
        want = tile.array.copy().reshape(-1)
        for p, row in enumerate(places):
            if 0 <= row < height:
                for i, value in enumerate(table[row].reshape(-1)):
                    want[tile.where[p, i]] = value if other == dtype else by_dma(value, other)
        equal(got, want.reshape(tile.array.shape))
    else:
        want = table.reshape(height, -1).copy()
        for p, row in enumerate(places):
            if 0 <= row < height:
                for i in range(n):
                    value = tile.raw(p, i)
                    want[row, i] = value if other == dtype else by_dma(value, dtype)
        equal(got, want.reshape(table.shape))


@given(data=some.data(), target=pr.targets, start=some.integers(0, 6), into=some.booleans(), register=some.booleans())
@tried(80)
def test_dma_copy_from_a_start_known_at_run_time(data, target, start, into, register):
    """scalar_offset counts rows of the dimension it names."""
    dim, dtype = data.draw(some.integers(0, 1)), data.draw(pr.dtypes)
    table = pr.contents(np.random.default_rng(data.draw(pr.seeds)), (8, 7), dtype)
    pattern = [[7, 2], [1, 7]] if dim == 0 else [[7, 8], [1, 1]]
    rows, n = pattern[0][1], pattern[1][1]
    tile = data.draw(tiles(rows, n, dtype, buffer="sbuf", repeats=False, first=data.draw(some.integers(0, 9))))

    def kernel(table, source, at):
        far = hb(8, 7, dt=dtype)
        nisa.dma_copy(dst=far, src=table)
        whole, view = tile.open(source)
        offset = ld(at)
        if register:
            held = nisa.register_alloc()
            nisa.register_load(held, offset)
            offset = held
        part = far.ap(pattern=pattern, scalar_offset=offset, indirect_dim=dim)
        nisa.dma_copy(dst=part if into else view, src=view if into else part)
        return far if into else st(whole)

    got = nki_sim.run(kernel, table, tile.array, np.array([[start]], np.int32), target=target, strict=True).result
    want = table.copy() if into else tile.array.copy().reshape(-1)
    for p in range(rows):
        for i in range(n):
            place = (p + start, i) if dim == 0 else (p, i + start)
            if into:
                want[place] = tile.raw(p, i)
            else:
                want[tile.where[p, i]] = table[place]
    same_bits(got, want.reshape(got.shape))


@given(data=some.data(), target=pr.targets, n=some.sampled_from([1, 2, 6, 12, 24]), count=some.integers(1, 5), kind=kinds)
@tried(80)
def test_dma_compute(data, target, n, count, kind):
    """A sum of the sources in their order, in float32."""
    sources = [data.draw(anywhere(n, data.draw(pr.dtypes), kind)) for _ in range(count)]
    dst = data.draw(anywhere(n, data.draw(pr.dtypes), repeats=False))
    (got,) = execute(lambda d, *s: nisa.dma_compute(dst=d, srcs=list(s), reduce_op=nl.add), [dst, *sources], [dst], target)
    values = []
    with np.errstate(all="ignore"):
        for at in zip(*map(flat, sources), strict=True):
            first, *rest = (F(s.array.reshape(-1)[k]) for s, k in zip(sources, at, strict=True))
            for value in rest:
                first = F(first + value)
            values.append(cast(first, dst.dtype))
    equal(got, moved(dst, values), zeros=False)


# --- transposes, shuffles --------------------------------------------------------------------------------------------


@given(data=some.data(), target=pr.targets, shape=some.sampled_from([(3, 5), (16, 4), (2, 3, 4), (5, 1, 2), (2, 3, 4, 2)]))
@tried(100)
def test_dma_transpose(data, target, shape):
    axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]
    dtype = data.draw(some.sampled_from([d for d in pr.DTYPES if np.dtype(BY_NAME[d]).itemsize in (2, 4)]))
    if data.draw(some.booleans()):
        src = data.draw(far(math.prod(shape), dtype, shape=shape))
    else:
        first = data.draw(some.integers(0, 50))
        src = data.draw(tiles(shape[0], math.prod(shape[1:]), dtype, buffer="sbuf", shape=shape[1:], first=first))
    turned = tuple(shape[a] for a in axes)
    first = data.draw(some.integers(0, 50))
    dst = data.draw(tiles(turned[0], math.prod(turned[1:]), dtype, buffer="sbuf", shape=turned[1:], repeats=False, first=first))
    given_axes = data.draw(some.sampled_from([None, axes]))
    (got,) = execute(lambda d, s: nisa.dma_transpose(dst=d, src=s, axes=given_axes), [dst, src], [dst], target)
    source, out = src.array.reshape(-1), dst.array.copy().reshape(-1)
    numbers = {index: k for k, index in enumerate(itertools.product(*map(range, shape)))}
    for k, index in enumerate(itertools.product(*map(range, turned))):
        original = [0] * len(shape)
        for axis, i in zip(axes, index, strict=True):
            original[axis] = i
        out[flat(dst)[k]] = source[flat(src)[numbers[tuple(original)]]]
    same_bits(got, out.reshape(dst.array.shape))


@given(data=some.data(), target=some.sampled_from(["trn2", "trn3"]), blocks=some.integers(1, 3), skip=some.booleans())
@tried(60)
def test_dma_transpose_of_chosen_rows(data, target, blocks, skip):
    """Column i of the result is row index[i] of the table; 16 columns whose indices are all outside stay as they are."""
    rows, free = 16 * blocks, data.draw(some.sampled_from([(5,), (3, 2), (1, 2, 2)]))
    height = data.draw(some.integers(1, 40))
    dtype = data.draw(some.sampled_from(["bfloat16", "float16", "int16", "uint16"]))
    generator = np.random.default_rng(data.draw(pr.seeds))
    places = generator.integers(0, height, rows)
    if skip:
        gone = data.draw(some.integers(0, blocks - 1))
        places[16 * gone : 16 * gone + 16] = height + generator.integers(0, 9, 16)
    index = data.draw(tiles(rows, 1, "uint32", buffer="sbuf", first=0, shape=(1,), values=[[k] for k in places], repeats=False))
    table = pr.contents(generator, (height, *free), dtype)
    turned = (*(free[::-1] if len(free) < 3 else (free[2], free[0], free[1])), rows)
    dst = data.draw(tiles(turned[0], math.prod(turned[1:]), dtype, buffer="sbuf", shape=turned[1:], repeats=False, first=0))

    def kernel(table, index_source, dst_source):
        far = hb(height, *free, dt=dtype)
        nisa.dma_copy(dst=far, src=table)
        _, at = index.open(index_source)
        whole, view = dst.open(dst_source)
        mode = oob_mode.skip if skip else oob_mode.error
        nisa.dma_transpose(dst=view, src=far.vector_select(0, at), oob_mode=mode)
        return st(whole)

    got = nki_sim.run(kernel, table, index.array, dst.array, target=target, strict=True).result
    out = dst.array.copy().reshape(-1)
    for k, place in enumerate(itertools.product(*map(range, turned))):
        *inner, row = place
        if places[row] < height:
            inner = inner[::-1] if len(free) < 3 else [inner[1], inner[2], inner[0]]
            out[flat(dst)[k]] = table[(int(places[row]), *inner)]
    same_bits(got, out.reshape(dst.array.shape))


@given(data=some.data(), target=pr.targets, dtype=pr.dtypes)
@tried(120)
def test_nc_transpose(data, target, dtype):
    """Bit by bit; trn1's Tensor Engine multiplies by an identity matrix, so NaN and infinity spread over their row."""
    on = data.draw(some.sampled_from([engine.unknown, engine.vector, engine.tensor]))
    most = 32 if on is not engine.tensor else 40
    rows, n = data.draw(some.integers(1, most)), data.draw(some.integers(1, most))
    where = ("sbuf", "psum") if on is engine.tensor else (None, None)
    src = data.draw(tiles(rows, n, dtype, buffer=where[0]))
    dst = data.draw(tiles(n, rows, dtype, buffer=where[1], repeats=False))
    (got,) = execute(lambda d, s: nisa.nc_transpose(dst=d, data=s, engine=on), [dst, src], [dst], target)
    by_product = on is engine.tensor or (on is engine.unknown and dst.buffer == "psum" and src.buffer == "sbuf")
    values = [[src.raw(p, f) for p in range(rows)] for f in range(n)]
    if by_product and target == "trn1" and dtype in FLOATS:
        odd = [[k for k, x in enumerate(row) if not np.isfinite(F(x))] for row in values]
        want = [
            [BY_NAME[dtype](math.nan) if set(odd[f]) - {p} else x for p, x in enumerate(row)] for f, row in enumerate(values)
        ]
        equal(got, dst.holding(want), zeros=False)
    else:
        same_bits(got, dst.holding(values))


@given(data=some.data(), target=pr.targets, dtype=pr.dtypes, quadrants=some.integers(1, 4), n=some.integers(1, 4))
@tried(50)
def test_nc_stream_shuffle(data, target, dtype, quadrants, n):
    rows = 32 * quadrants - data.draw(some.integers(0, 31))
    have = 32 * quadrants
    mask = [data.draw(some.integers(0, 31) | some.just(255)) for _ in range(32)]
    src = data.draw(tiles(have, n, dtype))
    whole_groups = {1: [0, 32, 64, 96], 2: [0, 64], 3: [0], 4: [0]}[quadrants]
    dst = data.draw(tiles(rows, n, dtype, repeats=False, first=data.draw(some.sampled_from(whole_groups))))
    (got,) = execute(lambda d, s: nisa.nc_stream_shuffle(dst=d, src=s, shuffle_mask=mask), [dst, src], [dst], target)
    values = []
    for p in range(rows):
        chosen = mask[p % 32]
        values.append([dst.raw(p, i) if chosen == 255 else src.raw(p // 32 * 32 + chosen, i) for i in range(n)])
    same_bits(got, dst.holding(values))


# --- by indices ------------------------------------------------------------------------------------------------------


@given(data=some.data(), target=pr.targets, size=extents(), count=some.integers(1, 8), dtype=pr.dtypes)
@tried(70)
def test_nc_n_gather(data, target, size, count, dtype):
    rows, n = size
    count = min(count, 3) if rows > 32 else count
    places = np.random.default_rng(data.draw(pr.seeds)).integers(0, n, (rows, count)).tolist()
    index = data.draw(tiles(rows, count, "uint32", buffer="sbuf", values=places, repeats=False))
    src = data.draw(tiles(rows, n, dtype, buffer="sbuf"))
    dst = data.draw(tiles(rows, count, dtype, buffer="sbuf", repeats=False))
    (got,) = execute(lambda d, s, i: nisa.nc_n_gather(dst=d, data=s, indices=i), [dst, src, index], [dst], target)
    same_bits(got, dst.holding([[src.raw(p, places[p][i]) for i in range(count)] for p in range(rows)]))


@given(data=some.data(), target=pr.targets, cores=some.integers(1, 3), each=some.sampled_from([1, 2, 4]), dtype=pr.dtypes)
@tried(60)
def test_local_gather(data, target, cores, each, dtype):
    """Index i of a group of 16 partitions is on partition i mod 16, in column i // 16; the group's partitions all use it."""
    rows, used, spare = 16 * cores, data.draw(some.integers(1, 2)), data.draw(some.integers(0, 3))
    n = data.draw(some.integers(each, 9))
    places = np.random.default_rng(data.draw(pr.seeds)).integers(0, n - each + 1, (rows, used)).tolist()
    count = 16 * used - spare
    start = data.draw(some.sampled_from(pr.starts(rows)))
    index = data.draw(tiles(rows, used, "uint16", buffer="sbuf", values=places, shape=(used,), repeats=False, first=start))
    src = data.draw(tiles(rows, n, dtype, buffer="sbuf", first=start))
    dst = data.draw(tiles(rows, count * each, dtype, buffer="sbuf", repeats=False, first=start))

    def issue(d, s, i):
        nisa.local_gather(dst=d, src_buffer=s, index=i, num_elem_per_idx=each, num_valid_indices=count)

    (got,) = execute(issue, [dst, src, index], [dst], target)
    values = [[src.raw(p, places[p // 16 * 16 + i % 16][i // 16] + j) for i in range(count) for j in range(each)]
              for p in range(rows)]  # fmt: skip
    same_bits(got, dst.holding(values))


# --- eight values ----------------------------------------------------------------------------------------------------


@some.composite
def eights(draw, target, kind):
    """A tile of data and one of eight values per partition, many of them in the data."""
    rows, n = draw(some.sampled_from([1, 2, 5, 40])), draw(some.integers(8, 14))
    dtype = draw(pr.dtypes)
    src = draw(tiles(rows, n, dtype, kind, most=2))
    generator = np.random.default_rng(draw(pr.seeds))
    values = [[src.raw(p, int(k)) for k in generator.integers(0, n, 8)] for p in range(rows)]
    for row in values:
        row[int(generator.integers(0, 8))] = BY_NAME[dtype](3)
    return src, draw(tiles(rows, 8, dtype, kind, values=values, most=2, repeats=False))


@given(data=some.data(), target=pr.targets, kind=kinds, n=some.integers(8, 20), rows=some.sampled_from([1, 3, 40]))
@tried(60)
def test_max8(data, target, kind, n, rows):
    src = data.draw(tiles(rows, n, data.draw(pr.dtypes), kind, most=2))
    dst = data.draw(tiles(rows, 8, data.draw(pr.dtypes), repeats=False, shape=(8,)))
    (got,) = execute(lambda d, s: nisa.max8(dst=d, src=s), [dst, src], [dst], target)
    values = []
    for p in range(rows):
        left, row = [src[p, i] for i in range(n)], []
        for _ in range(8):
            best = 0
            for k, x in enumerate(left):
                if not np.isnan(left[best]) and (np.isnan(x) or x > left[best]):
                    best = k
            row.append(cast(left.pop(best), dst.dtype))
        values.append(row)
    equal(got, dst.holding(values), zeros=False)


@given(data=some.data(), target=pr.targets, kind=kinds)
@tried(40)
def test_nc_find_index8(data, target, kind):
    src, wanted = data.draw(eights(target, kind))
    dtype = data.draw(some.sampled_from(["uint16", "uint32"]))
    dst = data.draw(tiles(src.rows, 8, dtype, repeats=False, shape=(8,)))
    (got,) = execute(lambda d, s, v: nisa.nc_find_index8(dst=d, data=s, vals=v), [dst, src, wanted], [dst], target)
    values = []
    for p in range(src.rows):
        gone, row = set(), []
        for k in range(8):
            here = [i for i in range(src.n) if src[p, i] == wanted[p, k] and i not in gone]
            gone.update(here[:1])
            row.append(here[0] if here else np.iinfo(BY_NAME[dtype]).max)
        values.append(row)
    equal(got, dst.holding(values))


@given(data=some.data(), target=pr.targets, kind=kinds, imm=some.sampled_from([-math.inf, 0.0, 2.5, 1e6]))
@tried(40)
def test_nc_match_replace8(data, target, kind, imm):
    """The last value takes its place first."""
    src, wanted = data.draw(eights(target, kind))
    dst = data.draw(tiles(src.rows, src.n, data.draw(pr.dtypes), repeats=False, most=2))
    index = data.draw(tiles(src.rows, 8, "uint32", repeats=False, shape=(8,)))

    def issue(d, s, v, i):
        nisa.nc_match_replace8(dst=d, data=s, vals=v, imm=imm, dst_idx=i)

    got, places = execute(issue, [dst, src, wanted, index], [dst, index], target)
    values, numbers = [], []
    for p in range(src.rows):
        row, found = [src[p, i] for i in range(src.n)], [0xFFFFFFFF] * 8
        free = list(range(src.n))
        for k in reversed(range(8)):
            at = next((i for i in free if src[p, i] == wanted[p, k]), None)
            if at is not None:
                free.remove(at)
                row[at], found[k] = F(imm), at
        values.append([cast(x, dst.dtype) for x in row])
        numbers.append(found)
    equal(got, dst.holding(values))
    equal(places, index.holding(numbers))


# --- dropout ---------------------------------------------------------------------------------------------------------


@given(data=some.data(), target=pr.targets, size=extents(), dtype=pr.dtypes)
@tried(80)
def test_dropout(data, target, size, dtype):
    """The next 32 bits of a lane as a fraction, below the probability: 0; otherwise the bits of the element."""
    src, dst = data.draw(tiles(*size, dtype)), data.draw(tiles(*size, dtype, repeats=False))
    if data.draw(some.booleans()):
        prob = data.draw(some.floats(0, 1))
    else:
        prob = data.draw(columns(size[0], "float32" if dtype in INTEGERS else data.draw(some.sampled_from(FLOATS)), "plain",
                                 scalar=False))  # fmt: skip
    (got,) = execute(lambda d, s, c: nisa.dropout(dst=d, data=s, prob=c), [dst, src, prob], [dst], target)
    values = []
    start = int(src.where[0, 0]) // math.prod(src.array.shape[1:])
    for p, lane in enumerate(lanes(target)[start : start + src.rows]):
        limit = float(pr.at(prob, p)) * 2.0**32
        values.append([BY_NAME[dtype](0) if number < limit else src.raw(p, i) for i, number in enumerate(lane.draw(src.n))])
    same_bits(got, dst.holding(values))
