"""`import nki` is the simulator in these tests, whatever else is installed."""

import nki_sim
import pytest

pytest.register_assert_rewrite("rulebook")
assert nki_sim.install(), "a real nki is installed: these tests are about the simulator"
