"""Loops found in a sequence of steps."""

from __future__ import annotations

import numpy as np
import pytest

from nki_nb.stepper.folding import Fold, folds


def found(text: str) -> list[tuple[int, int, int]]:
    """The folds of a program whose steps are letters."""
    plans = np.array([ord(c) for c in text], np.int32)
    return [(f.start, f.length, f.times) for f in folds(plans, np.ones(len(text), np.int32))]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", []),
        ("a", []),
        ("abc", []),
        ("xababab", [(1, 2, 3)]),
        ("aaaa", [(0, 1, 4)]),
        ("xabcabcy", [(1, 3, 2)]),
        ("abababab" + "cdcd", [(0, 2, 4), (8, 2, 2)]),
        ("aabaabaab", [(0, 3, 3)]),
    ],
)
def test_folds(program: str, expected: list[tuple[int, int, int]]) -> None:
    assert found(program) == expected


def test_steps_on_different_lines_do_not_fold() -> None:
    assert folds(np.zeros(4, np.int32), np.arange(4, dtype=np.int32)) == []


def test_folds_do_not_overlap_and_repeat_what_they_say() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        text = "".join(random.choice(list("ab"), random.integers(0, 40)))
        last = 0
        for start, length, times in found(text):
            assert start >= last and times > 1
            last = Fold(start, length, times).stop
            assert text[start:last] == text[start : start + length] * times
