"""Reductions, scans and statistics over views, dtypes, memories and special values, against loops over elements."""

import math

import nki.isa as nisa
import nki.language as nl
import numpy as np
import properties as pr
from hypothesis import assume, given
from hypothesis import strategies as some
from nki.isa import reduce_cmd
from properties import BINARY, BITS, FLOATS, INTEGERS, F, cast, columns, equal, execute, extents, tiles, tried

COVERS = {
    "activate2": "test_activate2",
    "bn_aggr": "test_bn_aggr",
    "bn_stats": "test_bn_stats",
    "exponential": "test_exponential",
    "range_select": "test_range_select",
    "tensor_partition_reduce": "test_tensor_partition_reduce",
    "tensor_reduce": "test_tensor_reduce",
    "tensor_scalar_cumulative": "test_tensor_scalar_cumulative",
    "tensor_scalar_reduce": "test_tensor_scalar_reduce",
    "tensor_tensor_scan": "test_tensor_tensor_scan",
}
kinds = some.sampled_from(["special", "plain", "few"])
commands = some.sampled_from([[reduce_cmd.reset_reduce], [reduce_cmd.load_reduce], [reduce_cmd.reset_reduce, reduce_cmd.reduce],
                              [reduce_cmd.load_reduce, reduce_cmd.reduce, reduce_cmd.reduce]])  # fmt: skip
IDENTITY = {nl.logical_and: F(1), nl.logical_or: F(0), nl.logical_xor: F(0)}
FOLD = [nl.add, nl.add, nl.add, nl.subtract, nl.multiply, nl.maximum, nl.minimum, *IDENTITY]


def folded(op, values):
    """One element after the other, in float32."""
    values = list(values)
    total = BINARY[op](IDENTITY[op], values[0]) if op in IDENTITY else values[0]
    for value in values[1:]:
        total = BINARY[op](total, value)
    return total


def every(tile, f):
    """The tile after ``f(p, i)``, a float32 number, was rounded into each place of its view."""
    with np.errstate(all="ignore"):
        return tile.holding([[cast(f(p, i), tile.dtype) for i in range(tile.n)] for p in range(tile.rows)])


def elements(tile):
    return [[tile[p, i] for i in range(tile.n)] for p in range(tile.rows)]


def taken(tile, array):
    """What lies where the tile's view does, as (rows, n)."""
    return array.reshape(-1)[tile.where]


# --- tensor_reduce, tensor_partition_reduce --------------------------------------------------------------------------


@given(data=some.data(), target=pr.targets, kind=kinds, negate=some.booleans(), keepdims=some.booleans())
@tried(120)
def test_tensor_reduce(data, target, kind, negate, keepdims):
    rows = data.draw(some.sampled_from([1, 2, 5, 40, 128]))
    kept = data.draw(some.sampled_from([(), (1,), (2,), (2, 1), (3,)]))
    gone = data.draw(some.sampled_from([(1,), (4,), (9,), (2, 3), (1, 5), (2, 2, 2)][: 5 if len(kept) > 1 else 6]))
    op, bits = data.draw(some.sampled_from(FOLD)), data.draw(some.integers(0, 4)) == 0
    dtype = data.draw(some.sampled_from(INTEGERS) if bits else pr.dtypes)
    src = data.draw(tiles(rows, math.prod(kept + gone), dtype, kind, shape=kept + gone))
    last = range(len(kept) + 1, len(kept + gone) + 1)
    axes = data.draw(some.sampled_from([tuple(last), [*last], tuple(a - last.stop for a in last)]))
    axes = axes[0] if len(axes) == 1 and data.draw(some.booleans()) else axes
    count, n = math.prod(kept), math.prod(gone)
    dst = data.draw(tiles(rows, count, dtype if bits else data.draw(pr.dtypes), repeats=False))
    if bits:
        op, negate = data.draw(some.sampled_from(list(BITS))), False

    def issue(d, s):
        nisa.tensor_reduce(dst=d, op=op, data=s, axis=axes, negate=negate, keepdims=keepdims)

    (got,) = execute(issue, [dst, src], [dst], target)
    if bits:

        def together(p, k):
            total = pr.bits_of(src.raw(p, k * n))
            for i in range(k * n + 1, k * n + n):
                total = BITS[op](total, pr.bits_of(src.raw(p, i)))
            return pr.from_bits(total, dtype)

        equal(got, dst.holding([[together(p, k) for k in range(count)] for p in range(rows)]))
    else:

        def reduced(p, k):
            total = folded(op, (src[p, i] for i in range(k * n, k * n + n)))
            return F(total * F(-1)) if negate else total

        equal(got, every(dst, reduced), zeros=False)


