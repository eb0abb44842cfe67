"""Tensor indirection: which elements the offsets of an ``.indirect()`` view mean, how a body reaches them, and its limits.

Offsets count along the free dimension and are laid out like those of a gather on GpSimd: within a group of partitions,
offset i lies on partition ``i mod G`` of the group, in column ``i // G``; all partitions of the group use it. G is 16, on
the Tensor Engine 32. The documents write ``index[i % G, i // G]`` without saying whose partitions; since the index has as
many as the data and starts where the data do, each group is taken to read its own, which for an index that repeats in
every group is the other reading too.
Source: ``NkiTensor.indirect``, and the paragraph on tensor indirection of each instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from nki_sim.dtypes import Array, filled, poison
from nki_sim.errors import Broken, Rule, isa_page, page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.enums import engine
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

Check = Callable[[Any, NeuronCore], "Broken | None"]

_TENSOR = page("api/generated/nki.language.NkiTensor.html")

OUT_OF_RANGE = Rule(
    "tensor.indirect_range",
    "an offset of an indirect() view lies inside the free dimension that it picks from",
    why="nobody checks it: what is read is not defined (here: NaN or 4), what is written is lost (here) or hits a neighbour",
    fix="clamp the offsets with nisa.tensor_scalar, op nl.minimum",
    page=_TENSOR,
    gens=(4,),
    enforce="ub",
)


def group_of(on: engine) -> int:
    """Partitions that share their offsets on an engine."""
    return 32 if on is engine.tensor else 16


def is_indirect(value: Any) -> bool:
    """Whether a value is an ``.indirect()`` view."""
    return type(value) is NkiTensor and value.dynamic is not None and value.dynamic.base is not None


def index_of(view: NkiTensor) -> NkiTensor:
    """The offsets of an ``.indirect()`` view."""
    assert view.dynamic is not None
    index: NkiTensor = view.dynamic.index
    return index


def base_of(view: NkiTensor) -> NkiTensor:
    """What an ``.indirect()`` view picks from; any other tensor itself."""
    return view.dynamic.base if view.dynamic is not None and view.dynamic.base is not None else view


def same_index(a: NkiTensor, b: NkiTensor) -> bool:
    """Whether two ``.indirect()`` views read the same offsets."""
    first, second = index_of(a), index_of(b)
    return first.storage is second.storage and first.pattern == second.pattern


# -- at run time --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _places(rows: int, count: int, group: int) -> tuple[Array, Array]:
    """Partition and column in the index of the offset of every element."""
    i = np.arange(count)
    return np.arange(rows)[:, None] // group * group + i % group, np.broadcast_to(i // group, (rows, count))


def available(view: NkiTensor, group: int) -> int:
    """How many offsets every group of the view's partitions has."""
    partitions, columns = index_of(view).shape
    return partitions % group or group * columns


def offsets(view: NkiTensor, index: Array, group: int) -> Array:
    """The offset of every element of the view; -1 for those outside."""
    rows, count = view.shape
    found = index[_places(rows, count, group)].astype(np.int64)
    return np.where((found >= 0) & (found < base_of(view).shape[1]), found, -1)


def chosen(view: NkiTensor, group: int) -> Array:
    """Which elements of its base the view means now: a mask of the base's shape."""
    at = offsets(view, index_of(view).array, group)
    mask = np.zeros(base_of(view).shape, np.bool_)
    rows, columns = np.nonzero(at >= 0)
    mask[rows, at[rows, columns]] = True
    return mask


def gather(base: Array, at: Array, nothing: Array) -> Array:
    """The elements at offsets, ``nothing`` where there are none."""
    values: Array = np.take_along_axis(base, np.maximum(at, 0), axis=1)
    values[at < 0] = nothing
    return values


def scatter(base: Array, at: Array, values: Array) -> None:
    """Put elements at offsets, the last of equal ones last; those without one are dropped."""
    rows, columns = np.nonzero(at >= 0)
    base[rows, at[rows, columns]] = values[rows, columns]


Place = tuple[str, bool, NkiTensor]
"""An operand: its name, whether it is written, and the view."""


def reaching(
    body: Callable[..., None], operands: Sequence[Place | None], group: int, report: Callable[[Broken], None]
) -> Callable[..., None]:
    """A body for indirect operands: it sees their elements, gathered, and those that it writes go back.

    Args:
        body: takes one array per operand.
        operands: for each of them its place when it is indirect.
        group: partitions that share offsets.
        report: told of offsets outside.

    Returns:
        A body that takes the arrays of the bases, then the indices of the indirect operands in their order.
    """
    nothing = [None if o is None else filled((), poison(o[2].info), o[2].stored_dtype) for o in operands]

    def run(*given: Any) -> None:
        arguments, indices = list(given[: len(operands)]), iter(given[len(operands) :])
        back = []
        for i, operand in enumerate(operands):
            if operand is None:
                continue
            name, writes, view = operand
            at = offsets(view, next(indices), group)
            if (at < 0).any():
                report(Broken(f"{int((at < 0).sum())} offsets of {name} outside {base_of(view).shape[1]} elements", name))
            arguments[i] = gather(given[i], at, nothing[i])  # type: ignore[arg-type]
            if writes:
                back.append((given[i], at, arguments[i]))
        body(*arguments)
        for target in back:
            scatter(*target)

    return run


# -- limits -------------------------------------------------------------------------------------------------------------


