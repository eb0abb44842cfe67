"""``nki.typing``: annotations of kernel arguments. An argument of another shape is reported."""

from __future__ import annotations

from typing import Any

from nki_sim.hints import module_getattr
from nki_sim.tensor import NkiTensor


class TensorAnnotation:
    """``tensor[128, 512]``: a tensor argument and, if given, its shape."""

    def __init__(self, shape: tuple[int, ...] = ()):
        self.shape = shape

    def __getitem__(self, shape: Any) -> TensorAnnotation:
        return TensorAnnotation(shape if isinstance(shape, tuple) else (shape,))

    def __repr__(self) -> str:
        return f"tensor[{', '.join(map(str, self.shape))}]" if self.shape else "tensor"


tensor = TensorAnnotation()

__all__ = ["NkiTensor", "TensorAnnotation", "tensor"]
__getattr__ = module_getattr("nki.typing", __all__)
