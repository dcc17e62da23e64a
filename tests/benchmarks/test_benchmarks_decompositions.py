"""The benchmark of decompositions in small: fractions of a network that is made of few terms, and what is drawn."""

import pytest
import torch

import mlpoly as mp
from benchmarks import decompositions


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(decompositions, "BUDGETS", (2, 4, 12))
    made = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=made, dtype=torch.float64)

    net = mp.GLU(normal(12, 6), None, normal(12, 6), None, normal(5, 12), None, activation="identity")
    return decompositions.measured(net, normal(400, 6), normal(300, 6))


def test_all_neurons_are_the_block_and_nothing_passes_the_bound(measured):
    closed = decompositions.MEASURES[0]
    for name in ("neurons, strongest", "neurons, matching pursuit", "products (CP)"):
        for measure in decompositions.MEASURES:
            assert measured["table"][name]["12"][measure] == pytest.approx(1, abs=1e-8)
    assert measured["quadratic"] == pytest.approx(1, abs=1e-12)  # a bilinear layer
    for name, rows in measured["table"].items():
        for k, row in rows.items():
            assert row[closed] <= measured["table"][decompositions.CEILING][k][closed] + 1e-12, (name, k)
    assert measured["table"]["products (CP)"]["4"][closed] > measured["table"]["random directions"]["4"][closed]


def test_medians_and_picture(measured):
    tables = {"model": {"one": measured, "two": measured}}
    found = decompositions.headlines(tables)
    row = found[f"model, {decompositions.MEASURES[0]}: neurons, strongest, 2, 4 and 12 terms"]
    values = [measured["table"]["neurons, strongest"][k][decompositions.MEASURES[0]] for k in ("2", "4", "12")]
    assert row == ", ".join(f"{value:.3f}" for value in values)
    (figure,) = decompositions.plot({"tables": tables}).values()
    assert len(figure.axes) == 3
    assert figure.axes[0].lines[2].get_ydata().tolist() == values
