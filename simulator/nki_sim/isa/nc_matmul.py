"""``nki.isa.nc_matmul``: the tensor engine's matrix multiplication and its accumulation in PSUM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from nki_sim.dtypes import Array, assign
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import PSUM, SBUF, Body, Cost, free, instruction, partitions, read, write
from nki_sim.isa.cost import loads
from nki_sim.isa.enums import matmul_perf_mode
from nki_sim.isa.indirection import is_indirect, misplaced, off_quadrant, scattered_off
from nki_sim.isa.matmul import Matmul
from nki_sim.isa.values import is_plain_f32, loader, storer
from nki_sim.tensor import NkiTensor, coalesce, span

_PAGE = isa_page("nc_matmul")
_FP8 = ("float8_e4m3", "float8_e5m2")
_INPUTS = (*_FP8, "bfloat16", "float16", "tfloat32", "float32")
_SINGLE = ("float32", "tfloat32")


def _k(tile: NkiTensor) -> int:
    return partitions(tile)


@instruction
class nc_matmul(Matmul):
    """``dst = stationary.T @ moving``, or ``dst += …``, on the Tensor Engine.

    Args:
        dst: [M, N] in PSUM; float32 (on trn3 also bfloat16).
        stationary: [K, M] in SBUF, K ≤ 128 on partitions, M ≤ 128.
        moving: [K, N] in SBUF, N ≤ 512 (trn3: 4096 for a float32 dst, 8192 for bfloat16).
        is_stationary_onezero, is_moving_onezero: performance hints for float32 operands of ones and zeros.
        is_transpose: move data bit by bit through the array (trn2 and newer).
        accumulate: ``False`` overwrites, ``True`` adds, ``None`` overwrites the first time and adds afterwards.
        tile_position, tile_size: (row, column) of the part of the 128 × 128 array to use; both or none.
        perf_mode: ``double_row`` contracts [K, 2, …] fp8 operands over both leading dimensions.

    Example:
        stationary = nl.load(x[:, 0:64])  # [K, M]
        moving = nl.load(x[:, 64:320])  # [K, N]
        acc = nl.ndarray((64, 256), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=acc, stationary=stationary, moving=moving)
    """

    dst: NkiTensor = write(PSUM, "nc_matmul.operand_buffers")
    stationary: NkiTensor = read(SBUF, "nc_matmul.operand_buffers")
    moving: NkiTensor = read(SBUF, "nc_matmul.operand_buffers")
    is_stationary_onezero: bool = False
    is_moving_onezero: bool = False
    is_transpose: bool = False
    accumulate: bool | None = None
    tile_position: tuple[int, int] | tuple[()] | None = ()
    tile_size: tuple[int, int] | tuple[()] | None = ()
    perf_mode: matmul_perf_mode = matmul_perf_mode.none
    name: str | None = None

    # -- tensor indirection ----------------------------------------------------------------------------------------------

    @rule("nc_matmul.indirect.transpose", "in transpose mode moving is no indirect() view", gens=(4,), page=_PAGE,
          fix="gather to a tile first: nisa.tensor_copy(dst=<tile>, src=x.indirect(i))")  # fmt: skip
    def indirect_transpose(self, core: NeuronCore) -> Broken | None:
        bad = self.is_transpose and is_indirect(self.moving)
        return Broken("moving is an indirect() view with is_transpose=True", "moving") if bad else None

    @rule("nc_matmul.indirect.tile_position", "with indirect() views tile_position is (0, 0) or not given", gens=(4,),
          page=_PAGE, why="the offsets are read by the whole array")  # fmt: skip
    def indirect_tiling(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            if is_indirect(tile) and self.tile_position and tuple(self.tile_position) != (0, 0):
                return Broken(f"{name} is an indirect() view with tile_position {self.tile_position}", name)
        return None

    @rule("nc_matmul.indirect.dtype", "indirect stationary and moving are float16, bfloat16, float8_e4m3, float8_e5m2 or "
          "float8_e4m3fn", gens=(4,), page=_PAGE, fix="convert with nisa.tensor_copy")  # fmt: skip
    def indirect_dtype(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("stationary", "moving"):
            if is_indirect(tile) and tile.dtype not in (*_FP8, "float8_e4m3fn", "float16", "bfloat16"):
                return Broken(f"{name} is {tile.dtype}", name)
        return None

    @rule("nc_matmul.indirect.index_quadrant", "the index of an indirect() view starts at a quadrant (a multiple of 32)",
          gens=(4,), page=_PAGE)  # fmt: skip
    def indirect_quadrant(self, core: NeuronCore) -> Broken | None:
        return off_quadrant(self)

    @rule("nc_matmul.indirect.operand_same_partition", "indirect stationary and moving start where their indices do", gens=(4,),
          page=_PAGE)  # fmt: skip
    def indirect_start(self, core: NeuronCore) -> Broken | None:
        return misplaced(self, "stationary", "moving")

    @rule("nc_matmul.indirect.dst_index_partition", "the index of an indirect dst starts where stationary does", gens=(4,),
          page=_PAGE)  # fmt: skip
    def indirect_dst(self, core: NeuronCore) -> Broken | None:
        return scattered_off(self)

    def sums(self) -> bool:
        """A transpose moves bits and ends the sum."""
        return not self.is_transpose

    # -- limits ----------------------------------------------------------------------------------------------------------

    @rule("nc_matmul.tile.both_or_none", "tile_position and tile_size are given together", page=_PAGE,
          fix="default: tile_position=(0, 0), tile_size=(128, 128)")  # fmt: skip
    def tiling(self, core: NeuronCore) -> Broken | None:
        return self.tile_pair()

    @rule(
        "nc_matmul.double_row.dtype",
        "double_row takes fp8 operands: float8_e4m3 or float8_e5m2 (trn3 also float8_e4m3fn)",
        why="the mode packs two fp8 rows into one row of the array",
        fix="cast the operands, or leave perf_mode out",
        page=_PAGE,
        gens=(3, 4),
    )
    def double_row_dtype(self, core: NeuronCore) -> Broken | None:
        if not self._double():
            return None
        legal = (*_FP8, "float8_e4m3fn") if core.gen == 4 else _FP8
        for name, tile in self._named("stationary", "moving"):
            if tile.dtype not in legal:
                return Broken(f"{name} is {tile.dtype} with perf_mode double_row", name)
        return None

    @rule(
        "nc_matmul.perf_mode_gen",
        "perf_mode double_row exists on trn2 and trn3",
        why="the fp8 double rate came with NeuronCore-v3",
        fix="leave perf_mode out, or choose a newer target",
        page=_PAGE,
    )
    def perf_mode_gen(self, core: NeuronCore) -> Broken | None:
        if self._double() and core.gen == 2:
            return Broken("perf_mode double_row on trn1", "perf_mode")
        return None

    @rule(
        "nc_matmul.double_row.first_free_dim_2",
        "double_row operands are [K, 2, …]: the first free dimension is 2",
        why="the contraction runs over partitions and the two packed rows",
        fix="reshape to (K, 2, M) and (K, 2, N); pad an odd contraction with zeros",
        page=_PAGE,
        gens=(3, 4),
    )
    def double_row_shape(self, core: NeuronCore) -> Broken | None:
        if self._double():
            for name, tile in self._named("stationary", "moving"):
                if tile.ndim < 3 or tile.shape[1] != 2:
                    return Broken(f"{name} has shape {tile.shape} with perf_mode double_row", name)
        return None

    @rule(
        "nc_matmul.double_row.max_tiles",
        "double_row tiles are at most [128, 2, 128] stationary and [128, 2, 512] moving",
        fix="split the free dimension",
        page=_PAGE,
        gens=(3, 4),
    )
    def double_row_max(self, core: NeuronCore) -> Broken | None:
        if self._double():
            for name, tile, most in (("stationary", self.stationary, 128), ("moving", self.moving, 512)):
                if self._free(tile) > most:
                    return Broken(f"{name} has {self._free(tile)} columns > {most} with perf_mode double_row", name)
        return None

    @rule("nc_matmul.double_row.no_column_tiling", "double_row and column tiling exclude each other", gens=(3, 4),
          page=_PAGE, fix="use tile_size=(rows, 128)")  # fmt: skip
    def double_row_columns(self, core: NeuronCore) -> Broken | None:
        if self._double() and self.tile_size and self.tile_size[1] != 128:
            return Broken(f"perf_mode double_row with tile_size {self.tile_size}", "tile_size")
        return None

    @rule("nc_matmul.double_row.no_transpose", "double_row and transpose mode exclude each other", gens=(3, 4),
          page=_PAGE)  # fmt: skip
    def double_row_transpose(self, core: NeuronCore) -> Broken | None:
        if self._double() and self.is_transpose:
            return Broken("perf_mode double_row with is_transpose=True", "is_transpose")
        return None

    @rule(
        "nc_matmul.k_equal",
        "stationary and moving have the same partition size K: the contraction lies on the partition axis of both",
        why="row k of the array multiplies partition k of both operands",
        fix="lay both out with the contracted dimension on partitions: stationary [K, M], moving [K, N], dst [M, N]; "
        "nisa.nc_transpose or nisa.dma_transpose turns a tile",
        page=_PAGE,
    )
    def k_equal(self, core: NeuronCore) -> Broken | None:
        k, other = _k(self.stationary), _k(self.moving)
        if k != other:
            return Broken(f"contraction sizes differ: stationary {k} partitions, moving {other}", "moving")
        return None

    @rule(
        "nc_matmul.k_le_128",
        "K is at most 128, or the row_size of tile_size",
        why="the array has 128 rows",
        fix="cut K into tiles of 128 and accumulate them in one PSUM tile",
        page=_PAGE,
    )
    def k_limit(self, core: NeuronCore) -> Broken | None:
        most = self.tile_size[0] if self.tile_size else 128
        if _k(self.stationary) > most:
            return Broken(f"contraction size {_k(self.stationary)} > {most}", "stationary")
        return None

    @rule(
        "nc_matmul.stationary_free_le_128",
        "the free size of stationary is at most 128, or the column_size of tile_size",
        why="the array has 128 columns, one per row of the result",
        fix="cut stationary into tiles of at most 128 columns, one PSUM tile each",
        page=_PAGE,
    )
    def stationary_limit(self, core: NeuronCore) -> Broken | None:
        size = self._free(self.stationary)
        most = self.tile_size[1] if self.tile_size else core.gemm_stationary_fmax
        if size > most:
            return Broken(f"stationary free size {size} > {most}", "stationary")
        return None

    @rule(
        "nc_matmul.moving_free_le_512",
        "the free size of moving is at most 512",
        why="one matmul fills one PSUM bank: 2 KiB per partition = 512 fp32",
        fix="split the columns into tiles of at most 512, one PSUM tile each: "
        "x[:, j:min(j + 512, n)] for j in range(0, n, 512)",
        page=_PAGE,
        gens=(2, 3),
    )
    def moving_limit(self, core: NeuronCore) -> Broken | None:
        size = self._free(self.moving)
        if size > core.gemm_moving_fmax:
            return Broken(f"moving free size {size} > {core.gemm_moving_fmax}", "moving")
        return None

    @rule(
        "nc_matmul.moving_free_gen4",
        "the free size of moving is at most 4096 for a float32 dst, 8192 for bfloat16",
        why="a matmul may fill all 8 banks: 16 KiB per partition",
        fix="split the columns",
        page=_PAGE,
        gens=(4,),
    )
    def moving_limit_gen4(self, core: NeuronCore) -> Broken | None:
        size, most = self._free(self.moving), core.psum_partition_bytes // max(self.dst.info.itemsize, 2)
        if size > most:
            return Broken(f"moving free size {size} > {most}", "moving")
        return None

    @rule(
        "nc_matmul.dst_shape",
        "dst is [stationary free size, moving free size]",
        why="column m of stationary comes out on partition m, column n of moving at free position n",
        fix="allocate dst as nl.ndarray((stationary.shape[1], moving.shape[1]), dtype=nl.float32, buffer=nl.psum)",
        page=_PAGE,
    )
    def dst_shape(self, core: NeuronCore) -> Broken | None:
        return self.result_shape(self._free(self.stationary), self._free(self.moving))

    @rule(
        "nc_matmul.dst_fits_one_bank",
        "the result lies within one PSUM bank per partition",
        why="the accumulator of a bank is 2 KiB wide and a write cannot straddle two",
        fix="start the slice at a multiple of 512 fp32, and keep it within 512",
        page=_PAGE,
        gens=(2, 3),
    )
    def one_bank(self, core: NeuronCore) -> Broken | None:
        first = self.dst.start_byte
        last = first + self._dst_span() - 1
        if first // core.psum_bank_bytes != last // core.psum_bank_bytes:
            return Broken(f"dst covers bytes {first} to {last}, across a bank boundary", "dst")
        return None

    @rule("nc_matmul.dst_one_bank_per_instr", "one matmul writes one PSUM bank", page=_PAGE, gens=(2, 3),
          why="the output port serves one bank at a time", fix="one matmul per bank")  # fmt: skip
    def one_bank_per_instruction(self, core: NeuronCore) -> Broken | None:
        if self._dst_span() > core.psum_bank_bytes:
            return Broken(f"dst spans {self._dst_span()} bytes per partition > {core.psum_bank_bytes}", "dst")
        return None

    @rule(
        "nc_matmul.in_dtypes",
        "stationary and moving are float8_e4m3, float8_e5m2, bfloat16, float16, tfloat32 or float32 (trn3 also float8_e4m3fn)",
        why="the processing elements multiply floats",
        fix="convert with nisa.tensor_copy to a bfloat16 or float32 tile",
        page=_PAGE,
    )
    def input_dtypes(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("stationary", "moving"):
            if tile.dtype not in _INPUTS and tile.dtype != "float8_e4m3fn":
                return Broken(f"{name} is {tile.dtype}", name)
        return None

    @rule("nc_matmul.e4m3fn_gen4_only", "float8_e4m3fn operands exist from trn3 on", page=_PAGE,
          why="older arrays read the legacy float8_e4m3 with infinities", fix="use float8_e4m3")  # fmt: skip
    def e4m3fn(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("stationary", "moving"):
            if tile.dtype == "float8_e4m3fn" and core.gen < 4:
                return Broken(f"{name} is float8_e4m3fn on {core.target}", name)
        return None

    @rule("nc_matmul.no_mix_e4m3_e4m3fn", "float8_e4m3 and float8_e4m3fn do not meet in one matmul", gens=(4,),
          page=_PAGE)  # fmt: skip
    def no_mix(self, core: NeuronCore) -> Broken | None:
        if {self.stationary.dtype, self.moving.dtype} == {"float8_e4m3", "float8_e4m3fn"}:
            return Broken(f"stationary is {self.stationary.dtype}, moving {self.moving.dtype}", "moving")
        return None

    @rule(
        "nc_matmul.fp32_pairing",
        "a float32 or tfloat32 operand pairs with float32 or tfloat32",
        why="fp32 takes four passes through the array, and both operands take them together",
        fix="convert one of them with nisa.tensor_copy",
        page=_PAGE,
    )
    def fp32_pairing(self, core: NeuronCore) -> Broken | None:
        if (self.stationary.dtype in _SINGLE) != (self.moving.dtype in _SINGLE):
            return Broken(f"stationary is {self.stationary.dtype}, moving {self.moving.dtype}", "moving")
        return None

    @rule(
        "nc_matmul.dst_dtype_fp32",
        "dst must be float32",
        why="PSUM accumulates 4-byte floats before NeuronCore-v4",
        fix="allocate dst with dtype=nl.float32; the cast to bfloat16 is free when tensor_copy evacuates it",
        page=_PAGE,
        gens=(2, 3),
    )
    def dst_dtype(self, core: NeuronCore) -> Broken | None:
        if self.dst.dtype != "float32" and not (self.is_transpose and core.gen == 3):
            return Broken(f"dst dtype must be float32 on gen{core.gen}, got {self.dst.dtype}", "dst")
        return None

    @rule("nc_matmul.dst_dtype_gen4", "dst is float32 or bfloat16", page=_PAGE, gens=(4,),
          fix="allocate dst with dtype=nl.float32 or nl.bfloat16")  # fmt: skip
    def dst_dtype_gen4(self, core: NeuronCore) -> Broken | None:
        if self.dst.dtype not in ("float32", "bfloat16") and not self.is_transpose:
            return Broken(f"dst is {self.dst.dtype}", "dst")
        return None

    @rule(
        "nc_matmul.transpose.psum_dtype",
        "in transpose mode dst has the dtype of the data (fp8 lands in 16-bit elements)",
        why="the array moves bits instead of multiplying",
        fix="allocate the PSUM tile with dtype=stationary.dtype",
        page=_PAGE,
        gens=(3, 4),
    )
    def transpose_dtype(self, core: NeuronCore) -> Broken | None:
        if not self.is_transpose:
            return None
        data, dst = self.stationary.info, self.dst.info
        if data.is_fp8 and dst.itemsize == 2:
            return None
        if dst.name != data.name:
            return Broken(f"dst is {dst.name}, the transposed data is {data.name}", "dst")
        return None

    @rule("nc_matmul.tile.row_sizes", "row_size is 128, 64 or (trn2 and newer) 32", page=_PAGE,
          why="the array splits into halves and quarters")  # fmt: skip
    def row_size(self, core: NeuronCore) -> Broken | None:
        return self._tile_size(core, 0, "row_size")

    @rule("nc_matmul.tile.col_sizes", "column_size is 128, 64 or (trn2 and newer) 32", page=_PAGE,
          why="the array splits into halves and quarters")  # fmt: skip
    def column_size(self, core: NeuronCore) -> Broken | None:
        return self._tile_size(core, 1, "column_size")

    def _tile_size(self, core: NeuronCore, axis: int, label: str) -> Broken | None:
        if self.tile_size and self.tile_size[axis] not in core.pe_tile_sizes:
            return Broken(f"{label} {self.tile_size[axis]} is none of {core.pe_tile_sizes}", "tile_size")
        return None

    @rule("nc_matmul.tile.start_row", "start_row is a multiple of row_size, and the tile ends within 128", page=_PAGE)
    def start_row(self, core: NeuronCore) -> Broken | None:
        return self.tile_start(0, "start_row")

    @rule("nc_matmul.tile.start_col", "start_column is a multiple of column_size, and the tile ends within 128",
          page=_PAGE)  # fmt: skip
    def start_column(self, core: NeuronCore) -> Broken | None:
        return self.tile_start(1, "start_column")

    @rule("nc_matmul.tile.fits", "the stationary tile fits in tile_size", page=_PAGE, fix="use a larger tile_size")
    def tile_fits(self, core: NeuronCore) -> Broken | None:
        if self.tile_size:
            k, m = _k(self.stationary), self._free(self.stationary)
            if k > self.tile_size[0] or m > self.tile_size[1]:
                return Broken(f"stationary is [{k}, {m}], tile_size {self.tile_size}", "stationary")
        return None

    @rule(
        "nc_matmul.stationary_one_free_dim",
        "stationary has one free dimension in memory",
        why="the weights load column by column; the vendor's simulator accepts two strided dimensions, whose products "
        "are wrong on trn2",
        fix="copy it to a compact [K, M] tile first",
        page=_PAGE,
        enforce="warn",
    )
    def stationary_dims(self, core: NeuronCore) -> Broken | None:
        skip = 2 if self._double() else 1
        dims = coalesce(self.stationary.shape[skip:], self.stationary.strides[skip:])
        if len(dims) > 1:
            return Broken(f"stationary {self.stationary.shape} has {len(dims)} strided free dimensions", "stationary")
        return None

    # -- semantics -------------------------------------------------------------------------------------------------------

    def _double(self) -> bool:
        return self.perf_mode is matmul_perf_mode.double_row

    def _free(self, tile: NkiTensor) -> int:
        """Columns: the free size, without the packed rows of double_row."""
        return free(tile) // 2 if self._double() and tile.ndim > 2 else free(tile)

    def _dst_span(self) -> int:
        return (span(self.dst.shape[1:], self.dst.strides[1:]) + 1) * self.dst.info.itemsize

    def flops(self) -> int:
        """Two per multiply-add; a transpose does none."""
        rows = _k(self.stationary) * (2 if self._double() else 1)
        return 0 if self.is_transpose else 2 * rows * self._free(self.stationary) * self._free(self.moving)

    def cycles(self, core: NeuronCore) -> float:
        """max(min(64, columns of stationary), columns of moving) per pass; fp32 takes 4 passes, with 0/1 operands or as a
        transpose (trn2 and newer) 2. Loading stationary hides behind the previous matmul."""
        return self._passes(core) * max(min(64.0, self._free(self.stationary)), float(self._free(self.moving)))

    def _passes(self, core: NeuronCore) -> int:
        if self.moving.dtype != "float32":
            return 1
        return 2 if self.is_stationary_onezero or self.is_moving_onezero or (self.is_transpose and core.gen > 2) else 4

    def cost(self, core: NeuronCore) -> Cost:
        """fp32 becomes two MATMUL instructions (profile schema); the stationary loads of all passes count."""
        columns, passes = self._free(self.stationary), self._passes(core)
        moved = 2 * _k(self.stationary) * columns * self._free(self.moving) if self.is_transpose else 0
        return replace(super().cost(core), load=loads(columns), columns=columns, passes=-(-passes // 2), transpose_flops=moved)

    def body(self, core: NeuronCore) -> Body:
        k = _k(self.stationary) * (2 if self._double() else 1)
        m, n = self._free(self.stationary), self._free(self.moving)
        load_s, load_m = loader(self.stationary, (k, m)), loader(self.moving, (k, n))
        if self.is_transpose:
            return self._transpose_body(core, load_s, load_m)

        if is_plain_f32(self.stationary, self.moving) and self.stationary.ndim == self.moving.ndim == 2:
            return self.accumulated(_product, (m, n))

        def product(s: Array, mv: Array, _: Any, out: Array | None = None) -> Array:
            return np.matmul(load_s(s).T, load_m(mv), out=out)

        return self.accumulated(product, (m, n))

    def _transpose_body(self, core: NeuronCore, load_s: Callable[[Any], Any], load_m: Callable[[Any], Any]) -> Body:
        store, shape = storer(self.dst), self.dst.shape
        k, m = _k(self.stationary), free(self.stationary)
        same = self.dst.stored_dtype == self.stationary.stored_dtype

        def transpose(dst: Array, s: Array, mv: Array, _: Any) -> None:
            moving = load_m(mv)
            if core.gen >= 3 and moving.shape[0] == moving.shape[1] and np.array_equal(moving, np.eye(k)):
                values = s.reshape(k, m).T if same else load_s(s).T
                assign(dst, values.reshape(shape))
            else:  # a plain product with whatever is there: NaN and infinity spread, as on trn1
                store(dst, (load_s(s).T @ moving).reshape(shape))

        return transpose


def _product(stationary: Array, moving: Array, _: Any, out: Array | None = None) -> Array:
    """Of two float32 tiles."""
    return np.matmul(stationary.T, moving, out)
