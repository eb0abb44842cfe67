"""Views of tensors against NumPy's: the same bytes under the same names, in HBM and on chip."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import hb, ld, ps, sb, st
from references import STORED, random, run, same


@some.composite
def steps(draw, shape, on_chip, repeats=True):
    """A chain of view operations: pairs of (what NkiTensor does, what NumPy does)."""
    chain = []
    array = np.empty(shape, np.uint8)
    for _ in range(draw(some.integers(1, 4))):
        step = draw(one_step(array.shape, on_chip, repeats))
        array = step[2](array)
        chain.append(step)
    return chain


@some.composite
def one_step(draw, shape, on_chip, repeats):
    ndim, first = len(shape), 1 if on_chip else 0
    kinds = ["slice", "index slice"]
    if ndim < 5:
        kinds += ["expand", "split"]
    if ndim > first + 1:
        kinds += ["permute", "int"]
    ones = [d for d in range(first, ndim) if shape[d] == 1]
    if ones:
        kinds += ["broadcast"] if repeats else []
        if ndim > (2 if on_chip else 1):
            kinds += ["squeeze"]
    kind = draw(some.sampled_from(kinds))
    if kind == "permute":
        order = list(range(first)) + draw(some.permutations(range(first, ndim)))
        return f"permute({order})", lambda t: t.permute(order), lambda a: a.transpose(order)
    if kind == "expand":
        dim = draw(some.integers(first, ndim))
        return f"expand_dim({dim})", lambda t: t.expand_dim(dim), lambda a: np.expand_dims(a, dim)
    if kind == "squeeze":
        dim = draw(some.sampled_from(ones))
        return f"squeeze_dim({dim})", lambda t: t.squeeze_dim(dim), lambda a: np.squeeze(a, dim)
    if kind == "broadcast":
        dim, size = draw(some.sampled_from(ones)), draw(some.integers(1, 3))
        return f"broadcast({dim}, {size})", lambda t: t.broadcast(dim, size), lambda a: np.repeat(a, size, dim)
    if kind == "split":
        dim = draw(some.integers(first, ndim - 1)) if ndim > first else None
        if dim is not None:
            n = draw(some.sampled_from([d for d in range(1, shape[dim] + 1) if shape[dim] % d == 0]))
            new = (*shape[:dim], n, shape[dim] // n, *shape[dim + 1 :])
            return f"reshape_dim({dim}, {n})", lambda t: t.reshape_dim(dim, (n, -1)), lambda a: a.reshape(new)
    if kind == "int":
        dim = draw(some.integers(first, ndim - 1))
        i = draw(some.integers(-shape[dim], shape[dim] - 1))
        if on_chip and ndim == 2:
            return "t", lambda t: t, lambda a: a
        key = (slice(None),) * dim + (i,)
        return f"[{key}]", lambda t: t[key], lambda a: a[key]
    dim = draw(some.integers(0, ndim - 1))
    start = draw(some.integers(0, shape[dim] - 1))
    end = draw(some.integers(start + 1, shape[dim]))
    by = draw(some.integers(1, 1 if on_chip and dim == 0 else 3))
    key = (slice(None),) * dim + (slice(start, end, by),)
    if kind == "slice":
        return f"slice({dim}, {start}, {end}, {by})", lambda t: t.slice(dim, start, end, by), lambda a: a[key]
    return f"[{key}]", lambda t: t[(*key, ...)], lambda a: a[key]


@given(data=some.data(), shape=some.sampled_from([(8, 6, 4), (4, 12), (6, 2, 3, 4)]), on_chip=some.booleans(),
       dtype=some.sampled_from(["float32", "bfloat16", "uint8"]))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_chains_of_views(data, shape, on_chip, dtype):
    x = random(shape, dtype)
    chain = data.draw(steps(shape, on_chip))

    def kernel(a):
        view = ld(a) if on_chip else a
        for _, step, _ in chain:
            view = step(view)
        out = hb(*view.shape, dt=dtype)
        nisa.dma_copy(dst=out, src=view)
        return out

    want = x
    for _, _, step in chain:
        want = step(want)
    same(run(kernel, x), want)


@given(data=some.data(), shape=some.sampled_from([(8, 6, 4), (4, 12)]))
@settings(max_examples=60, deadline=None)
def test_writing_through_a_chain_of_views(data, shape):
    chain = data.draw(steps(shape, True, repeats=False))

    def kernel(a):
        t = ld(a)
        view = t
        for _, step, _ in chain:
            view = step(view)
        ones = sb(*view.shape)
        nisa.memset(dst=ones, value=1.0)
        nisa.dma_copy(dst=view, src=ones)
        return st(t)

    want = random(shape)
    part = want
    for _, _, step in chain:
        part = step(part)
    part[...] = 1
    if np.shares_memory(part, want):  # NumPy copies where it cannot give a view
        same(run(kernel, random(shape)), want)


# --- indexing --------------------------------------------------------------------------------------------------------


def shapes_of(*views, shape=(64, 32, 16), buffer=nl.sbuf):
    """Shapes of views of a tensor, as the kernel sees them."""
    seen = []

    def kernel(x):
        t = nl.ndarray(shape, dtype=nl.float32, buffer=buffer)
        seen.extend(view(t).shape for view in views)
        return st(ld(x))

    nki_sim.run(kernel, np.zeros((1, 1), np.float32))
    return seen


def test_an_on_chip_view_is_at_least_two_dimensional_and_keeps_its_partitions():
    assert shapes_of(
        lambda t: t[0, :, :],
        lambda t: t[:, 0, 10],
        lambda t: t[3],
        lambda t: t[:, 5],
        lambda t: t[0, 0, 0],
        lambda t: t[-1, :, -1],
        lambda t: t[..., 3],
        lambda t: t[2:9:3, ..., nl.ds(4, 8)],
    ) == [(1, 32, 16), (64, 1), (1, 32, 16), (64, 16), (1, 1), (1, 32), (64, 32), (3, 32, 8)]  # fmt: skip


def test_an_hbm_view_drops_what_an_integer_picks():
    assert shapes_of(
        lambda t: t[0, :, :], lambda t: t[:, 0, 10], lambda t: t[3], lambda t: t[0, 0, 0], lambda t: t[0, :, 3:5],
        buffer=nl.shared_hbm,
    ) == [(32, 16), (64,), (32, 16), (1,), (32, 2)]  # fmt: skip


def test_views_share_their_bytes():
    def kernel(x):
        t = ld(x)
        a, b = t[:, 0:4], t.reshape((8, 2, 4))
        nisa.memset(dst=a, value=1.0)
        nisa.memset(dst=b[:, 1, 2], value=5.0)
        return st(t)

    x = random((8, 8))
    want = x.copy()
    want[:, :4], want[:, 6] = 1, 5
    same(run(kernel, x), want)


# --- patterns --------------------------------------------------------------------------------------------------------


def facts(view, shape=(128, 64), buffer=nl.sbuf, dtype=nl.float32):
    """What a view says of itself."""
    seen = []

    def kernel(x):
        t = view(nl.ndarray(shape, dtype=dtype, buffer=buffer, name="t"))
        seen.append((t.get_pattern(), t.offset, t.shape, t.strides, t.is_contiguous(), t.is_indirect(), t.dtype))
        return st(ld(x))

    nki_sim.run(kernel, np.zeros((1, 1), np.float32))
    return dict(zip(("pattern", "offset", "shape", "strides", "contiguous", "indirect", "dtype"), seen[0], strict=True))


def test_the_tensor_behind_a_view():
    def base(t):
        same = t[32:64].reshape((32, 4, 16)).view(nl.int32)[:, 1:3].base_tensor
        assert (same.name, same.dtype, same.shape, same.offset) == (t.name, t.dtype, t.shape, 0)
        assert t.base_tensor.shape == t.shape
        return same

    assert facts(base)["pattern"] == [[64, 128], [1, 64]]


def test_the_pattern_of_a_slice():
    """The reference's example."""
    found = facts(lambda t: t.slice(dim=1, start=8, end=24))
    assert found["pattern"] == [[64, 128], [1, 16]]
    assert found["offset"] == 8
    assert found["shape"] == (128, 16)
    assert found["contiguous"] is True  # within a partition