def allowed(prefix: str, names: tuple[str, ...], engines: tuple[engine, ...]) -> Check:
    """The check that only ``names`` are indirect, and only on ``engines``."""
    units = " or ".join(e.name for e in engines)

    @rule(f"{prefix}.indirect.operands", f"indirect() views are {' and '.join(names)} only, on the {units} engine", gens=(4,),
          page=isa_page(_NAMES.get(prefix, prefix)), fix="copy the elements to a tile with nisa.tensor_copy first")  # fmt: skip
    def check(self: Any, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            if is_indirect(tile) and name not in names:
                return Broken(f"{name} is an indirect() view", name)
            if is_indirect(tile) and self.resolve_engine(core) not in engines:
                return Broken(f"{name} is an indirect() view on engine {self.resolve_engine(core).name}", name)
        return None

    return check


def aligned(prefix: str, source: str, target: str = "dst") -> Check:
    """The check of the partitions at which the index of an indirect operand starts."""

    words = (
        f"the index of an indirect() view starts at a quadrant (a multiple of 32); an indirect {source} starts where its "
        f"index does; the index of an indirect {target} starts where {source} does when that is in SBUF, where the index of "
        f"{source} does when that is indirect in PSUM"
    )
    fix = "allocate data and index at the same partition, a multiple of 32"

    @rule(f"{prefix}.indirect.partitions", words, gens=(4,), page=isa_page(_NAMES.get(prefix, prefix)), fix=fix)
    def check(self: Any, core: NeuronCore) -> Broken | None:
        off = off_quadrant(self) or misplaced(self, source)
        if off is not None:
            return off
        given, out = getattr(self, source), getattr(self, target)
        if not is_indirect(out):
            return None
        first, at = given.start_partition, index_of(out).start_partition
        if given.buffer is MemoryRegion.sbuf and at != first:
            return Broken(f"the index of {target} starts at partition {at}, {source} at {first}", target)
        if given.buffer is MemoryRegion.psum and is_indirect(given) and at != index_of(given).start_partition:
            other = index_of(given).start_partition
            return Broken(f"the index of {target} starts at partition {at}, that of {source} at {other}", target)
        return None

    return check


def no_psum_scatter(prefix: str) -> Check:
    """The check that the Scalar Engine does not scatter to PSUM."""

    @rule(f"{prefix}.indirect.scalar_scatter_psum", "on the Scalar Engine an indirect dst is in SBUF", gens=(4,),
          page=isa_page(_NAMES.get(prefix, prefix)), fix="scatter to an SBUF tile, or on the Vector Engine")  # fmt: skip
    def check(self: Any, core: NeuronCore) -> Broken | None:
        bad = is_indirect(self.dst) and self.dst.buffer is MemoryRegion.psum and self.resolve_engine(core) is engine.scalar
        return Broken("dst is an indirect() view in PSUM", "dst") if bad else None

    return check


def off_quadrant(self: Any) -> Broken | None:
    """An index that starts in the middle of a quadrant."""
    for name, tile in self.tiles():
        if is_indirect(tile) and index_of(tile).start_partition % 32:
            return Broken(f"the index of {name} starts at partition {index_of(tile).start_partition}", name)
    return None


def misplaced(self: Any, *names: str) -> Broken | None:
    """An indirect operand that starts elsewhere than its index."""
    for name in names:
        tile = getattr(self, name)
        if is_indirect(tile) and tile.start_partition != index_of(tile).start_partition:
            other = index_of(tile).start_partition
            return Broken(f"{name} starts at partition {tile.start_partition}, its index at {other}", name)
    return None


def scattered_off(self: Any) -> Broken | None:
    """A matmul whose dst is indirect with an index that starts elsewhere than stationary."""
    if not is_indirect(self.dst):
        return None
    at, first = index_of(self.dst).start_partition, self.stationary.start_partition
    return Broken(f"the index of dst starts at partition {at}, stationary at {first}", "dst") if at != first else None


_NAMES = {"tcp": "tensor_copy_predicated"}
"""Instructions whose rules have a short prefix."""


@rule("tensor.indirect_num_elem", "every group of 16 partitions (32 on the Tensor Engine) holds num_elem offsets: at most G·K "
      "for K columns, or the size of a last, smaller group", gens=(4,), page=_TENSOR,
      why="offset i lies on partition i mod G of the group", fix="pass num_elem, or give the index more columns")  # fmt: skip
def enough_offsets(self: Any, core: NeuronCore) -> Broken | None:
    """Every partition has its offsets."""
    for name, tile in self.tiles():
        if not is_indirect(tile):
            continue
        most = available(tile, group_of(self.resolve_engine(core)))
        if tile.shape[1] > most:
            return Broken(f"{name} has {tile.shape[1]} elements per partition, a group has {most} offsets", name)
    return None


@rule("tensor.indirect_operands", "indirect() views are operands of the instructions that know tensor indirection",
      gens=(4,), page=_TENSOR,
      fix="gather to a tile first: nisa.tensor_copy(dst=<tile>, src=x.indirect(i))")  # fmt: skip
def known(self: Any, core: NeuronCore) -> Broken | None:
    """The instruction knows tensor indirection."""
    if any(".indirect." in checked.rule.id for checked in type(self).checks):
        return None
    found = next((name for name, tile in self.tiles() if is_indirect(tile)), "")
    return Broken(f"{found} is an indirect() view", found) if found else None
