"""The instructions of ``nki.isa``: one class, one file each."""

from __future__ import annotations

from nki_sim.isa.activation import activation, activation_reduce
from nki_sim.isa.affine_select import affine_select
from nki_sim.isa.base import Instruction
from nki_sim.isa.bn_aggr import bn_aggr
from nki_sim.isa.bn_stats import bn_stats
from nki_sim.isa.dma_copy import dma_copy
from nki_sim.isa.dma_transpose import dma_transpose
from nki_sim.isa.iota import iota
from nki_sim.isa.memset import memset
from nki_sim.isa.nc_matmul import nc_matmul
from nki_sim.isa.nc_stream_shuffle import nc_stream_shuffle
from nki_sim.isa.nc_transpose import nc_transpose
from nki_sim.isa.reciprocal import reciprocal
from nki_sim.isa.scalar_tensor_tensor import scalar_tensor_tensor
from nki_sim.isa.select_reduce import select_reduce
from nki_sim.isa.tensor_copy import tensor_copy
from nki_sim.isa.tensor_copy_predicated import tensor_copy_predicated
from nki_sim.isa.tensor_reduce import tensor_reduce
from nki_sim.isa.tensor_scalar import tensor_scalar
from nki_sim.isa.tensor_scalar_reduce import tensor_scalar_reduce
from nki_sim.isa.tensor_tensor import tensor_tensor
from nki_sim.isa.tensor_tensor_scan import tensor_tensor_scan

INSTRUCTIONS: dict[str, type[Instruction]] = {
    cls.__name__: cls
    for cls in (
        activation,
        activation_reduce,
        affine_select,
        bn_aggr,
        bn_stats,
        dma_copy,
        dma_transpose,
        iota,
        memset,
        nc_matmul,
        nc_stream_shuffle,
        nc_transpose,
        reciprocal,
        scalar_tensor_tensor,
        select_reduce,
        tensor_copy,
        tensor_copy_predicated,
        tensor_reduce,
        tensor_scalar,
        tensor_scalar_reduce,
        tensor_tensor,
        tensor_tensor_scan,
    )
}
"""Every instruction by its name."""

__all__ = [
    "INSTRUCTIONS",
    "Instruction",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "dma_copy",
    "dma_transpose",
    "iota",
    "memset",
    "nc_matmul",
    "nc_stream_shuffle",
    "nc_transpose",
    "reciprocal",
    "scalar_tensor_tensor",
    "select_reduce",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
]
