"""Polynomial chaos: products of Hermite polynomials in whitened coordinates, and the dense normal equations in them."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from support.backends import JAX32, JAX64, NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, backends, make
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


# ---------------------------------------------------------------------------------------------------------------------
# The polynomial
# ---------------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("degree", DEGREES)
def test_values_are_those_of_the_coefficients(degree):
    p, x = chaos(degree), X
    want = np.zeros((7, OUT))
    for k in range(degree + 1):
        t = p.coefficients().tensor(k)
        assert t.shape == (OUT, *[D] * k)
        for axes in itertools.permutations(range(1, k + 1)):
            assert_close(t, t.transpose(0, *axes), 1e-12)
        products = np.ones((7, 1))
        for _ in range(k):
            products = (products[:, :, None] * x[:, None, :]).reshape(7, -1)
        want += products @ t.reshape(OUT, -1).T
    assert_close(p(x), want, 1e-12)
    assert not p.coefficients().tensor(degree + 1).any()


@pytest.mark.parametrize("degree", DEGREES)
def test_derivatives_are_those_of_autograd(degree):
    p, x = chaos(degree, build=torch.tensor), torch.tensor(X)
    slopes = torch.stack([torch.autograd.functional.jacobian(p, v) for v in x])
    assert_close(p.gradient(x), slopes, 1e-12)
    assert_close(p.gradient(x[0]), slopes[0], 1e-12)
    assert_close(p.gradient(x[:, None]), slopes[:, None], 1e-12)
    bends = torch.stack([torch.autograd.functional.hessian(lambda v, i=i: p(v)[i], x[0]) for i in range(OUT)])
    assert_close(p.hessian(x[0]), bends, 1e-12)
    several = torch.stack([p.hessian(v) for v in x])
    assert_close(p.hessian(x), several, 1e-14)
    assert_close(p.hessian(x[:, None]), several[:, None], 1e-14)
    assert p.hessian(x[:0]).shape == (0, OUT, D, D)


def test_exponents_in_any_order_and_number():
    p = chaos(3)
    order = [7, 0, 4, 2]
    part = mp.polynomials.ChaosPolynomial(p.center, p.whitener, [p.exponents[i] for i in order], p.values[:, order])
    rest = [i for i in range(len(p.exponents)) if i not in order]
    other = mp.polynomials.ChaosPolynomial(p.center, p.whitener, [p.exponents[i] for i in rest], p.values[:, rest])
    assert_close(part(X) + other(X), p(X), 1e-13)
    assert_close(part.gradient(X) + other.gradient(X), p.gradient(X), 1e-13)


def test_truncation_drops_products():
    p = chaos(3)
    for degree in range(3):
        cut = p.truncate(degree)
        keep = np.flatnonzero(np.sum(p.exponents, axis=1) <= degree)
        assert cut.degree == degree and len(cut.exponents) == len(keep)
        assert_close(
            cut(X),
            mp.polynomials.ChaosPolynomial(p.center, p.whitener, [p.exponents[i] for i in keep], p.values[:, keep])(X),
            0,
        )
    assert p.truncate(3) is p and p.truncate(8) is p
    fitted = fit_mixture_direct(make_net("MLP", "relu", 3), mixture(3), 3)
    assert fitted.truncate(2).source.method == "" and fitted.truncate(2).report is None


def test_truncation_of_one_gaussian_is_the_optimum():
    """Under one Gaussian the products are orthonormal: cutting them is projecting. Under a mixture it is not."""
    net, one, mix = make_net("MLP", "relu", 3), mixture(3, c=1), mixture(3)
    assert_close(fit_mixture_direct(net, one, 4).truncate(2)(X), mp.fit(net, one.components[0], 2)(X), 1e-12)
    gap = fit_mixture_direct(net, mix, 4).truncate(2)(X) - fit_mixture_direct(net, mix, 2)(X)
    assert np.abs(gap).max() > 1e-3


@pytest.mark.parametrize("degree", [2, 3])
def test_features_are_those_of_the_coefficients(degree):
    mix = mixture(5)
    p = fit_mixture_direct(make_net("GLU", "silu", 5), mix, degree)
    c = p.coefficients()
    values, vectors = np.linalg.eigh(c.quadratic[1])
    order = np.argsort(-np.abs(values))[:3]
    found = mp.eigenfeatures(p, output=1, k=3)
    assert_close(found.values, values[order], 1e-12)
    assert_close(np.abs(np.sum(found.vectors * vectors[:, order].T, axis=1)), np.ones(3), 1e-9)
    whitened = np.linalg.eigvalsh(mix.root @ c.quadratic[1] @ mix.root)
    top = whitened[np.argsort(-np.abs(whitened))[:3]]
    assert_close(mp.eigenfeatures(p, output=1, k=3, metric="whitened").values, top, 1e-12)
    assert_close(mp.singular_directions(p).values, np.linalg.svd(c.linear, compute_uv=False), 1e-12)


@backends(NUMPY32, TORCH64, TORCH32, JAX64, JAX32)
def test_every_library_gives_the_same_numbers(backend):
    p, twin = chaos(build=lambda a: make(a, backend)), chaos()
    x = make(X, backend)
    for got, want in [
        (p(x), twin(X)),
        (p.gradient(x), twin.gradient(X)),
        (p.hessian(x[0]), twin.hessian(X[0])),
        (p.coefficients().tensor(3), twin.coefficients().tensor(3)),
        (p.truncate(1)(x), twin.truncate(1)(X)),
    ]:
        assert_same_kind(got, x)
        assert_close(got, want, 10 * backend.tolerance)  # three powers of z


def test_points_of_higher_precision_are_taken():
    p, x = chaos(build=lambda a: make(a, TORCH32)), make(X, TORCH64)
    assert p(x).dtype == p.gradient(x).dtype == p.hessian(x[0]).dtype == torch.float64
    assert_close(p.gradient(x), chaos().gradient(X), 1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# The normal equations
# ---------------------------------------------------------------------------------------------------------------------


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


def test_the_report():
    net, mix = make_net("MLP", "relu", 3), mixture(3)
    report = mp.fit(net, mix, 3).report
    assert report.method == "least squares under a Gaussian mixture"
    assert report.converged and report.iterations == 0 and report.history == ()
    assert report.gradient <= 1e-14 and report.details["gain_left"] == 0
    assert (report.details["kept"], report.details["dropped"]) == (3, 0)
    misfits = [fit_mixture_direct(net, mix, degree).report.misfit for degree in range(5)]
    assert all(m > 0 for m in misfits)


def test_fits_are_deterministic():
    net, mix = make_net("GLU", "silu", 4), mixture(4)
    np.testing.assert_array_equal(mp.fit(net, mix, 3).values, mp.fit(net, mix, 3).values)


@pytest.mark.slow
def test_thousands_of_monomials_on_singular_components():
    """2300 monomials, components of rank 9 in 22 inputs: the direct solve would divide by rounding errors."""
    net, mix = make_net("MLP", "relu", 22, h=20), mixture(22, c=3, rank=9)
    poly = mp.fit(net, mix, 3)
    assert poly.report.gradient <= 1e-12 and np.abs(poly.values).max() < 10
    x = mix.sample(3000)
    assert mp.fvu(net, poly, x).total < mp.fvu(net, mp.fit(net, mix, 2), x).total


def test_the_sum_of_a_ridge_and_a_dense_polynomial_of_higher_degree():
    """Either way round, against the sum of the values; too many monomials are refused with the remedy."""
    rng = np.random.default_rng(5)
    mix = mp.GaussianMixture(np.array([0.5, 0.5]), rng.standard_normal((2, 3)), np.array([np.eye(3), 2 * np.eye(3)]))
    net = mp.MLP(rng.standard_normal((6, 3)), rng.standard_normal(6), rng.standard_normal((2, 6)), None, "gelu")
    ridge, dense = mp.fit(net, mp.Gaussian.standard(3), 4), mp.fit(net, mix, 2)
    x = 2 * rng.standard_normal((30, 3))
    for total, sign in ((ridge + dense, 1), (dense + ridge, 1), (ridge - dense, -1)):
        assert isinstance(total, mp.polynomials.ChaosPolynomial) and total.degree == 4
        np.testing.assert_allclose(total(x), ridge(x) + sign * dense(x), rtol=1e-11, atol=1e-11)
    wide = mp.polynomials.DensePolynomial(np.zeros(300), np.zeros(1), np.ones((1, 300)), np.ones((1, 300, 300)))
    with pytest.raises(mp.TooLargeError, match="add the values of the polynomials"):
        mp.fit(mp.MLP(np.ones((1, 300))), mp.Gaussian.standard(300), 4) + wide


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
