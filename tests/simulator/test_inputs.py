"""What a run began with is there for who steps through it: small arrays as copies, large ones while they stay as they are."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nki_sim.inputs import COPIED, digest

LARGE = np.random.default_rng(0).standard_normal((128, COPIED // 4 // 128 + 8), dtype=np.float32)
SMALL = LARGE[:, :64].copy()


def halves(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def doubles_in_place(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=x, src=tile)


def begun_with(run):
    (array,) = run.inputs.values()
    return array


def test_a_large_input_that_changed_is_refused_by_name():
    x = LARGE.copy()
    run = nki_sim.run(halves, x)
    x[5, 7] += 1
    with pytest.raises(ValueError, match=r"given as x was changed after the run.*run the kernel again"):
        run.replay()


def test_what_was_looked_at_stays():
    x = LARGE.copy()
    run = nki_sim.run(halves, x)
    replay = run.replay()
    x[:] = 0
    assert (replay.operand(0, 1) == LARGE).all()
    assert (run.replay().operand(0, 1) == LARGE).all()
    assert (begun_with(run) == LARGE).all()


def test_a_small_input_may_change():
    x = SMALL.copy()
    run = nki_sim.run(halves, x)
    x[:] = 0
    assert (run.replay().operand(0, 1) == SMALL).all()


@pytest.mark.parametrize("array", [SMALL, LARGE], ids=["small", "large"])
def test_an_input_that_the_kernel_writes(array):
    x = array.copy()
    run = nki_sim.run(doubles_in_place, x)
    assert (x == array * 2).all()
    assert (begun_with(run) == array).all()
    assert (run.replay().operand(0, 1) == array).all()


def test_a_large_input_is_not_copied_before_somebody_looks():
    run = nki_sim.run(halves, LARGE)
    assert any(np.shares_memory(kept, LARGE) for kept in run.inputs._values.values())
    assert not np.shares_memory(begun_with(run), LARGE)


@pytest.mark.parametrize("places", [(7, 15), (775, 2567), (0, 4095), (5, 4096 + 5)])
def test_a_digest_tells_where_a_byte_is(places):
    """Also the highest byte of a word, of which little is left in a sum of words times numbers."""
    one, other = np.zeros(8192, np.int8), np.zeros(8192, np.int8)
    one[places[0]], other[places[1]] = 40, 40
    assert digest(one) != digest(other)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.bool_])
@given(seed=st.integers(0, 2**32 - 1))
def test_a_digest_tells_changes(dtype, seed):
    random = np.random.default_rng(seed)
    shape = (int(random.integers(1, 60)), int(random.integers(1, 700)))
    array = (random.standard_normal(shape) * 40).astype(dtype)
    before = digest(array)
    assert digest(array.copy()) == before
    flat = array.reshape(-1)
    i, j = random.integers(0, flat.size, 2)
    changed, swapped = flat.copy(), flat.copy()
    changed[i] = 1 - changed[i] if dtype is not np.bool_ else ~changed[i]
    swapped[[i, j]] = swapped[[j, i]]
    assert (digest(changed) == before) == (changed.tobytes() == flat.tobytes())
    assert (digest(swapped) == before) == (swapped.tobytes() == flat.tobytes())
