"""The ``neuron`` device of PyTorch, and ``torch.neuron``.

There is one device, with nothing asynchronous about it. Random numbers are those of the CPU's generator.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch.utils import backend_registration

from nki_sim.arrays import DEVICES
from nki_sim.kernel import Kernel
from nki_sim.torch import autograd, dispatch
from nki_sim.torch.calls import border
from nki_sim.torch.storage import DEVICE, device_storage, has_data, host_of, on_device

_SETUP = "_setup_privateuseone_for_python_backend"


class _Module(ModuleType):
    """``torch.neuron``."""

    def is_available(self) -> bool:
        """True: the simulator needs no hardware."""
        return True

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: Any) -> None:
        """Choose the current device, which can only be 0."""
        index = device if isinstance(device, int) else torch.device(device).index or 0
        if index != 0:
            raise RuntimeError(f"neuron:{index}: the simulator has one device, neuron:0")

    def get_device_name(self, device: Any = None) -> str:
        return "NeuronCore simulator"

    def synchronize(self, device: Any = None) -> None:
        """Return at once: nothing runs in the background."""

    def empty_cache(self) -> None:
        """Do nothing: memory is the process's own."""

    def manual_seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Do nothing: ``torch.manual_seed`` has set the generator that is used."""

    def get_rng_state(self, device: Any = None) -> Any:
        return torch.default_generator.get_state()

    def set_rng_state(self, new_state: Any, device: Any = None) -> None:
        torch.default_generator.set_state(new_state)

    def get_amp_supported_dtype(self) -> list[Any]:
        return [torch.bfloat16, torch.float16]

    def _is_in_bad_fork(self) -> bool:
        return False


def is_registered() -> bool:
    """Whether the device is this simulator's."""
    return isinstance(getattr(torch, DEVICE, None), _Module)


def has_room() -> bool:
    """Whether this PyTorch can have the device, and no other package has brought one."""
    return hasattr(backend_registration, _SETUP) and torch._C._get_privateuse1_backend_name() == "privateuseone"


def register() -> None:
    """Make the device known to PyTorch.

    Raises:
        RuntimeError: another package has taken the place that PyTorch has for one more device, or this PyTorch cannot have a
            device without C++.
    """
    if is_registered():
        return
    if not hasattr(backend_registration, _SETUP):
        raise RuntimeError(f"torch {torch.__version__} has no devices written in Python: install torch>=2.13")
    taken = torch._C._get_privateuse1_backend_name()
    if taken != "privateuseone":
        raise RuntimeError(
            f"PyTorch has room for one more device, and {taken!r} has it: run without the package that brings it"
        )
    DEVICES[DEVICE] = host_of, on_device
    Kernel.borders.append(border)
    getattr(backend_registration, _SETUP)(DEVICE, backend_module=_Module(f"torch.{DEVICE}"))
    dispatch.register()
    autograd.register()
    torch.__future__.set_swap_module_params_on_conversion(True)  # module.to: else parameters that two modules share part
    torch.serialization.register_package(1, _location, _restore)


def _location(storage: Any) -> str | None:
    """What ``torch.save`` writes beside a storage of the device."""
    return DEVICE if has_data(storage) else None


def _restore(storage: Any, location: str) -> Any:
    """What ``torch.load`` makes of a storage that it has read, when it belongs on the device."""
    return device_storage(storage) if location.partition(":")[0] == DEVICE else None
