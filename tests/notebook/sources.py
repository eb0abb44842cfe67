"""Kernels that the notebook tests put into cells."""

MATMUL = """\
@nki.jit
def matmul(lhsT, rhs):
    K, M = lhsT.shape
    N = rhs.shape[1]
    acc = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
    for k in range(0, K, 128):
        w = nl.load(lhsT[k:min(k + 128, K), :])
        x = nl.load(rhs[k:min(k + 128, K), :])
        nisa.nc_matmul(dst=acc, stationary=w, moving=x, accumulate=(k > 0))
    y = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=y, src=acc)
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out
"""

FORGETFUL = MATMUL.replace("accumulate=(k > 0)", "accumulate=False")
GREEDY = MATMUL.replace("accumulate=(k > 0)", "accumulate=True")

DOUBLE = """\
@nki.jit
def double(x):
    tile = nl.load(x)
    y = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=y, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=y)
    return out
"""

IN_PLACE = """\
@nki.jit
def add_one(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=x, src=tile)
"""

HOARDER = """\
@nki.jit
def hoarder(x):
    kept = [nl.ndarray((128, 20_000), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3)]
    for tile in kept:
        nisa.dma_copy(dst=tile[:, 0:8], src=x)
    out = nl.ndarray((3 * 128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    for i, tile in enumerate(kept):
        nisa.dma_copy(dst=out[i * 128:(i + 1) * 128, :], src=tile[:, 0:8])
    return out
"""

TWO = """\
@nki.jit
def both(x):
    outs = []
    for factor in (2.0, 3.0):
        tile = nl.load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        outs.append(out)
    return tuple(outs)
"""
