"""The benchmark of kinds of tokens, on a tiny model with random weights."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("transformers")
from support.tiny_models import llama, token_ids

from benchmarks import token_kinds
from benchmarks.common import Skip
from mlpoly.lm import collect, convert, evaluate


def test_every_way_is_measured_as_evaluate_does():
    model, train, held_out = llama().to(token_kinds.DEVICE), token_ids(3), token_ids(2, seed=5)
    subject = token_kinds.decoder(model, train, held_out)
    rows = {(title, degree): value for title, degree, value, _ in token_kinds.compare(subject, (1, 2), (3,))}
    ways = ["one Gaussian, lines along the activation", "1 kind of tokens", "2 kinds of tokens", "fitted to the tokens"]
    assert list(rows) == [(way, 3) for way in ways]
    made = convert(model, collect(model, train), 3, bound=token_kinds.BOUND, closed_form=False)
    expected = evaluate(model, made, held_out, baselines=()).increase
    assert rows["1 kind of tokens", 3] == pytest.approx(expected, abs=1e-6)  # float32 sums over a few dozen tokens
    assert all(math.isfinite(value) for value in rows.values())
    assert subject.measure() == 0.0  # the model is left as it was


def test_without_models_it_says_what_it_needs(monkeypatch, tmp_path):
    for name in ("MLPOLY_MINILM", "MLPOLY_GEMMA", "MLPOLY_SMOLLM2"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLPOLY_DATA", str(tmp_path))
    monkeypatch.setenv("MLPOLY_KINDS", "gemma,stories260K")
    with pytest.raises(Skip, match=r"MLPOLY_GEMMA.*; it needs MLPOLY_DATA with stories260K"):
        token_kinds.main(tiny=True)
