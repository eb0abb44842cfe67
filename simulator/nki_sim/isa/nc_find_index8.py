"""``nki.isa.nc_find_index8``: where eight values are in each partition; the search it shares with ``nc_match_replace8``."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, free, instruction, partitions, read, write
from nki_sim.isa.checks import between_8_and_16384, eight_columns
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.values import loader
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("nc_find_index8")


def search(data: Array, vals: Array, order: Iterable[int]) -> Array:
    """(P, 8) positions of ``vals`` in float32 ``data`` (P, n), -1 where there is none.

    The columns of ``vals`` are served in ``order``; each takes the first occurrence that no column before it took.
    NaN equals nothing.
    """
    left = np.array(data, np.float32)
    rows, found = np.arange(len(left)), np.full((len(left), 8), -1, np.int64)
    for column in order:
        equal = left == vals[:, column, None]
        first = equal.argmax(axis=1)
        hit = equal[rows, first]
        found[:, column] = np.where(hit, first, -1)
        left[rows[hit], first[hit]] = np.nan
    return found


def write_positions(dst: Array, found: Array) -> None:
    """Store positions into an unsigned tile; -1 becomes all ones."""
    dst[...] = found.astype(dst.dtype) if dst.dtype.kind == "u" else found  # float32 where precision is off


@instruction
class nc_find_index8(ComputeInstruction):
    """``dst[p, i] = position of vals[p, i] in data[p]``, counted over the free dimensions; Vector Engine, float32.

    Equal ``vals`` take successive occurrences, left to right. (The reference's text has the first occurrence for each;
    the newer description of nc_match_replace8 and the release notes say this.) What is not found is all ones.

    Args:
        dst: SBUF or PSUM, shape (P, 8), uint16 or uint32.
        data: SBUF or PSUM, up to 3 dimensions, 8 to 16384 elements per partition.
        vals: SBUF or PSUM, up to 3 dimensions, 8 elements per partition.

    Example:
        a = nl.load(x[:, 0:64])
        largest = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=largest, src=a)
        where = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.nc_find_index8(dst=where, data=a, vals=largest)
    """

    dst: NkiTensor = write(ON_CHIP)
    data: NkiTensor = read(ON_CHIP)
    vals: NkiTensor = read(ON_CHIP)
    name: str | None = None

    @rule("nc_find_index8.rank", "data and vals have at most 3 dimensions, the partition dimension included", page=_PAGE,
          fix="merge free dimensions that follow each other: t.reshape((P, N))")  # fmt: skip
    def rank(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("data", "vals"):
            if tile.ndim > 3:
                return Broken(f"{name} has {tile.ndim} dimensions", name)
        return None

    @rule("nc_find_index8.data_8_16384", "data has 8 to 16384 elements per partition", page=_PAGE,
          fix="search each part, and add the part's start to its positions")  # fmt: skip
    def elements(self, core: NeuronCore) -> Broken | None:
        return between_8_and_16384(self, "data")

    @rule("nc_find_index8.vals_8", "vals has 8 elements per partition and data's partition size", page=_PAGE,
          why="the engine loads eight values into registers of each lane before it streams data")  # fmt: skip
    def eight(self, core: NeuronCore) -> Broken | None:
        if free(self.vals) != 8:
            return Broken(f"vals has {free(self.vals)} elements per partition, not 8", "vals")
        return self.alike("data", "vals", free_too=False)

    @rule("nc_find_index8.dst", "dst has shape (data.shape[0], 8) and dtype uint16 or uint32", page=_PAGE)
    def positions(self, core: NeuronCore) -> Broken | None:
        if self.dst.dtype not in ("uint16", "uint32"):
            return Broken(f"dst is {self.dst.dtype}", "dst")
        return eight_columns(self, "data", "dst")

    def cycles(self, core: NeuronCore) -> float:
        """N."""
        return at_least(elements(self, "data"))

    def body(self, core: NeuronCore) -> Body:
        p = partitions(self.data)
        load, wanted = loader(self.data, (p, free(self.data))), loader(self.vals, (p, 8))

        def find(dst: Array, data: Array, vals: Array) -> None:
            write_positions(dst, search(load(data), wanted(vals), range(8)))

        return find
