"""Quadratics written out, against regression on a grid and samples."""

import math

import numpy as np
import pytest

import mlpoly as mp
from mlpoly.studies.paper.formulas import formulas


@pytest.fixture
def inputs(rng):
    root = rng.normal(size=(4, 4))
    return mp.Gaussian(rng.normal(size=4), root @ root.T + 0.1 * np.eye(4))


@pytest.fixture
def poly(rng, inputs):
    net = mp.MLP(rng.normal(size=(9, 4)), rng.normal(size=9), rng.normal(size=(2, 9)), rng.normal(size=2), "relu")
    return mp.fit(net, inputs, 2)


def value(terms, u):
    """The sum of terms at rows of u, which are pixels minus their means."""
    return sum(t.coefficient * np.prod(u[:, list(t.pixels)], axis=1) for t in terms)


def test_all_terms_are_the_polynomial(poly, inputs, rng):
    x = rng.normal(size=(20, 4))
    for f in formulas(poly, inputs, k=99, pixels=4):
        terms = [f.small[0], *f.strongest]
        assert f.count == len(terms) == len(f.small) == 15
        np.testing.assert_allclose(value(f.small, x - inputs.mean), poly(x)[:, f.label], atol=1e-10)
        np.testing.assert_allclose(value(terms, x - inputs.mean), poly(x)[:, f.label], atol=1e-10)
        assert f.strongest_fvu == pytest.approx(0, abs=1e-12) and f.small_fvu == pytest.approx(0, abs=1e-10)


def test_effects_and_the_variance_left(poly, inputs):
    x = inputs.sample(400_000, 0)
    u, out = x - inputs.mean, poly(x)
    for f in formulas(poly, inputs, k=2):
        assert sorted(len(t.pixels) for t in f.strongest) == [1, 1, 2, 2]
        assert [t.effect for t in f.strongest] == sorted((t.effect for t in f.strongest), reverse=True)
        for t in (*f.strongest, *f.small[1:]):
            assert t.effect == pytest.approx(value([t], u).std(), rel=0.02, abs=1e-6)
        left = out[:, f.label] - value(f.strongest, u)
        assert f.strongest_fvu == pytest.approx(left.var() / out[:, f.label].var(), rel=0.03)


def test_the_small_formula_is_the_best_in_its_pixels(poly, inputs):
    """Against least squares on samples with every monomial of the two pixels, and against every other pair."""
    x = inputs.sample(400_000, 0)
    u, out = x - inputs.mean, poly(x)
    for f in formulas(poly, inputs, pixels=2):
        y = out[:, f.label]
        fvu = {}
        for i in range(4):
            for j in range(i + 1, 4):
                a, b = u[:, i], u[:, j]
                design = np.stack([np.ones(len(u)), a, b, a * a, a * b, b * b], 1)
                solution = np.linalg.lstsq(design, y, rcond=None)[0]
                fvu[i, j] = float(np.var(y - design @ solution) / np.var(y)), solution
        pixels = f.small[1].pixels + f.small[2].pixels
        best, solution = fvu[pixels]
        assert f.small_fvu == pytest.approx(best, rel=0.02)
        sizes = np.abs(solution).max()
        np.testing.assert_allclose([t.coefficient for t in f.small], solution, atol=0.03 * sizes)
        assert [t.pixels for t in f.small[3:]] == [(pixels[0],) * 2, pixels, (pixels[1],) * 2]
        single = min(g.small_fvu for g in formulas(poly, inputs, pixels=1) if g.label == f.label)
        assert f.small_fvu < single


def test_a_constant_has_nothing_to_explain(inputs):
    poly = mp.polynomials.DensePolynomial(np.zeros(4), np.array([2.0]), np.zeros((1, 4)), np.zeros((1, 4, 4)))
    (f,) = formulas(poly, inputs)
    assert math.isnan(f.small_fvu) and math.isnan(f.strongest_fvu) and f.small[0].coefficient == 2
