"""``nki.isa.nc_matmul_mx``: the tensor engine's multiplication of MXFP8 and MXFP4 matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import PSUM, SBUF, Body, Cost, free, instruction, partitions, read, write
from nki_sim.isa.cost import at_least, elements, loads
from nki_sim.isa.indirection import is_indirect, misplaced, off_quadrant, same_index, scattered_off
from nki_sim.isa.matmul import Matmul
from nki_sim.isa.mx_scales import ScaledInstruction
from nki_sim.mx import ELEMENTS, PACK, QUADRANT, scale_values, scaled, unpack
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("nc_matmul_mx")
_MOST_ROWS = 128
_SAFE_SCALE = np.float32(2.0**112)
"""Up to this scale every element, of 57344 at most, is a finite float32."""


@instruction
class nc_matmul_mx(ScaledInstruction, Matmul):
    """``dst = (stationary · scales).T @ (moving · scales)``, or ``dst += …``, on the Tensor Engine.

    The contraction runs over partitions and over the four elements of each packed one: K = 4·P, up to 512. A scale
    multiplies a block of 8 partitions × 4 elements. Products are summed in float32 and rounded once into ``dst``; in a
    bfloat16 ``dst`` each addition is.

    Args:
        dst: [M, N] in PSUM, float32 or bfloat16.
        stationary: [P, M] in SBUF, float8_e5m2_x4, float8_e4m3fn_x4 or float4_e2m1fn_x4; P 32, 64, 96 or 128, M even, ≤ 128.
        moving: [P, N] in SBUF, any of these dtypes; N ≤ 4096 for a float32 dst, 8192 for bfloat16.
        stationary_scale, moving_scale: in SBUF, float8_e8m0fnu or uint8, M and N per partition; row r of blocks is at
            partition 32·(r // 4) + r % 4, counted from where the tile starts: the quadrant of the data, plus 0, 4, 8 or 12.
        tile_position, tile_size: (row, 0) and (rows, 128), the rows of the array to use; both or none.
        accumulate: ``False`` overwrites, ``True`` adds, ``None`` overwrites the first time and adds afterwards.

    Errors: trn1 and trn2 do not have it; other dtypes, spaces and shapes; scales in another quadrant than their data.

    Example:
        stationary = nl.load(x[:, 0:256], dtype=nl.float8_e4m3fn).view(nl.float8_e4m3fn_x4)  # (128, 64)
        moving = nl.load(x[:, 0:384], dtype=nl.float8_e4m3fn).view(nl.float8_e4m3fn_x4)  # (128, 96)
        s_scale, m_scale = (nl.full((128, n), 127, dtype=nl.uint8) for n in (64, 96))  # scales of 2^0
        acc = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(dst=acc, stationary=stationary, moving=moving,
                          stationary_scale=s_scale, moving_scale=m_scale)
    """

    scales: ClassVar[dict[str, str]] = {"stationary_scale": "stationary", "moving_scale": "moving"}

    takes_scales = True

    dst: NkiTensor = write(PSUM, "nc_matmul_mx.buffers")
    stationary: NkiTensor = read(SBUF, "nc_matmul_mx.buffers")
    moving: NkiTensor = read(SBUF, "nc_matmul_mx.buffers")
    stationary_scale: NkiTensor = read(SBUF, "nc_matmul_mx.buffers")
    moving_scale: NkiTensor = read(SBUF, "nc_matmul_mx.buffers")
    tile_position: tuple[int, int] | tuple[()] | None = None
    tile_size: tuple[int, int] | tuple[()] | None = None
    accumulate: bool | None = None
    name: str | None = None

    # -- tensor indirection ----------------------------------------------------------------------------------------------

    @rule("nc_matmul_mx.indirect.pair_agree", "an operand and its scale are both indirect() views by one index, or neither is",
          gens=(4,), page=_PAGE, why="an element and its scale move together")  # fmt: skip
    def indirect_pairs(self, core: NeuronCore) -> Broken | None:
        for scale, data in self.scales.items():
            tile, factor = getattr(self, data), getattr(self, scale)
            if is_indirect(tile) != is_indirect(factor):
                which, other = (data, scale) if is_indirect(tile) else (scale, data)
                return Broken(f"{which} is an indirect() view, {other} is not", which)
            if is_indirect(tile) and not same_index(tile, factor):
                return Broken(f"{data} and {scale} have different indices", scale)
        return None

    @rule("nc_matmul_mx.indirect.tile_position", "with indirect() views tile_position is (0, 0) or not given", gens=(4,),
          page=_PAGE)  # fmt: skip
    def indirect_tiling(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            if is_indirect(tile) and self.tile_position and tuple(self.tile_position) != (0, 0):
                return Broken(f"{name} is an indirect() view with tile_position {self.tile_position}", name)
        return None

    @rule("nc_matmul_mx.indirect.partitions", "the index of an indirect() view starts at a quadrant (a multiple of 32), an "
          "indirect operand where its index does, the index of an indirect dst where stationary does", gens=(4,),
          page=_PAGE)  # fmt: skip
    def indirect_partitions(self, core: NeuronCore) -> Broken | None:
        return off_quadrant(self) or misplaced(self, "stationary", "moving") or scattered_off(self)

    # -- limits ----------------------------------------------------------------------------------------------------------

    @rule("nc_matmul_mx.gen4_only", "nc_matmul_mx exists on trn3 and newer", page=_PAGE, gens=(2, 3),
          why="the array multiplies four pairs at a time since NeuronCore-v4", fix="use nisa.nc_matmul")  # fmt: skip
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("nc_matmul_mx.tile_both_or_none", "tile_position and tile_size are given together", page=_PAGE, gens=(4,),
          fix="default: tile_position=(0, 0), tile_size=(128, 128)")  # fmt: skip
    def tiling(self, core: NeuronCore) -> Broken | None:
        return self.tile_pair()

    @rule("nc_matmul_mx.row_tiling_only", "tile_size is (32, 128), (64, 128) or (128, 128), and start_column is 0", page=_PAGE,
          gens=(4,), why="for MX operands the array splits by rows only", fix="use tile_size=(rows, 128)")  # fmt: skip
    def row_tiling(self, core: NeuronCore) -> Broken | None:
        if self.tile_position and self.tile_size:
            rows, columns = self.tile_size
            if rows not in core.pe_tile_sizes or columns != _MOST_ROWS:
                return Broken(f"tile_size is {self.tile_size}", "tile_size")
            if self.tile_position[1] != 0:
                return Broken(f"start_column is {self.tile_position[1]}", "tile_position")
        return None

    @rule("nc_matmul_mx.start_row", "start_row is a multiple of row_size, and the tile ends within 128", page=_PAGE,
          gens=(4,))  # fmt: skip
    def start_row(self, core: NeuronCore) -> Broken | None:
        return self.tile_start(0, "start_row")

    @rule("nc_matmul_mx.data_dtype", "stationary and moving are float8_e5m2_x4, float8_e4m3fn_x4 or float4_e2m1fn_x4",
          page=_PAGE, gens=(4,), why="each row of the array takes four packed elements",
          fix="quantise with nisa.quantize_mx; bytes from outside become packed with x.view(nl.float8_e4m3fn_x4)")  # fmt: skip
    def data_dtype(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("stationary", "moving"):
            if tile.dtype not in ELEMENTS:
                return Broken(f"{name} is {tile.dtype}", name)
        return None

    @rule("nc_matmul_mx.scale_dtype", "scales are float8_e8m0fnu or uint8", page=_PAGE, gens=(4,))
    def scale_dtype(self, core: NeuronCore) -> Broken | None:
        return self.scale_dtypes()

    @rule("nc_matmul_mx.dst_dtype", "dst is float32 or bfloat16", page=_PAGE, gens=(4,),
          fix="allocate dst with dtype=nl.float32 or nl.bfloat16")  # fmt: skip
    def dst_dtype(self, core: NeuronCore) -> Broken | None:
        return None if self.dst.dtype in ("float32", "bfloat16") else Broken(f"dst is {self.dst.dtype}", "dst")

    @rule("nc_matmul_mx.k_mult_32", "stationary and moving have the same 32, 64, 96 or 128 partitions", page=_PAGE, gens=(4,),
          why="row k of the array multiplies partition k of both, and scales come per quadrant of 32",
          fix="pad both with zeros to the next multiple of 32")  # fmt: skip
    def contraction(self, core: NeuronCore) -> Broken | None:
        # a comment in a public kernel says that 96 does not work; the reference allows every multiple of 32
        k, other = partitions(self.stationary), partitions(self.moving)
        if k != other:
            return Broken(f"contraction sizes differ: stationary {k} partitions, moving {other}", "moving")
        return Broken(f"stationary and moving have {k} partitions", "stationary") if k % QUADRANT else None

    @rule("nc_matmul_mx.tile_fits", "stationary has at most row_size partitions", page=_PAGE, gens=(4,),
          fix="use a larger tile_size")  # fmt: skip
    def tile_fits(self, core: NeuronCore) -> Broken | None:
        k = partitions(self.stationary)
        if self.tile_size and k > self.tile_size[0]:
            return Broken(f"stationary has {k} partitions, tile_size is {self.tile_size}", "stationary")
        return None

    @rule("nc_matmul_mx.stationary_free_even_le_128", "the free size of stationary is even and at most 128", page=_PAGE,
          gens=(4,), why="the array has 128 columns, and loads them in pairs", fix="pad stationary with a zero column, or "
          "cut it into tiles of 128")  # fmt: skip
    def stationary_free(self, core: NeuronCore) -> Broken | None:
        m = free(self.stationary)
        return Broken(f"stationary free size {m}", "stationary") if m % 2 or m > core.gemm_stationary_fmax else None

    @rule("nc_matmul_mx.moving_free", "the free size of moving is at most 4096 for a float32 dst, 8192 for bfloat16",
          page=_PAGE, gens=(4,), why="a matmul fills all 8 banks at most: 16 KiB per partition",
          fix="split the columns")  # fmt: skip
    def moving_free(self, core: NeuronCore) -> Broken | None:
        # the guides have 512, a bank; the reference, which is newer, has these numbers, as for nc_matmul
        n, most = free(self.moving), core.psum_partition_bytes // self.dst.info.itemsize
        return Broken(f"moving free size {n} > {most}", "moving") if n > most else None

    @rule("nc_matmul_mx.dst_shape", "dst is [stationary free size, moving free size]", page=_PAGE, gens=(4,),
          why="column m of stationary comes out on partition m, column n of moving at free position n",
          fix="allocate dst as nl.ndarray((stationary.shape[1], moving.shape[1]), dtype=nl.float32, "
          "buffer=nl.psum)")  # fmt: skip
    def dst_shape(self, core: NeuronCore) -> Broken | None:
        return self.result_shape(free(self.stationary), free(self.moving))

    @rule(
        "nc_matmul_mx.scale_shape",
        "a scale tile has as many elements per partition as its data, and reaches over the first 4 partitions of each "
        "quadrant that the data occupy",
        why="each row of 8-partition blocks has its scales in a partition of its own, in the quadrant of the block",
        fix="allocate it as (P // 8, F) for P = 32, else as (P, F), and bring rows 4·q to 4·q + 3 to partition 32·q",
        page=_PAGE,
        gens=(4,),
    )
    def scale_shapes(self, core: NeuronCore) -> Broken | None:
        for scale, data in self.scales.items():
            broken = self.scale_shape(scale, free(getattr(self, data)))
            if broken is not None:
                return broken
        return None

    @rule("nc_matmul_mx.scale_same_quadrant", "scales start in the quadrant in which their data start", page=_PAGE, gens=(4,),
          why="the wires of a quadrant carry its data and its scales",
          fix="slice the scales as the data: 32 rows further for each quadrant")  # fmt: skip
    def same_quadrant(self, core: NeuronCore) -> Broken | None:
        return self.scale_quadrants()

    @rule("nc_matmul_mx.scale_offset_in_quadrant", "scales start 0, 4, 8 or 12 partitions into the quadrant", page=_PAGE,
          gens=(4,), why="up to four tensors share a tile of scales",
          fix="slice the scale tile at one of these: t[4:, :]")  # fmt: skip
    def scale_offset(self, core: NeuronCore) -> Broken | None:
        return self.scale_starts()

    # -- semantics -------------------------------------------------------------------------------------------------------

    def flops(self) -> int:
        """Two per multiply-add, four multiply-adds per packed element."""
        return 2 * PACK * partitions(self.stationary) * free(self.stationary) * free(self.moving)

    def cycles(self, core: NeuronCore) -> float:
        """N columns of moving, one per cycle. (That 64 are the least is an estimate.)"""
        return at_least(elements(self, "moving"))

    def cost(self, core: NeuronCore) -> Cost:
        """One MATMUL instruction."""
        columns = free(self.stationary)
        return replace(super().cost(core), load=loads(columns), columns=columns, passes=1)

    def body(self, core: NeuronCore) -> Body:
        k, m, n = partitions(self.stationary), free(self.stationary), free(self.moving)
        quadrants, most = k // QUADRANT, _MOST_ROWS // QUADRANT
        left, right = self.stationary.dtype, self.moving.dtype

        def factor(packed: Array, dtype: str, scales: Array, wide: bool) -> Array:
            """[4·P, F] numbers."""
            values = unpack(packed.reshape(k, -1), dtype)
            values = scaled(values.astype(np.float64) if wide else values, scales)
            return values.transpose(0, 2, 1).reshape(k * PACK, -1)

        def product(s: Array, mv: Array, *rows: Any, out: Array | None = None) -> Array:
            s_scales, m_scales = _together(rows[:quadrants]), _together(rows[most : most + quadrants])
            # The scales multiply the sums of products: a factor may exceed float32 where the product does not.
            wide = bool((s_scales > _SAFE_SCALE).any() or (m_scales > _SAFE_SCALE).any())
            a, b = factor(s, left, s_scales, wide), factor(mv, right, m_scales, wide)
            if not wide:
                return np.matmul(a.T, b, out=out)
            result = np.empty((m, n), np.float32) if out is None else out
            result[...] = a.T @ b
            return result

        return self.accumulated(product, (m, n))


def _together(rows: Sequence[Array]) -> Array:
    """The scales of all quadrants, one row per row of blocks."""
    return np.concatenate([scale_values(r).reshape(len(r), -1) for r in rows])
