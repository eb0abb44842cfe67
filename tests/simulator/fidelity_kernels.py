"""The kernels whose times the public documents print, as their documentation describes them."""

from __future__ import annotations

from typing import Any

import nki_sim

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

P, N = 128, 512


def _load(source: Any) -> Any:
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def _store_sum(out: Any, total: Any) -> None:
    result = nl.ndarray(total.shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)


@nki.jit
def tiled(lhsT: Any, rhs: Any) -> Any:  # noqa: N803
    """Both operands of every matmul are loaded for it."""
    (k, m), n = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for i in range(0, m, P):
        for j in range(0, n, N):
            total = nl.ndarray((P, N), dtype=nl.float32, buffer=nl.psum)
            for at in range(0, k, P):
                nisa.nc_matmul(total, _load(lhsT[at : at + P, i : i + P]), _load(rhs[at : at + P, j : j + N]))
            _store_sum(out[i : i + P, j : j + N], total)
    return out


@nki.jit
def hoisted(lhsT: Any, rhs: Any) -> Any:  # noqa: N803
    """A column of stationary tiles is loaded once, one of moving tiles for every output tile."""
    (k, m), n = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for i in range(0, m, P):
        weights = [_load(lhsT[at : at + P, i : i + P]) for at in range(0, k, P)]
        for j in range(0, n, N):
            data = [_load(rhs[at : at + P, j : j + N]) for at in range(0, k, P)]
            total = nl.ndarray((P, N), dtype=nl.float32, buffer=nl.psum)
            for stationary, moving in zip(weights, data, strict=True):
                nisa.nc_matmul(total, stationary, moving)
            _store_sum(out[i : i + P, j : j + N], total)
    return out


@nki.jit
def blocked_free(lhsT: Any, rhs: Any, rows: int = 2, columns: int = 2) -> Any:  # noqa: N803
    """Two by two output tiles share what is loaded."""
    (k, m), n = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for i in range(0, m, P * rows):
        firsts = range(i, i + P * rows, P)
        weights = {a: [_load(lhsT[at : at + P, a : a + P]) for at in range(0, k, P)] for a in firsts}
        for j in range(0, n, N * columns):
            data = {b: [_load(rhs[at : at + P, b : b + N]) for at in range(0, k, P)] for b in range(j, j + N * columns, N)}
            for a in weights:
                for b in data:
                    total = nl.ndarray((P, N), dtype=nl.float32, buffer=nl.psum)
                    for stationary, moving in zip(weights[a], data[b], strict=True):
                        nisa.nc_matmul(total, stationary, moving)
                    _store_sum(out[a : a + P, b : b + N], total)
    return out


@nki.jit
def blocked(lhsT: Any, rhs: Any, rows: int = 16, columns: int = 2, depth: int = 8) -> Any:  # noqa: N803
    """All three dimensions in blocks; sums of blocks are kept in SBUF."""
    (k, m), n = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for j in range(0, n, N * columns):
        sums = {(i, b): nl.ndarray((P, N), dtype=lhsT.dtype, buffer=nl.sbuf) for i in range(0, m, P) for b in range(columns)}
        for tile in sums.values():
            nisa.memset(dst=tile, value=0.0)
        for at in range(0, k, P * depth):
            pieces = range(at, at + P * depth, P)
            data = [_load(rhs[p : p + P, j : j + N * columns]) for p in pieces]
            for i in range(0, m, P * rows):
                weights = [_load(lhsT[p : p + P, i : i + P * rows]) for p in pieces]
                for b in range(columns):
                    for a in range(0, P * rows, P):
                        total = nl.ndarray((P, N), dtype=nl.float32, buffer=nl.psum)
                        for stationary, moving in zip(weights, data, strict=True):
                            nisa.nc_matmul(total, stationary[:, a : a + P], moving[:, b * N : b * N + N])
                        tile = sums[i + a, b]
                        nisa.tensor_tensor(dst=tile, data1=tile, data2=total, op=nl.add)
        for i in range(0, m, P):
            row = nl.ndarray((P, N * columns), dtype=lhsT.dtype, buffer=nl.sbuf)
            for b in range(columns):
                nisa.tensor_copy(dst=row[:, b * N : b * N + N], src=sums[i, b])
            nisa.dma_copy(dst=out[i : i + P, j : j + N * columns], src=row)
    return out


