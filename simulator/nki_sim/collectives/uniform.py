"""``all_reduce``, ``all_gather``, ``reduce_scatter`` and ``all_to_all``: every rank gives and gets equally much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki_sim import ops
from nki_sim.collectives.base import (
    SHAPES,
    Collective,
    checked,
    coalesced_rule,
    memory_rule,
    op_rule,
    ranks_of,
    shaped,
    tensors,
)
from nki_sim.collectives.group import ReplicaGroup
from nki_sim.dtypes import Array, write_integers
from nki_sim.errors import Broken, Rule, page
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import Body
from nki_sim.isa.values import loader, storer
from nki_sim.tensor import NkiTensor

REDUCE_MEMORY, REDUCE_COALESCED = memory_rule("all_reduce"), coalesced_rule("all_reduce")
REDUCE_OP = op_rule("all_reduce", "coll.all_reduce.op")
GATHER_MEMORY, GATHER_COALESCED = memory_rule("all_gather"), coalesced_rule("all_gather")
GATHER_DIM = Rule(
    "coll.all_gather.dim",
    "collective_dim is 0 for tensors in HBM, 0 or 1 for 2-D tiles in SBUF",
    fix="gather along dimension 0 and read the result with .reshape and .permute",
    page=page("api/generated/nki.collectives.all_gather.html"),
)
SCATTER_MEMORY, SCATTER_COALESCED = memory_rule("reduce_scatter"), coalesced_rule("reduce_scatter")
SCATTER_OP = op_rule("reduce_scatter", "coll.reduce_scatter.op")
SCATTER_DIM = Rule(
    "coll.reduce_scatter.dim",
    "collective_dim is 0",
    page=page("api/generated/nki.collectives.reduce_scatter.html"),
)
EXCHANGE_HBM = Rule(
    "coll.all_to_all.hbm",
    "all_to_all takes tensors in HBM, and collective_dim 0",
    fix="copy SBUF tiles to HBM first: nisa.dma_copy",
    page=page("api/generated/nki.collectives.all_to_all.html"),
)


def _size(tiles: Sequence[NkiTensor]) -> int:
    return sum(tile.size * tile.info.itemsize for tile in tiles)


class Uniform(Collective):
    """Of equally large parts."""

    collective_dim: int = 0

    def expected(self, src: NkiTensor) -> tuple[int, ...] | None:
        """The shape of the dst of a src; ``None`` where it cannot be divided."""
        return src.shape

    def shapes(self, core: NeuronCore) -> Broken | None:
        for i, (src, dst) in enumerate(zip(self.srcs, self.dsts, strict=True)):
            wanted = self.expected(src)
            if wanted is None:
                return Broken(f"src{i} has {src.shape[0]} rows for {self.gathered} ranks", f"src{i}")
            if tuple(dst.shape) != wanted:
                return Broken(f"dst{i} has shape {tuple(dst.shape)}, not {wanted}", f"dst{i}")
        return self.dtypes(core)

    def dimension(self, core: NeuronCore) -> Broken | None:
        dim = self.collective_dim
        return Broken(f"collective_dim is {dim!r}", "collective_dim") if isinstance(dim, bool) or dim != 0 else None

    def _part(self, whole: tuple[int, ...]) -> tuple[int, ...] | None:
        return None if whole[0] % self.gathered else (whole[0] // self.gathered, *whole[1:])

    def parts(self, arrays: Sequence[Array]) -> tuple[Sequence[Array], list[Sequence[Array]]]:
        """Of a body's arrays the dsts, and for each of them the sources of all ranks."""
        n, m, peers = self.lists
        dsts, sources = arrays[n : n + m], arrays[n + m :]
        return dsts, [sources[i:peers:n] for i in range(n)]


def reducer(op: Any, src: NkiTensor, dst: NkiTensor) -> Callable[[Array, Sequence[Array]], None]:
    """``reduce(into, sources)``: sources of all ranks together, in the order of the list, in float32 or as whole numbers."""
    ufunc = ops.lookup(op).ufunc
    assert ufunc is not None
    info, whole, load, store = dst.info, dst.info.is_integer, loader(src), storer(dst)

    def reduce(into: Array, sources: Sequence[Array]) -> None:
        values = [source.astype(np.int64) if whole else load(source) for source in sources]
        total = np.array(values[0])
        for value in values[1:]:
            total = ufunc(total, value)
        if whole:
            write_integers(into, info, total)
        else:
            store(into, total)

    return reduce


