"""`import nki` is the simulator in these tests, whatever else is installed."""

import nki_sim
import pytest
from nki_sim import replay

pytest.register_assert_rewrite("rulebook")
assert nki_sim.install(), "a real nki is installed: these tests are about the simulator"


@pytest.fixture
def nothing_kept():
    """No earlier test's record is found again."""
    replay.forget()
    yield
    replay.forget()
