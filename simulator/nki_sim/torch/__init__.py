"""PyTorch on the simulator: the ``neuron`` device, kernels on its tensors, ``torch_neuronx``, and the backend ``neuron``.

Needs ``pip install "nki-nb[torch]"``; nothing else of the simulator imports it. PyTorch loads it by itself where nki-nb is
installed; ``import torch_neuronx`` does, and so does ``import nki_sim.torch``.
"""

from __future__ import annotations

from importlib.metadata import entry_points

try:
    import torch
except ImportError as missing:
    raise ImportError('PyTorch is not installed: pip install "nki-nb[torch]"', name="torch") from missing

from nki_sim.importer import install, is_torch_neuronx_real
from nki_sim.torch import device
from nki_sim.torch.ops import nki_op, wrap_nki


def register() -> None:
    """Make the device and the backend known to PyTorch, and ``import nki`` and ``import torch_neuronx`` find the simulator.

    Raises:
        RuntimeError: this PyTorch has no room for the device; see :func:`nki_sim.torch.device.register`.
    """
    install()
    device.register()
    if not entry_points(group="torch_dynamo_backends", name="neuron"):
        from nki_sim.torch import compile  # 1 s, only in a checkout that is not installed

        compile.register()


def autoload() -> None:
    """Register at the end of ``import torch``, where that takes nothing from anybody.

    Nothing happens beside a real nki or torch_neuronx, beside another accelerator, or in a PyTorch too old for it; there,
    ``import torch_neuronx`` registers, or says why it cannot.
    """
    if install() and not is_torch_neuronx_real() and device.has_room() and not torch.accelerator.is_available():
        register()


__all__ = ["autoload", "nki_op", "register", "wrap_nki"]
