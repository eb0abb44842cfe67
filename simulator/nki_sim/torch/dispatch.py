"""Operations on tensors of the ``neuron`` device: PyTorch's CPU kernels run them, on the same memory.

A view is made by the kernel that makes views on every device, so that it is a view for autograd as well. All else goes
through one function: tensors of the device become tensors of the CPU, and results come back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from nki_sim.torch import autocast
from nki_sim.torch.refusals import refusal
from nki_sim.torch.storage import DEVICE, follow, host_of, is_neuron, on_device
from nki_sim.torch_rules import MIXED_DEVICES, NO_CPU_KERNEL, ONE_DEVICE

LOG = logging.getLogger("nki_sim.torch")
SAYS_SO = "NKI_LOG_CPU_OPS"
"""Environment switch: each operation that ran on the CPU is logged once."""

_GEOMETRY = (
    "as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "set_.source_Storage_storage_offset",
    "set_.source_Tensor", "set_.source_Storage",
)  # fmt: skip
"""What changes how a tensor lies in its storage and nothing else: the CPU's kernel takes any device's tensor."""
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_KEPT: list[Any] = []
_NOTHING_COMPUTED = ("aten.empty", "aten._copy_from", "aten.resize_")
_said: set[str] = set()


def register() -> None:
    """Tell PyTorch's dispatcher who runs what on the device."""
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(run_on_cpu, "PrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    for name in _GEOMETRY:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        aten.impl(name, _geometry(op), "PrivateUse1")
    for name in _INSTEAD:
        op = getattr(torch.ops.aten, name.partition("::")[2]).default
        aten.impl(name, partial(run_on_cpu, op), "PrivateUse1")
    for key in ("Conjugate", "Negative"):  # a copy resolves these bits; asked to do so before it, PyTorch would ask for a copy
        aten.impl("_copy_from", torch.library.fallthrough_kernel, key)
    autocast.register(everything, aten)
    _KEPT.extend([everything, aten])  # a registration lives as long as its library


def _geometry(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return op.redispatch(_CPU, *args, **kwargs)

    return kernel


def run_on_cpu(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation of the device on the CPU, and give its results on the device."""
    flat, structure = tree_flatten((args, kwargs))
    tensors = [value for value in flat if isinstance(value, torch.Tensor)]
    if any(t.device.type == DEVICE and not is_neuron(t) for t in tensors):
        return op.redispatch(_META, *args, **kwargs)  # a tensor that is being traced has no data
    _check_devices(op, tensors)
    hosts = {id(value): host_of(value) for value in tensors if is_neuron(value)}
    swapped = [hosts.get(id(value), value) if isinstance(value, torch.Tensor) else _on_cpu(value) for value in flat]
    cpu_args, cpu_kwargs = tree_unflatten(swapped, structure)
    _say(op)
    try:
        result = _INSTEAD.get(op._schema.name, op)(*cpu_args, **cpu_kwargs)
    except NotImplementedError as error:
        what = f"PyTorch has no CPU kernel for it ({str(error).splitlines()[0].partition(' This could')[0]})"
        raise refusal(NO_CPU_KERNEL, what, subject=str(op), error=NotImplementedError) from error
    if op._schema.is_mutable:
        for value in tensors:
            if id(value) in hosts:
                follow(value, hosts[id(value)])
    given = {id(host): value for value in tensors if (host := hosts.get(id(value))) is not None}
    kept = {id(value) for value in tensors if not is_neuron(value)}
    return tree_map(lambda value: _given_back(value, given, kept), result)


def _copy(source: Any, target: Any, non_blocking: bool = False) -> Any:
    return target.copy_(source)


def _copy_and_resize(source: Any, target: Any) -> Any:
    return target.resize_(source.size()).copy_(source)


def _convolution_backward(grad: Any, inputs: Any, weight: Any, *rest: Any) -> Any:
    return torch.ops.aten.convolution_backward(grad, inputs, weight, [grad.shape[1]], *rest)


_INSTEAD: dict[str, Callable[..., Any]] = {
    "aten::_copy_from": _copy,
    "aten::_copy_from_and_resize": _copy_and_resize,
    "aten::convolution_overrideable": torch.ops.aten.convolution,
    "aten::convolution_backward_overrideable": _convolution_backward,
}
"""Operations that exist for other devices only, by what the CPU has for them."""


def _given_back(value: Any, given: dict[int, Any], kept: set[int]) -> Any:
    if not isinstance(value, torch.Tensor) or id(value) in kept:
        return value
    return given[id(value)] if id(value) in given else on_device(value)


def _on_cpu(value: Any) -> Any:
    if not isinstance(value, torch.device) or value.type != DEVICE:
        return value
    if value.index not in (None, 0):
        raise refusal(ONE_DEVICE, f"there is no {value}", error=RuntimeError)
    return torch.device("cpu")


def _check_devices(op: Any, tensors: list[Any]) -> None:
    """As on any device, tensors of two devices meet only in a copy, as an index, or where one of them is a single number."""
    name = op._schema.name.partition("::")[2]
    if name.startswith(("_copy_from", "copy_", "index", "_index", "_unsafe_index", "_to_copy")):
        return
    other = next((t for t in tensors if t.device.type != DEVICE and t.dim()), None)
    if other is not None and any(t.device.type == DEVICE for t in tensors):
        what = f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE}:0 and {other.device}"
        raise refusal(MIXED_DEVICES, what, subject=f"aten::{name}", error=RuntimeError)


def _say(op: Any) -> None:
    if os.environ.get(SAYS_SO, "0") in ("", "0"):
        return
    name = str(op)
    if name not in _said and not name.startswith(_NOTHING_COMPUTED):
        _said.add(name)
        LOG.warning("%s: run by PyTorch's CPU kernel, not by the NeuronCore", name)
