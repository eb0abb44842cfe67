"""JAX: kernels inside ``jax.jit``, as callbacks. JAX is never imported here: its arrays bring it along.

Outside of ``jax.jit`` a ``jax.Array`` is an array like others (:mod:`nki_sim.arrays`), and results are of its kind.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from nki_sim.dtypes import lookup
from nki_sim.errors import Broken, NkiValidationError, Rule, violation
from nki_sim.estimate import TensorSpec
from nki_sim.hw import core
from nki_sim.kernel import Answer, Kernel
from nki_sim.tensor import NkiTensor

RESULTS = Rule(
    "jax.results",
    "a kernel inside of jax.jit returns its results",
    why="arrays of JAX cannot be written",
    fix="return an nl.ndarray(…, buffer=nl.shared_hbm)",
)


def border(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer | None:
    """Answer a call with arrays that ``jax.jit`` traces: the compiled function will call the kernel.

    Its results' shapes are found by running it without data; JAX differentiates it where ``jax.custom_vjp`` says how.

    Raises:
        NkiValidationError: the kernel breaks a limit, or returns nothing.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    leaves, structure = jax.tree_util.tree_flatten((args, kwargs))
    traced = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
    if not traced:
        return None

    def with_arrays(arrays: Any) -> Any:
        given = dict(zip(traced, arrays, strict=True))
        return jax.tree_util.tree_unflatten(structure, [given.get(i, leaf) for i, leaf in enumerate(leaves)])

    def call(*arrays: Any) -> Any:
        given, named = with_arrays(np.asarray(array) for array in arrays)
        return kernel(*given, **named)

    given, named = with_arrays(TensorSpec(tuple(leaves[i].shape), lookup(leaves[i].dtype).name) for i in traced)
    wanted = jax.tree_util.tree_map(lambda value: _shape(jax, value), kernel.shapes(given, named))
    if not jax.tree_util.tree_leaves(wanted):
        broken = Broken("returns nothing, inside of jax.jit")
        raise NkiValidationError(violation(RESULTS, broken, target=core().target, instruction=kernel.name, sites=()))
    return Answer(jax.pure_callback(call, wanted, *(leaves[i] for i in traced), vmap_method="sequential"))


def _shape(jax: Any, value: Any) -> Any:
    if not isinstance(value, NkiTensor):
        return value
    return jax.ShapeDtypeStruct(value.shape, np.bool_ if value.info.kind == "bool" else value.info.storage)


Kernel.borders.append(border)
