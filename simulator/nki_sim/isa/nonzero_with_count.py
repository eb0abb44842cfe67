"""``nki.isa.nonzero_with_count``: the positions of the elements that are not zero, and how many there are."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, ComputeInstruction, free, instruction, partitions, read, update
from nki_sim.isa.cost import elements, gpsimd
from nki_sim.isa.enums import engine
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("nonzero_with_count")
_CORE = 16
"""Partitions that one GpSimd core is connected to; it works on the first."""


@instruction
class nonzero_with_count(ComputeInstruction):
    """``dst[p] = (positions of what is not zero in src[p], padding, their number)`` for p = 0, 16, … 112, on GpSimd.

    The other partitions of ``src`` do not count, those of ``dst`` keep what they hold.

    Args:
        dst: SBUF, int32, one element per partition more than src.
        src: SBUF, float32 or int32.
        index_offset: int32, added to each position. padding_val: int32, fills the places without a position.

    Example:
        hits = nl.greater(nl.load(x[:, 0:64]), 1.0)
        found = nl.zeros((128, 65), dtype=nl.int32)
        nisa.nonzero_with_count(dst=found, src=hits)
        count = found[0:1, 64:65]  # of partition 0
    """

    runs_on = engine.gpsimd
    writes_all = False
    decided_params = ("partitions",)

    dst: NkiTensor = update(SBUF, "nonzero_with_count.dst")
    src: NkiTensor = read(SBUF, "nonzero_with_count.src")
    index_offset: int = 0
    padding_val: int = -1
    name: str | None = None

    partitions: ClassVar[int]  # of src, which the part of it that is read does not tell

    @classmethod
    def collect(cls) -> None:
        """What is read of ``src`` is one partition of each core: the rest need not be written."""
        super().collect()
        cls.declare(lambda ins: (ins.dst, _firsts(ins.src)), cls.get_params)

    def __post_init__(self) -> None:
        self.__dict__["partitions"] = partitions(self.src) if isinstance(self.src, NkiTensor) else 0
        super().__post_init__()
        storage = self.dst.storage
        if storage.state:
            chosen = np.zeros(self.dst.shape, np.bool_)
            chosen[::_CORE] = True
            storage.mark(self.dst.pattern, chosen)

    @rule("nonzero_with_count.gen3", "nonzero_with_count exists on trn2 and newer", page=_PAGE, gens=(2,))
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("nonzero_with_count.partition", "src and dst have the same partition size", page=_PAGE)
    def rows(self, core: NeuronCore) -> Broken | None:
        return self.alike("src", "dst", free_too=False)

    @rule("nonzero_with_count.dst_plus_one", "dst has one element per partition more than src", page=_PAGE,
          why="the last one is the count")  # fmt: skip
    def columns(self, core: NeuronCore) -> Broken | None:
        have, want = free(self.dst), free(self.src) + 1
        return None if have == want else Broken(f"dst has {have} elements per partition, not {want}", "dst")

    @rule("nonzero_with_count.src", "src is in SBUF and float32 or int32", page=_PAGE)
    def src_dtype(self, core: NeuronCore) -> Broken | None:
        return None if self.src.dtype in ("float32", "int32") else Broken(f"src is {self.src.dtype}", "src")

    @rule("nonzero_with_count.dst", "dst is in SBUF and int32", page=_PAGE)
    def dst_dtype(self, core: NeuronCore) -> Broken | None:
        return None if self.dst.dtype == "int32" else Broken(f"dst is {self.dst.dtype}", "dst")

    @rule("nonzero_with_count.int32_params", "index_offset and padding_val are int32", page=_PAGE)
    def parameters(self, core: NeuronCore) -> Broken | None:
        for name in ("index_offset", "padding_val"):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not whole or not -(2**31) <= value < 2**31:
                return Broken(f"{name} is {self.operand_words(name)}", name)
        return None

    def cycles(self, core: NeuronCore) -> float:
        """150 + 4N (an estimate: the documents have no number)."""
        return gpsimd(elements(self, "src"), 4.0)

    def body(self, core: NeuronCore) -> Body:
        n = free(self.src)
        shape, offset, padding, at = (-1, *self.dst.shape[1:]), int(self.index_offset), int(self.padding_val), np.arange(n)

        def positions(dst: Array, src: Array) -> None:
            there = src.reshape(-1, n) != 0
            count = there.sum(axis=1, keepdims=True)
            order = np.argsort(~there, axis=1, kind="stable")
            listed = np.where(at < count, order + offset, padding)
            dst[::_CORE] = np.concatenate([listed, count], axis=1).astype(np.int32).reshape(shape)

        return positions


def _firsts(tile: Any) -> Any:
    """The first partition of each core of a tile."""
    return tile.slice(0, 0, partitions(tile), _CORE) if isinstance(tile, NkiTensor) else tile
