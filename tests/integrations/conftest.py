"""Fixtures of the integrations."""

import pytest

from mlpoly.integrations.adapters import _adapters


@pytest.fixture
def adapters():
    """Restore the adapter registry after the test."""
    before = list(_adapters)
    yield
    _adapters[:] = before
