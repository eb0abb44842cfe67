"""Exercises: a kernel with blanks, checked against a NumPy function, with a cost to beat.

>>> from nki_nb.exercise import Exercise, ___, puzzles

:class:`Exercise` makes one; :mod:`nki_nb.exercise.puzzles` has twenty; ``nki-nb grade notebook.ipynb`` grades a notebook of
them without anybody looking.
"""

from __future__ import annotations

from nki_nb.exercise.blanks import Blank, BlankError, ___
from nki_nb.exercise.cost import Cost
from nki_nb.exercise.exercise import Exercise, Hint
from nki_nb.exercise.registry import REGISTRY
from nki_nb.exercise.result import Result

__all__ = ["REGISTRY", "Blank", "BlankError", "Cost", "Exercise", "Hint", "Result", "___"]
