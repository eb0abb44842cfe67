"""Twenty puzzles, from a copied tile to an attention tile: specs, inputs, hints, par. The sheet is ``tutorials/puzzles.ipynb``.

Par is what a plain good kernel costs on the first size; it can be beaten.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from nki_nb.exercise.cost import Cost
from nki_nb.exercise.exercise import Exercise

Array = npt.NDArray[Any]
Random = np.random.Generator

EPSILON = 1e-5
"""What ``normalise`` adds to the variance."""
MASKED = -1e9
"""What ``causal_mask`` writes where a key comes after its query."""
PUZZLES: tuple[Exercise, ...]
"""All of them, in the order of the sheet."""


def _normal(random: Random, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float32)


def _whole(random: Random, *shape: int) -> Array:
    """Small whole numbers: sums of their products are exact."""
    return random.integers(-4, 5, shape).astype(np.float32)


def _matmul_inputs(random: Random, depth: int, rows: int, columns: int) -> tuple[Array, Array]:
    return _whole(random, depth, rows), _whole(random, depth, columns)


# -- moving and scaling --------------------------------------------------------------------------------------------------

copy_a_tile = Exercise(
    "copy_a_tile",
    spec=lambda x: x,
    inputs=lambda random, rows, columns: _normal(random, rows, columns),
    sizes=((96, 130), (40, 21)),
    hints=(
        "The first dma_copy filled the tile. The second one has the same form, with the tile on the other side.",
        "dst= is what is written: the tensor that the kernel returns.",
    ),
    par=Cost(2, 99840, 0),
)

scale_and_shift = Exercise(
    "scale_and_shift",
    spec=lambda x: x * np.float32(3.0) + np.float32(0.5),
    inputs=lambda random, rows, columns: _normal(random, rows, columns),
    sizes=((96, 130), (40, 21)),
    hints=(
        "tensor_scalar computes (data <op0> operand0) <op1> operand1: both steps in one pass.",
        "Operators are functions of nl: nl.multiply, nl.add. The operands may be Python numbers.",
    ),
    par=Cost(3, 99840, 65),
)

scale_rows = Exercise(
    "scale_rows",
    spec=lambda x, factors: x * factors,
    inputs=lambda random, rows, columns: (_normal(random, rows, columns), _normal(random, rows, 1)),
    sizes=((96, 130), (40, 21)),
    hints=(
        "An engine reads only what is on chip: the factors need a tile of their own.",
        "operand0 may be a tile of shape (rows, 1): one number for each partition.",
    ),
    par=Cost(4, 100224, 65),
)

row_sum = Exercise(
    "row_sum",
    spec=lambda x: x.sum(axis=1, keepdims=True),
    inputs=lambda random, rows, columns: _whole(random, rows, columns),
    sizes=((96, 130), (40, 21)),
    hints=(
        "A row lies in one partition, so its sum runs along the free dimension, which is dimension 1.",
        "The result has one element per partition: shape (rows, 1).",
    ),
    par=Cost(3, 50304, 130),
)

add_a_row = Exercise(
    "add_a_row",
    spec=lambda x, bias: x + bias,
    inputs=lambda random, rows, columns: (_normal(random, rows, columns), _normal(random, 1, columns)),
    sizes=((96, 130), (40, 21)),
    hints=(
        "On chip a row cannot be repeated over partitions for free: each partition is a memory of its own.",
        "In HBM it can: bias.broadcast(dim=0, size=…) reads the same row again and again, once for each partition.",
    ),
    par=Cost(4, 149760, 260),
)

tall_and_odd = Exercise(
    "tall_and_odd",
    spec=lambda x: np.abs(x),
    inputs=lambda random, rows, columns: _normal(random, rows, columns),
    sizes=((300, 40), (129, 21), (70, 33)),
    hints=(
        "range(0, rows, 128) gives the first row of each piece; the last piece ends where the rows end.",
        "min(start + nl.tile_size.pmax, rows) is right for all pieces.",
    ),
    par=Cost(9, 96000, 192),
)

# -- transposing ---------------------------------------------------------------------------------------------------------

turn_by_dma = Exercise(
    "turn_by_dma",
    spec=lambda x: x.T,
    inputs=lambda random, rows, columns: _normal(random, rows, columns),
    sizes=((96, 40), (33, 70)),
    hints=(
        "The tile has the transposed shape: as many partitions as x has columns.",
        "dma_transpose reads HBM and writes SBUF; the way out is a plain copy.",
    ),
    par=Cost(2, 30720, 0),
)

turn_by_matmul = Exercise(
    "turn_by_matmul",
    spec=lambda x: x.T,
    inputs=lambda random, rows, columns: _normal(random, rows, columns),
    sizes=((96, 40), (33, 70)),
    hints=(
        "The tensor engine writes to PSUM only, whatever it does.",
        "DMA does not reach PSUM: tensor_copy brings the tile to SBUF first.",
    ),
    par=Cost(4, 30720, 288),
)

# -- the tensor engine ---------------------------------------------------------------------------------------------------

multiply_tiles = Exercise(
    "multiply_tiles",
    spec=lambda a, b: a.T @ b,
    inputs=_matmul_inputs,
    sizes=((96, 40, 130), (33, 70, 21)),
    hints=(
        "nc_matmul computes stationary.T @ moving; the dimension that is summed lies on the partitions of both.",
        "The result goes to a float32 tile in PSUM, with as many partitions as stationary has columns.",
    ),
    par=Cost(5, 86080, 650),
)

long_sum = Exercise(
    "long_sum",
    spec=lambda a, b: a.T @ b,
    inputs=_matmul_inputs,
    sizes=((320, 40, 130), (129, 70, 21)),
    hints=(
        "The first piece overwrites what is in PSUM, the others add to it.",
        "accumulate takes a Python bool, and the loop variable knows which piece it is.",
    ),
    par=Cost(11, 238400, 1690),
)

wide_product = Exercise(
    "wide_product",
    spec=lambda a, b: a.T @ b,
    inputs=_matmul_inputs,
    sizes=((96, 40, 700), (33, 70, 520)),
    hints=(
        "One PSUM bank has 2 KiB per partition: 512 float32. nl.tile_size.psum_bank_fmax is that number.",
        "Each piece has an accumulator of its own, as wide as the piece.",
    ),
    par=Cost(8, 396160, 3500),
)

tall_product = Exercise(
    "tall_product",
    spec=lambda a, b: a.T @ b,
    inputs=_matmul_inputs,
    sizes=((96, 300, 130), (33, 129, 21)),
    hints=(
        "The columns of stationary become the partitions of the result, and there are 128 of those.",
        "b is the same for all pieces: load it before the loop.",
    ),
    par=Cost(13, 321120, 1950),
)

# -- whole operations ----------------------------------------------------------------------------------------------------


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    softmax: Array = powers / powers.sum(axis=1, keepdims=True)
    return softmax


softmax_rows = Exercise(
    "softmax_rows",
    spec=_softmax,
    inputs=lambda random, rows, columns: 40 * _normal(random, rows, columns),
    sizes=((96, 130), (40, 21)),
    hints=(
        "exp overflows float32 above 88. Less its maximum, the largest element of a row is 0.",
        "activation computes op(data · scale + bias), and bias may be a tile (rows, 1): give it minus the maximum, which "
        "tensor_reduce(negate=True) leaves.",
        "Dividing by the sum is multiplying by its reciprocal: one number for each row.",
    ),
    par=Cost(7, 99840, 519),
)


def _normalise(x: Array) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    normalised: Array = centred / np.sqrt(x.var(axis=1, keepdims=True) + np.float32(EPSILON))
    return normalised


normalise = Exercise(
    "normalise",
    spec=_normalise,
    inputs=lambda random, rows, columns: 2 * _normal(random, rows, columns) + 3,
    sizes=((96, 700), (40, 130)),
    hints=(
        "bn_stats takes 512 elements at a time and leaves 6 numbers; bn_aggr joins any number of such groups.",
        "bn_aggr gives the mean in column 0 and the variance in column 1.",
        "activation(op=nl.rsqrt, bias=…) adds and takes one over the root in one instruction.",
    ),
    par=Cost(7, 537600, 1178),
)


def _causal_mask(scores: Array) -> Array:
    rows, columns = scores.shape
    seen = np.arange(rows)[:, None] >= np.arange(columns)[None, :]
    return np.where(seen, scores, np.float32(MASKED))


causal_mask = Exercise(
    "causal_mask",
    spec=_causal_mask,
    inputs=lambda random, rows, columns: _normal(random, rows, columns),
    sizes=((96, 130), (70, 40)),
    hints=(
        "affine_select forms offset + p · channel_multiplier + i · step for partition p and element i, and compares it with 0.",
        "Query p sees key i when p − i is at least 0: the partition counts +1, the element −1.",
    ),
    par=Cost(3, 99840, 280),
)

gather_rows = Exercise(
    "gather_rows",
    spec=lambda table, rows: table[rows[:, 0]],
    inputs=lambda random, count, columns, picked: (
        _normal(random, count, columns),
        random.integers(0, count, (picked, 1)).astype(np.int32),
    ),
    sizes=((500, 40, 96), (33, 70, 50)),
    hints=(
        "The indices are data, known only at run time; DMA reads them from an SBUF tile of shape (picked, 1).",
        "table.ap(pattern=[[columns, picked], [1, columns]], vector_offset=…): `picked` rows of `columns` elements, each at "
        "the row that its index names.",
    ),
    par=Cost(3, 31104, 0),
)

running_sum = Exercise(
    "running_sum",
    spec=lambda x: np.cumsum(x, axis=1),
    inputs=lambda random, rows, columns: _whole(random, rows, columns),
    sizes=((96, 130), (40, 21)),
    hints=(
        "tensor_tensor_scan goes along a row: state = (data0[i] <op0> state) <op1> data1[i], and dst[i] = state.",
        "With ones for data0 and nl.multiply the state stays as it is; nl.add then adds the next element.",
    ),
    par=Cost(4, 99840, 325),
)


def _largest(x: Array) -> tuple[Array, Array]:
    return x.max(axis=1, keepdims=True), x.argmax(axis=1)[:, None].astype(np.uint32)


largest_and_where = Exercise(
    "largest_and_where",
    spec=_largest,
    inputs=lambda random, rows, columns: random.permuted(
        np.tile(np.arange(columns, dtype=np.float32) - columns / 2, (rows, 1)), axis=1
    ).astype(np.float32),
    sizes=((96, 130), (40, 21)),
    hints=(
        "max8 gives the eight largest of each row, in order; nc_find_index8 says where eight values are.",
        "The first of the eight is column 0: a slice [:, 0:1] keeps the shape (rows, 1).",
    ),
    par=Cost(5, 50688, 260),
)


def _rounded(x: Array) -> Array:
    rounded: Array = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    return rounded


half_the_bits = Exercise(
    "half_the_bits",
    spec=lambda a, b: _rounded(a).T @ _rounded(b),
    inputs=lambda random, depth, rows, columns: (_normal(random, depth, rows), _normal(random, depth, columns)),
    sizes=((320, 40, 130), (129, 70, 21)),
    hints=(
        "nl.load(…, dtype=nl.bfloat16) rounds on the way in: DMA converts.",
        "Only the operands are short. A sum in bfloat16 has eight bits; PSUM adds in float32.",
    ),
    par=Cost(11, 129600, 520),
    rtol=1e-4,
    atol=1e-4,
)


def _attention(q: Array, k: Array, v: Array) -> Array:
    attended: Array = _softmax(q.T @ k / np.float32(np.sqrt(q.shape[0]))) @ v
    return attended


attention_tile = Exercise(
    "attention_tile",
    spec=_attention,
    inputs=lambda random, depth, queries, keys, width: (
        2 * _normal(random, depth, queries),
        2 * _normal(random, depth, keys),
        _normal(random, keys, width),
    ),
    sizes=((64, 96, 120, 40), (33, 50, 70, 21)),
    hints=(
        "The scores are in PSUM and may stay there: the vector and the scalar engine read it.",
        "exp(scale · s − scale · max): the maximum is taken before the scaling, so it has to be scaled, too.",
        "activation_reduce writes the powers and their sum in one pass.",
        "The second product sums over the keys, so they have to be on partitions: transpose the powers.",
    ),
    par=Cost(13, 89856, 1520),
)

PUZZLES = (
    copy_a_tile,
    scale_and_shift,
    scale_rows,
    row_sum,
    add_a_row,
    tall_and_odd,
    turn_by_dma,
    turn_by_matmul,
    multiply_tiles,
    long_sum,
    wide_product,
    tall_product,
    softmax_rows,
    normalise,
    causal_mask,
    gather_rows,
    running_sum,
    largest_and_where,
    half_the_bits,
    attention_tile,
)
