"""``torch_neuronx.nki_op`` and ``wrap_nki``: kernels as operators of PyTorch, and kernels that take meta tensors."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch

from nki_sim.kernel import Kernel, as_kernel
from nki_sim.torch.calls import shaped, tensors_in
from nki_sim.torch.refusals import refusal
from nki_sim.torch_rules import SCHEMA


def nki_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    fake_fn: Callable[..., Any] | None = None,
) -> Any:
    """Make a function that calls kernels an operator of PyTorch; usually as a decorator.

    Args:
        name: ``"namespace::name"``; the operator is ``torch.ops.namespace.name`` as well.
        fn: a function, all of whose parameters and whose result are annotated.
        mutates_args: names of the parameters that it writes; the function then returns None.
        fake_fn: takes the same arguments, and returns empty tensors like the results. Without one, results are those of
            running the kernels without data, which a kernel whose course depends on data cannot do.

    Returns:
        The operator, with ``register_autograd(backward, setup_context=…)``.

    Raises:
        NkiValueError: the annotations are not enough for a schema, or the name is none.

    Example:
        @nki_op("demo::double", mutates_args={})
        def double(x: torch.Tensor) -> torch.Tensor:
            return double_kernel(x)
    """
    if fn is None:
        return functools.partial(nki_op, name, mutates_args=mutates_args, fake_fn=fake_fn)
    try:
        operator = torch.library.custom_op(name, fn, mutates_args=mutates_args)
    except ValueError as error:
        raise refusal(SCHEMA, str(error), subject=f'nki_op("{name}")', error=ValueError) from error
    operator.register_fake(fake_fn or fn)
    operator.register_autograd = _as_decorator(operator.register_autograd)
    return operator


def _as_decorator(register: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(register)
    def register_autograd(backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> Any:
        register(backward, setup_context=setup_context)
        return backward

    return register_autograd


class WrappedKernel:
    """A kernel that also takes meta tensors, for which it returns meta tensors.

    Attributes:
        made, watchers: as of :class:`Kernel`.
    """

    made: ClassVar[weakref.WeakSet[WrappedKernel]] = weakref.WeakSet()
    watchers: ClassVar[list[Callable[[WrappedKernel], Any]]] = []

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.made.add(self)
        for watch in self.watchers:
            watch(self)
        functools.update_wrapper(self, kernel)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(tensor.device.type == "meta" for tensor in tensors_in((args, kwargs))):
            return shaped(self.kernel, args, kwargs)
        return self.kernel(*args, **kwargs)

    def __getitem__(self, lnc: Any) -> WrappedKernel:
        return WrappedKernel(self.kernel[lnc])


def wrap_nki(kernel: Kernel | Callable[..., Any]) -> WrappedKernel:
    """A callable like the kernel that also takes tensors on the meta device."""
    return WrappedKernel(as_kernel(kernel))