@given(data=some.data(), target=pr.targets, kind=kinds, n=some.integers(1, 8))
@tried(100)
def test_tensor_partition_reduce(data, target, kind, n):
    rows, bits = data.draw(some.sampled_from([1, 2, 3, 16, 31, 40, 128])), data.draw(some.booleans())
    dtype = data.draw(some.sampled_from(INTEGERS) if bits else pr.dtypes)
    src = data.draw(tiles(rows, n, dtype, kind, "sbuf"))
    dst = data.draw(tiles(1, n, dtype if bits else data.draw(pr.dtypes), buffer="sbuf", repeats=False))
    op = data.draw(some.sampled_from([nl.bitwise_and, nl.bitwise_or] if bits else [nl.add, nl.maximum, nl.average]))
    (got,) = execute(lambda d, s: nisa.tensor_partition_reduce(dst=d, op=op, data=s), [dst, src], [dst], target)
    if bits:
        want = []
        for i in range(n):
            total = pr.bits_of(src.raw(0, i))
            for p in range(1, rows):
                total = BITS[op](total, pr.bits_of(src.raw(p, i)))
            want.append(pr.from_bits(total, dtype))
        equal(got, dst.holding([want]))
    else:

        def reduced(_, i):
            total = folded(nl.maximum if op is nl.maximum else nl.add, (src[p, i] for p in range(rows)))
            return F(total / F(rows)) if op is nl.average else total

        equal(got, every(dst, reduced), zeros=False)


# --- what keeps accumulator registers ----------------------------------------------------------------------------------


@given(data=some.data(), target=pr.targets, size=extents(), kind=kinds, chain=commands, negate=some.booleans())
@tried(60)
def test_tensor_scalar_reduce(data, target, size, kind, chain, negate):
    """A chain: the elements of an instruction are reduced first, then what the registers hold is combined with that."""
    operators = {**pr.binary(target), **pr.UNARY, **(pr.NEWEST_UNARY if target == "trn3" else {})}
    fold = data.draw(some.sampled_from([nl.add, nl.multiply, nl.maximum, nl.minimum]))
    lane = data.draw(some.sampled_from(pr.starts(size[0])))  # the registers are those of the data's partitions
    result = data.draw(tiles(size[0], 1, data.draw(pr.dtypes), repeats=False))
    init = data.draw(columns(size[0], kind=kind))
    steps = []
    for _ in chain:
        op0 = data.draw(some.sampled_from(list(operators)))
        unary = op0 in pr.UNARY or op0 in pr.NEWEST_UNARY
        src = data.draw(tiles(*size, data.draw(pr.dtypes), kind, first=lane))
        operand = data.draw(some.sampled_from([None, 0])) if unary else data.draw(columns(size[0], kind=kind))
        steps.append((data.draw(tiles(*size, data.draw(pr.dtypes), repeats=False)), src, operand, op0))

    def issue(*views):
        for k, command in enumerate(chain):
            d, s, operand, op0 = views[4 * k : 4 * k + 4]
            last = k == len(chain) - 1
            nisa.tensor_scalar_reduce(
                dst=d, data=s, op0=op0, operand0=operand, reduce_op=fold, reduce_res=views[-2] if last else None,
                reduce_cmd=command, reduce_init=views[-1] if command is reduce_cmd.load_reduce else None,
                reduce_res_negate=negate,
            )  # fmt: skip

    held, wanted = [None] * size[0], []
    with np.errstate(all="ignore"):
        for (dst, src, operand, op0), command in zip(steps, chain, strict=True):
            values = [
                [operators[op0](x, pr.at(operand, p)) if op0 in pr.binary(target) else operators[op0](x) for x in row]
                for p, row in enumerate(elements(src))
            ]  # fmt: skip
            wanted.append((every(dst, lambda p, i, values=values: values[p][i]), op0))
            for p, row in enumerate(values):
                begin = pr.at(init, p) if command is reduce_cmd.load_reduce else held[p]
                own = folded(fold, row)
                held[p] = own if command is reduce_cmd.reset_reduce else BINARY[fold](begin, own)
    out = [step[0] for step in steps] + [result]
    got = execute(issue, [o for step in steps for o in step] + [result, init], out, target)
    for mine, (want, op0) in zip(got, wanted, strict=False):
        equal(mine, want, op0 not in pr.ZERO_OF_EITHER_SIGN)
    equal(got[-1], every(result, lambda p, i: -held[p] if negate else held[p]), zeros=False)


