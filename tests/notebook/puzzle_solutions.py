"""Solutions of the puzzles, and wrong ones with the reason for which each must fail.

``python tests/notebook/puzzle_solutions.py`` prints what each solution costs: the par of its puzzle.
"""

from __future__ import annotations

import ast
import linecache
from pathlib import Path
from typing import Any

import nki_sim

from nki_nb.exercise import ___, puzzles

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


@nki.jit
def copy_a_tile(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def scale_and_shift(x):
    tile = nl.load(x)
    y = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=y, data=tile, op0=nl.multiply, operand0=3.0, op1=nl.add, operand1=0.5)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def scale_rows(x, factors):
    tile = nl.load(x)
    column = nl.load(factors)
    y = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=y, data=tile, op0=nl.multiply, operand0=column)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def row_sum(x):
    rows = x.shape[0]
    tile = nl.load(x)
    total = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=1)
    out = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def add_a_row(x, bias):
    rows, columns = x.shape
    tile = nl.load(x)
    repeated = nl.ndarray((rows, columns), dtype=bias.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=repeated, src=bias.broadcast(dim=0, size=rows))
    y = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=y, data1=tile, data2=repeated, op=nl.add)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def tall_and_odd(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, nl.tile_size.pmax):
        stop = min(start + nl.tile_size.pmax, rows)
        tile = nl.load(x[start:stop, :])
        y = nl.ndarray((stop - start, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation(dst=y, op=nl.abs, data=tile)
        nisa.dma_copy(dst=out[start:stop, :], src=y)
    return out


@nki.jit
def turn_by_dma(x):
    rows, columns = x.shape
    turned = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_transpose(dst=turned, src=x)
    out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=turned)
    return out


@nki.jit
def turn_by_matmul(x):
    rows, columns = x.shape
    tile = nl.load(x)
    turned = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=tile)
    y = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=y, src=turned)
    out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def multiply_tiles(a, b):
    rows, columns = a.shape[1], b.shape[1]
    acc = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=nl.load(a), moving=nl.load(b))
    y = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=y, src=acc)
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def long_sum(a, b):
    depth, rows = a.shape
    columns = b.shape[1]
    acc = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
    for k in range(0, depth, nl.tile_size.pmax):
        piece = slice(k, min(k + nl.tile_size.pmax, depth))
        w = nl.load(a[piece, :])
        x = nl.load(b[piece, :])
        nisa.nc_matmul(dst=acc, stationary=w, moving=x, accumulate=(k > 0))
    y = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=y, src=acc)
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def wide_product(a, b):
    rows, columns = a.shape[1], b.shape[1]
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    w = nl.load(a)
    x = nl.load(b)
    for left in range(0, columns, nl.tile_size.psum_bank_fmax):
        right = min(left + nl.tile_size.psum_bank_fmax, columns)
        acc = nl.ndarray((rows, right - left), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=acc, stationary=w, moving=x[:, left:right])
        y = nl.ndarray((rows, right - left), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=y, src=acc)
        nisa.dma_copy(dst=out[:, left:right], src=y)
    return out


@nki.jit
def tall_product(a, b):
    rows, columns = a.shape[1], b.shape[1]
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    x = nl.load(b)
    for top in range(0, rows, nl.tile_size.gemm_stationary_fmax):
        bottom = min(top + nl.tile_size.gemm_stationary_fmax, rows)
        w = nl.load(a[:, top:bottom])
        acc = nl.ndarray((bottom - top, columns), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=acc, stationary=w, moving=x)
        y = nl.ndarray((bottom - top, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=y, src=acc)
        nisa.dma_copy(dst=out[top:bottom, :], src=y)
    return out


@nki.jit
def softmax_rows(x):
    rows, columns = x.shape
    tile = nl.load(x)
    low = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=low, op=nl.maximum, data=tile, axis=1, negate=True)
    powers = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=powers, op=nl.exp, data=tile, bias=low)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=1)
    share = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=share, data=total)
    y = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=y, data=powers, op0=nl.multiply, operand0=share)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def normalise(x):
    rows, columns = x.shape
    tile = nl.load(x)
    starts = range(0, columns, nl.tile_size.bn_stats_fmax)
    stats = nl.ndarray((rows, 6 * len(starts)), dtype=nl.float32, buffer=nl.sbuf)
    for group, left in enumerate(starts):
        right = min(left + nl.tile_size.bn_stats_fmax, columns)
        nisa.bn_stats(dst=stats[:, 6 * group : 6 * group + 6], data=tile[:, left:right])
    moments = nl.ndarray((rows, 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.bn_aggr(dst=moments, data=stats)
    factor = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=factor, op=nl.rsqrt, data=moments[:, 1:2], bias=puzzles.EPSILON)
    y = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=y, data=tile, op0=nl.subtract, operand0=moments[:, 0:1], op1=nl.multiply, operand1=factor)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def causal_mask(scores):
    queries, keys = scores.shape
    tile = nl.load(scores)
    masked = nl.ndarray((queries, keys), dtype=scores.dtype, buffer=nl.sbuf)
    nisa.affine_select(
        dst=masked,
        pattern=[[-1, keys]],
        channel_multiplier=1,
        on_true_tile=tile,
        on_false_value=puzzles.MASKED,
        cmp_op=nl.greater_equal,
    )
    out = nl.ndarray((queries, keys), dtype=scores.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=masked)
    return out


