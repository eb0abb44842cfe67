"""``nl.gather_flattened``: each partition picks along its free dimension."""

import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, st
from references import random, run, same
from rulebook import Book, v, x

book = Book()


def gather(data, indices, dtype=None):
    return st(nl.gather_flattened(ld(data), ld(indices), dtype=dtype))


@given(rows=some.integers(1, 128), shape=some.sampled_from([(5,), (3, 4), (1, 2, 3)]), count=some.integers(1, 30),
       dtype=some.sampled_from(["uint8", "int16", "int32", "uint32"]), seed=some.integers(0, 9))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_element_by_element(rows, shape, count, dtype, seed):
    data = random((rows, *shape), "float32", seed)
    flat = data.reshape(rows, -1)
    indices = np.random.default_rng(seed).integers(0, flat.shape[1], (rows, count)).astype(dtype)
    want = np.array([[flat[p, indices[p, i]] for i in range(count)] for p in range(rows)])
    same(run(gather, data, indices), want)


def test_another_dtype():
    data, indices = np.array([[1.5, 2.5]], np.float32), np.array([[1, 0, 1]], np.int32)
    assert run(gather, data, indices, "int32").tolist() == [[2, 2, 2]]


def test_an_index_outside():
    with pytest.raises(nki_sim.NkiValidationError, match="index 2 of 2"):
        run(gather, np.ones((1, 2), np.float32), np.array([[2]], np.int32))


def indices():
    return x(16, 4, dt=nl.uint32)


def picked():
    return np.take_along_axis(v(16, 8, at=1), v(16, 4).astype(int), axis=1)


@book.breaks("nl.gather_flattened")
def _(bad):
    return nl.gather_flattened(x(16, 8, at=1), indices(), axis=1 if bad else 0), picked()


@book.breaks("nl.gather_flattened")
def _(bad):
    return nl.gather_flattened(x(16, 8, at=1), x(16, 4) if bad else indices()), picked()


@book.breaks("nl.gather_flattened", error=TypeError)
def _(bad):
    return nl.gather_flattened(v(16, 8, at=1) if bad else x(16, 8, at=1), indices()), picked()


@book.rejects()
def test_breaking_a_limit(case, target):
    case.reject(target)


@book.accepts()
def test_just_inside(case, target, bad):
    case.run(target, bad)
