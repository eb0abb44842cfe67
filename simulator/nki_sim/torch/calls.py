"""Calls of kernels with PyTorch's tensors: on which device they are, and what is said where there is no data to run on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from nki_sim.dtypes import UnknownDTypeError, lookup
from nki_sim.kernel import ARGUMENT_DTYPE, Answer, Kernel
from nki_sim.tensor import NkiTensor
from nki_sim.torch.dtypes import torch_dtype
from nki_sim.torch.refusals import refusal
from nki_sim.torch.storage import DEVICE
from nki_sim.torch_rules import META, MIXED_DEVICES, RECORDED


def border(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer | None:
    """Check the tensors of a call; answer it where they have no data.

    Raises:
        NkiTypeError: tensors on the meta device, or of a data type that NKI lacks.
        NkiRuntimeError: tensors on more than one device, or a call that is recorded and would be lost.
    """
    tensors = list(tensors_in((args, kwargs)))
    if not tensors:
        return None
    _check_devices(kernel, tensors)
    if any(tensor.device.type == "meta" for tensor in tensors):
        raise refusal(META, "called with a tensor on the meta device", subject=kernel.name, error=TypeError)
    if isinstance(tensors[0], FunctionalTensor) or get_proxy_mode() is not None:
        raise refusal(RECORDED, "called while PyTorch records a graph", subject=kernel.name)
    if any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors):
        raise refusal(RECORDED, "called inside torch.vmap or a transform of torch.func", subject=kernel.name)
    return Answer(shaped(kernel, args, kwargs)) if any(isinstance(t, FakeTensor) for t in tensors) else None


def shaped(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a kernel returns for tensors without data: tensors without data, on the same device."""
    tensors = list(tensors_in((args, kwargs)))
    stand_ins = {id(tensor): _stand_in(kernel, tensor) for tensor in tensors}

    def given(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return stand_ins[id(value)]
        return _number(value)

    def given_back(value: Any) -> Any:
        if not isinstance(value, NkiTensor):
            return value
        return tensors[0].new_empty(value.shape, dtype=torch_dtype(value.info))

    return _each(given_back, kernel.shapes(_each(given, args), _each(given, kwargs)))


def _stand_in(kernel: Kernel, tensor: Any) -> Any:
    """Memory of a tensor's size, which nobody touches and which takes no room."""
    try:
        info = lookup(tensor.dtype)
    except UnknownDTypeError as error:
        raise refusal(ARGUMENT_DTYPE, str(error), subject=kernel.name, error=TypeError) from None
    return np.empty([int(n) for n in tensor.shape], np.bool_ if info.kind == "bool" else info.storage)


def _number(value: Any) -> Any:
    """A number that PyTorch had left open, as the one that this call has; the graph is for this one then."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    from torch.fx.experimental.symbolic_shapes import is_symbolic  # 0.2 s, for SymPy; where such a number is, it is loaded

    if not is_symbolic(value):
        return value
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    return kinds[type(value)](value)


def _check_devices(kernel: Kernel, tensors: list[Any]) -> None:
    devices = {tensor.device.type for tensor in tensors}
    if DEVICE in devices and len(devices) > 1:
        names = " and ".join(sorted(str(tensor.device) for tensor in tensors))
        raise refusal(MIXED_DEVICES, f"called with tensors on {names}", subject=kernel.name)


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors in a nest of tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))


def _each(change: Any, value: Any) -> Any:
    """A nest of tuples, lists and dicts with everything in it changed."""
    if isinstance(value, (tuple, list)):
        items = [_each(change, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {name: _each(change, item) for name, item in value.items()}
    return change(value)
