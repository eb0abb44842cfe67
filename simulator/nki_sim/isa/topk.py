"""``nki.isa.topk``: the largest values of sixteen partitions, and where they are."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nki_sim.dtypes import Array, to_float32
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, ComputeInstruction, free, instruction, partitions, read, update
from nki_sim.isa.enums import engine
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("topk")
_CORE = 16
"""Partitions that one GpSimd core is connected to."""


@instruction
class topk(ComputeInstruction):
    """The K largest of n elements of each 16 partitions, ascending, and their numbers, on GpSimd.

    Sixteen neighbouring partitions hold their n elements column after column: element i is in partition i mod 16, column
    i div 16. The results lie the same way: value j, and its element's number, in partition j mod 16, column j div 16 of
    ``val_dst`` and ``idx_dst``, whose other elements keep what they hold. K is the free size of ``val_dst``.

    Of equal values the one with the lowest number is the larger one; NaN is larger than any number, as for ``max8`` (both
    undocumented).

    Args:
        val_dst: SBUF, bfloat16, shape (P, K). idx_dst: SBUF, uint32, shape (P, K).
        src: SBUF, bfloat16, P partitions, a multiple of 16, with at least n / 16 elements each.
        n: elements per 16 partitions, a whole number from 8 to 65535.

    Example:
        a = nl.load(x[:, 0:64], dtype=nl.bfloat16)
        values = nl.zeros((128, 32), dtype=nl.bfloat16)
        numbers = nl.zeros((128, 32), dtype=nl.uint32)
        nisa.topk(val_dst=values, idx_dst=numbers, src=a, n=1024)  # 32 of each 16 × 64 elements
    """

    # The reference says that partitions are independent and writes K values per partition. Its layout of src and the
    # public kernels, which read column j div 16 of partition j mod 16 for value j, contradict that; they run on devices.

    runs_on = engine.gpsimd
    writes_all = False
    decided_params = ("columns",)

    val_dst: NkiTensor = update(SBUF, "topk.engine")
    idx_dst: NkiTensor = update(SBUF, "topk.engine")
    src: NkiTensor = read(SBUF, "topk.engine")
    n: int
    name: str | None = None

    columns: ClassVar[int]  # of src, which the part of it that is read does not tell

    @classmethod
    def collect(cls) -> None:
        """What is read of ``src`` is the columns with elements: the rest need not be written."""
        super().collect()
        cls.declare(lambda ins: (ins.val_dst, ins.idx_dst, _active(ins.src, ins.n)), cls.get_params)

    def __post_init__(self) -> None:
        self.__dict__["columns"] = free(self.src) if isinstance(self.src, NkiTensor) else 0
        super().__post_init__()
        written = np.arange(partitions(self.src))[:, None] % _CORE + np.arange(free(self.val_dst)) * _CORE < free(self.val_dst)
        for tile in (self.val_dst, self.idx_dst):
            if tile.storage.state:
                tile.storage.mark(tile.pattern, written)

    @rule("topk.src", "src is in SBUF and bfloat16", page=_PAGE, fix="convert it with nisa.tensor_copy")
    def source(self, core: NeuronCore) -> Broken | None:
        return None if self.src.dtype == "bfloat16" else Broken(f"src is {self.src.dtype}", "src")

    @rule("topk.partition_mult_16", "src has a multiple of 16 partitions", page=_PAGE,
          why="each of the eight GpSimd cores has its own 16 partitions")  # fmt: skip
    def rows(self, core: NeuronCore) -> Broken | None:
        rows = partitions(self.src)
        return Broken(f"src has {rows} partitions", "src") if rows % _CORE else None

    @rule("topk.val_dst", "val_dst is in SBUF, bfloat16, of shape (src.shape[0], K)", page=_PAGE)
    def values(self, core: NeuronCore) -> Broken | None:
        return self._results("val_dst", "bfloat16")

    @rule("topk.idx_dst", "idx_dst is in SBUF, uint32, of val_dst's shape", page=_PAGE)
    def indices(self, core: NeuronCore) -> Broken | None:
        return self._results("idx_dst", "uint32")

    def _results(self, name: str, dtype: str) -> Broken | None:
        tile, want = getattr(self, name), (partitions(self.src), self.val_dst.shape[-1])
        good = tile.dtype == dtype and tile.shape == want
        return None if good else Broken(f"{name} has shape {tile.shape}, dtype {tile.dtype}; not {want}, {dtype}", name)

    @rule("topk.n_range", "n is a whole number, 8 <= n < 65536", page=_PAGE)
    def elements(self, core: NeuronCore) -> Broken | None:
        whole = isinstance(self.n, (int, np.integer)) and not isinstance(self.n, bool)
        return None if whole and 8 <= self.n < 65536 else Broken(f"n is {self.operand_words('n')}", "n")

    @rule("topk.k_range", "1 <= K < 32768 and K <= n, with K the free size of val_dst", page=_PAGE)
    def count(self, core: NeuronCore) -> Broken | None:
        k = free(self.val_dst)
        return None if k < 32768 and k <= self.n else Broken(f"K is {k}, n is {self.n}", "val_dst")

    @rule("topk.src_free", "src has at least n / 16 elements per partition", page=_PAGE)
    def enough(self, core: NeuronCore) -> Broken | None:
        have = free(self.src)
        return None if have * _CORE >= self.n else Broken(f"src has {have} elements per partition, n is {self.n}", "src")

    def cycles(self, core: NeuronCore) -> float:
        """4n + K."""
        return 4.0 * self.n + free(self.val_dst)

    def body(self, core: NeuronCore) -> Body:
        cores, n, k = partitions(self.src) // _CORE, int(self.n), free(self.val_dst)
        group, row, at = np.arange(cores)[:, None], np.arange(k) % _CORE, np.arange(k) // _CORE

        def largest(val_dst: Array, idx_dst: Array, src: Array) -> None:
            listed = src.reshape(cores, _CORE, -1).transpose(0, 2, 1).reshape(cores, -1)[:, :n]
            # backwards, because of equal values the sort leaves those that come later behind
            order = n - 1 - np.argsort(to_float32(listed[:, ::-1]), axis=1, kind="stable")[:, n - k :]
            places = group * _CORE + row, at
            val_dst[places], idx_dst[places] = np.take_along_axis(listed, order, axis=1), order

        return largest


def _active(tile: Any, n: Any) -> Any:
    """The columns of a tile that hold the first n elements."""
    usable = isinstance(tile, NkiTensor) and tile.ndim == 2 and isinstance(n, (int, np.integer))
    used = -(-int(n) // _CORE) if usable else 0
    return tile.slice(1, 0, used, 1) if usable and 0 < used < tile.shape[1] else tile