@nki.jit
def gather_rows(table, rows):
    picked, columns = rows.shape[0], table.shape[1]
    index = nl.load(rows)
    tile = nl.ndarray((picked, columns), dtype=table.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=table.ap(pattern=[[columns, picked], [1, columns]], vector_offset=index))
    out = nl.ndarray((picked, columns), dtype=table.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def running_sum(x):
    tile = nl.load(x)
    ones = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    sums = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor_scan(dst=sums, data0=ones, data1=tile, initial=0.0, op0=nl.multiply, op1=nl.add)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=sums)
    return out


@nki.jit
def largest_and_where(x):
    rows = x.shape[0]
    tile = nl.load(x)
    largest = nl.ndarray((rows, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.max8(dst=largest, src=tile)
    where = nl.ndarray((rows, 8), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.nc_find_index8(dst=where, data=tile, vals=largest)
    value = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=value, src=largest[:, 0:1])
    index = nl.ndarray((rows, 1), dtype=nl.uint32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=index, src=where[:, 0:1])
    return value, index


@nki.jit
def half_the_bits(a, b):
    depth, rows = a.shape
    columns = b.shape[1]
    acc = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
    for k in range(0, depth, nl.tile_size.pmax):
        piece = slice(k, min(k + nl.tile_size.pmax, depth))
        w = nl.load(a[piece, :], dtype=nl.bfloat16)
        x = nl.load(b[piece, :], dtype=nl.bfloat16)
        nisa.nc_matmul(dst=acc, stationary=w, moving=x, accumulate=(k > 0))
    y = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=y, src=acc)
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


@nki.jit
def attention_tile(q, k, v):
    depth, queries = q.shape
    keys, width = v.shape
    scale = depth**-0.5
    scores = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=scores, stationary=nl.load(q), moving=nl.load(k))
    highest = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=highest, op=nl.maximum, data=scores, axis=1)
    bias = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=bias, data=highest, op0=nl.multiply, operand0=-scale)
    powers = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(dst=powers, op=nl.exp, data=scores, scale=scale, bias=bias, reduce_op=nl.add, reduce_res=total)
    turned = nl.ndarray((keys, queries), dtype=nl.float32, buffer=nl.psum)
    weights = nl.ndarray((keys, queries), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_transpose(dst=turned, data=powers)
    nisa.tensor_copy(dst=weights, src=turned)
    attended = nl.ndarray((queries, width), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=attended, stationary=weights, moving=nl.load(v))
    share = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=share, data=total)
    y = nl.ndarray((queries, width), dtype=v.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=y, data=attended, op0=nl.multiply, operand0=share)
    out = nl.ndarray((queries, width), dtype=v.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out


FIRST_WRONG = "first wrong element"
BLANK = "blank"

WRONG: dict[str, tuple[tuple[str, str, str], ...]] = {
    "copy_a_tile": (
        ("dst=out, src=tile", "dst=___, src=tile", BLANK),
        ("dst=out, src=tile", "dst=tile, src=x", "kernel.output_written"),
        ("dst=tile, src=x", "dst=tile, src=tile", "ndarray.uninitialised"),
    ),
    "scale_and_shift": (
        ("operand0=3.0", "operand0=0.3", FIRST_WRONG),
        ("op1=nl.add, operand1=0.5", "op1=nl.add", "tensor_scalar.op1_none"),
    ),
    "scale_rows": (
        ("operand0=column", "operand0=factors", "tensor_scalar.buffers"),
        ("nl.load(factors)", "nl.load(x[:, 0:1])", FIRST_WRONG),
    ),
    "row_sum": (
        ("axis=1", "axis=0", "tensor_reduce.no_axis0"),
        ("op=nl.add", "op=nl.maximum", FIRST_WRONG),
        ("total = nl.ndarray((rows, 1)", "total = nl.ndarray((rows, 2)", "tensor_reduce.dst_elems"),
    ),
    "add_a_row": (
        ("src=bias.broadcast(dim=0, size=rows)", "src=bias", "dma_copy.elem_count"),
        ("dst=repeated, src=bias.broadcast(dim=0, size=rows)", "dst=repeated[0:1, :], src=bias", "ndarray.uninitialised"),
    ),
    "tall_and_odd": (
        ("stop = min(start + nl.tile_size.pmax, rows)", "stop = start + nl.tile_size.pmax", "tensor.slice"),
        ("range(0, rows, nl.tile_size.pmax)", "range(0, rows - 127, nl.tile_size.pmax)", "kernel.output_written"),
        ("nl.tile_size.pmax", "256", "nl.load_partition_le_128"),
    ),
    "turn_by_dma": (
        ("turned = nl.ndarray((columns, rows)", "turned = nl.ndarray((rows, columns)", "dma_transpose.dst_shape_exact"),
        ("dma_transpose", "dma_copy", FIRST_WRONG),
    ),
    "turn_by_matmul": (
        ("buffer=nl.psum", "buffer=nl.sbuf", "nc_transpose.vector_le_32"),
        ("dst=out, src=y", "dst=out, src=turned", "dma_copy.no_psum_src"),
    ),
    "multiply_tiles": (
        (
            "stationary=nl.load(a), moving=nl.load(b)",
            "stationary=nl.load(b), moving=nl.load(a)",
            "nc_matmul.stationary_free_le_128",
        ),
        ("buffer=nl.psum", "buffer=nl.sbuf", "nc_matmul.operand_buffers"),
        ("dtype=nl.float32, buffer=nl.psum", "dtype=nl.bfloat16, buffer=nl.psum", "nc_matmul.dst_dtype_fp32"),
    ),
    "long_sum": (
        ("accumulate=(k > 0)", "accumulate=False", FIRST_WRONG),
        ("accumulate=(k > 0)", "accumulate=True", "nc_matmul.accumulate.first_must_overwrite"),
        ("min(k + nl.tile_size.pmax, depth)", "depth", "nl.load_partition_le_128"),
    ),
    "wide_product": (
        ("nl.tile_size.psum_bank_fmax", "1024", "nc_matmul.moving_free_le_512"),
        ("moving=x[:, left:right]", "moving=x[:, 0 : right - left]", FIRST_WRONG),
    ),
    "tall_product": (
        ("nl.tile_size.gemm_stationary_fmax", "256", "hw.partition_dim_le_128"),
        ("nl.load(a[:, top:bottom])", "nl.load(a[:, 0 : bottom - top])", FIRST_WRONG),
    ),
    "softmax_rows": (
        (", bias=low", "", FIRST_WRONG),
        (", negate=True", "", FIRST_WRONG),
        ("operand0=share", "operand0=total", FIRST_WRONG),
    ),
    "normalise": (
        ("nl.tile_size.bn_stats_fmax", "columns", "bn_stats.free_le_512"),
        ("data=moments[:, 1:2]", "data=moments[:, 0:1]", FIRST_WRONG),
        ("6 * len(starts)", "6", "tensor.slice"),
    ),
    "causal_mask": (
        ("channel_multiplier=1", "channel_multiplier=-1", FIRST_WRONG),
        ("nl.greater_equal", "nl.greater", FIRST_WRONG),
        ("[[-1, keys]]", "[[-1, queries]]", "affine_select.pattern"),
    ),
    "gather_rows": (
        ("vector_offset=index", "vector_offset=rows", "dma_copy.vector_offset_shape"),
        ("vector_offset=index", "offset=0", FIRST_WRONG),
    ),
    "running_sum": (
        ("op0=nl.multiply", "op0=nl.add", FIRST_WRONG),
        ("value=1.0", "value=0.0", FIRST_WRONG),
    ),
    "largest_and_where": (
        ("dtype=nl.uint32, buffer=nl.sbuf", "dtype=nl.int32, buffer=nl.sbuf", "nc_find_index8.dst"),
        ("where[:, 0:1]", "where[:, 7:8]", FIRST_WRONG),
        ("(rows, 8), dtype=nl.float32", "(rows, 1), dtype=nl.float32", "max8.dst_8"),
    ),
    "half_the_bits": (
        (", dtype=nl.bfloat16", "", FIRST_WRONG),
        ("dtype=nl.float32, buffer=nl.psum", "dtype=nl.bfloat16, buffer=nl.psum", "nc_matmul.dst_dtype_fp32"),
        ("y = nl.ndarray((rows, columns), dtype=nl.float32", "y = nl.ndarray((rows, columns), dtype=nl.bfloat16", FIRST_WRONG),
    ),
    "attention_tile": (
        ("stationary=weights", "stationary=powers", "nc_matmul.k_equal"),
        ("operand0=-scale", "operand0=-1.0", FIRST_WRONG),
        ("operand0=share", "operand0=total", FIRST_WRONG),
    ),
}
"""By puzzle: what is written instead of what, and why that fails: the rule's id, or one of the two words above."""


def sources() -> dict[str, str]:
    """The source of each solution, by name."""
    text = Path(__file__).read_text(encoding="utf-8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    lines = text.splitlines(keepends=True)
    return {f.name: "".join(lines[f.decorator_list[0].lineno - 1 : f.end_lineno]) for f in functions}


def kernel_of(source: str, name: str) -> Any:
    """A kernel from its source, as a notebook's cell makes it."""
    filename = f"<ipython-input-1-{abs(hash(source))}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names = {"nki": nki, "nisa": nisa, "nl": nl, "puzzles": puzzles, "___": ___, "__name__": "__main__"}
    exec(compile(source, filename, "exec"), names)  # noqa: S102 - the text is above
    return names[name]


if __name__ == "__main__":
    for puzzle in puzzles.PUZZLES:
        result = puzzle.check(globals()[puzzle.name])
        print(f"{puzzle.name:<20} {result.cost or result}   {result.reason}")
