"""What ``%load_ext nki_nb`` loads, and what it leaves for when somebody asks: it must not keep a notebook waiting."""

from __future__ import annotations

import subprocess
import sys

import pytest

AT_FIRST_USE = {
    # the simulator's: a second core, several ranks, times, a second call, kernels in files, help, looking a file over
    "nki_sim.cores", "nki_sim.collectives", "nki_sim.api.nki.collectives", "nki_sim.timing", "nki_sim.dataflow",
    "nki_sim.replay", "nki_sim.kept.digest", "nki_sim.kept.encoding", "nki_sim.reference", "nki_sim.lint",
    "nki_sim.migration", "nki_sim.torch",
    # the notebook side's: reports and pictures of a run, profiles, help, stepping, exercises
    "nki_nb.execute", "nki_nb.report", "nki_nb.lintview", "nki_nb.lint", "nki_nb.memory_map", "nki_nb.program_listing",
    "nki_nb.timeline_view", "nki_nb.profile_view", "nki_nb.plots", "nki_nb.help", "nki_nb.info", "nki_nb.stepper",
    "nki_nb.exercise", "nki_nb.sweeps", "nki_nb.pftrace", "nki_nb.instructions", "nki_nb.cli",
    # of others
    "hashlib", "importlib.abc", "concurrent.futures", "urllib.request", "importlib.metadata", "multiprocessing",
    "matplotlib", "pyarrow", "pandas", "torch", "jax", "anywidget", "ipywidgets",
}  # fmt: skip

SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "nki_nb")
print(*set(sys.modules) - before)
"""
MOST_MODULES = 129
"""Of ours, all instructions included."""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules that it adds to those of a fresh shell."""
    done = subprocess.run([sys.executable, "-c", SHELL], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.splitlines()[-1].split())


def test_what_a_first_cell_needs_is_there(loaded: set[str]) -> None:
    assert {"nki_nb.magic", "nki_sim.kernel", "nki_sim.isa.nc_matmul", "nki_sim.lang"} <= loaded


def test_what_only_some_need_is_loaded_at_first_use(loaded: set[str]) -> None:
    assert loaded & AT_FIRST_USE == set()


def test_what_is_left_for_later_exists(loaded: set[str]) -> None:
    """A renamed module would pass above unseen."""
    from importlib.util import find_spec

    assert all(find_spec(name) is not None for name in AT_FIRST_USE if name.startswith(("nki_sim.", "nki_nb.")))


def test_no_more_modules_than_now(loaded: set[str]) -> None:
    assert len([name for name in loaded if name.startswith(("nki_sim", "nki_nb"))]) <= MOST_MODULES
