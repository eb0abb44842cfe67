"""Every page of the reference has an example; it runs, is short and shows what the page is about."""

import linecache
import re
import textwrap

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from nki_sim import reference
from nki_sim.errors import ALL_GENS, NkiValidationError
from nki_sim.isa import INSTRUCTIONS

ENTRIES = reference.entries()
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
TARGETS = ("trn2", "trn3", "trn1")
LINES, COLUMNS = 6, 100
X = np.random.default_rng(7).uniform(0.1, 1.5, (128, 512)).astype(np.float32)
ENDING = """
_out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(dst=_out, src=x[0:1, 0:1])
return _out
"""
"""What makes a body a kernel that has an effect: one step after those of the example."""

with_example = pytest.mark.parametrize("name", ENTRIES)


def defined(name, source):
    """The names that a source text defines, its lines known to diagnoses."""
    filename = f"<example {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace = {"nl": nl, "nisa": nisa, "np": np}
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)  # noqa: S102 - the project's own examples
    return namespace


def attempted(kernel, target):
    """A strict run, or the error of a target that does not have what the kernel uses."""
    try:
        return nki_sim.run(kernel, X, target=target, strict=True)
    except NkiValidationError as error:
        rule = error.diagnosis.rule
        if rule is None or rule.gens == ALL_GENS:
            raise
        return error


def run_example(name):
    """The run on the first target that has what the example uses."""
    body = textwrap.indent(ENTRIES[name].example + ENDING, "    ")
    kernel = defined(name, f"def example(x):\n{body}")["example"]
    for target in TARGETS:
        done = attempted(kernel, target)
        if isinstance(done, nki_sim.Run):
            return done
    raise done


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
