"""``nki.isa.local_gather``: gather along the free dimension with one list of indices per 16 partitions."""

from __future__ import annotations

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array, filled, poison
from nki_sim.errors import Broken, Rule, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, ComputeInstruction, free, instruction, partitions, read, write
from nki_sim.isa.cost import gpsimd
from nki_sim.isa.enums import engine
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("local_gather")
_CORE = 16
"""Partitions that one GpSimd core is connected to."""

OUT_OF_BOUNDS = Rule(
    "local_gather.oob_ub",
    "each index, and the elements after it, lie inside src_buffer's partition",
    why="the engine does not check addresses (here: what was never written, NaN or 4)",
    fix="clamp the indices with nisa.tensor_scalar(op0=nl.minimum, …)",
    page=_PAGE,
    enforce="ub",
)


@instruction
class local_gather(ComputeInstruction):
    """``dst[p, i·e:(i + 1)·e] = src_buffer[p, k:k + e]`` with ``k`` the i-th index of p's core, on GpSimd.

    A core is 16 neighbouring partitions. Its indices are those of ``index`` in its partitions, column after column: index i
    is in partition i mod 16. They count elements, also with e > 1.

    Args:
        dst: SBUF, src_buffer's dtype and partitions, num_valid_indices · num_elem_per_idx elements per partition.
        src_buffer: SBUF, a multiple of 16 partitions. index: SBUF, uint16, as many partitions, at most 4096 per core.
        num_elem_per_idx: e, one of 1, 2, 4, 8, 16, 32.
        num_valid_indices: how many indices of each core count; all by default.

    Example:
        a = nl.load(x[0:16, 0:64])
        index = nl.ndarray((16, 2), dtype=nl.uint16, buffer=nl.sbuf)
        nisa.iota(dst=index, pattern=[[32, 2]], channel_multiplier=2)  # 0, 2, 4, …, 62
        picked = nl.ndarray((16, 32), dtype=a.dtype, buffer=nl.sbuf)
        nisa.local_gather(dst=picked, src_buffer=a, index=index)
    """

    runs_on = engine.gpsimd

    dst: NkiTensor = write(SBUF, "local_gather.engine")
    src_buffer: NkiTensor = read(SBUF, "local_gather.engine")
    index: NkiTensor = read(SBUF, "local_gather.engine")
    num_elem_per_idx: int = 1
    num_valid_indices: int | None = None
    name: str | None = None

    def valid(self) -> int:
        """Indices per core that count."""
        return free(self.index) * _CORE if self.num_valid_indices is None else int(self.num_valid_indices)

    @rule("local_gather.partition_mult_16", "src_buffer, index and dst have the same partition size, a multiple of 16",
          page=_PAGE, why="each of the eight GpSimd cores has its own 16 partitions")  # fmt: skip
    def rows(self, core: NeuronCore) -> Broken | None:
        rows = partitions(self.src_buffer)
        if rows % _CORE:
            return Broken(f"src_buffer has {rows} partitions", "src_buffer")
        return self.alike("src_buffer", "index", "dst", free_too=False)

    @rule("local_gather.num_elem_per_idx", "num_elem_per_idx is 1, 2, 4, 8, 16 or 32", page=_PAGE)
    def per_index(self, core: NeuronCore) -> Broken | None:
        e = self.num_elem_per_idx
        good = isinstance(e, (int, np.integer)) and not isinstance(e, bool) and e in (1, 2, 4, 8, 16, 32)
        return None if good else Broken(f"num_elem_per_idx is {e!r}", "num_elem_per_idx")

    @rule("local_gather.indices_per_core", "index has at most 4096 indices per core: 256 per partition", page=_PAGE)
    def indices(self, core: NeuronCore) -> Broken | None:
        n = free(self.index) * _CORE
        return Broken(f"index has {n} indices per core", "index") if n > 4096 else None

    @rule("local_gather.index_dtype", "index is uint16", page=_PAGE, fix="convert it with nisa.tensor_copy")  # fmt: skip
    def index_dtype(self, core: NeuronCore) -> Broken | None:
        return None if self.index.dtype == "uint16" else Broken(f"index is {self.index.dtype}", "index")

    @rule("local_gather.no_cast", "dst has src_buffer's dtype", page=_PAGE)
    def same_dtype(self, core: NeuronCore) -> Broken | None:
        same = self.dst.dtype == self.src_buffer.dtype
        return None if same else Broken(f"src_buffer is {self.src_buffer.dtype}, dst is {self.dst.dtype}", "dst")

    @rule("local_gather.num_valid", "num_valid_indices is between 1 and the number of indices of a core", page=_PAGE)
    def count(self, core: NeuronCore) -> Broken | None:
        given, most = self.num_valid_indices, free(self.index) * _CORE
        if given is None:
            return None
        whole = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
        return None if whole and 1 <= given <= most else Broken(f"{given!r} of {most} indices", "num_valid_indices")

    @rule(
        "local_gather.known_issue",
        "dst has num_valid_indices · num_elem_per_idx elements per partition",
        why="the release notes say that num_elem_per_idx is ignored otherwise: what dst then holds is not defined",
        fix="pass both numbers, and give dst exactly that size",
        page=_PAGE,
    )
    def size(self, core: NeuronCore) -> Broken | None:
        have, want = free(self.dst), self.valid() * self.num_elem_per_idx
        return None if have == want else Broken(f"dst has {have} elements per partition, not {want}", "dst")

    def cycles(self, core: NeuronCore) -> float:
        """150 + n·e·C for n indices of e elements, C = ((28 + 4e) / 4e) / min(4 / bytes, e) cycles per element.

        (The page that has C divides by it; cycles per element multiply.)
        """
        e, width = self.num_elem_per_idx, max(1, 4 // self.dst.info.itemsize)
        return gpsimd(self.valid() * e, (28 + 4 * e) / (4 * e) / min(width, e))

    def speaks(self) -> bool:
        """Indices outside the source are reported."""
        return True

    def body(self, core: NeuronCore) -> Body:
        rows, n, shape, machine = partitions(self.src_buffer), free(self.src_buffer), self.dst.shape, context.machine()
        cores, valid, info = rows // _CORE, self.valid(), self.dst.info
        after = np.arange(self.num_elem_per_idx)

        def gather(dst: Array, src_buffer: Array, index: Array) -> None:
            listed = index.reshape(cores, _CORE, -1).transpose(0, 2, 1).reshape(cores, -1)[:, :valid]
            at = (listed.astype(np.int64)[:, :, None] + after).reshape(cores, 1, -1)
            outside = at >= n
            values = np.take_along_axis(src_buffer.reshape(cores, _CORE, n), np.minimum(at, n - 1), axis=2)
            if outside.any():
                what = f"index {int(at[outside].max())} of {n} elements per partition"
                machine.finding(self, OUT_OF_BOUNDS, Broken(what, "index"))
                values = np.where(outside, filled((), poison(info), values.dtype), values)
            dst[...] = values.reshape(shape)

        return gather
