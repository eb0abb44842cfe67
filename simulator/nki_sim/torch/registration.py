"""When the device and the backend become known to PyTorch.

``autoload`` is an entry point, which PyTorch calls at the end of ``import torch``, also of the one with which
``nki_sim.torch`` begins: so it is not in ``__init__.py``.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import torch

from nki_sim.importer import install, is_torch_neuronx_real
from nki_sim.kept import layer
from nki_sim.torch import device


def register() -> None:
    """Make the device and the backend known to PyTorch, and ``import nki`` and ``import torch_neuronx`` find the simulator.

    Specialised kernels are kept for other processes from now on (:mod:`nki_sim.kept`).

    Raises:
        RuntimeError: this PyTorch has no room for the device; see :func:`nki_sim.torch.device.register`.
    """
    install()
    device.register()
    layer.default = True  # as torch-neuronx does; NKI_ENABLE_TRACE_CACHE=0 turns it off
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
