"""A NeuronCore simulator for NKI 0.7 kernels, with the hardware's limits enforced.

>>> import nki_sim
>>> nki_sim.install()      # `import nki` finds the simulator from here on, unless a real nki is installed
>>> run = nki_sim.run(kernel, a, b, target="trn2")
>>> run.result, run.counts, run.memory
"""

from nki_sim import jax_arrays  # noqa: F401 - registers itself
from nki_sim.dtypes import to_dtype, to_float32
from nki_sim.errors import NkiError, NkiValidationError, NkiWarning
from nki_sim.estimate import TensorSpec, estimate, trace
from nki_sim.hw import core
from nki_sim.importer import install
from nki_sim.kernel import Kernel, jit, run, simulate
from nki_sim.ranks import run_ranks
from nki_sim.run import Run, RunOptions
from nki_sim.step import StepProfile, profile_step
from nki_sim.verify import Verification, verify

__version__ = "0.1.0"

__all__ = [
    "Kernel",
    "NkiError",
    "NkiValidationError",
    "NkiWarning",
    "Run",
    "RunOptions",
    "StepProfile",
    "TensorSpec",
    "Verification",
    "core",
    "estimate",
    "install",
    "jit",
    "profile_step",
    "run",
    "run_ranks",
    "simulate",
    "to_dtype",
    "to_float32",
    "trace",
    "verify",
]
