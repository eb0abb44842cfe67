"""What ``import torch_neuronx`` finds, and what ``import torch`` brings by itself, in fresh processes."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install "nki-nb[torch]"')

AUTOLOAD = "import torch, nki_sim.torch\nnki_sim.torch.autoload()  # as PyTorch does where nki-nb is installed\n"
needs_installation = pytest.mark.skipif(
    not entry_points(group="torch.backends", name="nki_nb"), reason="nki-nb is on the path, not installed"
)


def package(root: Path, name: str, **files: str) -> None:
    (root / name).mkdir()
    for file, text in files.items():
        (root / name / f"{file}.py").write_text(text)


@needs_installation
def test_the_documented_script_runs_as_it_is(script: Any) -> None:
    text = (Path(__file__).parent / "how_to.py").read_text(encoding="utf-8")
    assert script(text) == ["eager, compiled and the CPU agree on NeuronCore simulator"]


@needs_installation
def test_the_readmes_script_runs(script: Any) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").split("\n## PyTorch\n")[1]
    assert script(text.split("```python\n")[1].split("```")[0]) == []


FIRST = {
    "nki": "import nki",
    "torch_neuronx": "import torch_neuronx",
    "a submodule": "import nki.language as nl",
    "torch": "import torch",
    "the simulator": "import nki_sim",
    "both": "import torch_neuronx, nki; print('torch-neuronx and NKI are ready')",
}


@needs_installation
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_a_script_may_import_what_it_likes_first(first: str, script: Any) -> None:
    rest = (
        "import nki, torch, torch_neuronx\nprint(torch.zeros(1, device='neuron'), nki.__name__, torch_neuronx.nki_op.__name__)"
    )
    assert script(f"{first}\n{rest}")[-1] == "tensor([0.], device='neuron:0') nki_sim.api.nki nki_op"


@needs_installation
def test_nothing_is_loaded_before_it_is_asked_for(script: Any) -> None:
    text = "import sys\nprint(sorted({'torch', 'numpy', 'nki_sim', 'nki_nb', 'importlib.util'} & set(sys.modules)))"
    assert script(text, PYTHONNOUSERSITE="1") == ["[]"]


@pytest.mark.parametrize("name", ["nki_sim", "nki_nb", "nki_nb.cli", "nki_nb.magic", "nki_nb.pytest_plugin"])
def test_neither_the_simulator_nor_the_notebook_side_imports_pytorch(name: str, script: Any) -> None:
    text = f"import sys, {name}, nki_sim\nnki_sim.install()\nimport nki.isa, nki.language\nprint('torch' in sys.modules)"
    assert script(text) == ["False"]


@needs_installation
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