class AllReduce(Uniform):
    """Every rank gets the reduction of all."""

    instruction = "all_reduce"
    declared = ("op",)
    checks = checked(
        (REDUCE_MEMORY, Collective.one_memory),
        (REDUCE_COALESCED, Collective.one_on_chip),
        (REDUCE_OP, Collective.known_op),
        (SHAPES, Uniform.shapes),
    )

    def moved(self) -> tuple[float, int]:
        n = self.gathered
        return 2 * (n - 1) / n * _size(self.srcs), 2 * (n - 1)

    def body(self, core: NeuronCore) -> Body:
        reducers = [reducer(self.op, *pair) for pair in zip(self.srcs, self.dsts, strict=True)]

        def all_of_it(*arrays: Array) -> None:
            for reduce, dst, given in zip(reducers, *self.parts(arrays), strict=True):
                reduce(dst, given)

        return all_of_it


class AllGather(Uniform):
    """Every rank gets what all have, one after the other."""

    instruction = "all_gather"
    declared = ("collective_dim",)

    def gather_dimension(self, core: NeuronCore) -> Broken | None:
        dim, tile = self.collective_dim, self.src0
        flat = tile.on_chip and len(tile.shape) == 2
        good = not isinstance(dim, bool) and (dim == 0 or (dim == 1 and flat))
        if tile.on_chip and len(tile.shape) != 2:
            return Broken(f"src0 has {len(tile.shape)} dimensions in SBUF", "src0")
        where = "SBUF" if tile.on_chip else "HBM"
        return None if good else Broken(f"collective_dim is {dim!r} for tensors in {where}", "collective_dim")

    checks = checked(
        (GATHER_MEMORY, Collective.one_memory),
        (GATHER_COALESCED, Collective.one_on_chip),
        (GATHER_DIM, gather_dimension),
        (SHAPES, Uniform.shapes),
    )

    def expected(self, src: NkiTensor) -> tuple[int, ...]:
        dim = self.collective_dim
        return tuple(size * self.gathered if i == dim else size for i, size in enumerate(src.shape))

    def moved(self) -> tuple[float, int]:
        n = self.gathered
        return (n - 1) * float(_size(self.srcs)), n - 1

    def body(self, core: NeuronCore) -> Body:
        dim = self.collective_dim

        def gather(*arrays: Array) -> None:
            for dst, given in zip(*self.parts(arrays), strict=True):
                size = given[0].shape[dim]
                for place, source in enumerate(given):
                    part = (slice(None),) * dim + (slice(place * size, (place + 1) * size),)
                    np.copyto(dst[part], source)

        return gather


class ReduceScatter(Uniform):
    """Every rank gets its part of the reduction of all."""

    instruction = "reduce_scatter"
    declared = ("op", "collective_dim")
    checks = checked(
        (SCATTER_MEMORY, Collective.one_memory),
        (SCATTER_COALESCED, Collective.one_on_chip),
        (SCATTER_DIM, Uniform.dimension),
        (SCATTER_OP, Collective.known_op),
        (SHAPES, Uniform.shapes),
    )

    def expected(self, src: NkiTensor) -> tuple[int, ...] | None:
        return self._part(tuple(src.shape))

    def moved(self) -> tuple[float, int]:
        n = self.gathered
        return (n - 1) / n * _size(self.srcs), n - 1

    def body(self, core: NeuronCore) -> Body:
        reducers, place = [reducer(self.op, *pair) for pair in zip(self.srcs, self.dsts, strict=True)], self.place

        def my_part(*arrays: Array) -> None:
            for reduce, dst, given in zip(reducers, *self.parts(arrays), strict=True):
                rows = dst.shape[0]
                reduce(dst, [source[place * rows : (place + 1) * rows] for source in given])

        return my_part


class AllToAll(Uniform):
    """Every rank gives each other one a part of what it has."""

    instruction = "all_to_all"
    declared = ("collective_dim",)

    def hbm_along_0(self, core: NeuronCore) -> Broken | None:
        return self.in_hbm(core) or self.dimension(core)

    checks = checked((EXCHANGE_HBM, hbm_along_0), (SHAPES, Uniform.shapes))

    def expected(self, src: NkiTensor) -> tuple[int, ...] | None:
        return None if src.shape[0] % self.gathered else tuple(src.shape)

    def moved(self) -> tuple[float, int]:
        n = self.gathered
        return (n - 1) / n * _size(self.srcs), n - 1

    def body(self, core: NeuronCore) -> Body:
        place, n = self.place, self.gathered

        def exchange(*arrays: Array) -> None:
            for dst, given in zip(*self.parts(arrays), strict=True):
                rows = dst.shape[0] // n
                for other, source in enumerate(given):
                    np.copyto(dst[other * rows : (other + 1) * rows], source[place * rows : (place + 1) * rows])

        return exchange


