"""Grids: a tensor seen in coordinates of its tiles, or of blocks of tiles, with the last ones clamped to what there is.

A grid is arithmetic on an access pattern: making, slicing or regrouping one allocates nothing and issues nothing.
``data`` is the selection as one operand; where its elements do not lie in one pattern, in their order, that is an error
(the documents leave open whether another order would do; here ``data.shape`` is always ``element_shape``).
Source: ``nki.language.tiles``, ``blocks``, ``alloc_tiles``, ``alloc_blocks``, ``empty_like`` and the grid classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from nki_sim import context
from nki_sim.errors import NkiAssertionError, NkiError, NkiIndexError, NkiTypeError, NkiValueError, Rule, fail, page
from nki_sim.lang.creation import ndarray
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor


def _page(name: str) -> str:
    return page(f"api/generated/nki.language.{name}.html")


SHAPES = Rule(
    "grid.shape_type",
    "tile_shape, block_shape and element_shape are tuples of Python ints",
    fix="write tile_shape=(128, 512)",
    page=_page("alloc_tiles"),
)
SIZES = Rule(
    "grid.shape_value",
    "sizes are positive; a tile has at least two dimensions and no more than the tensor; block_shape has one size for each",
    fix="tile_shape covers the last dimensions, block_shape counts tiles: tile_shape=(128, 512), block_shape=(2, 4)",
    page=_page("alloc_tiles"),
)
BUFFER = Rule("grid.buffer", "buffer is nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm", page=_page("alloc_tiles"))
PARTITIONS = Rule(
    "grid.on_chip_rank",
    "a tile of a tensor in SBUF or PSUM covers all of its dimensions, the partition dimension first",
    why="there is no dimension before the partitions that could be left untiled",
    fix="give tile_shape one size for each dimension of the tensor",
    page=_page("tiles"),
)
SOURCE = Rule(
    "grid.source", "a grid is made over a tensor, a grid of tiles or a grid of blocks; over a tensor tile_shape is given",
    fix="nl.tiles(x, tile_shape=(128, 512))", page=_page("tiles"),
)  # fmt: skip
INDEX = Rule(
    "grid.index",
    "a grid takes one int or slice of positive step per coordinate, inside its shape",
    fix="g[i, j] is a tile, g[i, :] a row; its elements are in g[i, j].data[…]",
    page=_page("tiles"),
)
DATA = Rule(
    "grid.data",
    "the selection of a grid lies in one access pattern, in the order of its elements",
    why="an operand is one pattern; tiles of several rows share partitions on chip, and a slice with a step leaves gaps",
    fix="take one tile or one row of tiles at a time: g[i, j].data; is_data_representable tells beforehand",
    page=_page("NkiGrid"),
)
REGROUP = Rule(
    "grid.regroup",
    "a selection is cut into other tiles only where its elements follow each other without gaps",
    fix="keep its tile_shape, or slice without a step",
    page=_page("tiles"),
)
TRANSPOSE = Rule(
    "grid.transpose_axes",
    "transpose_axes is (1, 0), (2, 1, 0) or (3, 1, 2, 0), for tiles of 2, 3 or 4 dimensions and a destination in SBUF; what "
    "becomes the partition dimension has at most 128 elements",
    why="these are the orders of nisa.dma_transpose",
    page=_page("empty_like"),
)

_ORDERS = ((1, 0), (2, 1, 0), (3, 1, 2, 0))


@dataclass(frozen=True)
class Axis:
    """One dimension of the source: cells of ``block`` tiles, each of ``tile`` elements, and which of them are selected.

    Attributes:
        tile, block: elements per tile, tiles per cell.
        size: elements of the whole dimension.
        step: elements (of the storage) between neighbouring elements of a tile.
        tile_step: the same between neighbouring tiles.
        first, count, every: the selected cells.
        taken: whether an int chose the cell: it is no coordinate any more.
        tiled: false for the dimensions before those of the tile, which are walked element by element.
    """

    tile: int
    size: int
    step: int
    tile_step: int
    block: int = 1
    first: int = 0
    count: int = 0
    every: int = 1
    taken: bool = False
    tiled: bool = True

    @property
    def cell(self) -> int:
        return self.tile * self.block

    @property
    def elements(self) -> int:
        """Selected elements: whole cells, the last one clamped."""
        last = self.first + (self.count - 1) * self.every
        return (self.count - 1) * self.cell + min(self.cell, self.size - last * self.cell)

    @property
    def offset(self) -> int:
        return self.first * self.block * self.tile_step

    @property
    def dense(self) -> bool:
        """Whether the selected elements lie one step apart."""
        gap = self.count > 1 and self.every > 1
        one_tile = self.elements <= self.tile
        return not gap and (one_tile or self.tile_step == self.tile * self.step)

    @property
    def partial(self) -> bool:
        return self.tiled and self.elements < self.count * self.cell

    def whole(self) -> Axis:
        """All cells selected."""
        return replace(self, first=0, count=-(-self.size // self.cell), every=1, taken=False)


class NkiGrid:
    """A tensor seen in coordinates of tiles or blocks; made by ``nl.tiles``, ``nl.blocks`` and the ``alloc_`` functions.

    Example:
        grid = nl.tiles(x, tile_shape=(128, 96))  # an NkiGrid of (1, 6) cells
        widths = [grid[0, j].element_shape[1] for j in range(grid.shape[1])]  # the last is 32
    """

    def __init__(self, source: NkiTensor, axes: tuple[Axis, ...], origin: int):
        self._source = source
        self._axes = axes
        self._origin = origin

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells per coordinate; a coordinate that an int chose is gone."""
        return tuple(a.count for a in self._axes if not a.taken)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Nominal elements of a tile per tiled dimension."""
        return tuple(a.tile for a in self._axes if a.tiled)

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Selected elements per dimension of the source, clamped; without untiled dimensions that an int chose."""
        return tuple(a.elements for a in self._seen())

    @property
    def index_step_elements(self) -> tuple[int, ...]:
        """Source elements from one coordinate to the next."""
        return tuple(a.cell * a.every for a in self._axes if not a.taken)

    @property
    def is_remainder(self) -> bool:
        """Whether the selection holds a tile or block that the end of the tensor clamped."""
        return any(a.partial for a in self._axes)

    @property
    def is_data_representable(self) -> bool:
        """Whether :attr:`data` is one access pattern."""
        return all(a.dense for a in self._axes)

    @property
    def dtype(self) -> str:
        return self._source.dtype

    @property
    def buffer(self) -> MemoryRegion:
        return self._source.buffer

    @property
    def data(self) -> NkiTensor:
        """The selection as one operand, of shape :attr:`element_shape`.

        Raises:
            NkiValidationError: no one pattern walks its elements in order.
        """
        if not self.is_data_representable:
            raise self._error(DATA, f"data of {self.words()}")
        offset = self._origin + sum(a.offset for a in self._axes)
        source, seen = self._source, self._seen()
        shape, steps = tuple(a.elements for a in seen), tuple(a.step for a in seen)
        return NkiTensor(source.storage, source.memory, source.info, shape, steps, offset, source.dynamic)

    def _seen(self) -> list[Axis]:
        return [a for a in self._axes if a.tiled or not a.taken]

    def words(self) -> str:
        """What it is, as diagnoses print it."""
        shape, tile = (" × ".join(map(str, s)) for s in (self.shape, self.tile_shape))
        return f"a grid of [{shape}] {self._cells()} of [{tile}] over {self._source.storage.allocation.label}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.words()})"

    def _cells(self) -> str:
        return "tiles"

    def _error(self, rule: Rule, what: str, error: type[NkiError] = NkiAssertionError) -> NkiError:
        return fail(rule, what, target=context.core().target, subject=self._source.storage.allocation.label, error=error)

    # -- navigation --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.shape:
            raise self._error(INDEX, "the length of a single cell", NkiTypeError)
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        """Choose cells; the result is a grid of the same kind.

        Raises:
            NkiIndexError: a cell that does not exist. NkiTypeError: any other kind of index.
        """
        keys = list(key) if isinstance(key, tuple) else [key]
        free = [i for i, a in enumerate(self._axes) if not a.taken]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys[at : at + 1] = [slice(None)] * (len(free) - len(keys) + 1)
        if len(keys) > len(free) or Ellipsis in keys:
            raise self._error(INDEX, f"{len(keys)} indices for {len(free)} coordinates", NkiIndexError)
        axes = list(self._axes)
        for i, item in zip(free, keys, strict=False):
            axes[i] = self._chosen(axes[i], item)
        return type(self)(self._source, tuple(axes), self._origin)

    def _chosen(self, axis: Axis, item: Any) -> Axis:
        if isinstance(item, slice):
            bounds = (item.start, item.stop, item.step)
            if not all(b is None or isinstance(b, int) for b in bounds) or (item.step or 1) < 1:
                raise self._error(INDEX, f"slice {item.start}:{item.stop}:{item.step}", NkiTypeError)
            start, stop, step = item.indices(axis.count)
            if start >= stop or max(item.start or 0, item.stop or 0) > axis.count:
                raise self._error(INDEX, f"slice {item.start}:{item.stop} of {axis.count} {self._cells()}", NkiIndexError)
            first, count = axis.first + start * axis.every, -(-(stop - start) // step)
            return replace(axis, first=first, count=count, every=axis.every * step)
        if not isinstance(item, int) or isinstance(item, bool):
            raise self._error(INDEX, f"index of type {type(item).__name__}", NkiTypeError)
        index = item + axis.count if item < 0 else item
        if not 0 <= index < axis.count:
            raise self._error(INDEX, f"index {item} of {axis.count} {self._cells()}", NkiIndexError)
        return replace(axis, first=axis.first + index * axis.every, count=1, every=1, taken=True)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise self._error(INDEX, "assignment to cells: write them with an instruction, dst=g[…].data", NkiTypeError)


class NkiTileGrid(NkiGrid):
    """A tensor in coordinates of its tiles.

    Example:
        grid = nl.tiles(x, tile_shape=(64, 96))  # an NkiTileGrid of (2, 6) tiles
        tile = nl.load(grid[1, 5].data)  # (64, 32)
    """


class NkiBlockGrid(NkiGrid):
    """A tensor in coordinates of blocks of tiles; ``nl.tiles(block)`` gives the tiles of one.

    Example:
        blocks = nl.blocks(x, tile_shape=(64, 96), block_shape=(1, 2))  # an NkiBlockGrid of (2, 3) blocks
        for cell in range(2):
            tile = nl.load(nl.tiles(blocks[1, 2])[0, cell].data)
    """

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Tiles of a block per tiled dimension."""
        return tuple(a.block for a in self._axes if a.tiled)

    def _cells(self) -> str:
        return "blocks"


Source = NkiTensor | NkiTileGrid | NkiBlockGrid


def tiles(source: Source, *, tile_shape: tuple[int, ...] | None = None) -> NkiTileGrid:
    """A tensor in coordinates of tiles of ``tile_shape``, which covers its last dimensions.

    Args:
        source: a tensor; a grid is cut anew, or with its own tiles when tile_shape is not given.
        tile_shape: elements of a tile, at least two dimensions. The last tiles are as small as the tensor's end makes them.

    Raises:
        NkiTypeError, NkiValueError: tile_shape does not fit.

    Example:
        grid = nl.tiles(x, tile_shape=(64, 96))  # (2, 6) tiles
        for i, j in np.ndindex(grid.shape):
            tile = nl.load(grid[i, j].data)  # (64, 96), at the end (64, 32)
    """
    shape = _tile_shape("nl.tiles", source, tile_shape)
    return NkiTileGrid(*_cut("nl.tiles", source, shape, (1,) * len(shape)))


def blocks(source: Source, *, tile_shape: tuple[int, ...] | None = None, block_shape: tuple[int, ...]) -> NkiBlockGrid:
    """A tensor in coordinates of blocks of ``block_shape`` tiles of ``tile_shape`` elements.

    Args:
        source, tile_shape: as for ``nl.tiles``.
        block_shape: tiles of a block, one number for each dimension of a tile.

    Example:
        grid = nl.blocks(x, tile_shape=(64, 96), block_shape=(1, 2))  # (2, 3) blocks
        tile = nl.load(grid[1, 0].data)  # (64, 192)
    """
    shape = _tile_shape("nl.blocks", source, tile_shape)
    return NkiBlockGrid(*_cut("nl.blocks", source, shape, _sizes("nl.blocks", "block_shape", block_shape)))


def alloc_tiles(
    *,
    tile_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: Any,
    address: tuple[int, ...] | None = None,
    name: str = "",
) -> NkiTileGrid:
    """New, unwritten storage as a grid of tiles.

    Args:
        tile_shape: elements of a tile; on chip its first size is the partitions of all tiles.
        element_shape: elements in all; HBM holds just these, SBUF and PSUM keep whole tiles one after the other in the
            free dimension.
        buffer, dtype, address, name: as for ``nl.ndarray``.

    Raises:
        NkiTypeError, NkiValueError, NkiAssertionError: shapes or buffer that do not fit; memory that there is not.

    Example:
        stored = nl.alloc_tiles(tile_shape=(64, 96), element_shape=x.shape, buffer=nl.sbuf, dtype=x.dtype)
        source = nl.tiles(x, tile_shape=(64, 96))
        for i, j in np.ndindex(source.shape):
            nisa.dma_copy(dst=stored[i, j].data, src=source[i, j].data)
    """
    shape, where = _sizes("nl.alloc_tiles", "tile_shape", tile_shape), _Where(buffer, dtype, address, name)
    return NkiTileGrid(*_allocated("nl.alloc_tiles", shape, (1,) * len(shape), element_shape, where))


def alloc_blocks(
    *,
    tile_shape: tuple[int, ...],
    block_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: Any,
    address: tuple[int, ...] | None = None,
    name: str = "",
) -> NkiBlockGrid:
    """New, unwritten storage as a grid of blocks: the tiles lie as ``alloc_tiles`` lays them, blocks only group them.

    Args:
        tile_shape, element_shape, buffer, dtype, address, name: as for ``nl.alloc_tiles``.
        block_shape: tiles of a block, one number for each dimension of a tile.

    Example:
        stored = nl.alloc_blocks(tile_shape=(128, 64), block_shape=(1, 2), element_shape=(128, 256),
                                 buffer=nl.sbuf, dtype=x.dtype)
        for block in range(2):
            nisa.dma_copy(dst=stored[0, block].data, src=x[:, 128 * block : 128 * (block + 1)])
    """
    shape = _sizes("nl.alloc_blocks", "tile_shape", tile_shape)
    groups, where = _sizes("nl.alloc_blocks", "block_shape", block_shape), _Where(buffer, dtype, address, name)
    return NkiBlockGrid(*_allocated("nl.alloc_blocks", shape, groups, element_shape, where))


def empty_like(
    x: Source,
    dtype: Any = None,
    buffer: MemoryRegion | None = None,
    name: str = "",
    *,
    transpose_axes: tuple[int, ...] | None = None,
    address: tuple[int, ...] | None = None,
) -> Source:
    """A new, unwritten tensor of x's shape, or a grid of x's kind, coordinates, tiles, blocks and remainders.

    Args:
        x: a tensor or grid. Cells that a slice with a step chose are packed.
        dtype, buffer: x's when not given.
        transpose_axes: the order of a later ``nisa.dma_transpose`` of the selection into the new tiles, in SBUF.
        address: as for ``nl.ndarray``.

    Example:
        a = nl.load(x[:, 0:64])
        b = nl.empty_like(a, dtype=nl.bfloat16)
        nisa.tensor_copy(dst=b, src=a)
    """
    where = _Where(buffer or x.buffer, dtype or x.dtype, address, name)
    if isinstance(x, NkiTensor):
        order = _order(len(x.shape), x.shape, transpose_axes, where)
        return ndarray([x.shape[d] for d in order], where.dtype, where.buffer, name, address)
    tiled = [a for a in x._axes if a.tiled]
    order = _order(len(tiled), tuple(a.elements for a in tiled), transpose_axes, where)
    tiled = [tiled[d] for d in order]
    kept = [a for a in x._axes if not a.tiled and not a.taken] + tiled
    made = _allocated("nl.empty_like", tuple(a.tile for a in tiled), tuple(a.block for a in tiled),
                      tuple(a.elements for a in kept), where)  # fmt: skip
    axes = tuple(replace(new, taken=old.taken) for new, old in zip(made[1], kept, strict=True))
    return type(x)(made[0], axes, made[2])


# -- making grids ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Where:
    """Where and as what new storage is wanted."""

    buffer: Any
    dtype: Any
    address: tuple[int, ...] | None
    name: str


Parts = tuple[NkiTensor, tuple[Axis, ...], int]


def _fail(rule: Rule, what: str, subject: str, operand: str, error: type[NkiError] = NkiValueError) -> NkiError:
    return fail(rule, what, target=context.core().target, subject=subject, operand=operand, error=error)


def _sizes(subject: str, name: str, shape: Any) -> tuple[int, ...]:
    """A tuple of positive ints."""
    if not isinstance(shape, tuple) or not all(type(n) is int for n in shape):
        raise _fail(SHAPES, f"{name} is {shape!r}", subject, name, NkiTypeError)
    if any(n < 1 for n in shape):
        raise _fail(SIZES, f"{name} is {shape}", subject, name)
    return shape


def _tile_shape(subject: str, source: Any, tile_shape: Any) -> tuple[int, ...]:
    if not isinstance(source, (NkiTensor, NkiGrid)):
        raise _fail(SOURCE, f"source is a {type(source).__name__}", subject, "source", NkiTypeError)
    if tile_shape is None:
        if isinstance(source, NkiTensor):
            raise _fail(SOURCE, "tile_shape is not given", subject, "tile_shape", NkiTypeError)
        return source.tile_shape
    return _sizes(subject, "tile_shape", tile_shape)


def _check_ranks(subject: str, tile: Sequence[int], block: Sequence[int], rank: int) -> None:
    if not 2 <= len(tile) <= rank:
        raise _fail(SIZES, f"tile_shape {tuple(tile)} for {rank} dimensions", subject, "tile_shape")
    if len(block) != len(tile):
        raise _fail(SIZES, f"block_shape {tuple(block)} for tile_shape {tuple(tile)}", subject, "block_shape")


def _cut(subject: str, source: Source, tile: tuple[int, ...], block: tuple[int, ...]) -> Parts:
    """The axes of a grid over a tensor or over the selection of another grid."""
    if isinstance(source, NkiTensor):
        old = [Axis(1, n, s, s).whole() for n, s in zip(source.shape, source.strides, strict=True)]
        origin, tensor = source.offset, source
    else:
        old, tensor = source._seen(), source._source
        origin = source._origin + sum(a.offset for a in source._axes)
    _check_ranks(subject, tile, block, len(old))
    prefix = len(old) - len(tile)
    if prefix and tensor.on_chip and isinstance(source, NkiTensor):
        raise _fail(PARTITIONS, f"tile_shape {tile} over {tensor.words()}", subject, "tile_shape")
    axes = [_untiled(a) for a in old[:prefix]]
    for axis, elements, group in zip(old[prefix:], tile, block, strict=True):
        gaps = axis.count > 1 and axis.every > 1
        if gaps or not (axis.dense or axis.tile == elements):
            raise _fail(REGROUP, f"tiles of {elements} over {axis.count} of {axis.cell} elements", subject, "tile_shape")
        step = elements * axis.step if axis.dense else axis.tile_step
        axes.append(Axis(elements, axis.elements, axis.step, step, group).whole())
    return tensor, tuple(axes), origin


def _untiled(axis: Axis) -> Axis:
    if axis.tiled:
        return Axis(1, axis.elements, axis.step, axis.step, tiled=False).whole()
    return replace(axis, size=axis.count, first=0, tile_step=axis.tile_step * axis.every, every=1)


def _allocated(subject: str, tile: tuple[int, ...], block: tuple[int, ...], elements: Any, where: _Where) -> Parts:
    """New storage, and the axes of a grid over it."""
    sizes = _sizes(subject, "element_shape", elements)
    _check_ranks(subject, tile, block, len(sizes))
    if not isinstance(where.buffer, MemoryRegion):
        raise _fail(BUFFER, f"buffer is {where.buffer!r}", subject, "buffer", NkiTypeError)
    if not where.buffer.on_chip:
        made = ndarray(sizes, where.dtype, where.buffer, where.name, where.address)
        return _cut(subject, made, tile, block)
    prefix = len(sizes) - len(tile)
    counts = [*sizes[:prefix], *[-(-n // t) for n, t in zip(sizes[prefix:], tile, strict=True)]]
    inner = math.prod(tile[1:])  # elements of one tile in a partition
    made = ndarray((tile[0], math.prod(counts) * inner), where.dtype, where.buffer, where.name, where.address)
    steps = [made.row_elems, *[math.prod(tile[d + 1 :]) for d in range(1, len(tile))]]
    tile_steps = [math.prod(counts[d + 1 :]) * inner for d in range(len(counts))]
    axes = [Axis(1, n, s, s, tiled=False).whole() for n, s in zip(sizes[:prefix], tile_steps, strict=False)]
    for d, (size, extent, group) in enumerate(zip(tile, sizes[prefix:], block, strict=True)):
        axes.append(Axis(size, extent, steps[d], tile_steps[prefix + d], group).whole())
    return made, tuple(axes), made.offset


def _order(rank: int, extents: Sequence[int], axes: tuple[int, ...] | None, where: _Where) -> tuple[int, ...]:
    """The order of the tiled dimensions in the new storage."""
    if axes is None:
        return tuple(range(rank))
    if axes not in _ORDERS or len(axes) != rank or where.buffer is not MemoryRegion.sbuf:
        what = f"transpose_axes {axes!r} for {rank} dimensions and buffer {where.buffer!r}"
        raise _fail(TRANSPOSE, what, "nl.empty_like", "transpose_axes")
    if extents[axes[0]] > 128:
        what = f"{extents[axes[0]]} elements would become partitions"
        raise _fail(TRANSPOSE, what, "nl.empty_like", "transpose_axes")
    return axes
