"""Tensors of the ``neuron`` device: plain ``torch.Tensor`` objects, their storage memory of the CPU under another name.

The storage of the device points to the bytes of a storage of the CPU, and keeps that one alive. A view is a view of the same
storage, so that aliases see each other's writes; the same bytes can be taken as a tensor of the CPU without a copy.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from nki_sim.torch.refusals import refusal
from nki_sim.torch_rules import DENSE

DEVICE = "neuron"


def has_data(storage: Any) -> bool:
    """Whether a storage is one of the device; those of tensors that are being traced are not."""
    return hasattr(storage, "nki_host")


def is_neuron(value: Any) -> bool:
    """Whether a value is a dense tensor of the device; traced tensors without data are not."""
    there = isinstance(value, torch.Tensor) and value.device.type == DEVICE and value.layout is torch.strided
    return there and has_data(value.untyped_storage())


def host_of(tensor: Any) -> Any:
    """A tensor of the device as one of the CPU that shares its memory."""
    storage = tensor.untyped_storage().nki_host
    view = torch.empty(0, dtype=tensor.dtype, device="cpu")
    view.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    view = view.conj() if tensor.is_conj() else view
    return view._neg_view() if tensor.is_neg() else view


def device_storage(storage: Any) -> Any:
    """The storage of the device over the bytes of a storage of the CPU.

    PyTorch would ask an allocator of the device for a copy, which only C++ can provide: copies are made here.
    """
    made = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device(DEVICE, 0), storage.nbytes())
    made.nki_host = storage
    made.clone = partial(_copy, storage)
    made.cpu = storage.clone
    return made


def _copy(host: Any) -> Any:
    return device_storage(host.clone())


def on_device(host: Any) -> Any:
    """A tensor of the CPU as one of the device that shares its memory; without a gradient of its own.

    Raises:
        NkiNotImplementedError: it is sparse.
    """
    if host.layout is not torch.strided:
        raise refusal(DENSE, f"a tensor of layout {host.layout}", error=NotImplementedError)
    host = host.resolve_conj().resolve_neg()
    tensor = torch._C._acc.create_empty_tensor((0,), host.dtype)
    return place(tensor, host.untyped_storage(), host)


def place(tensor: Any, storage: Any, like: Any) -> Any:
    """Let a tensor of the device have the bytes of a storage of the CPU, and the geometry of ``like``."""
    return tensor.set_(device_storage(storage), like.storage_offset(), like.size(), like.stride())


def follow(tensor: Any, host: Any) -> None:
    """Take over what an operation on the CPU changed of a tensor's geometry or memory: ``resize_``, ``out=``."""
    storage = tensor.untyped_storage()
    now = host.untyped_storage()
    moved = now.data_ptr() != storage.data_ptr() or now.nbytes() != storage.nbytes()
    same = (tensor.size(), tensor.stride(), tensor.storage_offset()) == (host.size(), host.stride(), host.storage_offset())
    if moved or not same:
        place(tensor, now, host)
