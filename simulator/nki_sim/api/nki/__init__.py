"""``nki``: the public API of NKI 0.7, on the simulator."""

from importlib import import_module

from nki_sim.api.nki import compiler, isa, language, typing
from nki_sim.hints import module_getattr
from nki_sim.kernel import Kernel, jit, simulate
from nki_sim.lang.objects import NKIObject

__version__ = "0.7.0"
__all__ = ["Kernel", "NKIObject", "collectives", "compiler", "isa", "jit", "language", "simulate", "typing"]
_LATER = {"collectives": lambda: import_module("nki_sim.api.nki.collectives")}
"""Most kernels run on one rank."""
__getattr__ = module_getattr("nki", __all__, _LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
