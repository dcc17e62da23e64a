"""The logic of the benchmarks beside peers: exact errors, laws, references. Tiny sizes."""

import json
import math

import numpy as np
import pytest
import torch

import mlpoly as mp
from benchmarks import activations, common, measures, mixture, peers, sampling

SMALL = peers.Problem(3)


def test_closed_form_has_no_excess_and_a_perturbation_has_what_fvu_says():
    found = SMALL.closed_form()
    assert max(SMALL.errors(found)) < 1e-12
    rng = np.random.default_rng(0)
    constant, linear, quadratic = (0.1 * rng.standard_normal(t.shape) + t for t in found)
    quadratic = (quadratic + np.swapaxes(quadratic, 1, 2)) / 2
    other = mp.DensePolynomial(np.zeros(3), constant, linear, quadratic)
    excess, top = SMALL.errors([constant, linear, quadratic])
    expected = float(mp.fvu(SMALL.net, other, SMALL.inputs).total) - SMALL.fvu
    assert excess == pytest.approx(expected, rel=1e-9) and top > 0.01


def test_symmetric_tensors_of_a_cubic():
    rng = np.random.default_rng(0)
    powers = np.array([p for p in np.ndindex(4, 4) if sum(p) <= 3])
    coefficients = rng.standard_normal((2, len(powers)))
    tensors = peers.symmetric_tensors(powers, coefficients, 3)
    x = rng.standard_normal(2)
    values = tensors[0]
    for k in (1, 2, 3):
        term = tensors[k]
        for _ in range(k):
            term = term @ x
        values = values + term
    np.testing.assert_allclose(values, coefficients @ np.prod(x**powers, axis=1), rtol=1e-12)
    np.testing.assert_allclose(tensors[3], np.swapaxes(tensors[3], 1, 3))


def test_hermite_basis_of_a_cubic_gives_its_variance():
    """Variance of x^3 under N(0, 1) is 15: 9 at degree 1 and 6 at degree 3."""
    cubic = [np.zeros((1, *[1] * k)) for k in range(3)] + [np.ones((1, 1, 1, 1))]
    assert peers.squares(peers.in_hermite_basis(cubic)) == [0, 9, 0, 6]


def test_regressions_agree_with_each_other_and_come_near_the_optimum():
    pytest.importorskip("chaospy")  # of the extra "bench" alone
    ways = [peers.regression, peers.chaospy_regression, peers.PEERS["scikit-learn, normal equations"]]
    few, *others = [way(SMALL, 200, 0)() for way in ways]
    for other in others:
        for a, b in zip(few, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)
    many = peers.regression(SMALL, 20_000, 0)()
    assert SMALL.errors(many)[0] < SMALL.errors(few)[0] / 20 < 0.01


def test_quadrature_of_chaospy_and_descent_come_near_the_optimum():
    pytest.importorskip("chaospy")
    assert SMALL.errors(peers.chaospy_quadrature(SMALL, 12**3, 0)())[0] < 1e-5
    assert SMALL.errors(peers.descent(SMALL, 40 * peers.BATCH, 0)())[0] < 1e-2


def law(*sizes: int) -> list[sampling.Run]:
    """Runs of a regression with 10 features that follow excess 2 / (n - 10), a millisecond for each sample."""
    return [sampling.Run(n, 1e-3 * n, 2 / (n - 10), math.sqrt(2 / (n - 10))) for n in sizes]


def test_times_and_samples_follow_the_law():
    runs = law(20, 110, 1010)
    assert sampling.samples_for("scikit-learn", runs, 1e-4, 10, lambda r: r.excess) == pytest.approx(20_010)
    took, beyond = sampling.time_to("scikit-learn", runs, 0.02, 10)
    assert took == pytest.approx(0.11) and not beyond
    took, beyond = sampling.time_to("scikit-learn", runs, 1e-4, 10)
    assert took == pytest.approx(20.01, rel=0.01) and beyond
    assert sampling.time_to("chaospy, quadrature", runs, 1e-4, 10) == (None, True)
    assert sampling.time_to("SGD", law(12), 1e-4, 10) == (None, True)  # excess 1: still on its way


