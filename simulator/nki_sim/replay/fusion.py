"""What a recorded program need not do to have the same effect: copies that only move data, and products in pieces.

A tile that is loaded once and only read is read where it came from (:mod:`nki_sim.replay.loads`). A tile that is made once
and only stored is made where it goes. Matmuls that add up in PSUM over consecutive rows of the same inputs are one product
(:mod:`nki_sim.replay.sums`), and products of neighbouring tiles are one larger product; that changes the order of sums, nothing
else does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from nki_sim.replay.accesses import Access, is_dense, joined, within
from nki_sim.replay.loads import is_copying
from nki_sim.replay.nodes import Graph, Node, Product, Use
from nki_sim.replay.products import F32, multiplied


def fuse(graph: Graph) -> list[Node]:
    """The nodes that remain, in order."""
    outputs = _free_outputs(graph)
    products = [node for node in graph.nodes if isinstance(node, Product)]
    _evict_in_place(graph, products)
    _store_in_place(graph, outputs)
    merged = _neighbours(_neighbours(products, 1), 0)
    gone = {id(product) for product in products} - {id(product) for product in merged}
    return [node for node in graph.nodes if not node.dropped and id(node) not in gone]


# -- copies --------------------------------------------------------------------------------------------------------------


def _store_in_place(graph: Graph, outputs: set[Any]) -> None:
    """Tiles that are only stored are made where they are stored, in one piece or in several."""
    copying = {id(plan) for plan in graph.machine.program.plans if is_copying(plan)}
    for number, uses in list(graph.tiles()):
        *made, store = uses
        if not made or not _is_assembled(graph, number, uses, len(made)) or id(store.node.plan) not in copying:
            continue
        target: Access = store.node.operands[0]
        if target.key not in outputs or store.access != graph.whole(number) or not is_dense(target):
            continue
        parts = [within(use.access, graph.whole(number), target) for use in made]
        if all(parts) and all(use.node.operands[use.place].shape == part.shape for use, part in _pairs(made, parts)):
            store.node.dropped = True
            for use, part in _pairs(made, parts):
                graph.move(use, part)
            graph.forget(number)


def _pairs(uses: list[Use], parts: list[Access | None]) -> Iterator[tuple[Use, Access]]:
    for use, part in zip(uses, parts, strict=True):
        assert part is not None
        yield use, part


def _evict_in_place(graph: Graph, products: list[Product]) -> None:
    """A product whose only reader copies it, with or without rounding, goes where the copy goes."""
    for product in products:
        number = product.operands[0].key
        uses = graph.uses[number]
        if len(uses) != 2 or not _is_evicting(uses[1].node) or uses[1].access != graph.whole(number):
            continue
        copy = uses[1].node
        target: Access = copy.operands[0]
        into = graph.uses[target.key]
        if target.shape != product.operands[0].shape or not _is_assembled(graph, target.key, into, sum(u.writes for u in into)):
            continue
        if target.dtype != F32:
            product.function = multiplied(target.dtype)
        into[next(i for i, use in enumerate(into) if use.node is copy)] = Use(product, 0, True)
        copy.dropped = True
        product.operands[0] = target
        graph.forget(number)


def _is_assembled(graph: Graph, number: Any, uses: list[Use], count: int) -> bool:
    """Whether the first ``count`` uses of a tile write it, no byte twice, and the others only read."""
    if not isinstance(number, int) or not graph.allocation(number).region.on_chip:
        return False
    made = uses[:count]
    clean = all(use.writes and use.place not in use.node.updates for use in made) and not any(u.writes for u in uses[count:])
    apart = len({id(use.node) for use in uses}) == len(uses)
    return clean and apart and (count == 1 or _disjoint(made))


def _is_evicting(node: Node) -> bool:
    """A tensor_copy from float32 to float32 or to fewer bits."""
    if isinstance(node, Product) or node.plan.instruction != "tensor_copy":
        return False
    return node.plan.slots[1].dtype == "float32" and node.plan.slots[0].dtype in ("float32", "bfloat16", "float16")


def _free_outputs(graph: Graph) -> set[Any]:
    """HBM tensors that are only written, each element at most once: when does not matter."""
    free = set()
    for number, uses in graph.uses.items():
        if not isinstance(number, int) or graph.allocation(number).region.on_chip:
            continue
        if graph.allocation(number).role != "input" and all(use.writes for use in uses) and _disjoint(uses):
            free.add(number)
    return free


def _disjoint(uses: list[Use]) -> bool:
    """Whether no two accesses can share a byte: their spans do not meet, or they are tiles of one grid of rows."""
    rows: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for use in uses:
        rows.setdefault((*use.access.shape, *use.access.strides), set()).add((use.access.offset,))
    if len(rows) == 1 and sum(len(offsets) for offsets in rows.values()) == len(uses):
        shape, strides = uses[0].access.shape, uses[0].access.strides
        return _tiles_apart(shape, strides, sorted(use.access.offset for use in uses), uses[0].access.dtype.itemsize)
    spans = sorted((use.access.offset, _end(use.access)) for use in uses)
    return all(end <= start for (_, end), (start, _) in pairwise(spans))


def _tiles_apart(shape: tuple[int, ...], strides: tuple[int, ...], offsets: list[int], itemsize: int) -> bool:
    """Whether equal tiles at different offsets lie apart: each offset is a whole number of tiles away from the first."""
    if strides[-1] != itemsize or len(shape) != 2:
        return all(b - a >= _length(shape, strides, itemsize) for a, b in pairwise(offsets))
    pitch, width = strides[0], shape[1] * itemsize
    places = set()
    for offset in offsets:
        row, column = divmod(offset, pitch)
        if row % shape[0] or column % width or column + width > pitch:
            return False
        places.add((row, column))
    return len(places) == len(offsets)


def _length(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + itemsize


def _end(found: Access) -> int:
    return found.offset + _length(found.shape, found.strides, found.dtype.itemsize)


# -- products ------------------------------------------------------------------------------------------------------------


def _neighbours(products: list[Product], dim: int) -> list[Product]:
    """Products side by side in one output (``dim`` 1: same stationary; 0: same moving), as one each."""
    kept: dict[Any, Product] = {}
    merged: list[Product] = []
    for product in sorted(products, key=lambda p: (str(p.operands[0].key), p.operands[0].offset)):
        dst, stationary, moving = product.operands
        fixed, varied = (stationary, moving) if dim == 1 else (moving, stationary)
        key = (dst.key, fixed, dst.shape[1 - dim], dst.strides, product.function)
        before = kept.get(key)
        if before is not None:
            into = joined(before.operands[0], dst, dim)
            factor = joined(before.operands[2 if dim == 1 else 1], varied, 1)
            if into is not None and factor is not None and dst.strides[0] > dst.strides[1]:
                before.operands[0] = into
                before.operands[2 if dim == 1 else 1] = factor
                continue
        kept[key] = product
        merged.append(product)
    return merged


def factors(nodes: list[Node]) -> Iterator[tuple[Product, int, Access]]:
    """The factors of products that are not float32: what is worth converting once."""
    for node in nodes:
        if isinstance(node, Product):
            for place in (1, 2):
                if node.operands[place].dtype != F32:
                    yield node, place, node.operands[place]
