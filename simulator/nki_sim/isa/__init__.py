"""The instructions of ``nki.isa``: one class, one file each."""

from __future__ import annotations

from nki_sim.isa.activate2 import activate2
from nki_sim.isa.activation import activation, activation_reduce
from nki_sim.isa.affine_select import affine_select
from nki_sim.isa.base import Instruction
from nki_sim.isa.bn_aggr import bn_aggr
from nki_sim.isa.bn_stats import bn_stats
from nki_sim.isa.core_barrier import core_barrier
from nki_sim.isa.dma_compute import dma_compute
from nki_sim.isa.dma_copy import dma_copy
from nki_sim.isa.dma_transpose import dma_transpose
from nki_sim.isa.dropout import dropout
from nki_sim.isa.exponential import exponential
from nki_sim.isa.iota import iota
from nki_sim.isa.local_gather import local_gather
from nki_sim.isa.max8 import max8
from nki_sim.isa.memset import memset
from nki_sim.isa.nc_find_index8 import nc_find_index8
from nki_sim.isa.nc_match_replace8 import nc_match_replace8
from nki_sim.isa.nc_matmul import nc_matmul
from nki_sim.isa.nc_matmul_mx import nc_matmul_mx
from nki_sim.isa.nc_n_gather import nc_n_gather
from nki_sim.isa.nc_stream_shuffle import nc_stream_shuffle
from nki_sim.isa.nc_transpose import nc_transpose
from nki_sim.isa.nonzero_with_count import nonzero_with_count
from nki_sim.isa.quantize_mx import quantize_mx
from nki_sim.isa.rand2 import rand2
from nki_sim.isa.range_select import range_select
from nki_sim.isa.reciprocal import reciprocal
from nki_sim.isa.registers import register_load, register_move, register_store, scalar_load, scalar_store
from nki_sim.isa.rng import rng
from nki_sim.isa.rng_state import rand_get_state, rand_set_state, set_rng_seed
from nki_sim.isa.scalar_tensor_tensor import scalar_tensor_tensor
from nki_sim.isa.select_reduce import select_reduce
from nki_sim.isa.sendrecv import sendrecv
from nki_sim.isa.sequence_bounds import sequence_bounds
from nki_sim.isa.tensor_copy import tensor_copy
from nki_sim.isa.tensor_copy_predicated import tensor_copy_predicated
from nki_sim.isa.tensor_partition_reduce import tensor_partition_reduce
from nki_sim.isa.tensor_reduce import tensor_reduce
from nki_sim.isa.tensor_scalar import tensor_scalar
from nki_sim.isa.tensor_scalar_cumulative import tensor_scalar_cumulative
from nki_sim.isa.tensor_scalar_reduce import tensor_scalar_reduce
from nki_sim.isa.tensor_tensor import tensor_tensor
from nki_sim.isa.tensor_tensor_scan import tensor_tensor_scan
from nki_sim.isa.topk import topk

INSTRUCTIONS: dict[str, type[Instruction]] = {
    cls.__name__: cls
    for cls in (
        activate2,
        activation,
        activation_reduce,
        affine_select,
        bn_aggr,
        bn_stats,
        core_barrier,
        dma_compute,
        dma_copy,
        dma_transpose,
        dropout,
        exponential,
        iota,
        local_gather,
        max8,
        memset,
        nc_find_index8,
        nc_match_replace8,
        nc_matmul,
        nc_matmul_mx,
        nc_n_gather,
        nc_stream_shuffle,
        nc_transpose,
        nonzero_with_count,
        quantize_mx,
        rand2,
        rand_get_state,
        rand_set_state,
        range_select,
        reciprocal,
        register_load,
        register_move,
        register_store,
        rng,
        scalar_load,
        scalar_store,
        scalar_tensor_tensor,
        select_reduce,
        sendrecv,
        sequence_bounds,
        set_rng_seed,
        tensor_copy,
        tensor_copy_predicated,
        tensor_partition_reduce,
        tensor_reduce,
        tensor_scalar,
        tensor_scalar_cumulative,
        tensor_scalar_reduce,
        tensor_tensor,
        tensor_tensor_scan,
        topk,
    )
}
"""Every instruction by its name."""

__all__ = [
    "INSTRUCTIONS",
    "Instruction",
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "core_barrier",
    "dma_compute",
    "dma_copy",
    "dma_transpose",
    "dropout",
    "exponential",
    "iota",
    "local_gather",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nonzero_with_count",
    "quantize_mx",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "range_select",
    "reciprocal",
    "register_load",
    "register_move",
    "register_store",
    "rng",
    "scalar_load",
    "scalar_store",
    "scalar_tensor_tensor",
    "select_reduce",
    "sendrecv",
    "sequence_bounds",
    "set_rng_seed",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "topk",
]