SCANNED = [d for d in pr.DTYPES if d not in ("tfloat32", "int32", "uint32")]


@given(data=some.data(), target=pr.targets, size=extents(), kind=kinds, chain=commands)
@tried(60)
def test_tensor_scalar_cumulative(data, target, size, kind, chain):
    """The register goes on from element to element, and in a chain from instruction to instruction."""
    operators = pr.binary(target)
    op1 = data.draw(some.sampled_from([nl.add, nl.subtract, nl.multiply, nl.maximum, nl.minimum]))
    lane, init = data.draw(some.sampled_from(pr.starts(size[0]))), data.draw(columns(size[0], kind=kind))
    steps = []
    for _ in chain:
        src = data.draw(tiles(*size, data.draw(some.sampled_from(SCANNED)), kind, first=lane))
        dst = data.draw(tiles(*size, data.draw(some.sampled_from(SCANNED)), repeats=False))
        steps.append((dst, src, data.draw(columns(size[0], kind=kind)), data.draw(some.sampled_from(list(operators)))))

    def issue(*views):
        for k, command in enumerate(chain):
            d, s, imm0, op0 = views[4 * k : 4 * k + 4]
            imm1 = views[-1] if command is reduce_cmd.load_reduce else None
            nisa.tensor_scalar_cumulative(dst=d, src=s, op0=op0, op1=op1, imm0=imm0, imm1=imm1, reduce_cmd=command)

    neutral = {nl.add: 0, nl.subtract: 0, nl.multiply: 1, nl.maximum: -math.inf, nl.minimum: math.inf}[op1]
    held, wanted = [F(neutral)] * size[0], []
    with np.errstate(all="ignore"):
        for (dst, src, imm0, op0), command in zip(steps, chain, strict=True):
            values = elements(src)
            for p, row in enumerate(values):
                held[p] = pr.at(init, p) if command is reduce_cmd.load_reduce else held[p]
                for i, x in enumerate(row):
                    held[p] = row[i] = BINARY[op1](operators[op0](x, pr.at(imm0, p)), held[p])
            wanted.append(every(dst, lambda p, i, values=values: values[p][i]))
    got = execute(issue, [o for step in steps for o in step] + [init], [step[0] for step in steps], target)
    for mine, want in zip(got, wanted, strict=True):
        equal(mine, want, zeros=False)


