"""``nl.tiles``, ``nl.blocks`` and what they allocate: coordinates, remainders, operands, limits."""

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import hb, sb
from nki_sim.errors import NkiAssertionError, NkiIndexError, NkiTypeError, NkiValueError
from references import run, same
from rulebook import Book, hx, v, x

book = Book()


def seen(look, shape=(512, 1024)):
    """What ``look`` finds at an HBM tensor of a shape, inside a kernel."""
    found = []

    def kernel(source):
        found.append(look(source))
        return source

    run(kernel, np.zeros(shape, np.float32))
    return found[0]


def test_coordinates_count_tiles():
    def look(source):
        g = nl.tiles(source, tile_shape=(128, 256))
        return [(c.shape, c.element_shape, c.index_step_elements) for c in (g, g[1], g[:, 2], g[1, 2], g[1:3, ::2], g[-1, -1])]

    assert seen(look) == [
        ((4, 4), (512, 1024), (128, 256)),
        ((4,), (128, 1024), (256,)),
        ((4,), (512, 256), (128,)),
        ((), (128, 256), ()),
        ((2, 2), (256, 512), (128, 512)),
        ((), (128, 256), ()),
    ]


def test_grids_keep_their_kind_and_know_their_tensor():
    def look(source):
        g = nl.tiles(source, tile_shape=(128, 256))
        b = nl.blocks(source, tile_shape=(128, 256), block_shape=(2, 2))
        assert isinstance(g[0, 0], nl.NkiTileGrid) and isinstance(b[0, 0], nl.NkiBlockGrid)
        assert isinstance(g, nl.NkiGrid) and isinstance(b, nl.NkiGrid)
        assert (g.dtype, g.buffer) == ("float32", source.buffer)
        assert b.shape == (2, 2) and b.block_shape == (2, 2) and b.tile_shape == g.tile_shape == (128, 256)
        assert b[1, 0].element_shape == (256, 512) and b.index_step_elements == (256, 512)
        inner = nl.tiles(b[1, 0])
        assert isinstance(inner, nl.NkiTileGrid) and inner.shape == (2, 2) and inner[1, 1].data.shape == (128, 256)
        assert inner[1, 1].data.offset == g[3, 1].data.offset
        assert [row.shape for row in g] == [(4,)] * 4 and len(g) == 4
        assert repr(g) == "NkiTileGrid(a grid of [4 × 4] tiles of [128 × 256] over source)"
        return True

    assert seen(look)


def test_the_last_tiles_and_blocks_are_clamped():
    def look(source):
        g = nl.tiles(source, tile_shape=(128, 256))
        b = nl.blocks(g, block_shape=(2, 2))
        cells = (g, g[0, 0], g[2, 0], g[2, 3], g[0:2, 0:3], b, b[0, 0], b[1, 0], b[1, 1])
        return [(c.shape, c.element_shape, c.is_remainder) for c in cells]

    assert seen(look, (300, 1000)) == [
        ((3, 4), (300, 1000), True),
        ((), (128, 256), False),
        ((), (44, 256), True),
        ((), (44, 232), True),
        ((2, 3), (256, 768), False),
        ((2, 2), (300, 1000), True),
        ((), (256, 512), False),
        ((), (44, 512), True),
        ((), (44, 488), True),
    ]


def test_untiled_dimensions_come_first_and_go_when_chosen():
    def look(source):
        g = nl.tiles(source, tile_shape=(4, 5))
        return [(c.shape, c.element_shape) for c in (g, g[2], g[2, 1, 1], g[:, 0, 0], g[1:3])]

    assert seen(look, (3, 8, 10)) == [
        ((3, 2, 2), (3, 8, 10)),
        ((2, 2), (8, 10)),
        ((), (4, 5)),
        ((3,), (3, 4, 5)),
        ((2, 2, 2), (2, 8, 10)),
    ]


def test_regrouping():
    def look(source):
        g = nl.tiles(source, tile_shape=(128, 256))
        row = g[1]
        return [nl.tiles(row, tile_shape=(64, 128)).shape, nl.tiles(row).shape, nl.blocks(row, block_shape=(1, 3)).shape,
                nl.tiles(nl.blocks(g, block_shape=(2, 2)), tile_shape=(256, 512)).shape,
                nl.tiles(row, tile_shape=(64, 128))[1, 7].data.offset - source.offset]  # fmt: skip

    assert seen(look) == [(2, 8), (1, 4), (1, 2), (2, 2), (128 + 64) * 1024 + 7 * 128]


