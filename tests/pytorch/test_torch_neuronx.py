"""What ``import torch_neuronx`` finds, and what ``import torch`` brings by itself, in fresh processes."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install "nki-nb[torch]"')

AUTOLOAD = "import torch, nki_sim.torch\nnki_sim.torch.autoload()  # as PyTorch does where nki-nb is installed\n"
SCRIPT = """
import nki
import nki.language as nl
from torch_neuronx import nki_op


@nki.jit
def add_kernel(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(b)))
    return out


@nki_op("demo::add", mutates_args={})
def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return add_kernel(a, b)


@torch.compile(backend="neuron", fullgraph=True)
def compiled(a, b):
    return add(a, b) * add_kernel(a, b)


a, b = torch.rand(2, 128, 64, device="neuron")
torch.testing.assert_close(add_kernel(a, b), a + b)
torch.testing.assert_close(compiled(a, b), (a + b) ** 2)
print(torch.neuron.is_available(), a.device)
"""


def package(root: Path, name: str, **files: str) -> None:
    (root / name).mkdir()
    for file, text in files.items():
        (root / name / f"{file}.py").write_text(text)


def test_a_script_needs_no_line_for_the_simulator(script: Any) -> None:
    assert script(AUTOLOAD + SCRIPT) == ["True neuron:0"]


@pytest.mark.skipif(not entry_points(group="torch.backends", name="nki_nb"), reason="nki-nb is on the path, not installed")
def test_loading_it_does_not_load_the_compiler_of_pytorch(script: Any) -> None:
    text = "import sys\nheavy = {'sympy', 'torch._dynamo'}\nprint(hasattr(torch, 'neuron'), heavy & set(sys.modules))"
    assert script(AUTOLOAD + text) == ["True set()"]


def test_a_real_torch_neuronx_is_not_shadowed(script: Any, tmp_path: Path) -> None:
    package(tmp_path, "torch_neuronx", __init__="real = True\n")
    text = "import torch_neuronx\nprint(torch_neuronx.real, hasattr(torch, 'neuron'))"
    assert script(AUTOLOAD + text) == ["True False"]


def test_beside_a_real_nki_there_is_none(script: Any, tmp_path: Path) -> None:
    package(tmp_path, "nki", __init__="", isa="")
    text = "try:\n    import torch_neuronx\nexcept ModuleNotFoundError as e:\n    print(e.name, hasattr(torch, 'neuron'))"
    assert script(AUTOLOAD + text) == ["torch_neuronx False"]


def test_another_device_keeps_its_place(script: Any) -> None:
    text = (
        "import torch, nki_sim\ntorch.utils.rename_privateuse1_backend('other')\nnki_sim.install()\n"
        "import nki_sim.torch\nnki_sim.torch.autoload()\n"
        "try:\n    import torch_neuronx\nexcept RuntimeError as e:\n    print(e)"
    )
    (said,) = script(text, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert said == "PyTorch has room for one more device, and 'other' has it: run without the package that brings it"


def test_without_pytorch_it_says_what_to_install(script: Any) -> None:
    text = (
        "import sys, nki_sim\nsys.modules['torch'] = None\nnki_sim.install()\n"
        "try:\n    import torch_neuronx\nexcept ImportError as e:\n    print(e)"
    )
    assert script(text) == ['PyTorch is not installed: pip install "nki-nb[torch]"']
