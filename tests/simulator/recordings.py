"""Every example of the help, every kernel of the digests and those of two cores, as runs whose records can run again."""

from __future__ import annotations

import gc
import warnings
import weakref

import digests
import examples
import kernels_on_two
import nki
import nki_sim
from nki_sim import NkiError, NkiWarning
from nki_sim.replay import Bound
from nki_sim.replay.nodes import Graph


def copied(value):
    """An array that may be written, other values as they are."""
    return value.copy() if hasattr(value, "copy") else value


WORK = {
    **{name: lambda name=name: examples.run_example(name) for name in examples.ENTRIES if examples.ENTRIES[name].example},
    **{name: lambda work=work: work()[0] for name, work in digests.kernels()},
    **{
        f"{name} on two cores": lambda kernel=kernel, args=args: nki_sim.run(nki.jit(kernel)[2], *[copied(a) for a in args])
        for name, (kernel, args, _) in kernels_on_two.KERNELS.items()
    },
}


def made(work):
    """A run whose record can run again, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NkiWarning)
        try:
            run = work()
        except NkiError:
            return None
    return run if run.machine.static and run.precise and not run.findings else None


def assert_fused_is_unfused(run, *given):
    """The record of a run gives the same bits fused and instruction by instruction, results and inputs that it writes."""
    graph = Graph.of(run.machine)
    inputs = [a.id for a in run.program.allocations if a.role == "input"]
    outputs = [graph.whole(a.id) for a in run.program.allocations if a.role == "output"]
    bounds = [Bound(run.machine, inputs, outputs, unfused=each) for each in (False, True)]
    (results, written), (wanted, also) = (bound([each.copy() for each in given]) for bound in bounds)
    assert [r.tobytes() for r in results] == [w.tobytes() for w in wanted]
    assert [r.tobytes() for r in written.values()] == [w.tobytes() for w in also.values()]


def assert_lets_go_of_arrays(kernel, array):
    """No array of a call, given or returned, is kept alive by the kernel."""
    for _ in range(3):
        given = array.copy()
        alive = [weakref.ref(given), weakref.ref(kernel(given))]
        del given
        gc.collect()
        assert [ref() for ref in alive] == [None, None]
