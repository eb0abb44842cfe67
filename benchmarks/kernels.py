"""The kernels that are measured, as an author would write them for trn2: tiles of 128 rows, operands loaded once."""

from __future__ import annotations

from typing import Any

import nki_sim

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

TILE, BANK = 128, 512
NEVER = -1e30


def sbuf(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A tile in SBUF."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(shape: tuple[int, ...]) -> Any:
    """A float32 tile in PSUM."""
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def loaded(part: Any) -> Any:
    """A tile in SBUF with a part of a tensor in HBM."""
    tile = sbuf(part.shape, part.dtype)
    nisa.dma_copy(dst=tile, src=part)
    return tile


@nki.jit
def matmul(lhs_t: Any, rhs: Any) -> Any:
    """lhsᵀ.T @ rhs: rhs stays in SBUF, a block of 128 rows of the result is stored at once; each core has rows of its own."""
    k, m = lhs_t.shape
    mine, me = m // nl.num_programs(), nl.program_id(0)
    n = rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    moving = [loaded(rhs[i : i + TILE, :]) for i in range(0, k, TILE)]
    for row in range(me * mine, (me + 1) * mine, TILE):
        stationary = [loaded(lhs_t[i : i + TILE, row : row + TILE]) for i in range(0, k, TILE)]
        rows = sbuf((TILE, n), out.dtype)
        for column in range(0, n, BANK):
            total = psum((TILE, BANK))
            for i in range(k // TILE):
                nisa.nc_matmul(
                    dst=total, stationary=stationary[i], moving=moving[i][:, column : column + BANK], accumulate=(i > 0)
                )
            nisa.tensor_copy(dst=rows[:, column : column + BANK], src=total)
        nisa.dma_copy(dst=out[row : row + TILE, :], src=rows)
    return out


@nki.jit
def tiled_matmul(lhs_t: Any, rhs: Any) -> Any:
    """lhsᵀ.T @ rhs with both tiles loaded for each product: the tutorial's first kernel, and triton-viz's example."""
    k, m = lhs_t.shape
    n = rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for row in range(0, m, TILE):
        for column in range(0, n, BANK):
            total = psum((TILE, BANK))
            for i in range(0, k, TILE):
                stationary = loaded(lhs_t[i : i + TILE, row : row + TILE])
                moving = loaded(rhs[i : i + TILE, column : column + BANK])
                nisa.nc_matmul(dst=total, stationary=stationary, moving=moving, accumulate=(i > 0))
            tile = sbuf((TILE, BANK), out.dtype)
            nisa.tensor_copy(dst=tile, src=total)
            nisa.dma_copy(dst=out[row : row + TILE, column : column + BANK], src=tile)
    return out


def causal_mask() -> Any:
    """0 where a query may see a key of its own block, far below zero above the diagonal."""
    zeros, mask = sbuf((TILE, TILE)), sbuf((TILE, TILE))
    nisa.memset(dst=zeros, value=0.0)
    nisa.affine_select(dst=mask, pattern=[[-1, TILE]], channel_multiplier=1, on_true_tile=zeros, on_false_value=NEVER,
                       cmp_op=nl.greater_equal)  # fmt: skip
    return mask


def exponentials(scores: Any, scale: float) -> tuple[Any, Any]:
    """exp(scale · (scores − their largest)) by rows, and 1 / the rows' sums."""
    lowest, total, inverse = sbuf((TILE, 1)), sbuf((TILE, 1)), sbuf((TILE, 1))
    weights = sbuf(scores.shape)
    nisa.tensor_reduce(dst=lowest, op=nl.maximum, data=scores, axis=(1,), negate=True)
    if scale != 1.0:
        nisa.tensor_scalar(dst=lowest, data=lowest, op0=nl.multiply, operand0=scale)
    nisa.activation(dst=weights, op=nl.exp, data=scores, bias=lowest, scale=scale, reduce_op=nl.add, reduce_res=total,
                    reduce_cmd=nisa.reduce_cmd.reset_reduce)  # fmt: skip
    nisa.reciprocal(dst=inverse, data=total)
    return weights, inverse


@nki.jit
def attention(q: Any, k: Any, v: Any) -> Any:
    """Causal softmax(q kᵀ / √d) v of one head: q and k are [d, length], v is [length, d]. Masked blocks are skipped."""
    d, length = q.shape
    out = nl.ndarray((length, d), dtype=q.dtype, buffer=nl.shared_hbm)
    keys, queries = loaded(k), loaded(q)
    values = [loaded(v[i : i + TILE, :]) for i in range(0, length, TILE)]
    mask = causal_mask()
    for row in range(0, length, TILE):
        seen = row + TILE
        scores = psum((TILE, seen))
        for column in range(0, seen, BANK):
            part = slice(column, min(column + BANK, seen))
            nisa.nc_matmul(dst=scores[:, part], stationary=queries[:, row : row + TILE], moving=keys[:, part], accumulate=False)
        nisa.tensor_tensor(dst=scores[:, row:seen], data1=scores[:, row:seen], data2=mask, op=nl.add)
        weights, inverse = exponentials(scores, d**-0.5)
        total = psum((TILE, d))
        for column in range(0, seen, BANK):
            width = min(BANK, seen - column)
            turned, factors = psum((TILE, width)), sbuf((TILE, width))
            for i in range(0, width, TILE):
                nisa.nc_transpose(dst=turned[:, i : i + TILE], data=weights[:, column + i : column + i + TILE])
            nisa.tensor_copy(dst=factors, src=turned)
            for i in range(0, width, TILE):
                block = (column + i) // TILE
                nisa.nc_matmul(dst=total, stationary=factors[:, i : i + TILE], moving=values[block], accumulate=(block > 0))
        rows = sbuf((TILE, d), q.dtype)
        nisa.tensor_scalar(dst=rows, data=total, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[row:seen, :], src=rows)
    return out


@nki.jit
def softmax(x: Any) -> Any:
    """Softmax of the rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], TILE):
        weights, inverse = exponentials(loaded(x[row : row + TILE, :]), 1.0)
        nisa.tensor_scalar(dst=weights, data=weights, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[row : row + TILE, :], src=weights)
    return out


def inverse_root(dst: Any, squares: Any, factor: float) -> None:
    """dst = 1 / √(factor · squares + 1e-6), by rows."""
    nisa.tensor_scalar(dst=dst, data=squares, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=1e-6)
    nisa.activation(dst=dst, op=nl.rsqrt, data=dst)


@nki.jit
def rmsnorm(x: Any, weight: Any) -> Any:
    """x / √(mean of x² + 1e-6) · weight, by rows."""
    n = x.shape[1]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    everywhere = nl.broadcast_to(nl.load(weight), (TILE, n))
    for row in range(0, x.shape[0], TILE):
        tile = loaded(x[row : row + TILE, :])
        result, squares = sbuf((TILE, n)), sbuf((TILE, 1))
        nisa.activation_reduce(dst=result, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=squares)
        inverse_root(squares, squares, 1.0 / n)
        nisa.scalar_tensor_tensor(
            dst=result, data=tile, op0=nl.multiply, operand0=squares, op1=nl.multiply, operand1=everywhere
        )
        nisa.dma_copy(dst=out[row : row + TILE, :], src=result)
    return out


@nki.jit
def layernorm(x: Any, weight: Any, bias: Any) -> Any:
    """(x − mean) / √(variance + 1e-6) · weight + bias, by rows."""
    n = x.shape[1]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weights, biases = (nl.broadcast_to(nl.load(t), (TILE, n)) for t in (weight, bias))
    for row in range(0, x.shape[0], TILE):
        tile = loaded(x[row : row + TILE, :])
        parts, moments, inverse = sbuf((TILE, n // BANK * 6)), sbuf((TILE, 2)), sbuf((TILE, 1))
        for i in range(n // BANK):
            nisa.bn_stats(dst=parts[:, 6 * i : 6 * i + 6], data=tile[:, i * BANK : (i + 1) * BANK])
        nisa.bn_aggr(dst=moments, data=parts)
        inverse_root(inverse, moments[:, 1:2], 1.0)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=moments[:, 0:1], op1=nl.multiply, operand1=inverse)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=weights, op=nl.multiply)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=biases, op=nl.add)
        nisa.dma_copy(dst=out[row : row + TILE, :], src=tile)
    return out


@nki.jit
def whole_tiles(x: Any, rounds: int) -> Any:
    """Five instructions a round, on tiles of 32 × 32."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, b, c = nl.load(x), nl.load(x), nl.load(x)
    total = psum(x.shape)
    for _ in range(rounds):
        nisa.dma_copy(dst=a, src=x)
        nisa.nc_matmul(dst=total, stationary=a, moving=b, accumulate=False)
        nisa.tensor_tensor(dst=b, data1=a, data2=total, op=nl.add)
        nisa.tensor_scalar(dst=c, data=b, op0=nl.multiply, operand0=0.5)
        nisa.activation(dst=b, op=nl.tanh, data=c)
    nl.store(out, b)
    return out


@nki.jit
def fresh_slices(x: Any, rounds: int) -> Any:
    """The same five instructions, each operand sliced anew from a tile of 32 × 64."""
    out = nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    a, b, c = nl.load(x), nl.load(x), nl.load(x)
    total = psum(x.shape)
    for _ in range(rounds):
        nisa.dma_copy(dst=a[:, 0:32], src=x[:, 0:32])
        nisa.nc_matmul(dst=total[:, 0:32], stationary=a[:, 0:32], moving=b[:, 0:32], accumulate=False)
        nisa.tensor_tensor(dst=b[:, 0:32], data1=a[:, 0:32], data2=total[:, 0:32], op=nl.add)
        nisa.tensor_scalar(dst=c[:, 0:32], data=b[:, 0:32], op0=nl.multiply, operand0=0.5)
        nisa.activation(dst=b[:, 0:32], op=nl.tanh, data=c[:, 0:32])
    nl.store(out, b[:, 0:32])
    return out


__all__ = [
    "attention", "fresh_slices", "layernorm", "matmul", "nisa", "nki", "nl", "rmsnorm", "softmax", "tiled_matmul",
    "whole_tiles",
]  # fmt: skip
