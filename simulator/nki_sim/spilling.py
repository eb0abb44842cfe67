"""Tiles that do not fit in SBUF in any known order: written to HBM meanwhile, and read again, as a device's compiler does.

Where the next instruction needs room, the tile whose next use is farthest away leaves, and comes back before that use. A tile
whose next use writes all of it leaves for nothing. The transfers become steps of the program, a tile that comes back is another
tensor. Tiles with an explicit address stay, and so do sums in PSUM, which no engine could go on with.
Source: memory hierarchy overview (spills and refills); the profile schema for what the transfers are called.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nki_sim.hw import NeuronCore
from nki_sim.isa.base import Cost
from nki_sim.machine import Machine
from nki_sim.memory import Allocation, MemoryRegion
from nki_sim.placement import free_bytes
from nki_sim.program import Plan, Program, Slot
from nki_sim.rewriting import Row, record, rows_of
from nki_sim.tensor import contiguous_strides

_ALIGN = 4
"""Bytes between the places of tiles, at least."""
_NEVER = 1 << 60


@dataclass(frozen=True)
class Transfer:
    """One that a compiler adds.

    Attributes:
        before: the step it comes before.
        tile: the number of the tile.
        saves: to HBM; else back.
    """

    before: int
    tile: int
    saves: bool


@dataclass(frozen=True)
class Spills:
    """What a compiler adds so that a program's tiles fit.

    Attributes:
        transfers: in the order in which they are made.
        returns: per tile that leaves SBUF the steps with which it comes back.
    """

    transfers: list[Transfer]
    returns: dict[int, list[int]]


def spills(program: Program, core: NeuronCore, order: Sequence[int]) -> Spills | None:
    """What must be added for a program's tiles to fit; ``None`` where one instruction alone uses more than there is.

    Args:
        order: in which its steps are listed first; the transfers count them so.
    """
    tiles = {a.id: a for a in program.allocations if a.region is MemoryRegion.sbuf and a.address is None}
    return _Evictions(program, core, tiles, order).run()


class _Evictions:
    """The tiles in SBUF, step after step."""

    def __init__(self, program: Program, core: NeuronCore, tiles: dict[int, Allocation], order: Sequence[int]):
        self._tiles = tiles
        self._size = {number: -(-tile.row_bytes // _ALIGN) * _ALIGN for number, tile in tiles.items()}
        self._used = _uses(program, tiles, order)
        self._next: dict[int, list[int]] = defaultdict(list)
        """Steps that use each tile, the next one last."""
        for step in reversed(self._used):
            for tile in self._used[step]:
                self._next[tile].append(step)
        free = free_bytes(program.allocations, core)
        self._free = {number: size for (number, region), size in free.items() if region is MemoryRegion.sbuf}
        self._inside: dict[int, dict[int, None]] = {number: {} for number in self._free}
        self._unsaved: set[int] = set()
        self._made = Spills([], {})

    def run(self) -> Spills | None:
        for step, accesses in self._used.items():
            missing = [tile for tile in accesses if tile not in self._inside[self._tiles[tile].core]]
            for tile in missing:
                if not self._enter(tile, step, accesses):
                    return None
            for tile, access in accesses.items():
                if access.writes:
                    self._unsaved.add(tile)
                self._next[tile].pop()
                if not self._next[tile]:
                    self._leave(tile)
        return self._made

    def _enter(self, tile: int, step: int, accesses: dict[int, _Access]) -> bool:
        """Find room for a tile, and bring it back if it was there before; False where there is none."""
        home = self._tiles[tile].core
        while self._free[home] < self._size[tile]:
            others = [other for other in self._inside[home] if other not in accesses]
            if not others:
                return False
            self._evict(max(others, key=lambda other: (self._wanted(other), self._size[other])), step)
        self._inside[home][tile] = None
        self._free[home] -= self._size[tile]
        if tile in self._made.returns:
            self._made.returns[tile].append(step)
            if not accesses[tile].replaces:
                self._made.transfers.append(Transfer(step, tile, saves=False))
        return True

    def _wanted(self, tile: int) -> int:
        """The next step for which its values must be there."""
        step = self._next[tile][-1]
        return _NEVER if self._used[step][tile].replaces else step

    def _evict(self, tile: int, step: int) -> None:
        if tile in self._unsaved and self._wanted(tile) < _NEVER:
            self._made.transfers.append(Transfer(step, tile, saves=True))
        self._unsaved.discard(tile)
        self._made.returns.setdefault(tile, [])
        self._leave(tile)

    def _leave(self, tile: int) -> None:
        home = self._tiles[tile].core
        del self._inside[home][tile]
        self._free[home] += self._size[tile]


@dataclass(frozen=True)
class _Access:
    """What a step does to a tile.

    Attributes:
        writes: some of it, or all.
        replaces: all of it, without having looked at what was there.
    """

    writes: bool
    replaces: bool


_ACCESSES = {(w, r): _Access(w, r) for w in (False, True) for r in (False, True)}


def _uses(program: Program, tiles: dict[int, Allocation], order: Sequence[int]) -> dict[int, dict[int, _Access]]:
    """Per place in the order of a step that uses tiles what it does to each."""
    used: dict[int, dict[int, _Access]] = {}
    whole = {number: tile.row_bytes * tile.partitions for number, tile in tiles.items()}
    for at, step in enumerate(order):
        plan = program.plan_at(step)
        found: dict[int, _Access] = {}
        for i, (tile, _) in enumerate(program.raw(step)):
            if tile not in whole:
                continue
            slot, known = plan.slots[i], found.get(tile)
            writes = i in plan.writes
            covers = not slot.gathers and not slot.picked and math.prod(slot.shape) * slot.itemsize == whole[tile]
            replaces = writes and plan.waits and i not in plan.updates and covers  # what waits writes all of its operands
            if known is not None:
                writes, replaces = writes or known.writes, replaces and known.replaces
            found[tile] = _ACCESSES[writes, replaces]
        if found:
            used[at] = found
    return used


# -- the program with them -----------------------------------------------------------------------------------------------


def insert(machine: Machine, found: Spills) -> None:
    """Make the transfers steps of a machine's record."""
    count = len(machine.program)
    at = np.array([transfer.before for transfer in found.transfers], np.int64)
    place = np.arange(count + 1) + np.searchsorted(at, np.arange(count + 1), side="right")
    record(machine, _Rewriting(machine.program, found).rows(), place)


