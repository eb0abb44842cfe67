"""``nki.isa``: instructions, their enumerations and errors."""

from collections.abc import Callable
from typing import Any

from nki_sim.errors import NkiValidationError
from nki_sim.hints import module_getattr
from nki_sim.isa import INSTRUCTIONS
from nki_sim.isa import Instruction as NkiInstruction
from nki_sim.isa.docstring import Docstring, own_words
from nki_sim.isa.enums import (
    dependency,
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from nki_sim.isa.queries import get_nc_sub_version, get_nc_version
from nki_sim.isa.registers import load_scalar, register_alloc
from nki_sim.scalars import NkiScalar, VirtualRegister
from nki_sim.tensor import NkiTensor


def _page(cls: type[NkiInstruction]) -> str:
    from nki_sim.reference import docstring  # it gathers all rules of all modules: for who asks for help

    return docstring(cls.__name__)


def _documented_load() -> Callable[..., Any]:
    """What issues a scalar_load; a function cannot make its docstring when it is read."""
    load_scalar.__doc__ = _page(INSTRUCTIONS["scalar_load"])
    globals()["scalar_load"] = load_scalar
    return load_scalar


for _cls in INSTRUCTIONS.values():
    _cls.__doc__ = Docstring(own_words(_cls), _page)  # type: ignore[assignment]
globals().update({name: cls for name, cls in INSTRUCTIONS.items() if name != "scalar_load"})

__all__ = [
    "NkiInstruction",
    "NkiScalar",
    "NkiTensor",
    "NkiValidationError",
    "VirtualRegister",
    "dependency",
    "dge_mode",
    "dma_engine",
    "engine",
    "get_nc_sub_version",
    "get_nc_version",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "register_alloc",
]
__all__ += INSTRUCTIONS
__getattr__ = module_getattr("nki.isa", __all__, {"scalar_load": _documented_load})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