def test_reference_of_activations_against_fifty_digits():
    with np.load(activations.TABLE) as file:
        names, points, stored = [str(n) for n in file["names"]], file["points"], file["coefficients"]
    assert set(activations.FORMULAS) == set(mp.activations.names())
    roots, checked = np.sqrt([math.factorial(k) for k in range(6)]), 0
    for p in range(0, len(points), 4):
        m, s = points[p]
        if abs(m) <= 30 and 1e-3 <= s <= 100:
            for name, (exact, size) in activations.reference(m, s).items():
                if name in names and size > 1e-290:
                    apart = np.abs(exact - stored[names.index(name), p, :6] * roots)
                    assert np.max(apart) < 4e-16 * size, (name, m, s)
                    checked += 1
    assert checked > 200


def test_errors_of_activations_tell_a_good_rule_from_a_bad_one():
    m, s = np.array([[0.1]]), np.array([[1.0]])
    exact, size = activations.reference(0.1, 1.0)["relu"]
    exact, size = exact[:, None, None], np.array([[size]])
    good, bad = (activations.errors(way("relu", m, s), exact, size, 0.0) for way in activations.METHODS.values())
    assert good < 1e-15 and 1e-4 < bad < 1
    smooth = activations.gauss_hermite("silu", m, s / 10)[:, 0, 0] * np.sqrt([math.factorial(k) for k in range(6)])
    np.testing.assert_allclose(smooth, activations.reference(0.1, 0.1)["silu"][0].astype(float), atol=1e-14)


def test_monte_carlo_scatters_around_the_exact_value():
    at = measures.problem(5, 8, 2, 2, "relu")
    poly = at.polynomial()
    exact = float(mp.fvu(at.net, poly, at.inputs).total)
    runs = measures.monte_carlo(at, poly, exact, {500: 20, 8000: 10})
    assert runs[1].error < runs[0].error / 2
    assert measures.rounding(at, exact) < 1e-12
    assert measures.rounding(at, 1.001 * exact) > 1e-4  # a wrong value is seen
    made = [measures.Sampled(n, 0.0, 3 / math.sqrt(n), 2) for n in (100, 10_000)]
    assert measures.samples_for(made, 1e-2) == pytest.approx(90_000)
    assert measures.slope_of(made) == pytest.approx(-0.5)


def test_no_route_beats_the_exact_quadratic_under_a_mixture():
    inputs = mixture.class_like(side=4, components=2)
    rng = np.random.default_rng(0)
    weights = [torch.tensor(rng.standard_normal(shape)) for shape in ((8, 16), 8, (2, 8), 2)]
    results = mixture.against_the_paper(mp.MLP(*weights, "relu"), inputs, (4, 16))
    values = {name: value for name, value in results.items() if name.startswith("FVU, ")}
    assert len(values) == 7 and min(values, key=lambda name: values[name]) == "FVU, exact quadratic"
    assert set(mixture.plot(json.loads(json.dumps(results)))) == {"mixture"}


def test_route_between_its_runs():
    route = {10: (1.0, 0.1), 40: (4.0, 0.025)}
    assert mixture.at_time(route, 2.0) == pytest.approx(0.05)
    assert [mixture.at_time(route, t) for t in (0.1, 100.0)] == pytest.approx([0.1, 0.025])


def test_pictures_are_drawn_from_what_was_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "FOLDER", tmp_path)
    measures.main(tiny=True)
    saved = json.loads((tmp_path / "measures.json").read_text())["results"]
    figure = measures.plot(saved)["measures"]
    assert len(figure.axes) == 1 and figure.axes[0].get_title().startswith("6-12-2")
