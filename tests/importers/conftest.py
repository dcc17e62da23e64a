"""Fixtures of the importers."""

import pytest

from mlpoly.importers.adapters import _adapters


@pytest.fixture
def adapters():
    """Restore the adapter registry after the test."""
    before = list(_adapters)
    yield
    _adapters[:] = before