@given(data=some.data(), target=pr.targets, size=extents(), kind=kinds)
@tried(80)
def test_tensor_tensor_scan(data, target, size, kind):
    op0, op1 = (data.draw(some.sampled_from(list(BINARY))) for _ in range(2))
    a, b = (data.draw(tiles(*size, data.draw(pr.dtypes), kind)) for _ in range(2))
    assume(a.buffer == "sbuf" or b.buffer == "sbuf")
    initial = data.draw(columns(size[0], data.draw(some.sampled_from(["float32", *FLOATS])), kind))
    dst = data.draw(tiles(*size, data.draw(pr.dtypes), repeats=False))
    reverse = data.draw(some.tuples(some.booleans(), some.booleans()))

    def issue(d, x, y, first):
        nisa.tensor_tensor_scan(dst=d, data0=x, data1=y, initial=first, op0=op0, op1=op1, reverse0=reverse[0],
                                reverse1=reverse[1])  # fmt: skip

    values = []
    with np.errstate(all="ignore"):
        for p in range(size[0]):
            state, row = pr.at(initial, p), []
            for i in range(size[1]):
                state = BINARY[op0](state, a[p, i]) if reverse[0] else BINARY[op0](a[p, i], state)
                state = BINARY[op1](b[p, i], state) if reverse[1] else BINARY[op1](state, b[p, i])
                row.append(state)
            values.append(row)
    (got,) = execute(issue, [dst, a, b, initial], [dst], target)
    equal(got, every(dst, lambda p, i: values[p][i]), zeros=False)


LOWEST = F(-3.4028235e38)


@given(data=some.data(), target=pr.targets, size=extents(), chain=some.integers(1, 3))
@tried(50)
def test_range_select(data, target, size, chain):
    """A chain of one to three instructions with a running maximum."""
    compare = [nl.equal, nl.less, nl.less_equal, nl.greater, nl.greater_equal]
    lane = data.draw(some.sampled_from(pr.starts(size[0])))
    steps = []
    for _ in range(chain):
        src = data.draw(tiles(*size, data.draw(some.sampled_from(FLOATS)), first=lane))
        bounds = [
            data.draw(tiles(size[0], 1, "float32", data.draw(some.sampled_from(["few", "plain", "special"])))) for _ in "01"
        ]
        dst = data.draw(tiles(*size, data.draw(some.sampled_from(FLOATS)), repeats=False))
        how = data.draw(some.tuples(some.sampled_from(compare), some.sampled_from(compare), some.integers(-4, 6)))
        steps.append((dst, src, *bounds, how))
    result = data.draw(tiles(size[0], 1, "float32", repeats=False))

    def issue(*views):
        for k in range(chain):
            d, s, low, high, (op0, op1, start) = views[5 * k : 5 * k + 5]
            nisa.range_select(dst=d, on_true_tile=s, comp_op0=op0, comp_op1=op1, bound0=low, bound1=high, range_start=start,
                              reduce_cmd=reduce_cmd.reduce if k else reduce_cmd.reset_reduce,
                              reduce_res=views[-1] if k == chain - 1 else None)  # fmt: skip

    most, wanted = [F(-math.inf)] * size[0], []
    for dst, src, low, high, (op0, op1, start) in steps:
        values = elements(src)
        for p, row in enumerate(values):
            for i, x in enumerate(row):
                inside = BINARY[op0](F(start + i), low[p, 0]) and BINARY[op1](F(start + i), high[p, 0])
                row[i] = x if inside else LOWEST
                most[p] = BINARY[nl.maximum](most[p], row[i])
        wanted.append(every(dst, lambda p, i, values=values: values[p][i]))
    got = execute(issue, [o for step in steps for o in step] + [result], [step[0] for step in steps] + [result],
                  target if target != "trn1" else "trn2")  # fmt: skip
    for mine, want in zip(got, [*wanted, every(result, lambda p, i: most[p])], strict=True):
        equal(mine, want, zeros=mine is not got[-1])


