"""Every page of the reference has an example; it runs, is short and shows what the page is about."""

import re
import textwrap

import nki.language as nl
import nki_sim
import numpy as np
import pytest
from examples import ENTRIES, X, defined, run_example
from nki_sim.errors import NkiValidationError
from nki_sim.isa import INSTRUCTIONS

INSTEAD = {
    "nl.affine_range": "range(",
    "nl.sequential_range": "range(",
    "nl.static_range": "range(",
    "nl.dynamic_range": "nl.fori_loop(",
    "nl.divide": "nl.reciprocal(",
    "nl.mod": "nl.floor(",
    "nl.fmod": "nl.trunc(",
}
"""Names that no kernel should use, or that never work, and what their examples use."""
TWO_CORES = ("core_barrier", "sendrecv")
"""Instructions that a run with one logical core refuses."""
LINES, COLUMNS = 6, 100

with_example = pytest.mark.parametrize("name", ENTRIES)


def test_every_page_has_an_example():
    assert [name for name, entry in ENTRIES.items() if not entry.example] == []


@with_example
def test_an_example_runs(name):
    run = run_example(name)
    assert not run.findings
    module, _, short = name.rpartition(".")
    if module == "nisa" and short in INSTRUCTIONS and short not in TWO_CORES:
        issued = [step.instruction for step in run.program][:-1]
        assert short in issued


@with_example
def test_an_example_shows_what_its_page_is_about(name):
    example, (module, _, short) = ENTRIES[name].example, name.rpartition(".")
    if name in INSTEAD:
        assert INSTEAD[name] in example
    elif module == "nisa" and short in INSTRUCTIONS:
        assert f"nisa.{short}(" in example
    elif module == "NkiTensor":
        assert f".{short}(" in example
    else:
        assert re.search(rf"\b{short}\b", example)


@with_example
def test_an_example_is_short(name):
    lines = ENTRIES[name].example.splitlines()
    assert 1 <= len([line for line in lines if line.strip()]) <= LINES
    assert all(len(line) <= COLUMNS and line == line.rstrip() for line in lines)
    assert "Example:" not in ENTRIES[name].words + ENTRIES[name].arguments


@pytest.mark.parametrize("name", INSTEAD)
def test_what_an_example_replaces_is_not_let_through(name):
    def kernel(x):
        a = nl.load(x)
        function = getattr(nl, name.removeprefix("nl."))
        for _ in function(2) if "range" in name else [function(a, a)]:
            nl.store(x, a)

    with pytest.raises((NkiValidationError, DeprecationWarning)):
        nki_sim.run(kernel, X.copy(), target="trn2", strict=True)


def test_the_kernel_of_the_page_of_jit_can_be_called():
    double = defined("nki.jit, called", ENTRIES["nki.jit"].example)["doubled"]
    np.testing.assert_array_equal(nki_sim.run(double, X, strict=True).result, 2 * X)


def test_a_page_shows_its_example():
    for name, entry in ENTRIES.items():
        assert f"\nExample\n{textwrap.indent(entry.example, '  ')}" in entry.text(), name
