"""Loads that need not be made: a tile that is a copy of a part of what nobody writes, and stays so, is read there.

That is seen in the record, before there are nodes; most steps of a kernel of large tiles are such loads.
"""

from __future__ import annotations

import numpy as np

from nki_sim.program import Ints, Plan
from nki_sim.replay.columns import Bools, Columns


def is_copying(plan: Plan) -> bool:
    """Whether it is a dma_copy that changes neither shape nor data type, between places that are known."""
    if plan.instruction != "dma_copy" or (plan.writes, plan.reads, plan.updates, plan.runtime) != ((0,), (1,), (), ()):
        return False
    dst, src, *_ = plan.slots
    return (dst.shape, dst.dtype) == (src.shape, src.dtype) and not any(slot.gathers for slot in plan.slots)


def read_in_place(columns: Columns) -> Ints:
    """Let uses of what is loaded be where it was loaded from; the steps of the loads, which need not be made."""
    return _Finder(columns).find()


class _Finder:
    """Looks for loads: copies that are the first use of a tile, all of it, and that alone write it."""

    def __init__(self, columns: Columns):
        self._columns = columns
        self._constant = (columns.written == 0) & columns.per_layout(lambda tensor: tensor.address is None)
        order, ends = columns.by_tensor
        self._first_use = np.zeros(len(columns.allocations), np.int64)
        used = columns.used > 0
        self._first_use[used] = order[(ends - columns.used)[used]]

    def find(self) -> Ints:
        columns, loads = self._columns, self._loads()
        sources = columns.use[columns.at[loads] // 2 + 1]
        known = self._constant[columns.tensor[sources]] & self._read_whole()[columns.tensor[loads]]
        known &= columns.per_walk(lambda walk: walk.is_dense)[sources]
        self._take(loads[known], sources[known])
        others = [load for load in np.sort(loads[~known]).tolist() if self._take_one(load)]  # what is loaded may be copied on
        steps: Ints = columns.step[[*loads[known].tolist(), *others]]
        return steps

    def _loads(self) -> Ints:
        """The uses that load a tile."""
        columns = self._columns
        filling = np.array([place.operand == 0 and is_copying(place.plan) for place in columns.places], np.bool_)
        first = self._first_use[columns.tiles & (columns.written == 1)]
        first = first[filling[columns.place[first]]]
        loads: Ints = first[columns.is_whole(first)]
        return loads

    def _read_whole(self) -> Bools:
        """Per allocation, whether all its uses are as the first one, from its first element on."""
        columns = self._columns
        alike = (columns.offset == 0) & (columns.walk == columns.walk[self._first_use[columns.tensor]])
        found: Bools = np.bincount(columns.tensor[alike], minlength=len(columns.allocations)) == columns.used
        return found

    def _take(self, loads: Ints, sources: Ints) -> None:
        """Take loads of what nobody writes, of tiles that are read as a whole."""
        columns = self._columns
        source = np.full(len(columns.allocations), -1)
        source[columns.tensor[loads]] = sources
        readers = np.flatnonzero((source[columns.tensor] >= 0) & ~columns.writes)
        read = source[columns.tensor[readers]]
        columns.move(readers, columns.tensor[read], columns.offset[read], columns.walk[read])

    def _take_one(self, load: int) -> bool:
        """Take a load if all that read the tile, or parts of it, can read the source."""
        columns, tile = self._columns, int(self._columns.tensor[load])
        source = int(columns.use[columns.at[load] // 2 + 1])
        tensor, first, target = int(columns.tensor[source]), int(columns.offset[source]), columns.walks[columns.walk[source]]
        if not (columns.moved[source] or self._constant[tensor]) or not target.is_dense:
            return False
        whole = columns.walks[columns.walk[load]]
        order, ends = columns.by_tensor
        readers = order[ends[tile] - columns.used[tile] + 1 : ends[tile]]
        parts = [
            columns.walks[walk].part(offset, whole, target)
            for walk, offset in zip(columns.walk[readers].tolist(), columns.offset[readers].tolist(), strict=True)
        ]
        moved = [(first + part[0], columns.number_of(part[1])) for part in parts if part is not None]
        if len(moved) < len(parts):
            return False
        offsets, walks = np.array(moved, np.int64).reshape(-1, 2).T
        columns.move(readers, np.full(len(readers), tensor), offsets, walks)
        return True