class _Rewriting:
    """A program's steps with the transfers between them, on the tensors that there are then."""

    def __init__(self, program: Program, found: Spills):
        self._program, self._found = program, found
        self._parts = {tile: [tile, *(self._again(tile) for _ in steps)] for tile, steps in found.returns.items()}
        """The tensors that each tile is, one after the other."""
        saved = {transfer.tile for transfer in found.transfers if transfer.saves}
        self._saved = {tile: self._in_hbm(tile) for tile in sorted(saved)}
        self._plans: dict[tuple[tuple[int, ...], str, int, bool], int] = {}

    def _add(self, made: Allocation) -> int:
        self._program.allocations.append(made)
        return made.id

    def _again(self, tile: int) -> int:
        return self._add(replace(self._program.allocations[tile], id=len(self._program.allocations), placed=None))

    def _in_hbm(self, tile: int) -> int:
        of, number = self._program.allocations[tile], len(self._program.allocations)
        name = f"spill of {of.label}"
        made = Allocation.of(number, MemoryRegion.private_hbm, of.shape, of.dtype, name, of.site, "tile", None, 0, core=of.core)
        return self._add(made)

    def rows(self) -> list[Row]:
        """All steps, with the transfers."""
        own = rows_of(self._program, self._operands())
        made: list[Row] = []
        at = 0
        for transfer in self._found.transfers:
            made += own[at : transfer.before]
            at = transfer.before
            made.append((self._plan(transfer), own[at][1], self._moved(transfer)))
        return made + own[at:]

    def _operands(self) -> array[int]:
        """The table of operands, tiles that come back as what they are then."""
        program = self._program
        first, flat = np.frombuffer(program.tables[1], np.int64), np.array(program.tables[2], np.int64)
        tensors, steps = flat[::2], np.repeat(np.arange(len(program)), np.diff(first) // 2)
        order = np.argsort(tensors, kind="stable")
        ranked = tensors[order]
        for tile, returns in self._found.returns.items():
            mine = order[np.searchsorted(ranked, tile) : np.searchsorted(ranked, tile, side="right")]
            flat[2 * mine] = np.array(self._parts[tile])[np.searchsorted(returns, steps[mine], side="right")]
        return array("q", flat.tobytes())

    def _moved(self, transfer: Transfer) -> tuple[int, ...]:
        """The operands of a transfer: allocation and offset of its destination, and of its source."""
        returned = int(np.searchsorted(self._found.returns[transfer.tile], transfer.before, side="right"))
        inside, outside = self._parts[transfer.tile][returned], self._saved[transfer.tile]
        return (outside, 0, inside, 0) if transfer.saves else (inside, 0, outside, 0)

    def _plan(self, transfer: Transfer) -> int:
        """The number of the plan that transfers of such tiles share."""
        tile = self._program.allocations[transfer.tile]
        key = (tile.shape, tile.dtype.name, tile.core, transfer.saves)
        if key not in self._plans:
            dst, src = (
                Slot(name, access, tile.shape, contiguous_strides(tile.shape), tile.dtype.name, tile.dtype.itemsize, on_chip)
                for name, access, on_chip in (("dst", "write", not transfer.saves), ("src", "read", transfer.saves))
            )
            self._plans[key] = len(self._program.plans)
            self._program.plans.append(
                Plan("dma_copy", "dma", (dst, src), {}, np.copyto, (1,), (0,), cost=Cost(queue="static"), core=tile.core,
                     spill="save" if transfer.saves else "reload")
            )  # fmt: skip
        return self._plans[key]


__all__ = ["Spills", "Transfer", "insert", "spills"]
