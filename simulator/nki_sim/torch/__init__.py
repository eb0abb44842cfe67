"""PyTorch on the simulator: the ``neuron`` device, kernels on its tensors, ``torch_neuronx``, and the backend ``neuron``.

Needs ``pip install "nki-nb[torch]"``; nothing else of the simulator imports it. PyTorch loads it by itself where nki-nb is
installed; ``import torch_neuronx`` does, too.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise ImportError('PyTorch is not installed: pip install "nki-nb[torch]"', name="torch") from missing

from nki_sim.torch.ops import nki_op, wrap_nki
from nki_sim.torch.registration import autoload, register

__all__ = ["autoload", "nki_op", "register", "wrap_nki"]
