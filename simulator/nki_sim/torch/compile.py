"""``torch.compile(backend="neuron")``: the graph that Dynamo records runs as it is, each kernel one node of it.

A kernel, and what :func:`~nki_sim.torch.ops.wrap_nki` makes of one, goes to the graph as a call; its results are found by
running it without data. That fixes shapes and numbers, so that another one compiles again.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import torch
import torch._dynamo

from nki_sim.kernel import Kernel
from nki_sim.torch.device import is_registered
from nki_sim.torch.ops import WrappedKernel
from nki_sim.torch.refusals import refusal
from nki_sim.torch.storage import DEVICE
from nki_sim.torch_rules import DYNAMIC

BACKENDS = "torch_dynamo_backends"
"""Entry points of backends that PyTorch finds by itself."""


def neuron(graph: Any, example_inputs: list[Any]) -> Any:
    """The backend: run a recorded graph node by node.

    Raises:
        NkiRuntimeError: shapes are to be left open.
    """
    if not is_registered():  # a real torch-neuronx is installed: this is its name
        return _real_backend()(graph, example_inputs)
    if not torch._dynamo.config.assume_static_by_default:
        raise refusal(DYNAMIC, "called with dynamic=True", subject="torch.compile")
    return graph.forward


def _real_backend() -> Any:
    others = [point for point in entry_points(group=BACKENDS, name=DEVICE) if not point.value.startswith("nki_sim.")]
    if not others:
        raise torch._dynamo.exc.InvalidBackend(name=DEVICE)
    return others[0].load()


def register() -> None:
    """Make the backend known; PyTorch finds it by itself where nki-nb is installed."""
    if DEVICE not in torch._dynamo.list_backends(None):
        torch._dynamo.register_backend(neuron, name=DEVICE)


for kind in (Kernel, WrappedKernel):
    for kernel in kind.made:
        torch.compiler.allow_in_graph(kernel)
    kind.watchers.append(torch.compiler.allow_in_graph)
