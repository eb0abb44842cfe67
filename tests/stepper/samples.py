"""Runs to step through: small, with patterns in their data that the eye can follow."""

from __future__ import annotations

from typing import Any

import nki_sim
import numpy as np
from nki_sim.api import nki
from nki_sim.api.nki import isa as nisa
from nki_sim.api.nki import language as nl
from nki_sim.errors import NkiError
from nki_sim.run import Run

from nki_nb import kernels
from nki_nb.report import Report

HOSTILE = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">\'&'


def wave(rows: int, columns: int, period: float) -> Any:
    """Stripes across a matrix."""
    down, across = np.arange(rows)[:, None], np.arange(columns)
    return np.sin(down / period + across / (period * 1.3)).astype(np.float32)


def matmul_run() -> Report:
    """38 instructions: two row tiles, two column tiles, three K tiles, with remainders."""
    return Report.of(nki_sim.run(kernels.matmul, wave(384, 200, 9), wave(384, 700, 23), target="trn2"))


def square_run() -> Report:
    """The 512³ matmul, whose four row tiles are a loop that folds."""
    return Report.of(nki_sim.run(kernels.matmul, wave(512, 512, 9), wave(512, 512, 23), target="trn2"))


def softmax_run() -> Report:
    return Report.of(nki_sim.run(kernels.softmax, wave(300, 64, 5), target="trn2"))


@nki.jit
def hostile(x: Any) -> Any:
    """Tensors with names that must not become markup."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name=HOSTILE)
    nisa.dma_copy(dst=tile, src=x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name=f"{HOSTILE} 2")  # </script><b>
    nisa.dma_copy(dst=out, src=tile)
    return out


def hostile_run() -> Report:
    return Report.of(nki_sim.run(hostile, wave(32, 40, 3), target="trn2"))


@nki.jit
def reuse(x: Any, rounds: int) -> Any:
    """In-place updates, two tiles at one address, and a NaN on the way."""
    low = nl.ndarray((32, 40), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0), name="low")
    nisa.dma_copy(dst=low, src=x)
    for _ in range(rounds):
        nisa.tensor_scalar(dst=low, data=low, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=low[0:32, 8:16], data=low[0:32, 0:8], op0=nl.multiply, operand0=0.5)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=low)
    again = nl.ndarray((32, 80), dtype=nl.bfloat16, buffer=nl.sbuf, address=(0, 0), name="again")
    nisa.memset(dst=again, value=2.0)
    wide = nl.ndarray((32, 80), dtype=nl.float32, buffer=nl.sbuf, name="wide")
    nisa.tensor_copy(dst=wide, src=again)
    nisa.activation(dst=wide, op=nl.rsqrt, data=wide, scale=-1.0)
    more = nl.ndarray((32, 80), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=more, src=wide)
    return out, more


def reuse_run(rounds: int = 20) -> Report:
    return Report.of(nki_sim.run(reuse, wave(32, 40, 3), rounds, target="trn2"))


@nki.jit
def moves(x: Any, rows: Any) -> Any:
    """A gather, a broadcast and a transpose, by DMA."""
    index = nl.load(rows)
    picked = nl.ndarray((16, 40), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=picked, src=x.ap(pattern=[[40, 16], [1, 40]], vector_offset=index, indirect_dim=0))
    spread = nl.ndarray((16, 40), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=spread, src=x.ap(pattern=[[0, 16], [1, 40]]))
    turned = nl.ndarray((40, 32), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_transpose(dst=turned, src=x)
    total = nl.ndarray((16, 40), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=picked, data2=spread, op=nl.add)
    out = nl.ndarray((16, 40), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    more = nl.ndarray((40, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=more, src=turned)
    return out, more


def moves_run() -> Report:
    rows = (np.arange(16, dtype=np.int32)[:, None] * 7) % 32
    return Report.of(nki_sim.run(moves, wave(32, 40, 3), rows, target="trn2"))


@nki.jit
def too_tall(x: Any) -> Any:
    """Stops at its third instruction: PSUM has room for 512 fp32 columns."""
    tile = nl.load(x)
    double = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=double, data=tile, op0=nl.multiply, operand0=2.0)
    acc = nl.ndarray((40, 1024), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=tile, moving=double)
    return acc


@nki.jit
def forgetful(x: Any) -> Any:
    """Reads a tile that nobody wrote; another tile looks the same."""
    tile = nl.load(x)
    empty = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=tile, data2=empty, op=nl.add)
    return total


def failed() -> NkiError:
    """The error of a kernel that breaks a limit, with the run so far."""
    return _error_of(too_tall)


def unwritten() -> NkiError:
    """The error of a kernel that reads what was never written."""
    return _error_of(forgetful)


def _error_of(kernel: Any) -> NkiError:
    try:
        nki_sim.run(kernel, wave(32, 40, 3), target="trn2", strict=True)
    except NkiError as error:
        return error
    raise AssertionError("the kernel should have failed")


@nki.jit
def many(x: Any, rounds: int) -> Any:
    """As many instructions as wanted."""
    tile = nl.load(x)
    for _ in range(rounds):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.activation(dst=tile, op=nl.tanh, data=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def many_run(steps: int) -> Run:
    return nki_sim.run(many, np.ones((2, 4), np.float32), steps // 3, target="trn2")
