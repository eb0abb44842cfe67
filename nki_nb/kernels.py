"""The tour's kernels: real ones, for any size. Written as a kernel file for a device would be.

Only the imports differ: they name the simulator, so that the tour runs on it even where a real ``nki`` is installed.
"""

from __future__ import annotations

from collections.abc import Iterator

from nki_sim.api import nki
from nki_sim.api.nki import isa as nisa
from nki_sim.api.nki import language as nl
from nki_sim.tensor import NkiTensor


def cuts(size: int, step: int) -> Iterator[tuple[int, int]]:
    """``(start, stop)`` of consecutive pieces of at most ``step``; the last may be shorter."""
    return ((start, min(start + step, size)) for start in range(0, size, step))


@nki.jit
def matmul(lhs_t: NkiTensor, rhs: NkiTensor) -> NkiTensor:
    """``lhs_t.T @ rhs``, tile by tile: the contraction lies on partitions and accumulates in PSUM.

    Args:
        lhs_t: [K, M] in HBM, transposed as the tensor engine wants its stationary operand.
        rhs: [K, N] in HBM.
    """
    depth, rows, columns = lhs_t.shape[0], lhs_t.shape[1], rhs.shape[1]
    out: NkiTensor = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for top, bottom in cuts(rows, nl.tile_size.gemm_stationary_fmax):
        weights = [nl.load(lhs_t[first:last, top:bottom]) for first, last in cuts(depth, nl.tile_size.pmax)]
        for left, right in cuts(columns, nl.tile_size.gemm_moving_fmax):
            acc = nl.ndarray((bottom - top, right - left), dtype=nl.float32, buffer=nl.psum)
            for k, (first, last) in enumerate(cuts(depth, nl.tile_size.pmax)):
                x = nl.load(rhs[first:last, left:right])
                nisa.nc_matmul(dst=acc, stationary=weights[k], moving=x, accumulate=(k > 0))
            y = nl.ndarray(acc.shape, dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=y, src=acc)
            nisa.dma_copy(dst=out[top:bottom, left:right], src=y)
    return out


@nki.jit
def softmax(x: NkiTensor) -> NkiTensor:
    """Softmax of each row: exp(x − max) on the scalar engine, which also sums it, then times 1 / sum.

    Args:
        x: [rows, columns] in HBM; a row fits in one SBUF partition.
    """
    out: NkiTensor = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for top, bottom in cuts(x.shape[0], nl.tile_size.pmax):
        tile = nl.load(x[top:bottom, :])
        column = (bottom - top, 1)
        low = nl.ndarray(column, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=tile, axis=(1,), negate=True)
        powers = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray(column, dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, bias=low, reduce_op=nl.add, reduce_res=total)
        share = nl.ndarray(column, dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=share, data=total)
        y = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=powers, op0=nl.multiply, operand0=share)
        nisa.dma_copy(dst=out[top:bottom, :], src=y)
    return out
