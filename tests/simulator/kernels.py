"""Short words for what most test kernels do: allocate, load, store."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import pytest
from nki_sim.errors import NkiCapacityError

TARGETS = ("trn1", "trn2", "trn3")


def sb(*shape, dt=nl.float32, **where):
    """A fresh SBUF tile."""
    return nl.ndarray(shape, dtype=dt, buffer=nl.sbuf, **where)


def ps(*shape, dt=nl.float32, **where):
    """A fresh PSUM tile."""
    return nl.ndarray(shape, dtype=dt, buffer=nl.psum, **where)


def hb(*shape, dt=nl.float32):
    """A fresh tensor in shared HBM."""
    return nl.ndarray(shape, dtype=dt, buffer=nl.shared_hbm)


def ld(x, dt=None):
    """An SBUF tile with the values of an HBM tensor."""
    tile = sb(*x.shape, dt=dt or x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def st(tile):
    """An output with the values of a tile, wherever it lies."""
    if tile.buffer is nl.psum:
        tile = copied(tile)
    out = hb(*tile.shape, dt=tile.dtype)
    nisa.dma_copy(dst=out, src=tile)
    return out


def copied(tile):
    """An SBUF copy of a tile in PSUM."""
    to = sb(*tile.shape, dt=tile.dtype)
    nisa.tensor_copy(dst=to, src=tile, engine=nisa.engine.vector)
    return to


def refused(kernel, *arguments, **options):
    """What is said of a kernel whose tiles do not fit."""
    with pytest.raises(NkiCapacityError) as caught:
        nki_sim.run(kernel, *arguments, **options)
    return str(caught.value)
