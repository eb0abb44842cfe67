"""What ``import nki`` and ``import torch_neuronx`` find: the simulator's API, unless real ones are installed.

The finder stands at the end of ``sys.meta_path``, so that an installed ``nki`` wins. The package ``nki`` 0.0.1 on PyPI is
not one: it is a placeholder that only raises ImportError; where it is what Python would find, the finder stands first.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from nki_sim import context
from nki_sim.errors import Diagnosis, NkiImportError, Rule, page
from nki_sim.source import call_chain

if TYPE_CHECKING:
    from importlib.abc import Loader as _Loader
else:
    _Loader = object  # has what is asked for, without the many modules that importlib.abc loads

API = "nki_sim.api.nki"
START = "nki_nb_start"
"""The module whose finder calls :func:`install` for scripts that use PyTorch."""
TORCH, TORCH_API = "torch_neuronx", "nki_sim.api.torch_neuronx"


def ours(name: str) -> str:
    """The simulator's module behind ``nki`` or ``nki.x``."""
    return API + name[len("nki") :]


class AliasLoader(_Loader):
    """Gives a module of :data:`API` under its public name."""

    def __init__(self, target: str):
        self.target = target

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.target)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own_spec


LEGACY = Rule(
    "kernel.legacy_namespace",
    "a kernel does not import neuronxcc.nki",
    why="its functions belong to the old compiler; mixed with nki.* they do not compile",
    fix="import nki, nki.isa as nisa, nki.language as nl; names that changed are explained where they are used",
    page=page("migration/index.html"),
)


class LegacyFinder:
    """Explains ``import neuronxcc`` inside a kernel, where nothing else has found it; elsewhere it has no say."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "neuronxcc" and context.machine_or_none() is not None:
            sites = tuple(call_chain())
            raise NkiImportError(Diagnosis("import of neuronxcc", context.core().target, LEGACY, sites=sites))
        return None


class NkiFinder:
    """Finds ``nki`` and its submodules in the simulator."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "nki" and not fullname.startswith("nki."):
            return None
        if fullname != "nki" and not is_simulator(sys.modules.get("nki")):
            return None  # a submodule that a real nki does not have is its own affair
        if importlib.util.find_spec(ours(fullname)) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, AliasLoader(ours(fullname)), is_package=fullname == "nki")


class TorchFinder:
    """Finds ``torch_neuronx`` in the simulator, which needs PyTorch; never beside a real ``nki``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != TORCH or not _nki_is_ours():
            return None
        return importlib.machinery.ModuleSpec(fullname, AliasLoader(TORCH_API), is_package=True)


def _nki_is_ours() -> bool:
    if "nki" in sys.modules:
        return is_simulator(sys.modules["nki"])
    spec = importlib.util.find_spec("nki")
    return spec is not None and isinstance(spec.loader, AliasLoader)


def is_torch_neuronx_real() -> bool:
    """Whether ``import torch_neuronx`` finds another one than the simulator's."""
    if TORCH in sys.modules:
        return sys.modules[TORCH].__name__ != TORCH_API
    spec = importlib.util.find_spec(TORCH)
    return spec is not None and not isinstance(spec.loader, AliasLoader)


def is_simulator(module: ModuleType | None) -> bool:
    """Whether a module named ``nki`` is the simulator's."""
    return module is not None and getattr(module, "__name__", "") == API


def installed() -> NkiFinder | None:
    """The finder, if it is installed."""
    return next((f for f in sys.meta_path if isinstance(f, NkiFinder)), None)


def is_placeholder(spec: importlib.machinery.ModuleSpec) -> bool:
    """Whether a spec for ``nki`` is the PyPI placeholder: a package that holds no ``isa``."""
    where = [Path(p) for p in spec.submodule_search_locations or ()]
    return bool(where) and not any(p.is_dir() and any(p.glob("isa*")) for p in where)


def install() -> bool:
    """Let ``import nki`` find the simulator where no real ``nki`` is installed.

    Returns:
        True when ``import nki`` gives the simulator's API afterwards.
    """
    _remove_start()
    if not any(isinstance(f, LegacyFinder) for f in sys.meta_path):
        sys.meta_path.append(LegacyFinder())
    if not any(isinstance(f, TorchFinder) for f in sys.meta_path):
        sys.meta_path.append(TorchFinder())
    if "nki" in sys.modules:
        return is_simulator(sys.modules["nki"])
    finder = installed()
    if finder is not None:
        sys.meta_path.remove(finder)
    real = importlib.util.find_spec("nki")
    finder = finder or NkiFinder()
    if real is not None and is_placeholder(real):
        sys.meta_path.insert(0, finder)
        return True
    sys.meta_path.append(finder)
    return real is None


def _remove_start() -> None:
    sys.meta_path[:] = [f for f in sys.meta_path if getattr(f, "__module__", "") != START]


def uninstall() -> None:
    """Take the finders away, and the simulator's modules out of ``sys.modules`` under their public names."""
    _remove_start()
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, (LegacyFinder, NkiFinder, TorchFinder))]
    for name in [n for n in sys.modules if n.partition(".")[0] in ("nki", TORCH)]:
        if getattr(sys.modules[name], "__name__", "").startswith((API, TORCH_API)):
            del sys.modules[name]
