"""Without ml-dtypes, as in the browser, kernels compute the same bits; low precision is stored under its name."""

import json
import subprocess
import sys

import digests
import pytest

HIDDEN = ("ml_dtypes", "threadpoolctl")


def python(*command):
    """What a new process prints."""
    done = subprocess.run([sys.executable, "-W", "error", *command], capture_output=True, text=True, timeout=120, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def hiding(text):
    return python("-c", f"import sys\nfor m in {HIDDEN!r}: sys.modules[m] = None\n{text}")


@pytest.fixture(scope="module")
def kinds():
    with_them = digests.everything()
    without = json.loads(python(digests.__file__, *HIDDEN))
    return with_them, without


def test_every_example_and_kernel_writes_the_same_bytes(kinds):
    with_them, without = kinds
    assert without.keys() == with_them.keys()
    assert {name for name, found in with_them.items() if without[name] != found} == set()


def test_nearly_all_of_them_ran(kinds):
    refused = {name for name, found in kinds[0].items() if "Error" in found}
    assert refused == {
        *(f"nisa.{name} {dtype}" for name in ("exponential", "nonzero_with_count") for dtype in digests.DTYPES[1:]),
        "matmul float8_e8m0fnu True", "matmul float8_e8m0fnu False",
    }  # fmt: skip


def test_a_kernel_takes_and_gives_arrays_of_tagged_bits():
    text = """
import nki_sim, numpy as np
nki_sim.install()
import nki, nki.language as nl
@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    t = nl.load(x)
    print(t, t.numpy().dtype, np.asarray(t, np.int32)[0, 0])
    nl.store(out, nl.multiply(t, 2.0))
    return out
for x in (np.full((2, 3), 1.5, np.float32), nki_sim.to_dtype(np.full((2, 3), 1.5), "bfloat16")):
    result = double(x)
    print(result.dtype, nki_sim.to_float32(result).tolist())
"""
    lines = hiding(text).splitlines()
    assert [line for line in lines if "<u2" in line] == ["[('bfloat16', '<u2')] [[3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]"] * 2
    assert lines[1:3] == ["[[1.5 1.5 1.5]", " [1.5 1.5 1.5]] float32 1"]


def test_every_module_can_be_imported():
    text = """
import importlib, sys, nki_sim
from nki_sim.reference import modules
nki_sim.install()
names = modules()
for name in names: importlib.import_module(name)
print(*names)
print(*sorted({m.partition(".")[0] for m, found in sys.modules.items() if found is not None}))
"""
    names, loaded = (set(line.split()) for line in hiding(text).splitlines())
    assert len(names) > 100
    assert not loaded & set(HIDDEN)