@given(data=some.data(), size=extents(), chain=commands)
@tried(60)
def test_exponential(data, size, chain):
    """The documents state no accuracy of the function, nor a longest sum: 2e-6 of the value, or of the sum."""
    lane = data.draw(some.sampled_from(pr.starts(size[0])))
    init = data.draw(columns(size[0], kind="plain"))
    legal = ["float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3", "int8", "uint8", "int16", "uint16", "int32"]
    steps = []
    for _ in chain:
        src = data.draw(tiles(*size, data.draw(some.sampled_from([*legal, "uint32"])), "plain", first=lane))
        steps.append((data.draw(tiles(*size, "float32", repeats=False)), src, data.draw(columns(size[0], kind="plain"))))
    result = data.draw(tiles(size[0], 1, "float32", repeats=False))

    def issue(*views):
        for k, command in enumerate(chain):
            d, s, most = views[3 * k : 3 * k + 3]
            first = views[-1] if command is reduce_cmd.load_reduce else 0.0
            nisa.exponential(dst=d, src=s, max_value=most, reduce_res=views[-2] if k == len(chain) - 1 else None,
                             reduce_cmd=command, reduce_init=first)  # fmt: skip

    out = [step[0] for step in steps] + [result]
    got = execute(issue, [o for step in steps for o in step] + [result, init], out, "trn3")
    loads = chain[0] is reduce_cmd.load_reduce
    total = [float(pr.at(init, p)) if loads else 0.0 for p in range(size[0])]
    magnitude = [abs(t) for t in total]
    for (dst, src, most), mine in zip(steps, got, strict=False):
        want = [[math.exp(float(F(x - pr.at(most, p)))) for x in row] for p, row in enumerate(elements(src))]
        np.testing.assert_allclose(taken(dst, mine).astype(np.float64), want, rtol=2e-6)
        untouched = dst.holding(taken(dst, mine))
        equal(mine, untouched)
        total = [t + sum(row) for t, row in zip(total, want, strict=True)]
        magnitude = [m + sum(row) for m, row in zip(magnitude, want, strict=True)]
    sums = taken(result, got[-1])[:, 0].astype(np.float64)
    assert (np.abs(sums - total) <= 2e-6 * np.array(magnitude)).all()


PAIRS = [(nl.multiply, nl.add), (nl.multiply, nl.subtract), (nl.multiply, nl.bypass), (nl.add, nl.bypass),
         (nl.subtract, nl.bypass), (nl.bypass, nl.bypass)]  # fmt: skip
SHAPED = {
    nl.copy: lambda x, _: x, nl.square: lambda x, _: F(x * x), nl.abs: lambda x, _: F(abs(x)),
    nl.relu: lambda x, _: pr.NEWEST_UNARY[nl.relu](x), nl.prelu: lambda x, slope: x if x >= 0 else F(x * slope),
}  # fmt: skip


@given(data=some.data(), size=extents(), kind=kinds, op=some.sampled_from(list(SHAPED)), pair=some.sampled_from(PAIRS))
@tried(80)
def test_activate2(data, size, kind, op, pair):
    src, dst = data.draw(tiles(*size, data.draw(pr.dtypes), kind)), data.draw(tiles(*size, data.draw(pr.dtypes), repeats=False))
    dtype = data.draw(some.sampled_from(["float32", "bfloat16", "int16"]))
    imm0, imm1, slope = (data.draw(columns(size[0], dtype, kind)) for _ in range(3))
    reverse = [stage is not nl.bypass and data.draw(some.booleans()) for stage in pair]
    fold = data.draw(some.sampled_from([nl.add, nl.maximum, nl.minimum]))
    result = data.draw(tiles(size[0], 1, data.draw(pr.dtypes), repeats=False))

    def issue(d, s, a, b, c, r):
        nisa.activate2(dst=d, op=op, data=s, imm0=a, imm1=b, op0=pair[0], op1=pair[1], relu_param=c, reverse0=reverse[0],
                       reverse1=reverse[1], reduce_op=fold, reduce_res=r, reduce_cmd=reduce_cmd.reset_reduce)  # fmt: skip

    values = elements(src)
    with np.errstate(all="ignore"):
        for p, row in enumerate(values):
            for i, x in enumerate(row):
                for stage, imm, turned in ((pair[0], imm0, reverse[0]), (pair[1], imm1, reverse[1])):
                    if stage is not nl.bypass:
                        x = BINARY[stage](pr.at(imm, p), x) if turned else BINARY[stage](x, pr.at(imm, p))
                row[i] = SHAPED[op](x, pr.at(slope, p))
    got, total = execute(issue, [dst, src, imm0, imm1, slope, result], [dst, result], "trn3")
    equal(got, every(dst, lambda p, i: values[p][i]), zeros=op is not nl.relu)
    equal(total, every(result, lambda p, i: folded(fold, values[p])), zeros=False)


