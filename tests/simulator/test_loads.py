"""Loads that need not be made: which of them are left out of what runs, and that the results are what they were."""

import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from nki_sim.replay.nodes import Graph
from recordings import assert_fused_is_unfused

X = np.random.default_rng(7).standard_normal((128, 512)).astype(np.float32)


def out_of(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def tile(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def read_whole(x):
    out = out_of(x)
    nl.store(out, nl.add(nl.load(x), nl.load(x)))
    return out


def read_in_parts(x):
    out, loaded, sums = out_of(x), nl.load(x), tile((128, 512))
    for column in range(0, 512, 128):
        part = loaded[:, column : column + 128]
        nisa.tensor_tensor(dst=sums[:, column : column + 128], data1=part, data2=part, op=nl.add)
    nl.store(out, sums)
    return out


def copied_on(x):
    out, second, third = out_of(x), tile((128, 512)), tile((128, 512))
    nisa.dma_copy(dst=second, src=nl.load(x))
    nisa.dma_copy(dst=third, src=second)
    nl.store(out, nl.multiply(third, 3.0))
    return out


def columns_apart(x):
    """Rows of the source are not in one piece: reading them in place would cost more than a copy."""
    out, some = out_of(x), tile((128, 256))
    nisa.dma_copy(dst=some, src=x[:, 0:512:2])
    nl.store(out, nl.add(nl.load(x), 1.0))
    nl.store(out[:, 0:256], nl.add(some, 1.0))
    return out


def loaded_twice(x):
    out, loaded, doubled = out_of(x), tile((128, 256)), tile((128, 512))
    for half in (0, 256):
        nisa.dma_copy(dst=loaded, src=x[:, half : half + 256])
        nisa.tensor_scalar(dst=doubled[:, half : half + 256], data=loaded, op0=nl.multiply, operand0=2.0)
    nl.store(out, doubled)
    return out


def loaded_in_halves(x):
    out, loaded = out_of(x), tile((128, 512))
    for half in (0, 256):
        nisa.dma_copy(dst=loaded[:, half : half + 256], src=x[:, half : half + 256])
    nl.store(out, nl.add(loaded, 1.0))
    return out


def changed_afterwards(x):
    out, loaded = out_of(x), nl.load(x)
    before = nl.add(loaded, 1.0)
    nisa.memset(dst=loaded, value=5.0)
    nl.store(out, nl.add(before, loaded))
    return out


def source_is_written(x):
    loaded = nl.load(x)
    nl.store(x, nl.add(loaded, 1.0))
    nl.store(x, nl.add(loaded, 2.0))
    return x


def at_an_address(x):
    out, loaded = out_of(x), nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, address=(0, 0))
    nisa.dma_copy(dst=loaded, src=x)
    nl.store(out, nl.add(loaded, 1.0))
    return out


def another_type(x):
    out, narrow = out_of(x), tile((128, 512), nl.bfloat16)
    nisa.dma_copy(dst=narrow, src=x)
    nl.store(out, nl.add(narrow, 1.0))
    return out


def seen_otherwise(x):
    """The reader sees the tile's bytes as another data type."""
    out, loaded = out_of(x), nl.load(x)
    nl.store(out, nl.bitwise_and(loaded.view(nl.int32), 0x7FFFFFFF).view(nl.float32))
    return out


LEFT_OUT = {
    read_whole: 2,
    read_in_parts: 1,
    copied_on: 3,
    columns_apart: 1,
    loaded_twice: 0,
    loaded_in_halves: 0,
    changed_afterwards: 0,
    source_is_written: 0,
    at_an_address: 0,
    another_type: 0,
    seen_otherwise: 0,
}


@pytest.mark.parametrize("kernel", LEFT_OUT, ids=lambda kernel: kernel.__name__)
def test_only_loads_that_need_not_be_made_are_left_out(kernel):
    run = nki_sim.run(kernel, X.copy())
    steps = len(run.program)
    assert len(Graph.of(run.machine, in_place=False).nodes) == steps
    assert steps - len(Graph.of(run.machine).nodes) == LEFT_OUT[kernel]


@pytest.mark.parametrize("kernel", LEFT_OUT, ids=lambda kernel: kernel.__name__)
def test_the_results_are_those_of_every_load_made(kernel):
    run = nki_sim.run(kernel, X.copy())
    for values in (X, (X[::-1] * 3).copy()):
        assert_fused_is_unfused(run, values)


def test_a_kernel_without_instructions_can_be_called_again():
    @nki.jit
    def same(x):
        return x

    for values in (X, X * 2, X):
        np.testing.assert_array_equal(same(values), values)
