"""What the timing model predicts, against what the public documents measured."""

from __future__ import annotations

from itertools import pairwise

import pytest
from fidelity import CASES, SLOWEST_FIRST, Case, profile


@pytest.mark.parametrize("case", [c for c in CASES if not c.miss], ids=lambda c: c.name)
def test_prediction_is_within_tolerance(case: Case) -> None:
    assert case.holds, f"{case.documented} {case.unit} documented, {case.predict()} predicted: {case.error:+.1%}"


@pytest.mark.parametrize("case", [c for c in CASES if c.miss], ids=lambda c: c.name)
def test_a_miss_is_one_and_no_larger_than_known(case: Case) -> None:
    assert case.kind == "kernel"
    assert not case.holds
    assert abs(case.error) < case.known


@pytest.mark.parametrize("names", SLOWEST_FIRST, ids=lambda names: names[0] + "…" + names[-1])
def test_versions_are_in_the_documented_order_of_speed(names: tuple[str, ...]) -> None:
    assert all(profile(slow).total_time > profile(fast).total_time for slow, fast in pairwise(names))
