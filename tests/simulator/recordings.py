"""Every example of the help and every kernel of the digests, as runs whose records can run again."""

from __future__ import annotations

import warnings

import digests
import examples
from nki_sim import NkiError, NkiWarning

WORK = {
    **{name: lambda name=name: examples.run_example(name) for name in examples.ENTRIES if examples.ENTRIES[name].example},
    **{name: lambda work=work: work()[0] for name, work in digests.kernels()},
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
