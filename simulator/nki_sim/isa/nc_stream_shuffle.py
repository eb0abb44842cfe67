"""``nki.isa.nc_stream_shuffle``: permute or repeat partitions within each group of 32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, free, instruction, partitions, read, update
from nki_sim.isa.cost import at_least, elements
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("nc_stream_shuffle")


@instruction
class nc_stream_shuffle(ComputeInstruction):
    """``dst[32·q + i] = src[32·q + shuffle_mask[i]]`` on the Vector Engine; mask 255 keeps dst's row.

    Args:
        dst: SBUF or PSUM. src: SBUF or PSUM, same dtype and elements per partition.
        shuffle_mask: 32 partition numbers within a group, 0 to 31, or 255.

    Example:
        a = nl.load(x[0:32, 0:64])
        rotated = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.nc_stream_shuffle(dst=rotated, src=a, shuffle_mask=[*range(1, 32), 0])
    """

    dst: NkiTensor = update(ON_CHIP)
    src: NkiTensor = read(ON_CHIP)
    shuffle_mask: Sequence[int]
    name: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.dst, NkiTensor):
            self.dst.storage.poison()  # rows with mask 255 keep what they hold, which may be nothing
        super().__post_init__()

    @rule("nc_stream_shuffle.mask_32", "shuffle_mask has 32 entries, each 0 to 31 or 255", page=_PAGE)
    def mask(self, core: NeuronCore) -> Broken | None:
        if not isinstance(self.shuffle_mask, Sequence):
            return Broken(f"shuffle_mask is {self.shuffle_mask!r}", "shuffle_mask", error=TypeError)
        mask = list(self.shuffle_mask)
        if (
            not all(isinstance(m, (int, np.integer)) for m in mask)
            or len(mask) != 32
            or any(not (0 <= m < 32 or m == 255) for m in mask)
        ):
            return Broken(f"shuffle_mask {mask}", "shuffle_mask")
        return None

    @rule("nc_stream_shuffle.dtype", "src and dst have the same dtype", page=_PAGE)
    def same_dtype(self, core: NeuronCore) -> Broken | None:
        same = self.src.dtype == self.dst.dtype
        return None if same else Broken(f"src is {self.src.dtype}, dst is {self.dst.dtype}", "src")

    @rule("nc_stream_shuffle.free", "src and dst have the same elements per partition", page=_PAGE)
    def same_elements(self, core: NeuronCore) -> Broken | None:
        a, b = free(self.src), free(self.dst)
        return None if a == b else Broken(f"src has {a} elements per partition, dst {b}", "src")

    def _starts(self, groups: tuple[int, ...], allowed: tuple[int, ...]) -> Broken | None:
        active = -(-max(partitions(self.src), partitions(self.dst)) // 32)
        for name, tile in self.tiles():
            if active in groups and tile.start_partition not in allowed:
                return Broken(f"{name} starts at partition {tile.start_partition} with {active * 32} active", name)
        return None

    @rule("nc_stream_shuffle.start_32", "with 32 active partitions src and dst start at 0, 32, 64 or 96", page=_PAGE)
    def start_32(self, core: NeuronCore) -> Broken | None:
        return self._starts((1,), (0, 32, 64, 96))

    @rule("nc_stream_shuffle.start_64", "with 64 active partitions src and dst start at 0 or 64", page=_PAGE)
    def start_64(self, core: NeuronCore) -> Broken | None:
        return self._starts((2,), (0, 64))

    @rule("nc_stream_shuffle.start_128", "with 96 or 128 active partitions src and dst start at 0", page=_PAGE)
    def start_128(self, core: NeuronCore) -> Broken | None:
        return self._starts((3, 4), (0,))

    @rule("nc_stream_shuffle.rows", "the mask names rows that src has", page=_PAGE,
          why="the shuffle moves data within one group of 32 partitions")  # fmt: skip
    def rows(self, core: NeuronCore) -> Broken | None:
        have, want = partitions(self.src), partitions(self.dst)
        for group in range(-(-want // 32)):
            for i in range(min(32, want - 32 * group)):
                m = self.shuffle_mask[i]
                if m != 255 and 32 * group + m >= have:
                    return Broken(f"row {32 * group + i} of dst takes row {32 * group + m} of src, which has {have}", "src")
        return None

    def cycles(self, core: NeuronCore) -> float:
        """N."""
        return at_least(elements(self, "dst"))

    def body(self, core: NeuronCore) -> Body:
        want, shape = partitions(self.dst), self.dst.shape
        pairs = [(p, p // 32 * 32 + int(self.shuffle_mask[p % 32])) for p in range(want) if self.shuffle_mask[p % 32] != 255]
        to, source = np.array([p for p, _ in pairs], int), np.array([s for _, s in pairs], int)

        def shuffle(dst: Array, src: Array) -> None:
            dst[to] = src[source].reshape((len(to), *shape[1:]))

        return shuffle
