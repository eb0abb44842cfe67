"""``nki.collectives``: what several ranks do together. A rank is a NeuronCore, or a logical one of two, with HBM of its own."""

from nki_sim.collectives.group import ReplicaGroup
from nki_sim.collectives.permute import (
    collective_permute,
    collective_permute_implicit,
    collective_permute_implicit_current_processing_rank_id,
    collective_permute_implicit_reduce,
    rank_id,
)
from nki_sim.collectives.uniform import all_gather, all_reduce, all_to_all, reduce_scatter
from nki_sim.collectives.variable import (
    all_gather_v,
    all_gather_v_prepare,
    all_gather_v_trigger,
    all_to_all_v,
    all_to_all_v_prepare,
    all_to_all_v_trigger,
)

PUBLIC = {
    function.__name__: function
    for function in (
        ReplicaGroup,
        all_gather,
        all_gather_v,
        all_gather_v_prepare,
        all_gather_v_trigger,
        all_reduce,
        all_to_all,
        all_to_all_v,
        all_to_all_v_prepare,
        all_to_all_v_trigger,
        collective_permute,
        collective_permute_implicit,
        collective_permute_implicit_current_processing_rank_id,
        collective_permute_implicit_reduce,
        rank_id,
        reduce_scatter,
    )
}
"""Every public name of ``nki.collectives``."""

__all__ = ["PUBLIC"]
