"""Tab completion of the magics' options."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nki_nb.drawing import VIEW_NAMES

OPTIONS = ("--target", "--lnc", "--check", "--rtol", "--atol", "--view", "--fp32", "--strict", "--fit", "--no-run")
COMMANDS = ("target", "info", "last", "profile", "lint", "help", "reset")
TARGETS = ("trn1", "trn2", "trn3")


def complete(shell: Any, event: SimpleNamespace) -> list[str]:
    """What may follow on a ``%%nki`` or ``%nki`` line: options, or values of the option or command before."""
    from nki_nb import help as reference_help  # it and profiles load much, which %load_ext does not wait for
    from nki_nb.profile_view import ORDERS

    words = event.text_until_cursor.split()
    if event.text_until_cursor[-1:] not in ("", " "):
        words = words[:-1]
    previous = words[-1] if words else ""
    values = {
        "--target": TARGETS,
        "--view": VIEW_NAMES,
        "target": TARGETS,
        "profile": ("--order", "--json"),
        "--order": tuple(ORDERS),
        "--fit": tuple(ORDERS),
    }
    if event.command == "%nki":
        if previous == "help":
            return sorted(reference_help.names())
        return list(values.get(previous, COMMANDS if len(words) == 1 else ()))
    if previous in values:
        return list(values[previous])
    return list(OPTIONS) if event.symbol.startswith("-") else []
