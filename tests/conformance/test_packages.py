"""Packages of public scientific kernels, unmodified: trnblas, trnrand, trnsparse, trntensor.

They ask ``nki.simulate`` for their kernels when told so by the environment. Each test skips where its package or PyTorch is
not installed: ``pip install trnblas trnrand trnsparse trntensor`` beside torch.
"""

import importlib.util
import os

import nki_sim
import numpy as np
import pytest

NAMES = ("trnblas", "trnrand", "trnsparse", "trntensor")
for _name in NAMES:
    os.environ.update({f"{_name.upper()}_USE_SIMULATOR": "1", f"{_name.upper()}_REQUIRE_NKI": "1"})
nki_sim.install()

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_sim.NkiWarning"),  # they add onto PSUM that nl.zeros has filled
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the range aliases
]
LARGEST = {}
"""The largest error per package, relative to the largest element."""


@pytest.fixture
def package(request):
    """A package, told to use its kernels; and PyTorch."""
    name = request.param
    for needed in (name, "torch"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    import torch

    torch.manual_seed(0)
    made = importlib.import_module(name)
    made.set_backend("nki")
    return made, torch


def of(name):
    return pytest.mark.parametrize("package", [name], indirect=True)


def close(name, got, want, bound=2e-6):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    LARGEST[name] = max(LARGEST.get(name, 0.0), error)
    assert error < bound


@of("trnblas")
@pytest.mark.parametrize(("m", "k", "n"), [(128, 128, 128), (200, 300, 600), (1, 64, 8), (256, 512, 1024)])
def test_gemm(package, m, k, n):
    trnblas, torch = package
    a, b = torch.randn(m, k), torch.randn(k, n)
    close("trnblas", trnblas.gemm(1.0, a, b), a.double() @ b.double())


@of("trnblas")
def test_syrk_and_batched_gemm(package):
    trnblas, torch = package
    a, x, y = torch.randn(200, 300), torch.randn(3, 128, 128), torch.randn(3, 128, 256)
    close("trnblas", trnblas.syrk(1.0, a), a.double() @ a.double().T)
    close("trnblas", trnblas.batched_gemm(1.0, x, y), x.double() @ y.double())


@of("trntensor")
def test_matmul_batched_matmul_and_einsum(package):
    trntensor, torch = package
    kernels = importlib.import_module("trntensor.nki.dispatch")
    a, b, x, y = torch.randn(200, 300), torch.randn(300, 600), torch.randn(3, 100, 130), torch.randn(3, 130, 70)
    close("trntensor", kernels.nki_matmul(a, b), a.double() @ b.double())
    close("trntensor", kernels.nki_batched_matmul(x, y), x.double() @ y.double())
    close("trntensor", trntensor.einsum("ij,jk->ik", a, b), a.double() @ b.double())


@of("trntensor")
def test_an_energy_that_broadcasts_a_row_against_a_column_is_refused(package):
    trntensor, torch = package
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        trntensor.mp2_energy(torch.randn(2, 4, 8), -torch.rand(2) - 1, torch.rand(4) + 1)
    assert caught.value.diagnosis.rule.id == "nl.binary_no_broadcast"


@of("trnsparse")
def test_sparse_products(package):
    trnsparse, torch = package
    dense = torch.randn(150, 130) * (torch.rand(150, 130) < 0.1)
    right = torch.randn(130, 64)
    close("trnsparse", trnsparse.spmm(trnsparse.from_dense(dense), right), dense.double() @ right.double())
    blocks, right = torch.zeros(256, 384), torch.randn(384, 64)
    blocks[:128, 128:256], blocks[128:, :128] = torch.randn(128, 128), torch.randn(128, 128)
    close("trnsparse", trnsparse.bsr_spmm(trnsparse.BSRMatrix.from_dense(blocks, 128), right), blocks.double() @ right.double())


@of("trnsparse")
def test_attention_that_broadcasts_a_column_is_refused(package):
    trnsparse, torch = package
    q, k, v = (torch.randn(256, 64) for _ in range(3))
    mask = trnsparse.BSRMatrix.from_dense(torch.ones(256, 256), 128)
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        trnsparse.block_sparse_attention_tiled(q, k, v, mask)
    assert caught.value.diagnosis.rule.id == "nl.binary_no_broadcast"


@of("trnrand")
def test_box_muller_and_halton(package):
    trnrand, torch = package
    kernels = importlib.import_module("trnrand.nki.dispatch")
    uniforms = torch.rand(512) * 0.9 + 0.05
    close("trnrand", kernels.box_muller_nki(uniforms), kernels.box_muller_cpu(uniforms))
    numbers = importlib.import_module("trnrand.quasi")
    want = torch.stack([numbers._halton_sequence(200, p, torch.float32) for p in numbers._first_n_primes(3)], 1)
    close("trnrand", trnrand.halton(200, 3), want)


@of("trnrand")
def test_sobol_points_are_those_of_the_direction_numbers(package):
    kernels = importlib.import_module("trnrand.nki.dispatch")
    index = np.arange(128, dtype=np.int32).reshape(-1, 1)
    gray = index ^ (index >> 1)
    want = np.zeros((128, len(kernels._SOBOL_DIR_VECS)))
    for p in range(128):
        for d, numbers in enumerate(kernels._SOBOL_DIR_VECS):
            bits = 0
            for k, number in enumerate(numbers):
                bits ^= number * int(gray[p, 0] >> k & 1)
            want[p, d] = bits / 2**24
    got = nki_sim.run(kernels.sobol_gray_code_kernel, gray).result
    np.testing.assert_array_equal(np.asarray(got, np.float64), want)


@of("trnrand")
def test_uniform_numbers_are_uniform_and_go_on(package):
    trnrand, _ = package
    numbers = trnrand.uniform(1000)
    again = trnrand.uniform(1000)
    assert float(numbers.min()) >= 0 and float(numbers.max()) < 1 and abs(float(numbers.mean()) - 0.5) < 0.05
    assert not np.array_equal(np.asarray(numbers), np.asarray(again))


def test_the_largest_errors(capsys):
    with capsys.disabled():
        for name, error in sorted(LARGEST.items()):
            print(f"\n{name}: largest relative error {error:.1e}", end="")
