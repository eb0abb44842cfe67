"""The pytest plugin: tests of kernels ``import nki`` and get the simulator, unless a real ``nki`` is installed."""

from __future__ import annotations

import nki_sim


def pytest_configure() -> None:
    """Make ``import nki`` work before the first test module is collected."""
    nki_sim.install()
