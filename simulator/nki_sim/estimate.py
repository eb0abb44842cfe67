"""How long a kernel would take on arrays of given shapes, without the arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_sim.dtypes import TABLE, Array, UnknownDTypeError, lookup
from nki_sim.hw import NeuronCore
from nki_sim.kernel import Kernel, as_kernel
from nki_sim.run import Run, RunOptions

if TYPE_CHECKING:
    from nki_sim.timing import Order, Profile


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of an argument that is not there.

    >>> TensorSpec((4096, 8192), "bfloat16")
    """

    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        lookup(self.dtype)
        if not self.shape or not all(isinstance(n, (int, np.integer)) and n > 0 for n in self.shape):
            raise ValueError(f"shape {self.shape!r}: a tuple of positive whole numbers")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Memory of that size, which nobody has touched and which takes no room until somebody does."""
        info = lookup(self.dtype)
        return np.empty(self.shape, np.bool_ if info.kind == "bool" else info.storage)


def estimate(
    kernel: Kernel | Callable[..., Any],
    /,
    *args: Any,
    target: str | NeuronCore | None = None,
    order: Order = "compiler",
    fit: Order | None = None,
    **kwargs: Any,
) -> Profile:
    """The profile of a kernel from the shapes of its arguments: all limits are checked, nothing is computed.

    Args:
        kernel: a ``nki.jit`` kernel or a plain function.
        args, kwargs: its arguments; for a tensor a :class:`TensorSpec`, a pair like ``((4096, 8192), "bfloat16")``, or an
            array, of which only shape and dtype count.
        target: trn1, trn2 or trn3; as for :func:`nki_sim.run`.
        order: ``compiler`` or ``program``: see :meth:`nki_sim.Run.timeline`.
        fit: ``compiler``: tiles that do not fit as the kernel is written may in another order, or are spilled: see
            :class:`nki_sim.RunOptions`.

    Raises:
        NkiValidationError: the kernel breaks a limit, or its course depends on data.
    """
    return trace(kernel, *args, target=target, fit=fit, **kwargs).profile(order)


def trace(
    kernel: Kernel | Callable[..., Any],
    /,
    *args: Any,
    target: str | NeuronCore | None = None,
    fit: Order | None = None,
    **kwargs: Any,
) -> Run:
    """A run without data, as :func:`estimate` makes it: its record, placement and timeline, no result and no replay."""
    given = [_spec(value) for value in args]
    named = {name: _spec(value) for name, value in kwargs.items()}
    return as_kernel(kernel).run(given, named, RunOptions(target=target, keep_inputs=False, dry=True, fit=fit))


def _spec(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], tuple) and _is_dtype(value[1]):
        return TensorSpec(value[0], lookup(value[1]).name)
    return value


def _is_dtype(value: Any) -> bool:
    if isinstance(value, str):
        return value in TABLE
    try:
        lookup(value)
    except (UnknownDTypeError, TypeError):
        return False
    return True
