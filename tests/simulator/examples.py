"""The examples of the reference, as kernels."""

import linecache
import textwrap

import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
from nki_sim import reference
from nki_sim.errors import ALL_GENS, NkiValidationError

ENTRIES = reference.entries()
TARGETS = ("trn2", "trn3", "trn1")
X = np.random.default_rng(7).uniform(0.1, 1.5, (128, 512)).astype(np.float32)
ENDING = """
_out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(dst=_out, src=x[0:1, 0:1])
return _out
"""
"""What makes a body a kernel that has an effect: one step after those of the example."""


def defined(name, source):
    """The names that a source text defines, its lines known to diagnoses."""
    filename = f"<example {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace = {"nl": nl, "nisa": nisa, "ncc": ncc, "np": np}
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)  # noqa: S102 - the project's own examples
    return namespace


def attempted(kernel, target, x=X):
    """A strict run, or the error of a target that does not have what the kernel uses."""
    try:
        return nki_sim.run(kernel, x, target=target, strict=True)
    except NkiValidationError as error:
        rule = error.diagnosis.rule
        if rule is None or rule.gens == ALL_GENS:
            raise
        return error


def run_example(name, x=X):
    """The run on the first target that has what the example uses."""
    body = textwrap.indent(ENTRIES[name].example + ENDING, "    ")
    kernel = defined(name, f"def example(x):\n{body}")["example"]
    for target in TARGETS:
        done = attempted(kernel, target, x)
        if isinstance(done, nki_sim.Run):
            return done
    raise done
