"""Matmuls that add up in one PSUM tile, over consecutive rows of the same inputs, and are one product.

That is seen in the record, before there are nodes; most steps of a tiled matmul that are no loads are such matmuls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nki_sim.memory import Allocation, MemoryRegion
from nki_sim.program import Ints
from nki_sim.replay.accesses import Access, Walk
from nki_sim.replay.columns import Bools, Columns, Place
from nki_sim.replay.products import F32

FACTORS = ("float32", "bfloat16", "float16")
PLAIN = {"accumulate", "is_stationary_onezero", "is_moving_onezero", "tile_position", "tile_size"}
"""Parameters of a matmul that do not change its value."""
OVERWRITES, ADDS = 1, 2


class Sums(NamedTuple):
    """Products of a record.

    Attributes:
        steps: all that they come from.
        last, tile, stationary, moving: of each the last step, its PSUM tile, and the rows of inputs that are multiplied.
    """

    steps: Ints
    last: list[int]
    tile: list[int]
    stationary: list[Access]
    moving: list[Access]


def sums(columns: Columns) -> Sums:
    """The products of a record whose factors are read where they were loaded from."""
    summed = _summed_up(columns)
    order = columns.by_tensor[0]
    uses = order[summed[columns.tensor[order]] & columns.writes[order]]
    if not len(uses):
        return Sums(uses, [], [], [], [])
    new = np.flatnonzero(columns.nth[uses] == 0)
    counts = np.diff(np.append(new, len(uses)))
    operand = columns.at[uses] // 2
    stationary, moving = [_Rows(columns, columns.use[operand + place], new) for place in (1, 2)]
    follow = stationary.follow & moving.follow
    steps, last = columns.step[uses], columns.step[uses[new + counts - 1]]
    return Sums(
        steps[np.repeat(follow, counts)],
        last[follow].tolist(),
        columns.tensor[uses[new[follow]]].tolist(),
        stationary.accesses(follow),
        moving.accesses(follow),
    )


def _summed_up(columns: Columns) -> Bools:
    """Per allocation, whether it is a PSUM tile that only plain matmuls write: each all of it, the first overwriting what was
    there and the others adding to it, before it is read."""
    modes = np.array([_mode(place) for place in columns.places], np.int64)[columns.place]
    adding = np.where(columns.nth == 0, modes == OVERWRITES, modes == ADDS)
    uses = np.flatnonzero(adding)
    adding[uses] = columns.is_whole(uses)
    good = np.where(columns.writes, adding, columns.nth >= columns.written[columns.tensor])
    agreeing = np.bincount(columns.tensor[good], minlength=len(columns.allocations))

    def holds_sums(tensor: Allocation) -> bool:
        stored = columns.machine.memory.stored(tensor.dtype).storage
        return tensor.region is MemoryRegion.psum and len(tensor.shape) == 2 and stored == F32

    found: Bools = (agreeing == columns.used) & (columns.written > 0) & columns.tiles & columns.per_layout(holds_sums)
    return found


def _mode(place: Place) -> int:
    """Whether a write is a plain matmul's that overwrites or adds, or 0 for any other."""
    plan = place.plan
    if plan.instruction != "nc_matmul" or not place.writes or len(plan.slots) != 4 or not set(plan.params) <= PLAIN:
        return 0
    known = all(slot.dtype in FACTORS for slot in plan.slots[1:3])
    return {"overwrite": OVERWRITES, "add": ADDS}.get(plan.decided["mode"], 0) if known else 0


class _Rows:
    """The operands at one place of the matmuls of each sum, one after the other.

    Args:
        uses: of the operands.
        new: where those of each sum begin.

    Attributes:
        follow: per sum, whether they follow each other along the rows of an input that nobody writes.
    """

    def __init__(self, columns: Columns, uses: Ints, new: Ints):
        self._columns, self._first = columns, uses[new]
        walks = columns.walks
        flat = [walk if len(walk.shape) == 2 and walk.is_dense else Walk((0, 0), (0, 0), "") for walk in walks]
        rows, pitch = np.array([(walk.shape[0], walk.strides[0]) for walk in flat], np.int64)[columns.walk[uses]].T
        columns_alike: dict[tuple[int, int, str], int] = {}
        kinds = [columns_alike.setdefault((w.shape[1], w.strides[0], w.dtype), len(columns_alike)) for w in flat]
        kind, tensor, offset = np.array(kinds, np.int64)[columns.walk[uses]], columns.tensor[uses], columns.offset[uses]
        goes_on = np.ones(len(uses), np.bool_)
        goes_on[1:] = (
            (offset[1:] == offset[:-1] + rows[:-1] * pitch[:-1]) & (tensor[1:] == tensor[:-1]) & (kind[1:] == kind[:-1])
        )
        goes_on[new] = True
        self.follow = np.logical_and.reduceat(goes_on & columns.inputs[tensor] & (rows > 0), new)
        self._rows = np.add.reduceat(rows, new)

    def accesses(self, chosen: Bools) -> list[Access]:
        """The rows of each of the chosen sums."""
        columns, first, rows = self._columns, self._first[chosen], self._rows[chosen]
        walks = [columns.walks[walk] for walk in columns.walk[first].tolist()]
        whole = [
            columns.number_of(Walk((n, walk.shape[1]), walk.strides, walk.dtype))
            for n, walk in zip(rows.tolist(), walks, strict=True)
        ]
        return columns.accesses(columns.tensor[first], columns.offset[first], np.array(whole, np.int64))
