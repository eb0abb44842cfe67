"""``nki.language``: tensors, operators and element-wise functions."""

from nki_sim.hints import module_getattr
from nki_sim.lang import PUBLIC

globals().update(PUBLIC)

__all__: list[str] = []
__all__ += PUBLIC
__getattr__ = module_getattr("nki.language", __all__)
