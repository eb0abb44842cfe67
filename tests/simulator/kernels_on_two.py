"""Kernels for two logical cores that neither race nor wait for ever, each with its arguments and what it gives."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np

X = np.arange(128 * 48, dtype=np.float32).reshape(128, 48)
SWAPPED = np.roll(X, 64, axis=0)
RANDOM = np.random.default_rng(17)


def me():
    """This core's number, and the other one's."""
    return nl.program_id(0), 1 - nl.program_id(0)


def half(i):
    """The rows of 128 that core i works on."""
    return slice(64 * i, 64 * (i + 1))


def doubled(x):
    """Each core its half."""
    out, mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), half(nl.program_id(0))
    nl.store(out[mine], nl.multiply(nl.load(x[mine]), 2.0))
    return out


def through_memory(x, sync=True):
    """Each core writes its half of a shared tensor and reads the other one."""
    i, other = me()
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=between[half(i)], src=x[half(i)])
    if sync:
        nisa.core_barrier(data=between, cores=(0, 1))
    nisa.dma_copy(dst=out[half(i)], src=between[half(other)])
    return out


def exchanged(x, engine=nisa.dma_engine.dma):
    """Each core gives the other its half."""
    i, other = me()
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, got = nl.load(x[half(i)]), nl.ndarray((64, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.sendrecv(src=tile, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=0, dma_engine=engine)
    nl.store(out[half(i)], got)
    return out


def summed(x):
    """A column of row sums: each core sums half of the columns, and both add up what they have."""
    i, other = me()
    out = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    n = x.shape[1] // 2
    mine, its = nl.sum(nl.load(x[:, i * n : (i + 1) * n]), axis=1, keepdims=True), nl.ndarray((128, 1), dtype=nl.float32)
    nisa.sendrecv(src=mine, dst=its, send_to_rank=other, recv_from_rank=other, pipe_id=0)
    nl.store(out[half(i)], nl.add(mine[half(i)], its[half(i)]))
    return out


def private(x):
    """Each core through HBM of its own."""
    i, _ = me()
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    own = nl.ndarray((64, x.shape[1]), dtype=x.dtype, buffer=nl.private_hbm)
    nisa.dma_copy(dst=own, src=x[half(i)])
    nisa.dma_copy(dst=out[half(i)], src=own)
    return out


def pinned(x):
    """Each core at the same address of its own SBUF; core 1 is between core 0's load and its store."""
    i, other = me()
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((64, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf, address=(0, 100))
    got = nl.ndarray((64, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[half(i)])
    nisa.sendrecv(src=nl.copy(tile), dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=0)
    nisa.dma_copy(dst=out[half(i)], src=tile)
    return out


def into(x):
    """The input itself, written by both."""
    i, _ = me()
    nisa.tensor_scalar(dst=(tile := nl.load(x[half(i)])), data=tile, op0=nl.add, operand0=float(i))
    nl.store(x[half(i)], tile)
    return x


def back_and_forth(x):
    """Twice through the same shared tensor, with a barrier before it is written again."""
    i, other = me()
    between, out = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    tile = nl.load(x[half(i)])
    for _ in range(2):
        nl.store(between[half(i)], nl.add(tile, float(i)))
        nisa.core_barrier(data=between, cores=(0, 1))
        tile = nl.load(between[half(other)])
        nisa.core_barrier(data=between, cores=(0, 1))
    nl.store(out[half(i)], tile)
    return out


def registers(x):
    """Sums that stay in each core's accumulator registers, while the other core uses its own."""
    i, other = me()
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile, total = nl.load(x[half(i)]), nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
    square, got = nl.ndarray((64, x.shape[1]), dtype=nl.float32), nl.ndarray((64, x.shape[1]), dtype=nl.float32)
    nisa.activation(dst=square, op=nl.square, data=tile, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
    nisa.sendrecv(src=square, dst=got, send_to_rank=other, recv_from_rank=other, pipe_id=0)
    nisa.activation(dst=square, op=nl.copy, data=got, reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reduce)
    nl.store(out[half(i)], total)
    return out


def matmul(lhs_t, rhs):
    """Each core half of the rows, every product in one accumulation group."""
    (k, m), n, i = lhs_t.shape, rhs.shape[1], nl.program_id(0)
    out = nl.ndarray((m, n), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for row in range(m // 2 * i, m // 2 * (i + 1), 128):
        for column in range(0, n, 512):
            acc = nl.ndarray((128, min(512, n - column)), dtype=nl.float32, buffer=nl.psum)
            for at in range(0, k, 128):
                columns = slice(column, column + acc.shape[1])
                nisa.nc_matmul(acc, nl.load(lhs_t[at : at + 128, row : row + 128]), nl.load(rhs[at : at + 128, columns]))
            tile = nl.ndarray(acc.shape, dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=acc)
            nisa.dma_copy(dst=out[row : row + 128, column : column + acc.shape[1]], src=tile)
    return out


def rows_of(table, index):
    """Each core gathers rows of a table that nobody writes."""
    i, _ = me()
    out, tile = nl.ndarray((8, 48), dtype=table.dtype, buffer=nl.shared_hbm), nl.ndarray((4, 48), dtype=table.dtype)
    at = nl.load(index[4 * i : 4 * i + 4])
    nisa.dma_copy(dst=tile, src=table.ap(pattern=[[48, 4], [1, 48]], offset=0, vector_offset=at, indirect_dim=0))
    nl.store(out[4 * i : 4 * i + 4], tile)
    return out


SMALL = [RANDOM.integers(-4, 5, (256, size)).astype(np.float32) for size in (512, 640)]
INDEX = np.array([7, 3, 100, 3, 0, 5, 127, 64], np.int32).reshape(8, 1)
ONES = np.repeat([0.0, 1.0], 64)[:, None].astype(np.float32)
KERNELS = {
    "doubled": (doubled, (X,), 2 * X),
    "through memory": (through_memory, (X,), SWAPPED),
    "exchanged": (exchanged, (X,), SWAPPED),
    "exchanged by gpsimd": (exchanged, (X, nisa.dma_engine.gpsimd_dma), SWAPPED),
    "summed": (summed, (X,), X.sum(axis=1, keepdims=True)),
    "private": (private, (X,), X),
    "pinned": (pinned, (X,), X),
    "into": (into, (X,), X + ONES),
    "back and forth": (back_and_forth, (X,), X + 1),
    "registers": (registers, (X / 64,), ((X / 64) ** 2 + (SWAPPED / 64) ** 2).sum(axis=1, keepdims=True)),
    "matmul": (matmul, tuple(SMALL), SMALL[0].T @ SMALL[1]),
    "gathered": (rows_of, (X, INDEX), X[INDEX[:, 0]]),
}
"""All exact but for the sums of squares, which are rounded once per addition."""
