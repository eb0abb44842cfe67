"""Kernels of a file: ``path/to/file.py::kernel``."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from nki_sim.fitting import FIT_VARIABLE
from nki_sim.hw import CORES
from nki_sim.kernel import Kernel, as_kernel
from nki_sim.program import Order


class KernelNotFoundError(ValueError):
    """There is no such file, or no such kernel in it."""


def add_lnc(parser: argparse.ArgumentParser) -> None:
    """The option that says on how many logical cores a kernel of a file is launched."""
    parser.add_argument("--lnc", type=_cores, metavar="N",
                        help="logical cores, as kernel[N]; default: NEURON_LOGICAL_NC_CONFIG, then 1")  # fmt: skip


def add_fit(parser: argparse.ArgumentParser) -> None:
    """The option that says how a kernel has to fit in memory."""
    words = "how a kernel's tiles have to fit: as it is written, or as a compiler may have them: reordered, or spilled"
    parser.add_argument("--fit", choices=get_args(Order), help=f"{words}; default: {FIT_VARIABLE}, then program")


def _cores(text: str) -> int:
    targets = {number: [core.target for core in CORES if number in core.lnc] for core in CORES for number in core.lnc}
    if text not in map(str, targets):
        forms = " or ".join(f"{number} ({', '.join(names)})" for number, names in sorted(targets.items()))
        raise argparse.ArgumentTypeError(f"{text!r} is no number of logical cores; a kernel runs on {forms}")
    return int(text)


def find_kernel(where: str, lnc: int | None = None) -> Callable[..., Any]:
    """The kernel that ``FILE.py::name`` names; without a name, the file's only kernel.

    Args:
        where: the file and the name.
        lnc: logical cores to launch it on, as ``kernel[lnc]``; ``None``: as the kernel and the environment say.

    Raises:
        KernelNotFoundError: the file or the kernel is not there; the message says what is.
    """
    filename, _, name = where.partition("::")
    path = Path(filename)
    if not path.is_file():
        raise KernelNotFoundError(f"no file {filename}; expected FILE.py::kernel")
    found = _found(path, name)
    return found if lnc is None else as_kernel(found)[lnc]


def _found(path: Path, name: str) -> Callable[..., Any]:
    module = load(path)
    kernels = {key: value for key, value in vars(module).items() if isinstance(value, Kernel)}
    there = f"{path.name} has {', '.join(kernels)}" if kernels else f"{path.name} has no function with @nki.jit"
    if not name:
        if len(kernels) != 1:
            raise KernelNotFoundError(f"which kernel? {there}")
        return next(iter(kernels.values()))
    found = getattr(module, name, None)
    if not callable(found):
        raise KernelNotFoundError(f"no kernel {name!r}: {there}")
    return found  # type: ignore[no-any-return]


def load(path: Path) -> ModuleType:
    """Run a Python file as a module of its own; its neighbours can be imported, as with ``python file.py``."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise KernelNotFoundError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
