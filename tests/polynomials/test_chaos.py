"""Polynomial chaos: products of Hermite polynomials in whitened coordinates, and the dense normal equations in them."""

import math
from functools import partial

import numpy as np
import pytest
from support.backends import assert_close
from support.inputs import grid, mixture, points
from support.networks import network

import mlpoly as mp
from mlpoly.fitting.mixture.direct import fit_mixture_direct
from mlpoly.inputs.coordinates import Coordinates
from mlpoly.moments.hermite_products import change_of_basis, ladder, multi_indices

D, R, OUT = 3, 2, 2
DEGREES = range(5)


def chaos(degree=3, seed=0, build=np.asarray):
    """Two coordinates of three inputs, all multi-indices up to the degree."""
    rng = np.random.default_rng(seed)
    exponents = multi_indices(R, degree)
    center, whitener = rng.standard_normal(D), rng.standard_normal((R, D))
    values = rng.standard_normal((OUT, len(exponents)))
    return mp.polynomials.ChaosPolynomial(build(center), build(whitener), exponents, build(values))


make_net = partial(network, o=2)
X = points(D, 7)


@pytest.mark.parametrize("variables", range(4))
@pytest.mark.parametrize("degree", range(5))
def test_multi_indices_are_all_and_in_order(variables, degree):
    found = multi_indices(variables, degree)
    assert found.shape == (math.comb(variables + degree, degree), variables)
    assert len({tuple(row) for row in found.tolist()}) == len(found)
    assert (np.diff(found.sum(axis=1)) >= 0).all() and (found >= 0).all()


@pytest.mark.parametrize("degree", DEGREES)
def test_values_are_sums_of_products_of_hermite_polynomials(degree):
    p, x = chaos(degree), X
    z = (x - p.center) @ p.whitener.T
    want = np.zeros((7, OUT))
    for a, v in zip(p.exponents, p.values.T, strict=True):
        term = [
            np.polynomial.hermite_e.hermeval(z[:, i], np.eye(k + 1)[k]) / math.sqrt(math.factorial(k))
            for i, k in enumerate(a)
        ]
        want += np.prod(term, axis=0)[:, None] * v
    assert (p.degree, p.dim_in, p.dim_out) == (degree, D, OUT)
    assert_close(p(x), want, 1e-13)
    assert_close(p(x[0]), want[0], 1e-13)
    assert_close(p(x.reshape(7, 1, D)), want[:, None], 1e-13)
    assert repr(p).startswith(f"ChaosPolynomial(degree={degree}, 3 -> 2, {len(p.exponents)} terms")


def test_exponents_in_any_order_and_number():
    p = chaos(3)
    order = [7, 0, 4, 2]
    part = mp.polynomials.ChaosPolynomial(p.center, p.whitener, [p.exponents[i] for i in order], p.values[:, order])
    rest = [i for i in range(len(p.exponents)) if i not in order]
    other = mp.polynomials.ChaosPolynomial(p.center, p.whitener, [p.exponents[i] for i in rest], p.values[:, rest])
    assert_close(part(X) + other(X), p(X), 1e-13)
    assert_close(part.gradient(X) + other.gradient(X), p.gradient(X), 1e-13)


def test_truncation_of_one_gaussian_is_the_optimum():
    """Under one Gaussian the products are orthonormal: dropping some is projecting. Under a mixture it is not."""
    net, one, mix = make_net("MLP", "relu", 3), mixture(3, c=1), mixture(3)
    assert_close(fit_mixture_direct(net, one, 4).truncate(2)(X), mp.fit(net, one.components[0], 2)(X), 1e-12)
    lower = fit_mixture_direct(net, mix, 4).truncate(2)
    assert np.abs(lower(X) - fit_mixture_direct(net, mix, 2)(X)).max() > 1e-3
    assert lower.source.method == "" and lower.report is None


@pytest.mark.parametrize("rank", [None, 1, 0])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_gram_matrices_of_components_are_those_of_quadrature(d, rank):
    """B'B, with B the re-expansion in a component's own products, against a tensor Gauss-Hermite grid."""
    mix, degree = mixture(d, rank=rank), 4
    whitening = Coordinates.of(mix)
    basis = ladder(whitening.kept, degree)
    p = mp.polynomials.ChaosPolynomial(
        whitening.center, whitening.forward, basis.exponents, np.eye(len(basis.exponents))
    )
    for g in mix.components:
        place, factor = whitening.forward @ (g.mean - whitening.center), whitening.forward @ Coordinates.of(g).back
        own = ladder(factor.shape[1], degree)
        B = change_of_basis(place, factor, basis, own)
        x, weights = grid(g, degree + 1)  # exact up to degree 9
        features = p(x)
        # 1e-6: the root of a singular covariance is known to the root of the rounding error only
        assert_close(B.T @ B, features.T @ (weights[:, None] * features), 1e-11 if rank is None else 1e-6)


def test_a_cubic_that_vanishes_on_all_components_is_left_out():
    """Three planes in three dimensions: the product of their equations could be added in any multiple."""
    net, mix = make_net("MLP", "relu", 3), mixture(3, c=3, rank=2)
    poly = fit_mixture_direct(net, mix, 3)
    assert np.abs(poly.values).max() < 10
    assert poly.report.gradient <= 1e-13  # some hundred roundings: sums over 30 rows, through two decompositions


@pytest.mark.slow
def test_thousands_of_monomials_on_singular_components():
    """2300 monomials, components of rank 9 in 22 inputs: the direct solve would divide by rounding errors."""
    net, mix = make_net("MLP", "relu", 22, h=20), mixture(22, c=3, rank=9)
    poly = mp.fit(net, mix, 3)
    assert poly.report.gradient <= 1e-12 and np.abs(poly.values).max() < 10
    x = mix.sample(3000)
    assert mp.fvu(net, poly, x).total < mp.fvu(net, mp.fit(net, mix, 2), x).total


@pytest.mark.parametrize("unit", [2.0**-150, 2.0**-20, 1.0, 2.0**100])
def test_a_sum_on_singular_inputs_is_the_sum_of_the_values_in_any_units(unit):
    """No coordinates of either determine x: the products that hold the sum are of the size of the inputs."""
    covs = np.array([[[1.0, 2.0], [2.0, 4.0]], [[2.0, 4.0], [4.0, 8.0]]])
    inputs = mp.GaussianMixture(np.full(2, 0.5), np.ones((2, 2)), covs)
    quartic, line = (
        mp.fit(network("MLP", "tanh", 2, o=2, seed=i), inputs, n).in_units(unit) for i, n in enumerate((4, 1))
    )
    x = unit * inputs.sample(50)
    assert_close((quartic + line)(x), quartic(x) + line(x), 1e-11)
