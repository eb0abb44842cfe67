"""``nki.isa.sequence_bounds``: where the segment of each element begins and ends."""

from __future__ import annotations

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Rule, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, ComputeInstruction, free, instruction, partitions, read, write
from nki_sim.isa.cost import elements, gpsimd
from nki_sim.isa.enums import engine
from nki_sim.isa.values import integer_loader, loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("sequence_bounds")
NEGATIVE = Rule(
    "sequence_bounds.nonneg",
    "segment ids are 0 (padding) or positive",
    fix="number the segments from 1",
    page=_PAGE,
    enforce="runtime",
)


@instruction
class sequence_bounds(ComputeInstruction):
    """``dst[0, :, i] = (start, end)`` of the run of equal segment ids around element i, on GpSimd.

    The end is one past the last element (the reference's words leave that open; its example and the attention kernels,
    which compare with ``less``, have it so). Padding, id 0, gets (n, -1).

    Args:
        dst: SBUF, shape (1, 2, n), float32 or int32.
        segment_ids: SBUF, one partition with n elements, float32 or int32.

    Example:
        ids = nl.ndarray((1, 12), dtype=nl.int32, buffer=nl.sbuf)
        for run in range(3):  # 1 1 1 1 2 2 2 2 3 3 3 3
            nisa.memset(dst=ids[:, 4 * run : 4 * run + 4], value=run + 1)
        bounds = nl.ndarray((1, 2, 12), dtype=nl.int32, buffer=nl.sbuf)
        nisa.sequence_bounds(dst=bounds, segment_ids=ids)
    """

    runs_on = engine.gpsimd
    waits = False

    dst: NkiTensor = write(SBUF, "sequence_bounds.engine")
    segment_ids: NkiTensor = read(SBUF, "sequence_bounds.engine")
    name: str | None = None

    @rule("sequence_bounds.partition_1", "segment_ids has one partition", page=_PAGE)
    def one(self, core: NeuronCore) -> Broken | None:
        rows = partitions(self.segment_ids)
        return Broken(f"segment_ids has {rows} partitions", "segment_ids") if rows != 1 else None

    @rule("sequence_bounds.dtype", "segment_ids and dst are float32 or int32", page=_PAGE)
    def dtypes(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            if tile.dtype not in ("float32", "int32"):
                return Broken(f"{name} is {tile.dtype}", name)
        return None

    @rule("sequence_bounds.dst_shape", "dst has shape (1, 2, n) for n segment ids", page=_PAGE)
    def shape(self, core: NeuronCore) -> Broken | None:
        want = (1, 2, free(self.segment_ids))
        return None if self.dst.shape == want else Broken(f"dst has shape {self.dst.shape}, not {want}", "dst")

    def cycles(self, core: NeuronCore) -> float:
        """150 + 4N (an estimate: the documents have no number)."""
        return gpsimd(elements(self, "segment_ids"), 4.0)

    def body(self, core: NeuronCore) -> Body:
        n, machine = free(self.segment_ids), context.machine()
        exact = integer_loader if self.segment_ids.info.is_integer else loader  # float32 does not tell large ids apart
        load, store, at = exact(self.segment_ids, (n,)), storer(self.dst), np.arange(n)

        def bounds(dst: Array, segment_ids: Array) -> None:
            ids = load(segment_ids)
            if (ids < 0).any():
                where = int(np.argmax(ids < 0))
                machine.broken(self, NEGATIVE, Broken(f"segment id {ids[where]:g} at {where}", "segment_ids"))
            turns = ids[1:] != ids[:-1]
            start = np.maximum.accumulate(np.where(np.append(True, turns), at, 0))
            end = np.minimum.accumulate(np.where(np.append(turns, True), at + 1, n)[::-1])[::-1]
            both = np.stack([np.where(ids == 0, n, start), np.where(ids == 0, -1, end)])
            store(dst, both.astype(np.float32).reshape(1, 2, n))

        return bounds
