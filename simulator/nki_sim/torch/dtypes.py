"""PyTorch's data types and NKI's: one name for both, but for bool."""

from __future__ import annotations

from typing import Any

import torch

from nki_sim.dtypes import DType
from nki_sim.torch.refusals import refusal
from nki_sim.torch_rules import NO_TWIN


def torch_dtype(info: DType) -> Any:
    """PyTorch's data type for one of NKI's.

    Raises:
        NkiTypeError: PyTorch lacks it.
    """
    plain = str(info.storage) if info.kind == "packed" else info.name
    name = {"bool_": "bool", "tfloat32": "float32"}.get(info.name, plain)
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise refusal(NO_TWIN, f"an output is {info.name}", error=TypeError)
    return found