@given(rows=some.integers(1, 40), columns=some.integers(1, 60), tile=some.tuples(some.integers(1, 17), some.integers(1, 25)),
       block=some.tuples(some.integers(1, 3), some.integers(1, 3)))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_copying_cell_by_cell_copies_everything(rows, columns, tile, block):
    data = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)

    def kernel(source):
        out = hb(*source.shape)
        kept = nl.alloc_blocks(
            tile_shape=tile, block_shape=block, element_shape=source.shape, buffer=nl.sbuf, dtype=source.dtype
        )
        there, back = (nl.blocks(t, tile_shape=tile, block_shape=block) for t in (source, out))
        assert there.shape == kept.shape == back.shape
        for i in range(there.shape[0]):
            for j in range(there.shape[1]):
                cells = [nl.tiles(g[i, j]) for g in (there, kept, back)]
                for m in range(cells[0].shape[0]):
                    nisa.dma_copy(dst=cells[1][m].data, src=cells[0][m].data)  # a row of tiles at once
                    for n in range(cells[0].shape[1]):
                        nisa.dma_copy(dst=cells[2][m, n].data, src=cells[1][m, n].data)
        return out

    same(run(kernel, data), data)


@pytest.mark.parametrize("shape", [(3, 7, 10), (2, 9, 8)])
def test_slabs_in_sbuf_lie_one_after_the_other(shape):
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    def kernel(source):
        out = hb(*shape)
        kept = nl.alloc_tiles(tile_shape=(4, 6), element_shape=shape, buffer=nl.sbuf, dtype=nl.float32)
        assert kept[0, 0, 0].data.storage.allocation.shape == (
            4,
            shape[0] * 2 * 2 * 6 if shape[1] < 9 else shape[0] * 3 * 2 * 6,
        )
        there, back = nl.tiles(source, tile_shape=(4, 6)), nl.tiles(out, tile_shape=(4, 6))
        for b in range(kept.shape[0]):
            for i in range(kept.shape[1]):
                nisa.dma_copy(dst=kept[b, i].data, src=there[b, i].data)
        for b in range(kept.shape[0]):
            for i in range(kept.shape[1]):
                for j in range(kept.shape[2]):
                    nisa.dma_copy(dst=back[b, i, j].data, src=kept[b, i, j].data)
        return out

    same(run(kernel, data), data)


def test_hbm_holds_just_the_elements_and_chips_whole_tiles():
    def kernel(source):
        there = nl.alloc_tiles(
            tile_shape=(16, 10), element_shape=(40, 25), buffer=nl.private_hbm, dtype=nl.bfloat16, name="there"
        )
        here = nl.alloc_tiles(tile_shape=(16, 10), element_shape=(40, 25), buffer=nl.psum, dtype=nl.float32)
        assert there.data.storage.allocation.shape == (40, 25) and there.data.name == "there" and there.dtype == "bfloat16"
        assert here[0].data.storage.allocation.shape == (16, 90) and here.buffer is nl.psum
        return source

    run(kernel, np.zeros((2, 2), np.float32))


def test_an_address():
    def kernel(source):
        tiles = nl.alloc_tiles(tile_shape=(32, 8), element_shape=(32, 16), buffer=nl.sbuf, dtype=nl.float32, address=(32, 256))
        assert (tiles[0, 1].data.start_partition, tiles[0, 1].data.start_byte) == (32, 256 + 32)
        return source

    run(kernel, np.zeros((2, 2), np.float32))


def test_what_is_one_operand():
    def kernel(source):
        here = nl.alloc_tiles(tile_shape=(16, 10), element_shape=(40, 25), buffer=nl.sbuf, dtype=nl.float32)
        assert [c.is_data_representable for c in (here, here[0], here[:, 0], here[2, 2], here[0, 1:], here[0, ::2])] == [
            False, True, False, True, True, False]  # fmt: skip
        there = nl.tiles(source, tile_shape=(16, 10))
        assert [c.is_data_representable for c in (there, there[:, 0], there[::2])] == [True, True, False]
        assert nl.tiles(source[0:40, 0:25:5], tile_shape=(16, 2)).data.strides == (25, 5)
        return source

    run(kernel, np.zeros((40, 25), np.float32))


def test_like_another_grid():
    def look(source):
        g = nl.tiles(source, tile_shape=(128, 256))
        one = nl.empty_like(g[2, 3], buffer=nl.sbuf)
        assert (one.shape, one.data.shape, one.tile_shape) == ((), (44, 232), (128, 256))
        packed = nl.empty_like(g[0, ::3], dtype=nl.bfloat16, buffer=nl.sbuf)
        assert (packed.shape, packed.element_shape, packed.dtype) == ((2,), (128, 256 + 232), "bfloat16")
        block = nl.empty_like(nl.blocks(g, block_shape=(2, 2))[1], buffer=nl.sbuf)
        assert (block.shape, block.block_shape, block.element_shape) == ((2,), (2, 2), (44, 1000))
        assert isinstance(block, nl.NkiBlockGrid) and block.data.on_chip
        hbm = nl.empty_like(g, name="again")
        assert hbm.data.shape == (300, 1000) and hbm.data.name == "again" and hbm.buffer is source.buffer
        assert nl.empty_like(source[0:128, 0:9], buffer=nl.sbuf).shape == (128, 9)
        return True

    assert seen(look, (300, 1000))


