"""Packages that only exports need, and what to say where they are not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class MissingExtraError(ImportError):
    """A package is not installed; the message says how to get it."""


def load(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an extra.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        words = f'{purpose} needs the package {package}: python -m pip install "nki-nb[{extra}]"'
        raise MissingExtraError(words, name=package) from error
