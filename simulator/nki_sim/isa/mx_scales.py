"""Where the scales of an MX operand lie, and the checks of it that quantize_mx and nc_matmul_mx share.

In each quadrant of 32 partitions that the data occupy, 4 partitions hold the scales of its 4 rows of blocks. The machine is
shown these rows, one operand per quadrant, and not the partitions between them, which may be empty or another tensor's.
"""

from __future__ import annotations

from typing import Any, ClassVar

from nki_sim.errors import Broken
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ComputeInstruction, OperandSpec, free, partitions
from nki_sim.isa.indirection import base_of, index_of, is_indirect
from nki_sim.mx import QUADRANT, SCALE_DTYPES, SCALE_ROWS, SCALE_STARTS
from nki_sim.tensor import NkiTensor, picking

LATER_QUADRANTS = (1, 2, 3)
"""The quadrants of an operand after its first."""


class ScaledInstruction(ComputeInstruction):
    """An instruction with scale operands, which are the last ones of its signature.

    Attributes:
        scales: per scale operand the operand whose scales it holds.
    """

    scales: ClassVar[dict[str, str]]
    row_operands: ClassVar[tuple[str, ...]]
    """The scale operands, and what their rows in later quadrants are called."""
    first_rows: dict[str, Any]

    @classmethod
    def collect(cls) -> None:
        """Show the machine the rows that hold scales in the place of each scale operand."""
        super().collect()
        specs: dict[str, OperandSpec] = {}
        for name, spec in cls.specs.items():
            specs[name] = spec
            if name in cls.scales:
                specs |= dict.fromkeys(_row_names(name), OperandSpec(spec.access, (), "", internal=True))
        cls.specs, cls.operand_names = specs, tuple(specs)
        cls.row_operands = tuple(n for s in cls.scales for n in (s, *_row_names(s)))
        names = cls.operand_names
        cls.declare(
            lambda ins: tuple([ins.first_rows[n] if n in ins.scales else getattr(ins, n) for n in names]), cls.get_params
        )

    def __post_init__(self) -> None:
        self.first_rows = {}
        for scale, data in self.scales.items():
            self.first_rows[scale], *later = quadrants(getattr(self, scale), getattr(self, data))
            self.__dict__.update(zip(_row_names(scale), later, strict=True))
        super().__post_init__()

    def _start(self, core: NeuronCore, low: int, high: int, allowed: tuple[int, ...]) -> Broken | None:
        found = super()._start(core, low, high, allowed)
        # scales have rules of their own, and come last: no other operand is behind them
        return None if found is not None and found.operand in self.row_operands else found

    # -- checks; each returns what is broken, or None --------------------------------------------------------------------

    def scale_dtypes(self) -> Broken | None:
        """Scales are E8M0 numbers or their bytes."""
        for name, tile in self._named(*self.scales):
            if tile.dtype not in SCALE_DTYPES:
                return Broken(f"{name} is {tile.dtype}", name)
        return None

    def scale_shape(self, scale: str, columns: int) -> Broken | None:
        """A scale for each block: so many columns, and all rows that hold some."""
        tile, rows = getattr(self, scale), partitions(getattr(self, self.scales[scale]))
        if free(tile) != columns:
            return Broken(f"{scale} has {free(tile)} scales per partition, not {columns}", scale)
        if partitions(tile) < last_row(rows):
            what = f"{scale} has {partitions(tile)} partitions; the last scale of {rows} partitions is {last_row(rows)}th"
            return Broken(what, scale)
        return None

    def scale_quadrants(self) -> Broken | None:
        """Scales begin in the quadrant in which their data begin."""
        for scale, data in self.scales.items():
            start, wanted = getattr(self, scale).start_partition, getattr(self, data).start_partition
            if start // QUADRANT != wanted // QUADRANT:
                return Broken(f"{scale} starts at partition {start}, {data} at partition {wanted}", scale)
        return None

    def scale_starts(self) -> Broken | None:
        """Scales begin at one of the four places of a quadrant."""
        for name, tile in self._named(*self.scales):
            if tile.start_partition % QUADRANT not in SCALE_STARTS:
                return Broken(f"{name} starts at partition {tile.start_partition}", name)
        return None


def _row_names(scale: str) -> tuple[str, ...]:
    return tuple(f"{scale}_q{q}" for q in LATER_QUADRANTS)


def last_row(rows: int) -> int:
    """Partitions of a scale tile up to the last one with scales of ``rows`` partitions of data."""
    return (rows - 1) // QUADRANT * QUADRANT + SCALE_ROWS


def quadrants(scale: Any, data: Any) -> tuple[Any, ...]:
    """The rows of ``scale`` that hold scales of ``data``, per quadrant; a tile that has not all of them as it is."""
    if (
        not isinstance(scale, NkiTensor)
        or not isinstance(data, NkiTensor)
        or not scale.on_chip
        or partitions(scale) < last_row(partitions(data))
    ):
        return scale, *(None for _ in LATER_QUADRANTS)
    return tuple(_rows_in(scale, q) if q * QUADRANT < partitions(data) else None for q in (0, *LATER_QUADRANTS))


def _rows_in(scale: NkiTensor, quadrant: int) -> NkiTensor:
    """The rows with scales of one quadrant; of an indirect view with the offsets of that quadrant."""
    first = quadrant * QUADRANT
    if is_indirect(scale):
        rows, index = _rows_in(base_of(scale), quadrant), index_of(scale)[first : min(first + QUADRANT, scale.shape[0])]
        return picking(rows, index, scale.shape[1])
    shape, offset = (SCALE_ROWS, *scale.shape[1:]), scale.offset + first * scale.strides[0]
    return NkiTensor(scale.storage, scale.memory, scale.info, shape, scale.strides, offset, scale.dynamic)