@pytest.mark.parametrize(
    ("view", "pattern", "offset", "contiguous"),
    [
        (lambda t: t, [[64, 128], [1, 64]], 0, True),
        (lambda t: t[:, ::2], [[64, 128], [2, 32]], 0, False),
        (lambda t: t[32:64, :], [[64, 32], [1, 64]], 32 * 64, True),
        (lambda t: t[:, 5], [[64, 128], [1, 1]], 5, True),
        (lambda t: t.reshape((128, 4, 16)), [[64, 128], [16, 4], [1, 16]], 0, True),
        (lambda t: t.reshape((128, 4, 16)).permute((0, 2, 1)), [[64, 128], [1, 16], [16, 4]], 0, False),
        (lambda t: t[:, 0:1].broadcast(1, 9), [[64, 128], [0, 9]], 0, False),
        (lambda t: t.ap([[64, 128], [3, 20]], offset=2), [[64, 128], [3, 20]], 2, False),
        (lambda t: t.view(nl.bfloat16), [[128, 128], [1, 128]], 0, True),
        (lambda t: t.view(nl.uint8)[:, 4:8], [[256, 128], [1, 4]], 4, True),
    ],
)
def test_patterns(view, pattern, offset, contiguous):
    found = facts(view)
    assert (found["pattern"], found["offset"], found["contiguous"]) == (pattern, offset, contiguous)
    assert found["strides"] == tuple(step for step, _ in pattern)
    assert found["indirect"] is False


