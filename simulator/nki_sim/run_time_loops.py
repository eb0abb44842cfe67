"""Where loops at run time may begin, and those in the form of the frontend before 0.7: they run, and are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nki_sim import context
from nki_sim.errors import Broken, Rule, fail, page, violation

if TYPE_CHECKING:
    from nki_sim.machine import Machine

LOOPS = page("deep-dives/nki-dynamic-loops.html")
IN_ORDER = Rule(
    "lang.no_reorder_no_dynamic",
    "a loop at run time does not start inside of nl.no_reorder",
    fix="open the nl.no_reorder block in the body of the loop, or unroll the loop with Python's range",
    page=LOOPS,
)
OLD_FORM = Rule(
    "lang.dynamic_frontend",
    "a loop at run time is nl.fori_loop or nl.while_loop",
    why="nl.dynamic_range and while with a register belong to the frontend before 0.7, which read the kernel's source",
    fix="def body(i): …, then nl.fori_loop(lower, upper, body), or nl.while_loop(register, body)",
    page=LOOPS,
    enforce="warn",
)
NESTED = Rule(
    "lang.nested_dynamic_range",
    "loops of the frontend before 0.7 are not used in the body of another loop at run time",
    why="the body is built once, and its rounds would have to be known then",
    fix="nl.fori_loop(lower, upper, body), or nl.while_loop(register, body)",
    page=LOOPS,
)


def begins(subject: str) -> Machine:
    """The machine, on which a loop begins.

    Raises:
        NkiValidationError: inside of ``nl.no_reorder``.
    """
    machine = context.machine()
    if machine.in_order:
        raise fail(IN_ORDER, f"{subject} inside of nl.no_reorder", target=machine.core.target, subject=subject)
    machine.loops = True
    return machine


def begins_in_old_form(subject: str) -> Machine:
    """As :func:`begins`; reported, and refused in the body of another loop."""
    machine = begins(subject)
    if machine.round is not None:
        raise fail(NESTED, f"{subject} inside of a loop's body", target=machine.core.target, subject=subject)
    machine.found(violation(OLD_FORM, Broken(subject), target=machine.core.target))
    return machine


__all__ = ["LOOPS", "begins", "begins_in_old_form"]
