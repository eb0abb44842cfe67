"""What instructions cost in cycles of their engine: the documented tables, in the words of the instruction's operands.

Source unless another is named: the per-instruction cost notes of the ``nki.isa`` reference at tag v2.26.1 (later
documents removed them, and still refer to them), the architecture guides for the data path widths of trn2 and trn3.
N is the number of elements per partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nki_sim.hw import NeuronCore
from nki_sim.isa.base import free
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor, coalesce

if TYPE_CHECKING:
    from nki_sim.isa.base import Instruction

MIN_II = 64.0
"""Cycles between two instructions of one engine at least ("roughly 64", nki.api.shared; documented for gen2)."""

GPSIMD_START = 150.0
"""Cycles a GpSimd instruction takes before its elements (iota, affine_select)."""

READ_REGISTERS = 64.0
"""Cycles to read the accumulator registers out (arch guide, ActReadAccumulator)."""


def at_least(cycles: float) -> float:
    """No engine takes instructions faster than one per ``MIN_II`` cycles."""
    return max(MIN_II, cycles)


def _is_half(tile: NkiTensor, core: NeuronCore) -> bool:
    return tile.dtype in ("bfloat16", "float16") or (core.gen == 4 and tile.info.is_fp8)


def _is_dense(tile: NkiTensor) -> bool:
    return coalesce(tile.shape[1:], tile.strides[1:])[-1][1] == 1


def streamed(core: NeuronCore, dst: NkiTensor, src: NkiTensor) -> float:
    """Cycles to stream one tile through the Vector Engine (copy, tensor_scalar).

    trn1 takes an element per cycle. trn2 and newer take four when both ends are dense bf16 or fp16 in SBUF, two when one
    end is in PSUM or not dense, two of other dtypes from SBUF to SBUF, else one.
    """
    n = free(dst)
    if core.gen == 2:
        return at_least(n)
    in_sbuf = dst.buffer is src.buffer is MemoryRegion.sbuf
    if _is_half(dst, core) and _is_half(src, core):
        return at_least(n / (4 if in_sbuf and _is_dense(dst) and _is_dense(src) else 2))
    return at_least(n / 2 if in_sbuf else n)


def two_tiles(core: NeuronCore, a: NkiTensor, b: NkiTensor) -> float:
    """Cycles of an element-wise instruction on two tiles: N when one is in PSUM or both are dense bf16 or fp16, else 2N."""
    n = free(a)
    if MemoryRegion.psum in (a.buffer, b.buffer):
        return at_least(n)
    half = all(_is_half(t, core) and _is_dense(t) for t in (a, b))
    return at_least(n if half else 2 * n)


def gpsimd(n: float, per_element: float = 1.0) -> float:
    """Cycles of a GpSimd instruction over n elements per partition."""
    return GPSIMD_START + per_element * n


def elements(ins: Instruction, name: str) -> int:
    """Elements per partition of an operand."""
    return free(getattr(ins, name))


NO_TABLE = frozenset({"copy", "identity"})
"""Functions of the Scalar Engine that need no table. (That the others have one each is an estimate.)"""


def table_of(function: str) -> str:
    """The table that an activation function needs; empty for none."""
    return "" if function in NO_TABLE else function


LOAD_COLUMNS = 4.0
"""Columns of stationary that load in a cycle: fast weight load is up to four times faster (arch guides)."""


def loads(stationary_columns: int) -> float:
    """Cycles to load the stationary operand."""
    return stationary_columns / LOAD_COLUMNS
