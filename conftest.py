"""Notebooks that need more than is installed are skipped; nbval would run them."""

from __future__ import annotations

import pytest

from tests.notebook.needs import missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip each cell of such a notebook."""
    for item in items:
        if item.path.suffix == ".ipynb" and (reason := missing(item.path)):
            item.add_marker(pytest.mark.skip(reason=reason))
