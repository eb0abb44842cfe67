"""Which machine is current: all that instructions and ``nl.*`` know of machines.

A ``ContextVar``, never a global: several cores and ranks may share one process, each in its own thread or context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from nki_sim import hw
from nki_sim.errors import Diagnosis, NkiError, Rule, page
from nki_sim.source import call_chain

if TYPE_CHECKING:
    from nki_sim.machine import Machine

_current: ContextVar[Machine | None] = ContextVar("nki_sim_machine", default=None)

OUTSIDE = Rule(
    "kernel.outside",
    "nki.isa and nki.language calls work inside a kernel only",
    why="they describe what one NeuronCore does, and there is none outside a kernel's run",
    fix="put the call in a function with @nki.jit and call that with arrays, or nki.simulate(f)(…)",
    page=page("get-started/nki-language-guide.html"),
)


machine_or_none: Callable[[], Machine | None] = _current.get
"""The machine whose kernel is running in this context, if any."""


def machine() -> Machine:
    """The machine whose kernel is running in this context.

    Raises:
        NkiError: there is none.
    """
    found = _current.get()
    if found is None:
        target = hw.core().target
        raise NkiError(Diagnosis("called outside a kernel", target, OUTSIDE, sites=tuple(call_chain())))
    return found


def core() -> hw.NeuronCore:
    """The running machine's NeuronCore, or the one the environment names: constants are read at import time too."""
    found = _current.get()
    return found.core if found is not None else hw.core()


@contextmanager
def running(machine: Machine) -> Iterator[Machine]:
    """Make ``machine`` current inside the block."""
    token = _current.set(machine)
    try:
        yield machine
    finally:
        _current.reset(token)
