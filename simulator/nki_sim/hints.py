"""Names the API does not have, and what to write instead.

Hand-written, because it is the only kind of help that helped: in a public one-day lab, a list of similar names did not
reduce failed attempts, a sentence that says what to write did.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dis import opmap
from types import FrameType, MappingProxyType
from typing import Any

from nki_sim import context
from nki_sim.deprecated import INSTEAD, warn
from nki_sim.errors import Diagnosis, NkiImportError, NkiNameError, Rule, page
from nki_sim.isa.enums import engine
from nki_sim.source import call_chain

_NONE: Mapping[str, Callable[[], Any]] = MappingProxyType({})
NAMES = Rule("kernel.api_name", "", page=page("api/index.html"))

_SCALE = (
    "with a scalar or a (P, 1) column: nisa.tensor_scalar(dst=…, data=…, op0=nl.{op}, operand0=…); "
    "two tiles: nisa.tensor_tensor(dst=…, data1=…, data2=…, op=nl.{op})"
)
_ACT = "nisa.activation(dst=…, op=nl.{op}, data=…)"
_INDEX = "slice instead: t[0:128, start:start + size], or t[:, nl.ds(start, size)]; irregular patterns: t.ap([[step, num], …])"
_LOOP = "for i in range(n): … unrolls while the kernel is built; a loop on the chip is nl.fori_loop(lower, upper, body)"
_SIM = "nki.simulate(kernel)(arrays…) runs a kernel on the simulator; for times see the estimate in its report"

HINTS: dict[str, dict[str, str]] = {
    "nki": {
        "simulate_kernel": _SIM,
        "baremetal": _SIM,
        "benchmark": _SIM,
        "profile": _SIM,
        "trace": "@nki.jit",
        "tensor": "annotate with nki.typing.tensor, or leave the annotation out",
    },
    "nki.isa": {
        **{name: _SCALE.format(op=name) for name in ("add", "subtract", "multiply", "maximum", "minimum")},
        "mul": _SCALE.format(op="multiply"),
        "sub": _SCALE.format(op="subtract"),
        "max": "over the free axis: nisa.tensor_reduce(dst=…, op=nl.maximum, data=…, axis=(1,)); of two tiles: "
        "nisa.tensor_tensor(…, op=nl.maximum)",
        "min": "over the free axis: nisa.tensor_reduce(dst=…, op=nl.minimum, data=…, axis=(1,)); of two tiles: "
        "nisa.tensor_tensor(…, op=nl.minimum)",
        "sum": "nisa.tensor_reduce(dst=…, op=nl.add, data=…, axis=(1,))",
        "reduce": "nisa.tensor_reduce(dst=…, op=nl.add, data=…, axis=(1,))",
        "scalar_mul": "nisa.tensor_scalar(dst=…, data=…, op0=nl.multiply, operand0=…)",
        "divide": "multiply by nisa.reciprocal(dst=…, data=…): no engine divides",
        **{n: _ACT.format(op=n) for n in ("exp", "log", "tanh", "sigmoid", "relu", "gelu", "silu", "square", "sqrt", "sin")},
        "rsqrt": "nisa.activation(dst=…, op=nl.rsqrt, data=…), or exactly: nisa.tensor_scalar(dst=…, data=…, op0=nl.rsqrt, "
        "operand0=None)",
        "matmul": "nisa.nc_matmul(dst=<psum [M, N]>, stationary=<[K, M]>, moving=<[K, N]>) computes stationary.T @ moving",
        "transpose": "nisa.nc_transpose(dst=<psum tile>, data=…), or nisa.dma_transpose while loading",
        "load": "nisa.dma_copy(dst=<sbuf tile>, src=<hbm>), or nl.load",
        "store": "nisa.dma_copy(dst=<hbm>, src=<sbuf tile>), or nl.store",
        "copy": "nisa.tensor_copy(dst=…, src=…)",
        "softmax": "nl.softmax(x, axis=1), or the four instructions: max, exp with bias and sum, reciprocal, multiply",
        "select": "nisa.select_reduce or nisa.tensor_copy_predicated",
        "tensor_copy_dynamic_src": "nisa.tensor_copy(dst=…, src=t.ap(…, scalar_offset=…)), since 0.4",
        "tensor_copy_dynamic_dst": "nisa.tensor_copy(dst=t.ap(…, scalar_offset=…), src=…), since 0.4",
    },
    "nki.language": {
        "arange": _INDEX,
        "mgrid": _INDEX,
        "par_dim": "dimension 0 of an SBUF or PSUM tensor is the partition dimension: nl.ndarray((128, 512), …)",
        "spmd_dim": "kernel[n](…) sets the logical cores",
        "nc": "kernel[n](…) sets the logical cores",
        "loop_reduce": _LOOP,
        "mask": "clamp the size: size = min(128, n - start), then t[0:size]",
        "load_transpose": "nl.load_transpose2d, or nisa.dma_transpose",
        "static_cast": "nisa.tensor_copy(dst=<tile of the other dtype>, src=…), or the dtype= of the function that makes it",
        "dot": "nisa.nc_matmul(dst=<psum [M, N]>, stationary=<[K, M]>, moving=<[K, N]>)",
        "norm": "nl.rms_norm",
        "bool": "nl.bool_",
        "float64": "the hardware has no 64-bit floats: nl.float32",
        "range": "Python's range",
        "sbuf_size": "nl.tile_size.sbuf_size_bytes",
    },
}


def what_instead(module: str, name: str, known: Sequence[str]) -> tuple[str, str]:
    """``(headline, fix)`` for a name that ``module`` does not have."""
    hint = HINTS.get(module, {}).get(name)
    if hint:
        return f"{module} has no {name}", hint
    for other, table in HINTS.items():
        if other != module and name in table:
            return f"{module} has no {name}", table[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"{module} has no {name}", f"did you mean {module}.{near[0]}?" if near else f"see help({module})"


def _is_from_import(frame: FrameType) -> bool:
    """Whether a frame is executing ``from module import name``."""
    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def module_getattr(module: str, known: Sequence[str], later: Mapping[str, Callable[[], Any]] = _NONE) -> Callable[[str], Any]:
    """A module ``__getattr__`` that explains unknown names, and makes those of ``later`` when they are asked for."""

    def __getattr__(name: str) -> Any:  # noqa: N807 - it is the module's hook
        if name in later:
            return later[name]()
        if module == "nki.isa" and name in INSTEAD[module]:
            warn(module, name)
            return engine[name.removesuffix("_engine")]
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        headline, fix = what_instead(module, name, known)
        sites = tuple(call_chain())
        error = NkiImportError if _is_from_import(sys._getframe(1)) else NkiNameError
        raise error(Diagnosis(headline, context.core().target, NAMES, fix=fix, sites=sites))

    return __getattr__
