"""The benchmarks of conditioning and of similarity, in small: what is compared is the same quantity."""

import importlib.util
import json

import numpy as np
import pytest

import mlpoly as mp
from benchmarks import common, conditioning, gpu_similarity


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "FOLDER", tmp_path)
    return tmp_path


def test_game_of_a_prediction_has_the_values_of_shapley():
    at = conditioning.Prediction(3, hidden=5)
    values = at.shapley(conditioning.lookup(at, at.closed_form()))
    ours = mp.shapley(at.net, at.inputs, at.point, show_progress=False).values[:, 0]
    np.testing.assert_allclose(values, ours, rtol=1e-12)
    assert len(at.sets) == 8 and at.masks().sum() == 12


def test_sets_of_many_inputs_are_those_of_the_drawn_orders():
    at = conditioning.Prediction(15)
    assert len(set(at.sets)) == len(at.sets) <= 64 * 14 + 2
    assert {(), tuple(range(15))} <= set(at.sets)
    values = at.shapley(conditioning.lookup(at, np.array([sum(s) for s in at.sets], dtype=float)))
    np.testing.assert_allclose(values, np.arange(15))  # every input is worth its number


def test_sobol_indices_of_chaospy_approach_the_closed_form():
    pytest.importorskip("chaospy")
    numbers, _ = conditioning.against_chaospy(2, (1, 4))
    key = "Sobol indices, d = 2: chaospy, grid of degree {}, largest error"
    assert numbers[key.format(4)] < numbers[key.format(1)] / 5 < 0.02


def test_bilinear_layers_have_the_inner_product_of_their_tensors():
    (error,) = (v for k, v in conditioning.against_tensors(6, 9, 3).items() if "error" in k)
    assert error < 1e-12


def test_everything_is_measured_and_drawn(folder):
    conditioning.main(tiny=True)
    results = json.loads((folder / "conditioning.json").read_text())["results"]
    missing = [name for name in ("shapiq", "chaospy") if importlib.util.find_spec(name) is None]
    assert len(results["notes"]) == len(missing) and all(n in "".join(results["notes"]) for n in missing)
    assert sum(key.startswith("similarity 8-12-2") for key in results) == 8
    (figure,) = conditioning.plot(results).values()
    assert len(figure.axes) == 2


def test_blocks_compared_on_a_gpu(folder):
    """On the CPU and in small: both precisions agree with samples, and a block has no distance from itself."""
    gpu_similarity.main(tiny=True)
    results = json.loads((folder / "gpu_similarity.json").read_text())["results"]
    apart = [v for k, v in results.items() if "in standard errors" in k]
    own = [v for k, v in results.items() if "against itself" in k]
    assert len(apart) == len(own) == 4
    assert max(apart) < 4 and max(own) < 1e-6
