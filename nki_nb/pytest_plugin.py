"""The pytest plugin: tests of kernels ``import nki`` and get the simulator, unless a real ``nki`` is installed; they run on the
generations that they name, and may refuse what the simulator only warns of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import nki_sim
import pytest
from nki_sim.errors import NkiWarning
from nki_sim.hw import core
from nki_sim.verify import TARGETS

from nki_nb.execute import default_target

MARKER = "nki_target"


def pytest_configure(config: pytest.Config) -> None:
    """Make ``import nki`` work before the first test module is collected."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(*targets): run the test once on each of these NeuronCore generations: {', '.join(TARGETS)}, or 'all'",
    )
    nki_sim.install()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per generation that the nearest marker names, its name in the test's id."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is None:
        return
    metafunc.parametrize(_nki_target.__name__, _targets(marker), indirect=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marker that nothing heeds would be a test that does not say what it seems to say."""
    if item.get_closest_marker(MARKER) is not None and not hasattr(item, "callspec"):
        pytest.fail(f"{MARKER} works on functions and methods that pytest can parametrise, not on {type(item).__name__}", False)


def _targets(marker: pytest.Mark) -> list[str]:
    """The generations of a marker, each once.

    Raises:
        CollectError: it names none, or one that does not exist.
    """
    names = marker.args
    if marker.kwargs or not names or not all(isinstance(name, str) and name for name in names):
        raise pytest.Collector.CollectError(f"{MARKER} takes names of generations: {', '.join(TARGETS)}, or 'all'")
    if names == ("all",):
        return list(TARGETS)
    try:
        return list(dict.fromkeys(core(name).target for name in names))
    except ValueError as error:
        raise pytest.Collector.CollectError(f"{MARKER}: {error}, or 'all' alone") from None


@pytest.fixture(autouse=True)
def _nki_target(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes the marker's generation the current one, before other fixtures look at limits."""
    with default_target(getattr(request, "param", None)):
        yield


@pytest.fixture
def nki_target(_nki_target: None) -> str:
    """The generation that kernels run on in this test: the marker's, or the session's."""
    return core().target


@pytest.fixture
def nki_strict() -> Iterator[None]:
    """A kernel of which the simulator has something to report fails the test, with the rule and the line.

    What a test expects goes in ``with pytest.warns(nki_sim.NkiWarning, match="…"):``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", NkiWarning)
        yield