@nki.jit
def blocked_by_column(lhsT: Any, rhs: Any, rows: int = 16, columns: int = 2, depth: int = 8) -> Any:  # noqa: N803
    """``blocked`` with one output DMA per tile of a row, as the older tutorial has it."""
    (k, m), n = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for j in range(0, n, N * columns):
        sums = {(i, b): nl.ndarray((P, N), dtype=lhsT.dtype, buffer=nl.sbuf) for i in range(0, m, P) for b in range(columns)}
        for at in range(0, k, P * depth):
            pieces = range(at, at + P * depth, P)
            data = [_load(rhs[p : p + P, j : j + N * columns]) for p in pieces]
            for i in range(0, m, P * rows):
                weights = [_load(lhsT[p : p + P, i : i + P * rows]) for p in pieces]
                for b in range(columns):
                    for a in range(0, P * rows, P):
                        total = nl.ndarray((P, N), dtype=nl.float32, buffer=nl.psum)
                        for stationary, moving in zip(weights, data, strict=True):
                            nisa.nc_matmul(total, stationary[:, a : a + P], moving[:, b * N : b * N + N])
                        tile = sums[i + a, b]
                        if at:
                            nisa.tensor_tensor(dst=tile, data1=tile, data2=total, op=nl.add)
                        else:
                            nisa.tensor_copy(dst=tile, src=total)
        for i in range(0, m, P):
            row = nl.ndarray((P, N * columns), dtype=lhsT.dtype, buffer=nl.sbuf)
            for b in range(columns):
                nisa.tensor_copy(dst=row[:, b * N : b * N + N], src=sums[i, b])
            nisa.dma_copy(dst=out[i : i + P, j : j + N * columns], src=row)
    return out


@nki.jit
def mamba(delta: Any, u: Any, A: Any, B: Any, C: Any, hoist: bool = False) -> Any:  # noqa: N803
    """The state-space scan of Mamba, [channels, sequence]; B and C are spread over partitions by the tensor engine.

    ``hoist``: channels outermost, with delta, u and their product loaded and made once; else for every state.
    """
    channels, length = delta.shape
    states = A.shape[1]
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = nl.ndarray((1, P), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)

    def new() -> Any:
        return nl.ndarray((P, length), dtype=delta.dtype, buffer=nl.sbuf)

    def spread(row: Any) -> Any:
        wide = nl.ndarray((P, length), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=wide, stationary=ones, moving=_load(row))
        return wide

    for c in range(0, channels, P):
        total, d, product = new(), None, None
        nisa.memset(dst=total, value=0.0)
        for s in range(states):
            if d is None or not hoist:
                d, x, product = _load(delta[c : c + P]), _load(u[c : c + P]), new()
                nisa.tensor_tensor(dst=product, data1=d, data2=x, op=nl.multiply)
            decay, driven, state, part = new(), new(), new(), new()
            nisa.activation(dst=decay, op=nl.exp, data=d, scale=_load(A[c : c + P, s : s + 1]))
            nisa.tensor_tensor(dst=driven, data1=product, data2=spread(B[s : s + 1]), op=nl.multiply)
            nisa.tensor_tensor_scan(dst=state, data0=decay, data1=driven, initial=0.0, op0=nl.multiply, op1=nl.add)
            nisa.tensor_tensor(dst=part, data1=state, data2=spread(C[s : s + 1]), op=nl.multiply)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.dma_copy(dst=out[c : c + P], src=total)
    return out


@nki.jit
def exponent(x: Any) -> Any:
    """exp, tile by tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(0, x.shape[0], P):
        stop = min(i + P, x.shape[0])
        tile = _load(x[i:stop])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.dma_copy(dst=out[i:stop], src=tile)
    return out


@nki.jit
def rmsnorm_quant(x: Any, gamma: Any) -> Any:
    """RMS norm and row-wise quantisation to fp8 of rows that fit in one tile."""
    rows, width = x.shape
    out = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    tile, ones = _load(x), nl.ndarray((1, rows), dtype=nl.float32, buffer=nl.sbuf)
    weight = _load(gamma)
    nisa.memset(dst=ones, value=1.0)
    squares, normed = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    total, scale = (nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)
    nisa.activation(dst=total, op=nl.rsqrt, data=total, scale=1.0 / width)
    for j in range(0, width, N):
        wide = nl.ndarray((rows, N), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=wide, stationary=ones, moving=weight[:, j : j + N])
        nisa.scalar_tensor_tensor(dst=normed[:, j : j + N], data=tile[:, j : j + N], op0=nl.multiply, operand0=total,
                                  op1=nl.multiply, operand1=wide)  # fmt: skip
    nisa.tensor_reduce(dst=scale, op=nl.maximum, data=normed, axis=1)
    nisa.tensor_scalar(dst=scale, data=scale, op0=nl.multiply, operand0=1 / 240.0)
    nisa.reciprocal(dst=scale, data=scale)
    small = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=small, data=normed, op0=nl.multiply, operand0=scale)
    nisa.dma_copy(dst=out, src=small)
    return out
