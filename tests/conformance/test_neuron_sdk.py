"""aws-neuron/aws-neuron-sdk: ``nki/examples``, the kernels printed in two tutorials, and those of the MXFP deep dive.

NEURON_SDK_ROOT names a checkout.
"""

from __future__ import annotations

import re
import runpy
import sys
import textwrap

import ml_dtypes
import nki_sim
import numpy as np
import pytest
from public_kernels import checkout, largest_error

ROOT = checkout("NEURON_SDK_ROOT") / "nki"
EXAMPLES = ROOT / "examples"
MATMUL = EXAMPLES / "matrix_multiplication" / "matrix_multiplication_nki_kernels.py"
SHAPES = {
    "nki_matmul_basic_": (128, 64, 512),
    "nki_matmul_tiled_": (512, 256, 1024),
    "nki_matmul_hoist_load_": (512, 256, 1024),
    "nki_matmul_block_free_dimension_": (512, 512, 2048),
    "nki_matmul_fully_optimized_": (2048, 2048, 2048),
}
# The examples use the deprecated range aliases, as they stand.
pytestmark = [
    pytest.mark.usefixtures("nothing_is_wasted"),
    *(pytest.mark.filterwarnings(f"ignore:nl.{name}:DeprecationWarning")
      for name in ("affine_range", "static_range", "sequential_range")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("simulate/nki_simulate_example.py", []),
        ("transpose2d/transpose2d_nki_kernels.py", []),
        ("average_pool2d/average_pool2d_nki_kernels.py", []),
        ("getting_started_baremetal.py", []),
        ("fused_mamba/mamba_nki_kernels.py", ["--seq_len", "512"]),
    ],
)
def test_example_passes_its_own_check(path, arguments, monkeypatch, note):
    nki_sim.install()
    monkeypatch.setattr(sys, "argv", [path, *arguments])
    runpy.run_path(str(EXAMPLES / path), run_name="__main__")
    note("passes its own check")


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", SHAPES)
def test_matrix_multiplication(name, dtype, module, note):
    k, m, n = SHAPES[name]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32).astype(dtype) for s in ((k, m), (k, n)))
    error = largest_error(getattr(module(MATMUL), name)(a, b), a.astype(np.float64).T @ b.astype(np.float64))
    note(f"{error:.1e} of the largest element")
    assert error < (2e-6 if dtype is np.float32 else 4e-3)


def test_tensor_addition(module, note):
    a, b = np.random.default_rng(0).standard_normal((2, 256, 1024)).astype(np.float32)
    got = module(EXAMPLES / "tensor_addition" / "tensor_addition_nki_kernels.py").nki_tensor_add(a, b)
    note("exact")
    np.testing.assert_array_equal(got, a + b)


def test_index_case_1(module, note):
    x = np.arange(20).reshape(4, 5).astype(ml_dtypes.bfloat16)
    even, odd = module(EXAMPLES / "index-case-1.py").tensor_split_kernel_(x)
    note("exact")
    np.testing.assert_array_equal(even, x[:, 0::2])
    np.testing.assert_array_equal(odd, x[:, 1::2])


def test_index_case_3(module, note):
    x = np.random.default_rng(0).permutation(72).reshape(2, 6, 6).astype(ml_dtypes.bfloat16)
    got = module(EXAMPLES / "index-case-3.py").tensor_maxpool_kernel_(x, 2)
    note("exact")
    np.testing.assert_array_equal(got, x.reshape(2, 3, 2, 3, 2).max((2, 4)))


def test_layout_violation_fails_with_our_diagnosis(module, note):
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        module(EXAMPLES / "layout-violation.py").tensor_exp_kernel_(np.ones((256, 512), ml_dtypes.bfloat16))
    diagnosis = caught.value.diagnosis
    note(f"refused: {diagnosis.headline}")
    assert diagnosis.rule.id == "nl.load_partition_le_128"
    assert "nl.load" in diagnosis.site.text


def printed_kernels(page):
    """The kernels printed in a tutorial page, as source texts."""
    text = (ROOT / "guides" / "tutorials" / page).read_text()
    blocks = re.findall(r"\.\. code-block:: python\n\n((?:[ \t]+.*\n|\n)+)", text)
    return [textwrap.dedent(b) for b in blocks if "@nki.jit" in b]


KERNELS = printed_kernels("kernel-optimization.rst")


