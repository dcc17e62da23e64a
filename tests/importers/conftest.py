"""Fixtures of the importers."""

import pytest

from mlpoly.importers.adapters import ADAPTERS


@pytest.fixture
def adapters():
    """Restore the adapter registry after the test."""
    before = list(ADAPTERS)
    yield
    ADAPTERS[:] = before