def _make(kind: type[Collective], srcs: Any, dsts: Any, group: Any, name: str | None, **given: Any) -> Any:
    subject = f"ncc.{kind.instruction}"
    sources, targets = tensors(srcs, dsts, subject)
    ranks = ranks_of(group, subject)
    made = shaped(kind, len(sources), len(targets), len(sources) * len(ranks))
    return made(sources, targets, ranks, name, **given)


def all_reduce(srcs: Any, dsts: Any, replica_group: ReplicaGroup, op: Any, priority: int | None = None,
                name: str | None = None) -> Any:  # fmt: skip
    """Every rank of a list gets the elementwise reduction of what all of them have.

    Args:
        srcs, dsts: lists of tensors, all in HBM or one each in SBUF; a dst has its src's shape and dtype.
        replica_group: the lists of ranks. op: ``nl.add``, ``nl.minimum`` or ``nl.maximum``, taken in the order of the list.
        priority: 0 to 3, on trn3.

    Example:
        alone = ncc.ReplicaGroup([[0]])  # of n ranks: [list(range(n))]
        a, b = (nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        nisa.dma_copy(dst=a, src=x[:, 0:64])
        ncc.all_reduce(srcs=[a], dsts=[b], replica_group=alone, op=nl.add)
    """
    return _make(AllReduce, srcs, dsts, replica_group, name, op=op, priority=priority)


def all_gather(srcs: Any, dsts: Any, replica_group: ReplicaGroup, collective_dim: int, priority: int | None = None,
                name: str | None = None) -> Any:  # fmt: skip
    """Every rank of a list gets what all of them have, one after the other in the order of the list.

    Args:
        srcs, dsts: lists of tensors, all in HBM or one each in SBUF; a dst is as many times longer as there are ranks.
        replica_group: the lists of ranks. collective_dim: along which they follow each other: 0, or 1 in SBUF.
        priority: 0 to 3, on trn3.

    Example:
        alone = ncc.ReplicaGroup([[0]])  # of n ranks: [list(range(n))]
        mine, all_of_it = nl.load(x[:, 0:64]), nl.ndarray((128, 64), dtype=x.dtype)
        ncc.all_gather(srcs=[mine], dsts=[all_of_it], replica_group=alone, collective_dim=1)
    """
    return _make(AllGather, srcs, dsts, replica_group, name, collective_dim=collective_dim, priority=priority)


def reduce_scatter(srcs: Any, dsts: Any, replica_group: ReplicaGroup, collective_dim: int, op: Any,
                    priority: int | None = None, name: str | None = None) -> Any:  # fmt: skip
    """Every rank of a list gets its part of the elementwise reduction of what all of them have.

    Args:
        srcs, dsts: lists of tensors, all in HBM or one each in SBUF; a dst has its rank's share of the rows.
        replica_group: the lists of ranks. collective_dim: 0. op: ``nl.add``, ``nl.minimum`` or ``nl.maximum``.
        priority: 0 to 3, on trn3.

    Example:
        alone = ncc.ReplicaGroup([[0]])  # of n ranks: [list(range(n))]
        mine, part = nl.load(x[:, 0:64]), nl.ndarray((128, 64), dtype=x.dtype)
        ncc.reduce_scatter(srcs=[mine], dsts=[part], replica_group=alone, collective_dim=0, op=nl.maximum)
    """
    return _make(ReduceScatter, srcs, dsts, replica_group, name, collective_dim=collective_dim, op=op, priority=priority)


def all_to_all(srcs: Any, dsts: Any, replica_group: ReplicaGroup, collective_dim: int, priority: int | None = None,
                name: str | None = None) -> Any:  # fmt: skip
    """Every rank of a list gives each its part of the rows, and gets such a part of each.

    Args:
        srcs, dsts: lists of tensors in HBM, alike. replica_group: the lists of ranks. collective_dim: 0.
        priority: 0 to 3, on trn3.

    Example:
        alone = ncc.ReplicaGroup([[0]])  # of n ranks: [list(range(n))]
        a, b = (nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        nisa.dma_copy(dst=a, src=x[:, 0:64])
        ncc.all_to_all(srcs=[a], dsts=[b], replica_group=alone, collective_dim=0)
    """
    return _make(AllToAll, srcs, dsts, replica_group, name, collective_dim=collective_dim, priority=priority)
