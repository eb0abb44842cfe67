"""Docstrings of instructions that are made when somebody reads them: they show every limit, which takes a while to gather."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Docstring:
    """The docstring of a class as a page.

    Args:
        words: what the class says itself.
        make: the page of a class.
    """

    def __init__(self, words: str | None, make: Callable[[Any], str]):
        self.words, self._make = words, make

    def __get__(self, instance: object, owner: type) -> str:
        return self._make(owner)


def own_words(value: Any) -> str | None:
    """What a class or function says itself."""
    found = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    return found.words if isinstance(found, Docstring) else found
