"""A kernel on every generation at once: what is found, where, how it is merged."""

from __future__ import annotations

import warnings

import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from kernels import hb, ld, sb, st
from nki_sim import TensorSpec, verify
from nki_sim.errors import NkiDeprecationWarning

X = np.ones((16, 8), np.float32)


def rows(verification):
    """(level, rule, line, generations) of each finding; lines count from the kernel's first."""
    return [(f.level, f.rule.id, f.diagnosis.line, f.targets) for f in verification.findings]


def line_of(kernel, offset):
    return getattr(kernel, "function", kernel).__code__.co_firstlineno + offset


@nki.jit
def portable(x):
    """Runs everywhere, and has nothing to be told."""
    return st(nl.exp(ld(x)))


@nki.jit
def hwdge(x):
    """Has trn2's and trn3's hardware make the descriptors of a transfer."""
    tile = sb(16, 8)
    nisa.dma_copy(dst=tile, src=x, dge_mode=nisa.dge_mode.hwdge)
    return st(tile)


@pytest.mark.parametrize("arguments", [(X,), (TensorSpec((16, 8), "float32"),)], ids=["array", "shape"])
@pytest.mark.parametrize("data", [False, True])
def test_a_kernel_that_holds_everywhere(arguments, data):
    verification = verify(portable, *arguments, data=data)
    assert verification.ok and verification.findings == []
    assert [outcome.target for outcome in verification.outcomes] == ["trn1", "trn2", "trn3"]
    assert all(outcome.run.memory.sbuf.peak for outcome in verification.outcomes)


def test_a_limit_of_some_generations():
    verification = verify(hwdge, TensorSpec((16, 8), "float32"))
    assert rows(verification) == [("error", "dma_copy.hwdge_gen3", line_of(hwdge, 4), ("trn1",))]
    assert [outcome.ok for outcome in verification.outcomes] == [False, True, True]
    assert not verification.ok and verify(hwdge, X, targets=["trn2", "trn3"]).ok


def test_a_limit_of_all_generations_is_one_finding():
    @nki.jit
    def kernel(x):
        return st(nl.load(x))

    [finding] = verify(kernel, TensorSpec((256, 8), "float32")).findings
    assert finding.rule.id == "nl.load_partition_le_128" and finding.targets == ("trn1", "trn2", "trn3")


def test_capacity():
    @nki.jit
    def kernel(x):
        kept = [nl.load(x) for _ in range(8)]
        out = hb(8, 128, 8192)
        for i, tile in enumerate(kept):
            nisa.dma_copy(dst=out[i], src=tile)
        return out

    found = [f for f in verify(kernel, TensorSpec((128, 8192), "float32")).findings if f.level == "error"]
    assert {f.rule.id for f in found} == {"hw.sbuf.capacity_enforced"}
    assert sorted(target for f in found for target in f.targets) == ["trn1", "trn2", "trn3"]


@pytest.mark.parametrize("data", [False, True])
def test_what_is_undefined_or_for_nothing_is_a_warning(data):
    @nki.jit
    def kernel(x):
        nl.load(x)
        tile, out = sb(16, 8), nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[0:8], src=tile[0:8])
        return out

    verification = verify(kernel, X, data=data)
    first = line_of(kernel, 0)
    everywhere = ("trn1", "trn2", "trn3")
    assert verification.ok
    assert rows(verification) == [
        ("warning", "dataflow.unused_load", first + 2, everywhere),
        ("warning", "kernel.output_written", first + 3, everywhere),
        ("warning", "ndarray.uninitialised", first + 4, everywhere),
    ]


@pytest.mark.parametrize("name", ["affine_range", "sequential_range", "static_range"])
def test_deprecated_names_of_helpers(name):
    def helper(n):
        return getattr(nl, name)(n)

    @nki.jit
    def kernel(x):
        for _ in helper(1):
            tile = ld(x)
        return st(tile)

    [finding] = verify(kernel, X).findings
    assert (finding.level, finding.rule.id, finding.diagnosis.line) == ("warning", "kernel.deprecated_name", line_of(helper, 1))
    assert finding.diagnosis.fix == "write Python's range"


def test_an_exception_of_the_kernel_is_a_finding():
    @nki.jit
    def kernel(x, n):
        assert x.shape[0] == n, f"{n} rows"
        return st(ld(x))

    [finding] = verify(kernel, X, n=3).findings
    assert (finding.rule.id, finding.level, finding.diagnosis.line) == ("kernel.raises", "error", line_of(kernel, 2))
    assert finding.diagnosis.headline == "AssertionError: 3 rows"


def test_arguments_that_do_not_fit():
    [finding] = verify(portable, X, X).findings
    assert finding.rule.id == "kernel.arguments" and finding.diagnosis.line == line_of(portable, 0)


def test_a_course_that_depends_on_data():
    @nki.jit
    def kernel(x, n):
        tile = ld(x)

        def body(i):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, nisa.scalar_load(nl.load(n)), body)
        return st(tile)

    n = np.array([[2]], np.int32)
    assert [f.rule.id for f in verify(kernel, X, n).findings] == ["estimate.needs_data"]
    assert verify(kernel, X, n, data=True).findings == []


def test_arguments_stay_as_they_were():
    @nki.jit
    def kernel(x):
        tile = ld(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=x, src=tile)

    x = X.copy()
    assert verify(kernel, x, data=True).findings == []
    np.testing.assert_array_equal(x, X)


def test_warnings_of_others_are_passed_on():
    @nki.jit
    def kernel(x):
        warnings.warn("of the kernel's own", UserWarning, stacklevel=1)
        return st(ld(x))

    with pytest.warns(UserWarning, match="of the kernel's own"):
        assert verify(kernel, X).findings == []


def test_a_deprecated_name_warns_where_it_is_used():
    with pytest.warns(NkiDeprecationWarning, match=r"nisa\.vector_engine is deprecated: write nisa\.engine\.vector") as caught:
        assert nisa.vector_engine is nisa.engine.vector
    assert caught[0].filename == __file__


def test_errors_of_the_simulator_itself_are_raised(monkeypatch):
    def broken(*_):
        raise KeyError("inside")

    monkeypatch.setattr(nki_sim.Kernel, "_execute", broken)
    with pytest.raises(KeyError, match="inside"):
        verify(portable, X)
