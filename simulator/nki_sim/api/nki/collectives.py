"""``nki.collectives``: what several ranks do together."""

from nki_sim.collectives import PUBLIC
from nki_sim.hints import module_getattr

globals().update(PUBLIC)

__all__ = [*PUBLIC]
__getattr__ = module_getattr("nki.collectives", __all__)
