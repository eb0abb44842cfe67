"""NKI kernels in a notebook: ``%load_ext nki_nb``, then a ``%%nki`` cell.

The kernel is checked against the limits of the chosen NeuronCore generation and run on the simulator :mod:`nki_sim`;
this package turns what happened into reports, diagnoses and pictures.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nki_sim

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from nki_sim.errors import Diagnosis, NkiError
    from nki_sim.run import Run

    from nki_nb.instructions import save_instructions
    from nki_nb.pftrace import save_perfetto
    from nki_nb.plots import plot_memory, plot_roofline, plot_timeline
    from nki_nb.stepper.widget import StepperWidget
    from nki_nb.sweeps import sweep

_LAZY = {
    "plot_memory": "nki_nb.plots",
    "plot_roofline": "nki_nb.plots",
    "plot_timeline": "nki_nb.plots",
    "save_instructions": "nki_nb.instructions",
    "save_perfetto": "nki_nb.pftrace",
    "sweep": "nki_nb.sweeps",
}
"""What is imported when it is first asked for: ``%load_ext`` must not wait for it."""

__version__ = nki_sim.__version__


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What ``%load_ext nki_nb`` does: ``import nki`` finds the simulator, ``%%nki`` and ``%nki`` exist."""
    from nki_nb import extension

    nki_sim.install()
    extension.register(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """What ``%unload_ext nki_nb`` does: take the magics and the error display away. Kernels stay."""
    from nki_nb import extension

    extension.unregister(shell)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def view(run: Run | NkiError, step: int | None = None) -> StepperWidget:
    """Step through a run, in a notebook; of an error, through the run up to it.

    Args:
        run: what ``nki_sim.run`` gave, or an error that it raised.
        step: where to open; at what was found wrong, or the first step, when not given.

    Raises:
        ValueError: the error came before a kernel ran.
    """
    from nki_nb.stepper.widget import StepperWidget

    done, failure = _run_and_failure(run)
    return StepperWidget(done, step, failure)


def save_html(run: Run | NkiError, path: str | Path, budget: int = 20_000_000) -> Path:
    """Write one self-contained page on which a run, or the run up to an error, is stepped through: no network, no kernel.

    Args:
        run: what ``nki_sim.run`` gave, or an error that it raised.
        path: the file to write.
        budget: bytes that the page may have, about; what does not fit is left out, and the page says so.

    Raises:
        ValueError: the error came before a kernel ran.
    """
    from nki_nb.stepper import saved
    from nki_nb.stepper.feed import Feed

    return saved.write(Feed(*_run_and_failure(run)), path, budget)


def _run_and_failure(run: Run | NkiError) -> tuple[Run, Diagnosis | None]:
    from nki_sim.errors import NkiError

    if not isinstance(run, NkiError):
        return run, None
    if run.run is None:
        raise ValueError("no kernel was running when this error was raised")
    return run.run, run.diagnosis


__all__ = [
    "load_ipython_extension",
    "plot_memory",
    "plot_roofline",
    "plot_timeline",
    "save_html",
    "save_instructions",
    "save_perfetto",
    "sweep",
    "unload_ipython_extension",
    "view",
]
