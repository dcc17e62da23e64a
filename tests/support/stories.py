"""The model stories260K, where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

STORIES = Path(os.environ.get("MLPOLY_DATA", ".")) / "stories260K"
needs_stories = pytest.mark.skipif(
    "MLPOLY_DATA" not in os.environ or not (STORIES / "model.safetensors").is_file(),
    reason="stories260K is not there: set MLPOLY_DATA to a folder that holds stories260K/ with model.safetensors",
)