@pytest.mark.parametrize(("shape", "tile", "axes"), [
    ((64, 96), (64, 96), (1, 0)), ((16, 3, 32), (16, 3, 32), (2, 1, 0)), ((16, 3, 2, 32), (16, 3, 2, 32), (3, 1, 2, 0)),
])  # fmt: skip
def test_a_place_for_a_transpose(shape, tile, axes):
    data = np.arange(np.prod(shape), dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(shape)

    def kernel(source):
        turned = nl.empty_like(nl.tiles(source, tile_shape=tile), buffer=nl.sbuf, transpose_axes=axes)
        out = hb(*[shape[d] for d in axes], dt=nl.bfloat16)
        assert turned.tile_shape == tuple(tile[d] for d in axes)
        nisa.dma_transpose(dst=turned.data, src=source, axes=axes)
        nisa.dma_copy(dst=out, src=turned.data)
        return out

    same(run(kernel, data), data.transpose(axes))


def test_a_tensor_is_its_own_data():
    def look(source):
        return source.data is source

    assert seen(look)


def test_nothing_is_allocated_or_issued_by_looking():
    def kernel(source):
        g = nl.blocks(source, tile_shape=(128, 256), block_shape=(2, 2))
        nl.tiles(g[1, 1])[0, 1]
        return source

    result = nki_sim.run(kernel, np.zeros((512, 1024), np.float32))
    assert len(result.program) == 0 and len(result.program.allocations) == 1


# -- limits -------------------------------------------------------------------------------------------------------------


def first(grid):
    t = sb(*grid.element_shape)
    nisa.dma_copy(dst=t, src=grid.data)
    return t


@book.breaks("grid.shape_type", error=NkiTypeError)
def _(bad):
    return first(nl.tiles(hx(16, 8), tile_shape=[16, 8] if bad else (16, 8))[0, 0]), v(16, 8)


@book.breaks("grid.shape_type", error=NkiTypeError)
def _(bad):
    return first(nl.tiles(hx(16, 8), tile_shape=(16, True if bad else 1))[0, 0]), v(16, 8)[:, 0:1]


@book.breaks("grid.shape_value", error=NkiValueError)
def _(bad):
    return first(nl.tiles(hx(16, 8), tile_shape=(16, 0 if bad else 1))[0, 0]), v(16, 8)[:, 0:1]


@book.breaks("grid.shape_value", error=NkiValueError)
def _(bad):
    return first(nl.tiles(hx(16, 8), tile_shape=(8,) if bad else (16, 8))[0, 0]), v(16, 8)


@book.breaks("grid.shape_value", error=NkiValueError)
def _(bad):
    return first(nl.tiles(hx(16, 8), tile_shape=(16, 2, 4) if bad else (16, 8))[0, 0]), v(16, 8)


@book.breaks("grid.shape_value", error=NkiValueError)
def _(bad):
    g = nl.blocks(hx(16, 8), tile_shape=(8, 4), block_shape=(2,) if bad else (2, 2))
    return first(g[0, 0]), v(16, 8)


@book.breaks("grid.shape_value", error=ValueError)
def _(bad):
    g = nl.alloc_tiles(tile_shape=(16, 4), element_shape=(16, -8 if bad else 8), buffer=nl.sbuf, dtype=nl.float32)
    nisa.dma_copy(dst=g[0].data, src=hx(16, 8))
    return g[0].data, v(16, 8)


@book.breaks("grid.buffer", error=NkiTypeError)
def _(bad):
    g = nl.alloc_blocks(tile_shape=(16, 4), block_shape=(1, 2), element_shape=(16, 8), buffer="sbuf" if bad else nl.sbuf,
                        dtype=nl.float32)  # fmt: skip
    nisa.dma_copy(dst=g[0, 0].data, src=hx(16, 8))
    return g[0].data, v(16, 8)


@book.breaks("hw.partition_dim_le_128", error=nki_sim.NkiValidationError)
def _(bad):
    rows = 129 if bad else 128
    g = nl.alloc_tiles(tile_shape=(rows, 4), element_shape=(128, 8), buffer=nl.sbuf, dtype=nl.float32)
    nisa.dma_copy(dst=g[0].data, src=hx(128, 8))
    return g[0].data, v(128, 8)


@book.breaks("grid.on_chip_rank", error=NkiValueError)
def _(bad):
    t = x(16, 2, 4)
    return nl.copy(nl.tiles(t, tile_shape=(2, 4) if bad else (16, 2, 4)).data), v(16, 2, 4)


@book.breaks("grid.source", error=NkiTypeError)
def _(bad):
    return first(nl.tiles(v(16, 8) if bad else hx(16, 8), tile_shape=(16, 8))), v(16, 8)


@book.breaks("grid.source", error=NkiTypeError)
def _(bad):
    g = hx(16, 8) if bad else nl.tiles(hx(16, 8), tile_shape=(16, 4))
    return first(nl.blocks(g, block_shape=(1, 2))), v(16, 8)


@pytest.mark.parametrize(("key", "error"), [
    ((4, 0), NkiIndexError), ((0, -5), NkiIndexError), (slice(2, 5), NkiIndexError), (slice(2, 2), NkiIndexError),
    ((0, 0, 0), NkiIndexError), (slice(None, None, -1), NkiTypeError), (1.0, NkiTypeError), (True, NkiTypeError),
    ((0, None), NkiTypeError),
])  # fmt: skip
def test_a_cell_that_is_not_there(key, error):
    with pytest.raises(error) as caught:
        seen(lambda source: nl.tiles(source, tile_shape=(128, 256))[key])
    assert caught.value.diagnosis.rule.id == "grid.index"


def test_cells_are_not_assigned_and_a_single_one_has_no_length():
    with pytest.raises(NkiTypeError, match="assignment to cells"):
        seen(lambda source: nl.tiles(source, tile_shape=(128, 256)).__setitem__((0, 0), 1))
    with pytest.raises(NkiTypeError, match="length of a single cell"):
        seen(lambda source: len(nl.tiles(source, tile_shape=(128, 256))[0, 0]))


@book.breaks("grid.data", error=NkiAssertionError)
def _(bad):
    g = nl.tiles(hx(16, 8), tile_shape=(4, 8))
    return first(g[:: 2 if bad else 1]), v(16, 8)


@book.breaks("grid.regroup", error=NkiValueError)
def _(bad):
    g = nl.tiles(hx(16, 8), tile_shape=(4, 8))[:: 2 if bad else 1]
    return first(nl.tiles(g, tile_shape=(16, 8))), v(16, 8)


@book.breaks("grid.regroup", error=NkiValueError)
def _(bad):
    g = nl.alloc_tiles(tile_shape=(8, 4), element_shape=(16, 8), buffer=nl.sbuf, dtype=nl.float32)
    part = nl.tiles(g, tile_shape=(16, 8) if bad else (8, 2))[0, 0:4]
    nisa.dma_copy(dst=part.data, src=hx(8, 8))
    return part.data, v(8, 8)


@book.breaks("grid.transpose_axes", error=NkiValueError)
def _(bad):
    g = nl.empty_like(nl.tiles(hx(8, 16), tile_shape=(8, 16)), buffer=nl.sbuf, transpose_axes=(0, 1) if bad else (1, 0))
    nisa.dma_copy(dst=g.data, src=hx(16, 8))
    return g.data, v(16, 8)


@book.breaks("grid.transpose_axes", error=NkiValueError)
def _(bad):
    g = nl.empty_like(hx(8, 16), buffer=nl.psum if bad else nl.sbuf, transpose_axes=(1, 0))
    nisa.dma_copy(dst=g, src=hx(16, 8))
    return g, v(16, 8)


@book.breaks("grid.transpose_axes", error=NkiValueError)
def _(bad):
    g = nl.empty_like(hx(8, 129 if bad else 128), buffer=nl.sbuf, transpose_axes=(1, 0))
    nisa.dma_copy(dst=g, src=hx(128, 8))
    return g, v(128, 8)


def test_a_grid_is_no_operand():
    def kernel(source):
        nisa.dma_copy(dst=sb(16, 8), src=nl.tiles(source, tile_shape=(16, 8))[0, 0])

    with pytest.raises(NkiTypeError, match=r"pass x\.data of a grid cell"):
        run(kernel, np.zeros((16, 8), np.float32))


@book.rejects()
def test_breaking_a_limit(case, target):
    with pytest.raises(case.error) as caught:
        case.run(target, bad=True)
    assert caught.value.diagnosis.rule.id == case.rule
    assert caught.value.diagnosis.line


@book.accepts()
def test_just_inside(case, target, bad):
    case.run(target, bad)
