"""Finished runs of small kernels, for reports and pictures."""

from __future__ import annotations

from typing import Any

import nki_sim
import numpy as np
from nki_sim.api import nki
from nki_sim.api.nki import isa as nisa
from nki_sim.api.nki import language as nl

from nki_nb import kernels
from nki_nb.report import Report

HOSTILE = "<script>alert('&\"')</script>\x01"


def matmul_run() -> Report:
    random = np.random.default_rng(0)
    lhs_t = random.integers(-4, 5, (200, 150)).astype(np.float32)
    rhs = random.integers(-4, 5, (200, 600)).astype(np.float32)
    return Report.of(nki_sim.run(kernels.matmul, lhs_t, rhs, target="trn2"), ("out",))


def softmax_run() -> Report:
    x = np.random.default_rng(0).standard_normal((150, 40)).astype(np.float32)
    return Report.of(nki_sim.run(kernels.softmax, x, target="trn2"), ("out",))


@nki.jit
def named(x: Any) -> Any:
    """Tiles with names that must not reach a page as markup."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name=HOSTILE)
    nisa.dma_copy(dst=tile, src=x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name=f"{HOSTILE} 2")
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def placed(x: Any) -> Any:
    """Tiles at addresses, apart and one above the other."""
    low = nl.ndarray((32, 40), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0), name="low")
    high = nl.ndarray((32, 40), dtype=nl.float32, buffer=nl.sbuf, address=(64, 0), name="high")
    far = nl.ndarray((128, 300), dtype=nl.float32, buffer=nl.sbuf, address=(0, 1024), name="far")
    bank = nl.ndarray((96, 256), dtype=nl.float32, buffer=nl.psum, address=(0, 3 * 2048), name="bank3")
    nisa.dma_copy(dst=low, src=x)
    nisa.tensor_copy(dst=high, src=low)
    nisa.memset(dst=far, value=0.0)
    nisa.memset(dst=bank, value=0.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=high)
    return out


@nki.jit
def long(x: Any, rounds: int) -> Any:
    """Many instructions."""
    tile = nl.load(x)
    for _ in range(rounds):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.activation(dst=tile, op=nl.tanh, data=tile)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def run(kernel: Any, *args: Any) -> Report:
    return Report.of(nki_sim.run(kernel, *args, target="trn2"))
