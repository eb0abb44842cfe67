"""``torch.autocast("neuron")``: which operations get their tensors in another precision, by PyTorch's conventions for GPUs.

The lists are those of PyTorch's page "Automatic Mixed Precision", op reference for CUDA. Kernels and operators made of them are
on none: they get what they are given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from nki_sim.torch.storage import DEVICE

LOWER = (
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "convolution", "gru_cell", "linalg_multi_dot", "linalg_vecdot", "linear",
    "lstm_cell", "matmul", "mm", "mv", "prelu", "rnn_relu_cell", "rnn_tanh_cell", "scaled_dot_product_attention",
)  # fmt: skip
"""In the precision that the context names."""
FULL = (
    "acos", "asin", "binary_cross_entropy_with_logits", "cdist", "cosh", "cosine_embedding_loss", "cosine_similarity",
    "cross_entropy_loss", "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1", "group_norm", "hinge_embedding_loss",
    "kl_div", "l1_loss", "layer_norm", "log", "log10", "log1p", "log2", "log_softmax", "margin_ranking_loss", "mse_loss",
    "multi_margin_loss", "multilabel_margin_loss", "nll_loss", "nll_loss2d", "norm", "pdist", "poisson_nll_loss", "pow",
    "prod", "reciprocal", "renorm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax", "softplus", "sum",
    "tan", "triplet_margin_loss",
)  # fmt: skip
"""In float32."""
WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cat", "cross", "dot", "grid_sampler", "index_put", "scatter_add", "stack",
    "tensordot", "vdot",
)  # fmt: skip
"""In the widest precision among its tensors."""
_KEY_NAME = "AutocastPrivateUse1"
_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


def register(everything: Any, aten: Any) -> None:
    """Tell PyTorch's dispatcher: all operations stay as they are, but for those of the lists.

    Args:
        everything, aten: libraries of all namespaces and of PyTorch's own operations.
    """
    everything.fallback(torch.library.fallthrough_kernel, _KEY_NAME)
    for names, precision in ((LOWER, _named), (FULL, _float32), (WIDEST, _widest)):
        for name in names:
            packet = getattr(torch.ops.aten, name)
            for overload in packet.overloads():
                op = getattr(packet, overload)
                if not op._schema.is_mutable:
                    aten.impl(op._schema.name + f".{overload}" * (overload != "default"), _cast(op, precision), _KEY_NAME)


def _cast(op: Any, precision: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        flat, structure = tree_flatten((args, kwargs))
        wanted = precision([value.dtype for value in flat if _takes_part(value)])
        cast_args, cast_kwargs = tree_unflatten(
            [value.to(wanted) if _takes_part(value) else value for value in flat], structure
        )
        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            return op(*cast_args, **cast_kwargs)

    return run


def _named(_: list[Any]) -> Any:
    return torch.get_autocast_dtype(DEVICE)


def _float32(_: list[Any]) -> Any:
    return torch.float32


def _widest(dtypes: list[Any]) -> Any:
    return dtypes[0] if len(set(dtypes)) == 1 else torch.float32


def _takes_part(value: Any) -> bool:
    """Whether a value is a tensor of the device whose precision may change: floats, other than float64."""
    if not isinstance(value, torch.Tensor) or value.device.type != DEVICE:
        return False
    return value.dtype in (torch.float32, torch.float16, torch.bfloat16)
