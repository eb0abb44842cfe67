"""Kernels called with arrays of JAX, and inside ``jax.jit``."""

from __future__ import annotations

import subprocess
import sys

import nki
import nki.language as nl
import numpy as np
import pytest
from nki_sim import NkiError

jax = pytest.importorskip("jax", reason='JAX is not installed: pip install "nki-nb[jax]"')
jnp = pytest.importorskip("jax.numpy")


@nki.jit
def scaled(x, y, scale=1.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(x), nl.multiply(nl.load(y), scale)))
    return out


@nki.jit
def copies(parts):
    made = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for x in parts["all"]]
    for out, x in zip(made, parts["all"], strict=True):
        nl.store(out, nl.load(x))
    return tuple(made)


@nki.jit
def increment(x):
    nl.store(x, nl.add(nl.load(x), 1.0))


@nki.jit
def increment_and_copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(x, nl.add(nl.load(x), 1.0))
    nl.store(out, nl.load(x))
    return out


@pytest.fixture
def x():
    return jax.random.normal(jax.random.key(3), (40, 24))


def test_arrays_in_and_out(x):
    for _ in range(2):  # specialised, then replayed
        made = scaled(x, x, 2.0)
        assert isinstance(made, jax.Array)
        np.testing.assert_allclose(made, 3 * x, rtol=1e-6)


TWINS = ("bool", "int8", "uint16", "int32", "float16", "float32", "bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("jit", [False, True], ids=["called", "jit"])
def test_every_data_type_goes_through_bit_by_bit(name, jit):
    raw = np.random.default_rng(1).integers(0, 256, (6, 64), np.uint8)
    given = jnp.asarray(raw > 127 if name == "bool" else raw.view(jnp.dtype(name)))
    (made,) = (jax.jit(copies) if jit else copies)({"all": [given]})
    assert made.dtype == given.dtype
    assert np.array_equal(np.asarray(made).view(np.uint8), np.asarray(given).view(np.uint8))


def test_inside_jit(x):
    calls = []

    @jax.jit
    def program(x, y):
        calls.append(1)
        return scaled(x * 2, y, scale=3.0) + 1

    for _ in range(2):
        np.testing.assert_allclose(program(x, x), 5 * x + 1, rtol=1e-5)
    assert len(calls) == 1
    assert "pure_callback" in str(jax.make_jaxpr(program)(x, x))


def test_nests_and_several_results(x):
    one, two = jax.jit(lambda x, y: copies({"all": [x, y]}))(x, x[:3].astype(jnp.bfloat16))
    assert one.shape == x.shape and two.shape == (3, 24) and two.dtype == jnp.bfloat16


def test_vmap_runs_it_for_each(x):
    made = jax.vmap(lambda rows: scaled(rows, rows))(x.reshape(4, 10, 24))
    np.testing.assert_allclose(made.reshape(x.shape), 2 * x, rtol=1e-6)


def test_gradients_by_custom_vjp(x):
    @jax.custom_vjp
    def doubled(x):
        return scaled(x, x)

    doubled.defvjp(lambda x: (doubled(x), None), lambda _, grad: (scaled(grad, grad),))
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: (doubled(x) ** 2).sum()))(x), 8 * x, rtol=1e-5)


def test_a_broken_limit_is_said_when_it_is_traced():
    with pytest.raises(NkiError, match="partition dimension 300 exceeds maximum 128"):
        jax.jit(scaled)(jnp.ones((300, 4)), jnp.ones((300, 4)))


def test_arrays_of_jax_cannot_be_written(x):
    with pytest.raises(NkiError, match="read-only"):
        increment(x)
    with pytest.raises(NkiError, match="returns nothing") as caught:
        jax.jit(increment)(x)
    assert caught.value.diagnosis.rule.id == "jax.results"
    with pytest.raises(jax.errors.JaxRuntimeError, match="writes its argument x, a read-only array"):
        jax.block_until_ready(jax.jit(increment_and_copy)(x))


def test_jax_is_imported_by_nobody_else():
    text = "import sys, nki_sim, nki_nb; nki_sim.install(); import nki.isa; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "False\n"