# --- bn_stats, bn_aggr -----------------------------------------------------------------------------------------------


@given(data=some.data(), target=pr.targets, rows=some.sampled_from([1, 2, 5, 40]), n=some.integers(1, 30) | some.just(512))
@tried(80)
def test_bn_stats(data, target, rows, n):
    """The order of the sums is not documented: means within 1e-6 of the largest element, sums of squares within 1e-5."""
    rows = 1 if n == 512 else rows
    src = data.draw(tiles(rows, n, data.draw(pr.dtypes), "plain", dense=n == 512))
    dst = data.draw(tiles(rows, 6, "float32", repeats=False))
    (got,) = execute(lambda d, s: nisa.bn_stats(dst=d, data=s), [dst, src], [dst], target)
    equal(got, dst.holding(taken(dst, got)))  # nothing else changed
    for p, mine in enumerate(taken(dst, got)):
        for at in (0, 1):
            part = [float(src[p, i]) for i in range(at, n, 2)]
            count, mean, spread = (float(m) for m in mine[3 * at : 3 * at + 3])
            assert count == len(part)
            if part:
                middle, size = math.fsum(part) / len(part), max(map(abs, part))
                assert abs(mean - middle) <= 1e-6 * size
                assert abs(spread - math.fsum((x - middle) ** 2 for x in part)) <= 1e-5 * size**2 * len(part)


@given(data=some.data(), target=pr.targets, rows=some.sampled_from([1, 2, 5, 40]), groups=some.integers(1, 5))
@tried(60)
def test_bn_aggr(data, target, rows, groups):
    """The order of the sums is not documented: within 1e-5 of the largest mean, and of its square and the variances."""
    generator = np.random.default_rng(data.draw(pr.seeds))
    made = np.empty((rows, groups, 3), np.float32)
    made[..., 0] = generator.integers(0, 200, (rows, groups))
    made[:, 0, 0] += 1
    made[..., 1] = np.where(made[..., 0] > 0, generator.standard_normal((rows, groups)) * 3, 0)
    made[..., 2] = made[..., 0] * generator.random((rows, groups)) * 5
    dtype = data.draw(some.sampled_from(["float32", "float32", "bfloat16", "float16"]))
    values = [[cast(x, dtype) for x in row] for row in made.reshape(rows, -1)]
    src = data.draw(tiles(rows, 3 * groups, dtype, values=values, repeats=False))
    dst = data.draw(tiles(rows, 2, "float32", repeats=False))
    (got,) = execute(lambda d, s: nisa.bn_aggr(dst=d, data=s), [dst, src], [dst], target)
    equal(got, dst.holding(taken(dst, got)))
    for p, (mean, variance) in enumerate(taken(dst, got).astype(np.float64)):
        triples = [[float(src[p, 3 * g + k]) for k in range(3)] for g in range(groups)]
        count = math.fsum(c for c, _, _ in triples)
        middle = math.fsum(c * m for c, m, _ in triples) / count
        spread = math.fsum(s + c * (m - middle) ** 2 for c, m, s in triples) / count
        size = max(abs(m) for _, m, _ in triples)
        assert abs(mean - middle) <= 1e-5 * size
        assert abs(variance - spread) <= 1e-5 * (size**2 + spread)
