"""``nki.compiler``: options of the compiler; they change nothing that the simulator computes."""

from nki_sim.config import AddressRotation, CompileConfig, SpecializationConfig
from nki_sim.hints import module_getattr

__all__ = ["AddressRotation", "CompileConfig", "SpecializationConfig"]
__getattr__ = module_getattr("nki.compiler", __all__)
