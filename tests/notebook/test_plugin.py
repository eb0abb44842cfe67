"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import re

import pytest
from sources import DOUBLE, GREEDY

pytest_plugins = ["pytester"]

HEAD = f"""\
import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest

X = np.ones((5, 7), np.float32)

{DOUBLE}

{GREEDY}
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run a test module that has the kernels, with all warnings as errors and markers checked."""
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)

    def run(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_kernel=HEAD + text)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", "--strict-markers", "-v", *options)

    return run


def passed(result: pytest.RunResult) -> list[str]:
    """The ids of the tests that passed."""
    return re.findall(r"test_kernel\.py::(\S+) PASSED", result.stdout.str())


def test_tests_of_kernels_import_nki(pytester):
    """In a process of its own, where nobody has called nki_sim.install()."""
    test = "def test_double():\n    np.testing.assert_array_equal(double(X), X * 2)\n"
    pytester.makepyfile(test_kernel=HEAD + test)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", "-v", timeout=120)
    assert passed(result) == ["test_double"]


# -- nki_target ------------------------------------------------------------------------------------------------------------


def test_a_test_runs_once_per_generation(run):
    result = run("""
@pytest.mark.nki_target("trn1", "trn3")
def test_double():
    run = nki_sim.run(double, X)
    print("on", run.core.target)
    assert nl.tile_size.pmax == 128 and nki_sim.core().target == run.core.target

def test_default():
    assert nki_sim.run(double, X).core.target == "trn2"
""", "-s")  # fmt: skip
    assert result.parseoutcomes() == {"passed": 3}
    result.stdout.fnmatch_lines(["*test_double?trn1? on trn1", "*test_double?trn3? on trn3"])


@pytest.mark.parametrize(
    ("mark", "ids"),
    [
        ('"all"', ["trn1", "trn2", "trn3"]),
        ('"trn2"', ["trn2"]),
        ('"gen4", "trn3", "trn1"', ["trn3", "trn1"]),
    ],
)
def test_the_generations_are_in_the_ids(run, mark, ids):
    result = run(f"""
@pytest.mark.nki_target({mark})
@pytest.mark.parametrize("n", [4])
def test_it(nki_target, n):
    assert nki_sim.run(double, X).core.target == nki_target
""")
    assert sorted(passed(result)) == sorted(f"test_it[{target}-4]" for target in ids)


def test_a_module_or_a_class_may_be_marked_and_the_nearest_mark_counts(run):
    result = run("""
pytestmark = pytest.mark.nki_target("all")

class TestKernels:
    @pytest.mark.nki_target("trn1")
    def test_one(self):
        assert nki_sim.run(double, X).core.target == "trn1"

    def test_three(self):
        pass
""")
    assert [name.partition("::")[2] for name in passed(result)] == [
        "test_one[trn1]",
        "test_three[trn1]",
        "test_three[trn2]",
        "test_three[trn3]",
    ]


def test_fixtures_of_the_test_see_the_generation_and_the_environment_is_put_back(run):
    result = run("""
import os

@pytest.fixture
def seen():
    return nki_sim.core().target

@pytest.mark.nki_target("trn3")
def test_seen(seen):
    assert seen == "trn3"

def test_after(nki_target):
    assert "trn2" == nki_target == nki_sim.core().target
""")
    assert passed(result) == ["test_seen[trn3]", "test_after"]


def test_a_limit_fails_the_generation_that_has_it(run):
    result = run("""
@nki.jit
def hwdge(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x, dge_mode=nisa.dge_mode.hwdge)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out

@pytest.mark.nki_target("all")
def test_it():
    hwdge(X)
""")
    assert result.parseoutcomes() == {"passed": 2, "failed": 1}
    assert "test_it[trn1] FAILED" in result.stdout.str() and "dma_copy.hwdge_gen3" in result.stdout.str()


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("", "nki_target takes names of generations: trn1, trn2, trn3, or 'all'"),
        ("2", "nki_target takes names of generations"),
        ('targets=["trn1"]', "nki_target takes names of generations"),
        ('"trn9"', "nki_target: unknown target 'trn9'"),
        ('"all", "trn2"', "nki_target: unknown target 'all'"),
    ],
)
def test_a_mark_that_cannot_be_understood_is_an_error(run, mark, words):
    result = run(f"""
@pytest.mark.nki_target({mark})
def test_it():
    pass
""")
    assert result.parseoutcomes() == {"errors": 1} or result.parseoutcomes() == {"error": 1}
    assert words in result.stdout.str()


def test_a_mark_that_would_not_be_heeded_fails(run):
    result = run("""
import unittest

class Old(unittest.TestCase):
    @pytest.mark.nki_target("trn1", "trn2")
    def test_it(self):
        pass
""")
    assert result.parseoutcomes() == {"errors": 1}
    assert "not on TestCaseFunction" in result.stdout.str()


def test_the_marker_is_listed(pytester):
    result = pytester.runpytest_inprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.nki_target(?targets): run the test once on each*trn1, trn2, trn3, or 'all'"])


# -- nki_strict ------------------------------------------------------------------------------------------------------------

FINDING = """
def test_it{fixtures}:
    x = np.ones((128, 8), np.float32)
    matmul(x, x)
"""


def test_a_finding_fails_the_test_and_names_rule_and_line(run):
    result = run(FINDING.format(fixtures="(nki_strict)"), "-W", "default::nki_sim.NkiWarning")
    assert result.parseoutcomes() == {"failed": 1}
    said = result.stdout.str()
    assert "nc_matmul.accumulate.first_must_overwrite" in said and re.search(r"test_kernel\.py, line \d+, in matmul", said)


def test_without_the_fixture_it_is_a_warning(run):
    result = run(FINDING.format(fixtures="()"), "-W", "default::nki_sim.NkiWarning")
    assert result.parseoutcomes() == {"passed": 1, "warnings": 1} or result.parseoutcomes() == {"passed": 1, "warning": 1}


def test_what_a_test_expects_is_no_failure(run):
    result = run("""
@pytest.mark.usefixtures("nki_strict")
@pytest.mark.nki_target("trn1", "trn2")
def test_it():
    x = np.ones((128, 8), np.float32)
    with pytest.warns(nki_sim.NkiWarning, match="first_must_overwrite"):
        matmul(x, x)
    double(X)
""")
    assert passed(result) == ["test_it[trn1]", "test_it[trn2]"]


def test_the_filters_are_put_back(run):
    result = run(
        FINDING.format(fixtures="(nki_strict)") + FINDING.format(fixtures="").replace("test_it:", "test_later():"),
        "-W",
        "ignore::nki_sim.NkiWarning",
    )
    assert result.parseoutcomes() == {"failed": 1, "passed": 1} and passed(result) == ["test_later"]