def test_ap_replaces_earlier_views_and_adds_its_offset():
    def kernel(x):
        t = ld(x)
        return (
            st(t[:, 4:8].ap([[16, 8], [1, 6]])), st(t[:, 4:8].ap([[16, 8], [1, 6]], offset=2)),
            st(t.permute((0, 1)).ap([[16, 4], [2, 3]], offset=1)), st(t.ap([[32, 8], [1, 8]], offset=8, dtype=nl.bfloat16)),
        )  # fmt: skip

    x = random((8, 16))
    a, b, c, d = run(kernel, x)
    same(a, x[:, 4:10])
    same(b, x[:, 6:12])
    same(c, x[:4, 1:6:2])
    same(d, x.view(STORED["bfloat16"])[:, 8:16])


def test_ap_takes_any_pattern_in_hbm():
    def kernel(x):
        t = sb(5, 3, 4)
        nisa.dma_copy(dst=t, src=x.ap([[1, 5], [10, 3], [2, 4]], offset=7))
        return st(t)

    x = np.arange(200, dtype=np.float32).reshape(20, 10)
    index = 7 + np.arange(5)[:, None, None] + 10 * np.arange(3)[:, None] + 2 * np.arange(4)
    same(run(kernel, x), x.reshape(-1)[index])


@given(h=some.sampled_from([1, 2, 3, 4, 6, 12]), order=some.permutations(["h", "w", "c"]))
@settings(max_examples=30, deadline=None)
def test_rearrange_splits_and_reorders(h, order):
    def kernel(x):
        return st(ld(x).rearrange(("p", ("h", "w"), "c"), ("p", *order), {"h": h}))

    x = random((4, 12, 5))
    parts = {"h": 1, "w": 2, "c": 3}
    same(run(kernel, x), x.reshape(4, h, 12 // h, 5).transpose(0, *(parts[name] for name in order)))


def test_rearrange_merges():
    def kernel(x):
        return st(ld(x).rearrange(("p", "a", "b", "c"), ("p", "a", ("b", "c"))))

    x = random((4, 2, 3, 5))
    same(run(kernel, x), x.reshape(4, 2, 15))


@pytest.mark.parametrize("old", ["float32", "bfloat16", "uint8", "int32"])
@pytest.mark.parametrize("new", ["float32", "float16", "uint8", "uint32"])
def test_view_reinterprets_bytes(old, new):
    def kernel(x):
        return st(ld(x).view(new))

    bits = np.random.default_rng(1).integers(0, 100, (4, 32), np.uint8)
    same(run(kernel, bits.view(STORED[old])), bits.view(STORED[new]))


def test_flatten_and_select():
    def kernel(x):
        t = ld(x)
        pairs = t.flatten_dims(1, 3).reshape_dim(1, (-1, 2))
        return st(t.flatten_dims(1, 2)), st(t.select(1, 2)), st(t.select(0, 3)), st(pairs)

    x = random((8, 3, 4, 2))
    a, b, c, d = run(kernel, x)
    same(a, x.reshape(8, 12, 2))
    same(b, x[:, 2])
    same(c, x[3:4])
    same(d, x.reshape(8, 12, 2))


def test_what_a_tensor_says_of_itself():
    seen = []

    def kernel(x):
        t = nl.ndarray((128, 4, 8), dtype=nl.bfloat16, buffer=nl.psum, name="acc")
        seen.append((t.shape, t.dtype, t.buffer, t.name, t.ndim, t.size, repr(t), repr(t[:, 0, :])))
        return st(ld(x))

    nki_sim.run(kernel, np.zeros((1, 1), np.float32))
    assert seen == [((128, 4, 8), "bfloat16", nl.psum, "acc", 3, 4096, "NkiTensor(acc: psum bfloat16 [128 × 4 × 8])",
                     "NkiTensor(acc: psum bfloat16 [128 × 8])")]  # fmt: skip


def test_printing_a_tile_shows_its_values_now(capsys):
    def kernel(x):
        print(ld(x))
        return st(ld(x))

    run(kernel, np.array([[1.5, 2.5]], np.float32))
    out = capsys.readouterr().out
    assert "sbuf float32 [1 × 2]" in out and "[[1.5 2.5]]" in out


# -- assignment -----------------------------------------------------------------------------------------------------------


def test_a_tensor_assigned_to_a_part_is_copied_there():
    def kernel(x):
        tile, acc, out = nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.sbuf), ps(16, 4), hb(16, 12)
        tile[:, 0:4] = x[:, 4:8]  # from HBM
        acc[...] = tile[:, 0:4]  # SBUF to PSUM
        tile[:, 4:8] = acc
        out[:, 0:8] = tile  # to HBM
        out[0:16, 8:12] = out[:, 0:4]
        return out

    data = np.arange(128, dtype=np.float32).reshape(16, 8)
    done = nki_sim.run(kernel, data, strict=True)
    np.testing.assert_array_equal(done.result, np.tile(data[:, 4:8], 3))
    assert [step.instruction for step in done.program] == ["dma_copy", "tensor_copy", "tensor_copy", "dma_copy", "dma_copy"]


@pytest.mark.parametrize("value", [0.0, np.zeros((16, 8), np.float32), None])
def test_only_tensors_are_assigned(value):
    def kernel(x):
        tile = nl.load(x)
        tile[:, 0:8] = value
        return x

    with pytest.raises(TypeError, match=r"nisa\.memset") as caught:
        nki_sim.run(kernel, np.ones((16, 8), np.float32))
    assert caught.value.diagnosis.rule.id == "lang.isa_dst_required"
    assert "tile[:, 0:8]" in str(caught.value)


def test_what_is_assigned_fits():
    def kernel(x):
        tile = nl.load(x)
        tile[:, 0:7] = tile
        return x

    with pytest.raises(nki_sim.NkiValidationError, match="elements per partition differ"):
        nki_sim.run(kernel, np.ones((16, 8), np.float32))


def test_a_pattern_that_leaves_its_tensor_is_refused_where_it_is_used():
    def kernel(x, uses):
        t = nl.load(x)
        outside = t.ap([[8, 16], [1, 8]], offset=1)
        if uses:
            nisa.tensor_copy(dst=t, src=outside)
        nisa.dma_copy(dst=x, src=t)

    x = np.ones((16, 8), np.float32)
    nki_sim.run(kernel, x, False)
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        nki_sim.run(kernel, x, True)
    assert caught.value.diagnosis.line == kernel.__code__.co_firstlineno + 2


def test_a_tensor_as_a_condition_counts_as_given_and_one_element_has_no_truth():
    """`if x` asks whether an optional tensor is there; what an element holds is not known while the kernel is built."""

    def kernel(x, element):
        t = nl.load(x) if x else None
        if t and (not element or t[0:1, 0]):
            return x
        return None

    x = np.ones((4, 4), np.float32)
    with pytest.warns(nki_sim.NkiWarning, match="a tensor as a Python condition: true"):
        run_ = nki_sim.run(kernel, x, False)
    assert {f.rule.id for f in run_.findings} == {"lang.isa_dst_required"}
    with pytest.warns(nki_sim.NkiWarning), pytest.raises(nki_sim.errors.NkiTypeError, match="a tile as a Python condition"):
        nki_sim.run(kernel, x, True)
    with pytest.raises(nki_sim.NkiValidationError, match="a tensor as a Python condition"):
        nki_sim.run(kernel, x, False, strict=True)
