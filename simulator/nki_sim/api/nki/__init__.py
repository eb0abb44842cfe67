"""``nki``: the public API of NKI 0.7, on the simulator."""

from nki_sim.api.nki import collectives, compiler, isa, language, typing
from nki_sim.hints import module_getattr
from nki_sim.kernel import Kernel, jit, simulate
from nki_sim.lang.objects import NKIObject

__version__ = "0.7.0"
__all__ = ["Kernel", "NKIObject", "collectives", "compiler", "isa", "jit", "language", "simulate", "typing"]
__getattr__ = module_getattr("nki", __all__)
