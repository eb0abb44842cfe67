"""The comparison behind ``--check``."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_nb.check import Comparison, Tolerance, compare, compare_all


def check(got: Any, want: Any, rtol: float | None = None, atol: float | None = None) -> Comparison:
    return compare(np.asarray(got), np.asarray(want), "want", "got", Tolerance(rtol, atol))


def test_equal_is_ok() -> None:
    result = check(np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([[1, 2, 3], [4, 5, 6]]))
    assert result.ok and result.measures == "max abs 0 · rel 0 · cos 1.000000"


def test_first_wrong_element_in_reading_order() -> None:
    want = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = want.copy()
    got[0, 2], got[1, 0] = 7, 9
    result = check(got, want)
    assert (result.wrong, result.total, result.first) == (2, 6, (0, 2))
    assert result.where == "first wrong got[0, 2]: got 7, expected 2"
    assert result.max_abs == 6


def test_measures_are_known_ones() -> None:
    result = check(np.float32([3, 4]), np.float32([3, 0]))
    assert result.rel == pytest.approx(4 / 3) and result.cos == pytest.approx(9 / 15)


def test_nan_equals_nan_only() -> None:
    assert check(np.float32([np.nan, np.inf, 1]), np.float32([np.nan, np.inf, 1])).ok
    lost = check(np.float32([np.nan, 2, 1]), np.float32([0, 2, 1]))
    assert (lost.wrong, lost.lost) == (1, 1) and "1 not finite" in lost.measures
    assert check(np.float32([np.inf]), np.float32([-np.inf])).wrong == 1
    gone = check(np.float32([np.nan]), np.float32([1]))
    assert math.isnan(gone.max_abs) and not gone.ok
    assert gone.as_dict()["max_abs"] is None


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2])
def test_low_precision_is_compared_with_its_own_tolerance(dtype: Any) -> None:
    want = np.linspace(0.5, 3, 60, dtype=np.float32)
    assert check(want.astype(dtype), want).ok
    assert not check((want * 2).astype(dtype), want).ok


def test_integers_are_compared_exactly() -> None:
    assert not check(np.int32([1000001]), np.int32([1000000])).ok


def test_given_tolerances_win() -> None:
    assert check([1.0], [1.1], rtol=0.2).ok
    assert check([1.0], [1.1], atol=0.2, rtol=0).ok
    assert not check([1.0], [1.1], atol=0.0, rtol=0).ok


def test_another_shape_is_a_mismatch() -> None:
    result = check(np.zeros((2, 3)), np.zeros((3, 2)))
    assert result.verdict == "WRONG, shape [2 × 3] but [3 × 2] expected" and not result.measures


def test_outputs_and_references_are_paired() -> None:
    a, b = np.float32([1]), np.float32([2, 3])
    assert all(c.ok for c in compare_all([a, b], (a, b), "e", ("x", "y"), Tolerance()))
    (unpaired,) = compare_all([a, b], (a,), "e", ("x", "y"), Tolerance())
    assert "2 outputs but 1 references" in unpaired.verdict
    (nothing,) = compare_all([], a, "e", (), Tolerance())
    assert not nothing.ok


def test_a_list_is_a_reference_too() -> None:
    assert all(c.ok for c in compare_all([np.float32([1, 2])], [[1, 2]], "e", ("x",), Tolerance()))
