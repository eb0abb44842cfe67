"""The enumerations of ``nki.isa``. Their numbers are the public API's."""

from __future__ import annotations

from enum import Enum

from nki_sim.hw import nc_version


class Member(Enum):
    """A member of one of the API's enumerations, compared by identity."""

    __hash__ = object.__hash__  # Enum's own is a Python function, and every instruction's plan is looked up by its members


class engine(Member):
    """Engines of a NeuronCore."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(Member):
    """What an instruction does with its engine's accumulator registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Member):
    """Who generates the DMA descriptors: nobody at run time, GpSimd (swdge), hardware (hwdge), or as chosen."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Member):
    """What a DMA does with a runtime index out of bounds."""

    error = 0
    skip = 1


class matmul_perf_mode(Member):
    """Tensor engine performance mode: ``double_row`` packs two fp8 rows."""

    none = "none"
    double_row = "double_row"


class dma_engine(Member):
    """Which DMA moves data between cores."""

    dma = 1
    gpsimd_dma = 2


class dependency(Member):
    """Kind of an explicit dependency: a semaphore wait at run time, or the compiler's order only."""

    runtime = "runtime"
    schedule = "schedule"


__all__ = [
    "dependency",
    "dge_mode",
    "dma_engine",
    "engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
]
