"""The benchmark of features: medians by kind, and figures that show every feature once."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
from benchmarks import reading


def rows() -> list[dict[str, Any]]:
    """Three features of two kinds in three layers; forms have no scores of the block, and one score is NaN."""
    made = []
    for layer in (0, 2, 4):
        for kind in ("principal", "form"):
            for rank, value in enumerate((0.5, 0.75, math.nan if kind == "form" else 0.8)):
                scores = {"correlation": value, "tree": value, "current": value, "recent": value}
                scores["block_correlation"] = None if kind == "form" else value
                made.append({"kind": kind, "layer": layer, "rank": rank} | scores)
    return made


def test_medians_leave_out_what_has_no_score() -> None:
    found = reading.headlines("model", rows())
    assert found["model, principal: median block correlation"] == 0.75
    assert found["model, form: median tree"] == 0.625
    assert "model, form: median block correlation" not in found


def test_figures_have_every_feature_as_a_dot() -> None:
    figures = reading.plot({"table": {"one": rows(), "two": rows()}})
    assert set(figures) == {"reading-readability", "reading-causal"}
    for name, known in (("reading-readability", 3 * 5), ("reading-causal", 5 + 3)):
        assert len(figures[name].axes) == 6
        for axis in figures[name].axes:
            dots = [line for line in axis.lines if line.get_marker() == "."]
            assert sum(len(line.get_xdata()) for line in dots) == known
            assert [label.get_text() for label in axis.get_xticklabels()] == ["principal", "form"]
