"""Loads that need not be made: a tile that is a copy of a part of what nobody writes, and stays so, is read there.

That is seen in the record, before there are nodes; most steps of a kernel of large tiles are such loads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nki_sim.program import Ints, Plan
from nki_sim.replay.accesses import Access, is_dense, row_major, within
from nki_sim.replay.columns import Columns


@dataclass
class Loads:
    """What is read where it came from.

    Attributes:
        steps: of the loads that need not be made.
        read: per operand that reads what they loaded, by its place in the record, what it reads instead.
    """

    steps: list[int] = field(default_factory=list)
    read: dict[int, Access] = field(default_factory=dict)


def is_copying(plan: Plan) -> bool:
    """Whether it is a dma_copy that changes neither shape nor data type, between places that are known."""
    if plan.instruction != "dma_copy" or (plan.writes, plan.reads, plan.updates, plan.runtime) != ((0,), (1,), (), ()):
        return False
    dst, src, *_ = plan.slots
    return (dst.shape, dst.dtype) == (src.shape, src.dtype) and not any(slot.gathers for slot in plan.slots)


def read_in_place(columns: Columns) -> Loads:
    """The loads of a record that need not be made."""
    return _Finder(columns).find()


class _Finder:
    """Looks for loads: copies that are the first use of a tile, all of it, and that alone write it."""

    def __init__(self, columns: Columns):
        self._columns, self._found = columns, Loads()
        self._constant = (columns.written == 0) & columns.per_layout(lambda tensor: tensor.address is None)
        self._first_use = np.zeros(len(columns.allocations), np.int64)
        self._first_use[columns.tensor[::-1]] = np.arange(len(columns.tensor))[::-1]

    def find(self) -> Loads:
        columns, loads = self._columns, self._loads()
        known = self._constant[columns.flat[columns.at[loads] + 2]] & self._read_whole()[columns.tensor[loads]]
        self._take(loads[known])
        for use in np.sort(loads[~known]).tolist():  # what is loaded may be copied on
            self._take_one(use)
        return self._found

    def _loads(self) -> Ints:
        """The uses that load a tile."""
        columns = self._columns
        filling = [
            p.operand == 0 and p.slot.strides == row_major(p.slot.shape, 1) and is_copying(p.plan) for p in columns.places
        ]
        first = self._first_use[columns.tiles & (columns.written == 1)]
        first = first[np.array(filling, np.bool_)[columns.place[first]] & (columns.offset[first] == 0)]
        kinds = columns.place[first] * len(columns.allocations) + columns.layout[columns.tensor[first]]
        _, one_of, alike = np.unique(kinds, return_index=True, return_inverse=True)
        whole = np.array([self._is_all(use) for use in first[one_of].tolist()], np.bool_)
        loads: Ints = first[whole[alike]]
        return loads

    def _is_all(self, use: int) -> bool:
        """Whether a use that begins at a tensor's first element has all of it."""
        slot, tensor = self._columns.places[self._columns.place[use]].slot, self._columns.allocations[self._columns.tensor[use]]
        return (slot.shape, slot.dtype) == (tensor.shape, tensor.dtype.name)

    def _read_whole(self) -> npt.NDArray[np.bool_]:
        """Per allocation, whether all its uses are as the first one, from its first element on."""
        columns, kind = self._columns, self._columns.kind[self._columns.place]
        alike = (columns.offset == 0) & (kind == kind[self._first_use[columns.tensor]])
        found: npt.NDArray[np.bool_] = np.bincount(columns.tensor[alike], minlength=len(columns.allocations)) == columns.used
        return found

    def _take(self, loads: Ints) -> None:
        """Take loads of what nobody writes, of tiles that are read as a whole."""
        columns, sources = self._columns, dict[int, Access]()
        taken = np.zeros(len(columns.allocations), np.bool_)
        for place in np.unique(columns.place[loads]).tolist():
            mine = loads[columns.place[loads] == place]
            found = columns.operands(columns.places[place].plan.slots[1], columns.at[mine] + 2)
            if is_dense(found[0]):
                tiles = columns.tensor[mine]
                sources.update(zip(tiles.tolist(), found, strict=True))
                taken[tiles] = True
        readers = taken[columns.tensor] & ~columns.writes
        self._found.steps += columns.step[taken[columns.tensor] & columns.writes].tolist()
        read = [sources[tile] for tile in columns.tensor[readers].tolist()]
        self._found.read.update(zip(columns.at[readers].tolist(), read, strict=True))

    def _take_one(self, load: int) -> None:
        """Take a load if all that read the tile, or parts of it, can read the source."""
        columns, tile = self._columns, int(self._columns.tensor[load])
        dst, src, *_ = columns.places[columns.place[load]].plan.slots
        at = int(columns.at[load]) + 2
        source, number = self._found.read.get(at), int(columns.flat[at])
        if source is None and self._constant[number]:
            source = columns.access(src, number, int(columns.flat[at + 1]))
        if source is None or not is_dense(source):
            return
        whole, read = columns.access(dst, tile, 0), dict[int, Access]()
        for use in self._readers(tile):
            part = columns.access(columns.places[columns.place[use]].slot, tile, int(columns.offset[use]))
            moved = within(part, whole, source)
            if moved is None or columns.step[use] == columns.step[load]:
                return
            read[int(columns.at[use])] = moved
        self._found.steps.append(int(columns.step[load]))
        self._found.read |= read

    def _readers(self, tile: int) -> list[int]:
        """The uses of a tile after its first one."""
        order, ends = self._by_tensor
        readers: list[int] = order[ends[tile] - self._columns.used[tile] + 1 : ends[tile]].tolist()
        return readers

    @cached_property
    def _by_tensor(self) -> tuple[Ints, Ints]:
        """The uses of one tensor after the other, and where those of each end."""
        return np.argsort(self._columns.tensor, kind="stable"), np.cumsum(self._columns.used)
