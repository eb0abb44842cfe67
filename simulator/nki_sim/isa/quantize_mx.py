"""``nki.isa.quantize_mx``: 16-bit floats to MXFP8, elements and block scales."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import SBUF, Body, free, instruction, partitions, read, write
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.mx_scales import ScaledInstruction
from nki_sim.isa.values import loader
from nki_sim.mx import BLOCK, PACK, QUADRANT, quantize, store_scales
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("quantize_mx")


@instruction
class quantize_mx(ScaledInstruction):
    """``dst = src / X``, rounded to nearest even, with a scale X for each block of 8 partitions × 4 elements; Vector Engine.

    ``X = 2^(floor(log2(amax)) - (emax - 1))`` for the largest magnitude amax of the block; emax is 8 for float8_e4m3fn,
    15 for float8_e5m2. X is 2^-127 at least, and for a block of zeros. Of the special values the documents say nothing:
    here a NaN makes the scale 255, which is NaN; infinity gives X = 2^127 and the largest finite element.

    Args:
        dst: [P, F / 4] in SBUF, float8_e5m2_x4 or float8_e4m3fn_x4; the layout of ``src``, four neighbours packed in one.
        src: [P, F] in SBUF, float16 or bfloat16; P 32, 64, 96 or 128, F a multiple of 4.
        dst_scale: in SBUF, float8_e8m0fnu or uint8, F / 4 per partition; row r of blocks goes to partition
            32·(r // 4) + r % 4, counted from where it starts: the quadrant in which ``src`` starts, plus 0, 4, 8 or 12. No
            other partition is written, so that up to four tensors share a tile.

    Errors: trn1 and trn2 do not have it; other dtypes, spaces and shapes; scales in another quadrant than their data.

    Example:
        a = nl.load(x[:, 0:256], dtype=nl.bfloat16)
        packed = nl.ndarray((128, 64), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scale = nl.ndarray((128, 64), dtype=nl.uint8, buffer=nl.sbuf)
        nisa.quantize_mx(dst=packed, src=a, dst_scale=scale)
    """

    scales: ClassVar[dict[str, str]] = {"dst_scale": "src"}

    takes_scales = True

    dst: NkiTensor = write(SBUF)
    src: NkiTensor = read(SBUF)
    dst_scale: NkiTensor = write(SBUF)
    name: str | None = None

    @rule("quantize_mx.gen4_only", "quantize_mx exists on trn3 and newer", page=_PAGE, gens=(2, 3),
          why="the Vector Engine got block quantisation with NeuronCore-v4",
          fix="quantise on the host, or scale by rows with nisa.tensor_scalar into float8_e4m3")  # fmt: skip
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("quantize_mx.src_dtype", "src is float16 or bfloat16", page=_PAGE, gens=(4,),
          fix="convert it with nisa.tensor_copy")  # fmt: skip
    def src_dtype(self, core: NeuronCore) -> Broken | None:
        return None if self.src.dtype in ("float16", "bfloat16") else Broken(f"src is {self.src.dtype}", "src")

    @rule("quantize_mx.dst_dtype", "dst is float8_e5m2_x4 or float8_e4m3fn_x4", page=_PAGE, gens=(4,),
          why="the engine makes MXFP8 only; MXFP4 weights are quantised on the host",
          fix="allocate dst with dtype=nl.float8_e4m3fn_x4")  # fmt: skip
    def dst_dtype(self, core: NeuronCore) -> Broken | None:
        good = self.dst.dtype in ("float8_e5m2_x4", "float8_e4m3fn_x4")
        return None if good else Broken(f"dst is {self.dst.dtype}", "dst")

    @rule("quantize_mx.scale_dtype", "dst_scale is float8_e8m0fnu or uint8", page=_PAGE, gens=(4,))
    def scale_dtype(self, core: NeuronCore) -> Broken | None:
        return self.scale_dtypes()

    @rule("quantize_mx.src_p_mult_32", "src has 32, 64, 96 or 128 partitions", page=_PAGE, gens=(4,),
          why="scales are written per quadrant of 32 partitions", fix="pad src with zeros")  # fmt: skip
    def src_partitions(self, core: NeuronCore) -> Broken | None:
        return Broken(f"src has {partitions(self.src)} partitions", "src") if partitions(self.src) % QUADRANT else None

    @rule("quantize_mx.src_f_mult_4", "src has a multiple of 4 elements per partition", page=_PAGE, gens=(4,),
          why="four neighbours become one packed element", fix="pad src with zeros")  # fmt: skip
    def src_free(self, core: NeuronCore) -> Broken | None:
        return Broken(f"src has {free(self.src)} elements per partition", "src") if free(self.src) % PACK else None

    @rule("quantize_mx.dst_shape", "dst has src's partitions and a quarter of its elements per partition", page=_PAGE,
          gens=(4,))  # fmt: skip
    def dst_shape(self, core: NeuronCore) -> Broken | None:
        rows, columns = partitions(self.src), free(self.src) // PACK
        if (partitions(self.dst), free(self.dst)) != (rows, columns):
            return Broken(f"dst is [{partitions(self.dst)}, {free(self.dst)}], not [{rows}, {columns}]", "dst")
        return None

    @rule(
        "quantize_mx.scale_shape",
        "dst_scale has a quarter of src's elements per partition, starts in the quadrant where src starts, plus 0, 4, 8 or "
        "12 partitions, and reaches over the first 4 partitions of each quadrant from there",
        why="the scales of a quadrant's 4 rows of blocks stay in the quadrant",
        fix="allocate it as (P // 8, F // 4) for P = 32, else as (P, F // 4); slice a shared tile as t[4:, :]",
        page=_PAGE,
        gens=(4,),
    )
    def scale_place(self, core: NeuronCore) -> Broken | None:
        return self.scale_shape("dst_scale", free(self.src) // PACK) or self.scale_quadrants() or self.scale_starts()

    def cycles(self, core: NeuronCore) -> float:
        """N / 4 for N elements of src per partition: four per cycle."""
        return at_least(elements(self, "src") / PACK)

    def body(self, core: NeuronCore) -> Body:
        rows, columns, shape = partitions(self.src), free(self.src) // PACK, self.dst.shape
        load, dtype = loader(self.src, (rows, columns, PACK)), self.dst.dtype
        per_quadrant = QUADRANT // BLOCK

        def run(dst: Array, src: Array, *scales: Array | None) -> None:
            packed, found = quantize(np.asarray(load(src)), dtype)
            dst[...] = packed.reshape(shape)
            for quadrant, rows_of in zip(found.reshape(-1, per_quadrant, columns), scales, strict=False):
                assert rows_of is not None
                store_scales(rows_of, quadrant.reshape(rows_of.shape))

        return run
