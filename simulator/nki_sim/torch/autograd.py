"""What ``backward`` says when it meets the result of a kernel that was called by itself."""

from __future__ import annotations

import functools
from typing import Any

import torch

from nki_sim.torch.refusals import refusal
from nki_sim.torch.storage import DEVICE
from nki_sim.torch_rules import NO_GRADIENT

_NO_GRAD_FN = "does not require grad and does not have a grad_fn"


def register() -> None:
    """Let ``torch.autograd.backward``, and ``Tensor.backward`` with it, name cause and remedy for tensors of the device."""
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def explained(tensors: Any, *args: Any, **kwargs: Any) -> None:
        try:
            backward(tensors, *args, **kwargs)
        except RuntimeError as error:
            if _NO_GRAD_FN not in str(error) or not _on_device(tensors):
                raise
            raise refusal(NO_GRADIENT, str(error), subject="backward") from error

    torch.autograd.backward = explained


def _on_device(tensors: Any) -> bool:
    given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    return any(isinstance(t, torch.Tensor) and t.device.type == DEVICE for t in given)
