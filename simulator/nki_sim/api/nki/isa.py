"""``nki.isa``: instructions, their enumerations and errors."""

from nki_sim.errors import NkiValidationError
from nki_sim.hints import module_getattr
from nki_sim.isa import INSTRUCTIONS
from nki_sim.isa import Instruction as NkiInstruction
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
from nki_sim.reference import document
from nki_sim.scalars import NkiScalar, VirtualRegister
from nki_sim.tensor import NkiTensor

document()
globals().update(INSTRUCTIONS)
globals()["scalar_load"] = load_scalar

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
__getattr__ = module_getattr("nki.isa", __all__)