@pytest.mark.parametrize("number", range(len(KERNELS)))
def test_kernel_optimization_tutorial(number, tmp_path, module, note):
    """As printed they return nl.hbm, which the release notes of 0.3.0 forbid; with nl.shared_hbm they run."""
    k, m, n = (128, 128, 512) if number == 0 else (1024, 2048, 1024)
    rng = np.random.default_rng(number)
    a, b = rng.standard_normal((k, m)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    printed = tmp_path / f"printed_{number}.py"
    printed.write_text(KERNELS[number])
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        module(printed).matrix_multiply_kernel(a, b)
    assert caught.value.diagnosis.rule.id == "kernel.output_shared_hbm"
    printed.write_text(KERNELS[number].replace("buffer=nl.hbm", "buffer=nl.shared_hbm"))
    error = largest_error(module(printed).matrix_multiply_kernel(a, b), a.astype(np.float64).T @ b)
    note(f"refused as printed (returns nl.hbm); with nl.shared_hbm {error:.1e} of the largest element")
    assert error < 2e-6


def test_the_matrix_multiplication_tutorial_prints_the_example_file():
    """Its kernels are included from the example file by marker, so running that file runs them."""
    page = (ROOT / "guides" / "tutorials" / "matrix_multiplication.rst").read_text()
    assert "matrix_multiplication_nki_kernels.py" in page and not printed_kernels("matrix_multiplication.rst")


MXFP = ROOT / "deep-dives" / "src" / "mxfp-matmul"
ELEMENTS = {"float8_e5m2": ml_dtypes.float8_e5m2, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
            "float4_e2m1fn": ml_dtypes.float4_e2m1fn}  # fmt: skip
MXFP8 = ["float8_e5m2", "float8_e4m3fn"]


@pytest.fixture
def mxfp(module, monkeypatch):
    """The deep dive's modules: kernels, and the host's generator and references."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    monkeypatch.syspath_prepend(str(MXFP))
    utilities = module(MXFP / "mx_cpu_utils.py")
    kernels = module(MXFP / "mx_kernels.py")
    np.random.seed(0)
    yield kernels, utilities
    sys.modules.pop("mx_kernel_utils", None)


def close(got, want):
    """The deep dive's own check, and how far off the largest difference is."""
    got = np.asarray(got, np.float32)
    assert np.allclose(got, want, rtol=5e-2, atol=5e-2)
    return f"{largest_error(got, want):.1e} of the largest element"


@pytest.mark.parametrize("name", ELEMENTS)
def test_mxfp_offline_quantized(name, mxfp, note):
    kernels, utilities = mxfp
    element = ELEMENTS[name]
    _, _, a, a_scale = utilities.generate_stabilized_mx_data(element, (128, 512))
    _, _, b, b_scale = utilities.generate_stabilized_mx_data(element, (128, 2048))
    got = kernels.kernel_offline_quantized_mx_matmul(a, a_scale, b, b_scale, f"{name}_x4")
    note(close(got, utilities.nc_matmul_mx_golden(a, b, a_scale, b_scale, element, element)))


@pytest.mark.parametrize("moving", MXFP8)
@pytest.mark.parametrize("stationary", ELEMENTS)
def test_mxfp_quantized_on_the_device(stationary, moving, mxfp, note):
    kernels, utilities = mxfp
    left, right = ELEMENTS[stationary], ELEMENTS[moving]
    _, _, a, a_scale = utilities.generate_stabilized_mx_data(left, (128, 512))
    numbers, _, _, _ = utilities.generate_stabilized_mx_data(right, (128, 2048))
    got = kernels.kernel_on_device_quantize_matmul_mx(
        a, a_scale, numbers.astype(ml_dtypes.bfloat16), f"{stationary}_x4", f"{moving}_x4"
    )
    b, b_scale = utilities.quantize_mx_golden(numbers, right)
    note(close(got, utilities.nc_matmul_mx_golden(a, b, a_scale, b_scale, left, right)))


@pytest.mark.parametrize("use_tensor_copy", [True, False])
@pytest.mark.parametrize("kernel", ["kernel_copy_strided_quantize_matmul_mx",
                                    "kernel_copy_strided_quantize_matmul_mx_packed_scale"])  # fmt: skip
@pytest.mark.parametrize("name", MXFP8)
def test_mxfp_strided_and_packed_scales(name, kernel, use_tensor_copy, mxfp, module, tmp_path, note):
    """As printed they assert that inputs are in nl.hbm; the simulator's are in nl.shared_hbm, as public kernels expect."""
    _, utilities = mxfp
    changed = tmp_path / "mx_kernels.py"
    changed.write_text((MXFP / "mx_kernels.py").read_text().replace("== nl.hbm", "== nl.shared_hbm"))
    a, b = (utilities.generate_stabilized_mx_data(ELEMENTS[name], (512, n))[0] for n in (128, 512))
    given = [x.astype(ml_dtypes.bfloat16) for x in (a, b)]
    note(close(getattr(module(changed), kernel)(*given, f"{name}_x4", use_tensor_copy), a.T @ b))
