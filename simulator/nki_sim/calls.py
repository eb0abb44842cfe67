"""Calls that do not fit a function of the API: Python's TypeError, said in the API's words at the user's line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import TracebackType

from nki_sim.errors import Broken, NkiError, NkiTypeError, Rule, page, violation
from nki_sim.isa import INSTRUCTIONS
from nki_sim.lang import PUBLIC
from nki_sim.source import TRACE_ROOTS, Site, is_ours

KEYWORDS = Rule(
    "kernel.unexpected_kwargs",
    "a call passes only arguments that the function has",
    page=page("migration/index.html"),
)
REQUIRED = Rule(
    "lang.isa_dst_required",
    "an instruction is given its dst and all other required operands",
    why="instructions do not return values: they write their dst",
    page=page("migration/index.html"),
)

HINTS: Mapping[str, str] = {
    "mask": "masks are gone: clamp the slice, size = min(128, n - start), then t[0:size]",
    "dtype": "the result has the dtype of dst: allocate it with the dtype you want",
    "negate": "multiply by -1 in a second operator",
    "transpose_moving": "lay the operand out as [K, N], the contraction on partitions",
    "transpose_stationary": "lay the operand out as [K, M], the contraction on partitions",
    "dst_rmw_op": "use nisa.dma_compute",
    "unique_indices": "use nisa.dma_compute",
    "num_channels": "pass channel_ids=[…]",
    "use_gpsimd_dma": "pass dma_engine=nisa.dma_engine.gpsimd_dma",
    "imm": "pass src=",
    "shape": "the shape is that of dst",
    "precise_schedule": "ranges take start, stop and step",
}

_PATTERN = re.compile(
    r"(?P<name>\w+)(?:\.__init__)?\(\) (?:got an unexpected keyword argument '(?P<unexpected>\w+)'"
    r"|missing (?:\d+) required positional arguments?: (?P<missing>.*)|(?P<other>takes .*|got multiple values .*))$"
)


def argument_hint(argument: str, parameters: list[str]) -> str:
    """What to write instead of an argument that a function does not have."""
    return HINTS.get(argument, f"its arguments are {', '.join(parameters)}")


def explain_call(error: TypeError, target: str) -> NkiError | None:
    """The diagnosis of a call of the API with wrong arguments; ``None`` for any other TypeError."""
    found = None if isinstance(error, NkiError) else _PATTERN.search(str(error))
    if found is None:
        return None
    name = found["name"]
    function = INSTRUCTIONS.get(name) or PUBLIC.get(name)
    sites = user_sites(error.__traceback__)
    if not callable(function) or not sites:
        return None
    label = f"nki.isa.{name}" if name in INSTRUCTIONS else f"nki.language.{name}"
    parameters = list(_parameters(function))
    if found["unexpected"]:
        argument = found["unexpected"]
        broken = Broken(f"unexpected argument {argument}", argument, fix=argument_hint(argument, parameters))
        rule = KEYWORDS
    elif found["missing"]:
        missing = found["missing"].replace("'", "").replace(", and ", " and ")
        broken, rule = Broken(f"missing {missing}", fix=f"its arguments are {', '.join(parameters)}"), REQUIRED
    else:
        broken, rule = Broken(found["other"], fix=f"its arguments are {', '.join(parameters)}"), KEYWORDS
    return NkiTypeError(violation(rule, broken, target=target, instruction=label, sites=sites))


def _parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters) if callable(function) else []


def user_sites(trace: TracebackType | None) -> tuple[Site, ...]:
    """The user's frames of a traceback, innermost first; empty when the error was not raised by the user's own call."""
    sites: list[Site] = []
    inside = False
    while trace is not None:
        frame = trace.tb_frame
        if trace.tb_next is None and is_ours(frame):
            return ()
        if inside and not is_ours(frame):
            sites.append(Site(frame.f_code, trace.tb_lasti))
        inside = inside or frame.f_code in TRACE_ROOTS
        trace = trace.tb_next
    return tuple(reversed(sites))
