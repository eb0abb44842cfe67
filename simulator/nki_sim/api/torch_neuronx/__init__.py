"""What ``import torch_neuronx`` finds where no real one is installed."""

from nki_sim.torch import nki_op, register, wrap_nki

register()

__all__ = ["nki_op", "wrap_nki"]
