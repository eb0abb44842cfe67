"""``nki.isa.nc_match_replace8``: replace eight values of each partition, and say where they were."""

from __future__ import annotations

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, free, immediate, instruction, partitions, read, write
from nki_sim.isa.checks import between_8_and_16384, eight_columns
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.nc_find_index8 import search, write_positions
from nki_sim.isa.values import loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("nc_match_replace8")


@instruction
class nc_match_replace8(ComputeInstruction):
    """``dst = data``, with one occurrence of each of the 8 ``vals`` replaced by ``imm``; Vector Engine, float32.

    The values are served from the last to the first, each takes the first occurrence that is left: equal values get their
    positions in falling order, the opposite of nc_find_index8. What was replaced is not matched again, even if ``imm`` is
    one of the values. A value that is not found leaves all ones in ``dst_idx``, as in nc_find_index8 (undocumented here).

    Args:
        dst: SBUF or PSUM, elements per partition as data; may be data itself.
        data: SBUF or PSUM.
        vals: SBUF or PSUM, 8 elements per partition.
        imm: a float.
        dst_idx: (P, 8) tile of uint16 or uint32 for the positions.

    Example:
        a = nl.load(x[:, 0:64])
        largest = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=largest, src=a)
        rest = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.nc_match_replace8(dst=rest, data=a, vals=largest, imm=-1e9)
    """

    dst: NkiTensor = write(ON_CHIP)
    data: NkiTensor = read(ON_CHIP)
    vals: NkiTensor = read(ON_CHIP)
    imm: float = immediate("nc_match_replace8.imm_float")
    dst_idx: NkiTensor | None = write(ON_CHIP, default=None)
    name: str | None = None

    @rule("nc_match_replace8.shape", "dst and data have the same partition size and elements per partition", page=_PAGE)
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("data", "dst")

    @rule("nc_match_replace8.vals_8", "vals has 8 elements per partition and data's partition size", page=_PAGE)
    def eight(self, core: NeuronCore) -> Broken | None:
        if free(self.vals) != 8:
            return Broken(f"vals has {free(self.vals)} elements per partition, not 8", "vals")
        return self.alike("data", "vals", free_too=False)

    @rule("nc_match_replace8.dst_idx", "dst_idx has shape (data.shape[0], 8) and dtype uint16 or uint32", page=_PAGE)
    def positions(self, core: NeuronCore) -> Broken | None:
        if self.dst_idx is None:
            return None
        if self.dst_idx.dtype not in ("uint16", "uint32"):
            return Broken(f"dst_idx is {self.dst_idx.dtype}", "dst_idx")
        return eight_columns(self, "data", "dst_idx")

    @rule("nc_match_replace8.size_limit", "data has 8 to 16384 elements per partition", page=_PAGE, enforce="warn",
          why="the documents say so of max8 and nc_find_index8, which search the same way")  # fmt: skip
    def elements(self, core: NeuronCore) -> Broken | None:
        return between_8_and_16384(self, "data")

    def cycles(self, core: NeuronCore) -> float:
        """N."""
        return at_least(elements(self, "data"))

    def body(self, core: NeuronCore) -> Body:
        p, n = partitions(self.data), free(self.data)
        load, wanted, store, shape = loader(self.data, (p, n)), loader(self.vals, (p, 8)), storer(self.dst), self.dst.shape

        def replace(dst: Array, data: Array, vals: Array, imm: float, dst_idx: Array | None) -> None:
            values = np.array(load(data), np.float32)
            found = search(values, wanted(vals), range(7, -1, -1))
            rows, columns = np.nonzero(found >= 0)
            values[rows, found[rows, columns]] = imm
            store(dst, values.reshape(shape))
            if dst_idx is not None:
                write_positions(dst_idx, found)

        return replace
