"""Public kernels, unmodified, on the simulator. Each runner takes a checkout's path from an environment variable."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import nki_sim
import pytest
from nki_sim.dataflow import wasted

_TABLE: list[tuple[str, str]] = []


@pytest.fixture
def module() -> Iterator[Callable[[Path], ModuleType]]:
    """Import a file of a checkout as it is; environment variables that it sets are put back."""
    nki_sim.install()
    before = dict(os.environ)

    def load(path: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location("public_kernel", path)
        assert spec is not None and spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = made
        spec.loader.exec_module(made)
        return made

    yield load
    sys.modules.pop("public_kernel", None)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def nothing_is_wasted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is said of needless work is true, and these kernels do none: there is nothing to be said of them."""
    execute, said = nki_sim.Kernel._execute, []

    def watched(kernel: nki_sim.Kernel, *given: Any) -> Any:
        done = execute(kernel, *given)
        said.extend(diagnosis.text() for diagnosis in wasted(done.run.program, done.run.core.target))
        return done

    monkeypatch.setattr(nki_sim.Kernel, "_execute", watched)
    yield
    assert said == []


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Add a line to the table printed at the end."""
    return lambda text: _TABLE.append((request.node.name, text))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _TABLE:
        terminalreporter.section("public kernels")
        for name, text in _TABLE:
            terminalreporter.write_line(f"{name}: {text}")
