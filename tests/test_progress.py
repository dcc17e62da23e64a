"""Bars on a terminal: quiet elsewhere, and one drawing however deep the work is nested."""

import contextlib
import io

import numpy as np
import pytest

import mlpoly as mp
from mlpoly import progress_bars


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Every bar comes at once, and all are on."""
    progress_bars.progress(True)
    monkeypatch.setattr(progress_bars, "_PATIENCE", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    yield
    progress_bars.progress(True)


def test_bars_within_bars_share_one_drawing():
    with contextlib.redirect_stderr(Terminal()), progress_bars.progress_bar("outer", 2) as outer:
        outer(0, "")
        drawn = progress_bars._Bar.drawn
        with progress_bars.progress_bar("inner", 3) as inner:
            inner(1, "")
            assert progress_bars._Bar.drawn is drawn
            assert [t.description for t in drawn.tasks] == ["outer", "inner"]
        assert [t.description for t in drawn.tasks] == ["outer"]
        outer(1, "")
    assert progress_bars._Bar.drawn is None


def test_a_bar_that_is_never_updated_draws_nothing():
    with contextlib.redirect_stderr(Terminal()) as terminal, progress_bars.progress_bar("idle", 1):
        pass
    assert terminal.getvalue() == "" and progress_bars._Bar.drawn is None


def test_strongly_correlated_pairs_have_a_bar(rng):
    inputs = mp.Gaussian(np.zeros(3), 100 * np.ones((3, 3)) + 0.01 * np.eye(3))
    with contextlib.redirect_stderr(Terminal()) as terminal:
        mp.second_moment(mp.MLP(rng.standard_normal((6, 3)), None, None, None, "silu"), inputs)
    assert "strongly correlated pairs" in terminal.getvalue()
    assert progress_bars._Bar.drawn is None


def test_one_switch_for_all():
    progress_bars.progress(False)
    with contextlib.redirect_stderr(Terminal()) as terminal, progress_bars.progress_bar("off", 2) as update:
        update(1, "")
        progress_bars.announce("nothing")
    assert terminal.getvalue() == "" and progress_bars._Bar.drawn is None
