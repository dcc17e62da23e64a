"""What all tests of language models share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Weights and inputs that a test draws do not depend on the tests that ran before it."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
