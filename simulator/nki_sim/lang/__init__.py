"""``nki.language``: built only from instructions."""

from __future__ import annotations

from nki_sim import dtypes
from nki_sim.lang import creation, elementwise, grids, loops, objects, random, reduction
from nki_sim.lang.creation import copy
from nki_sim.memory import MemoryRegion
from nki_sim.ops import AVERAGE as average  # noqa: N811 - operators have public names
from nki_sim.ops import BYPASS as bypass  # noqa: N811
from nki_sim.tensor import NkiTensor

elementwise.tie_copy(copy)

_SECTIONS = (
    (objects, "NKIObject affine_range device_print ds is_hbm is_on_chip is_psum is_sbuf no_reorder num_programs program_id "
     "program_ndim sequential_range static_range tile_size"),
    (creation, "broadcast_to copy expand_dims full gather_flattened hbm load load_transpose2d ndarray ones private_hbm psum "
     "sbuf shared_constant shared_hbm shared_identity_matrix store zeros zeros_like"),
    (elementwise, "abs abs_max abs_min add arctan bitwise_and bitwise_or bitwise_xor ceil cos divide equal erf erf_dx exp "
     "floor fmod gelu gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_apprx_tanh gelu_dx greater greater_equal invert "
     "left_shift less less_equal log logical_and logical_not logical_or logical_xor maximum minimum mish mod multiply "
     "negative not_equal power prelu reciprocal relu right_shift rsqrt sigmoid sign silu silu_dx sin softplus sqrt square "
     "subtract tan tanh trunc where"),
    (grids, "NkiBlockGrid NkiGrid NkiTileGrid alloc_blocks alloc_tiles blocks empty_like tiles"),
    (loops, "dynamic_range fori_loop while_loop"),
    (random, "dropout rand random_seed"),
    (reduction, "all matmul max mean min prod rms_norm softmax sum transpose var"),
)  # fmt: skip

PUBLIC: dict[str, object] = {
    **{name: name for name in dtypes.TABLE},
    **{name: getattr(module, name) for module, names in _SECTIONS for name in names.split()},
    "MemoryRegion": MemoryRegion,
    "NkiTensor": NkiTensor,
    "average": average,
    "bypass": bypass,
}
"""Every public name of ``nki.language``, and what it is."""
