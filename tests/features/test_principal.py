"""Principal forms: covariances of the parts of each degree, their eigenvectors, and the forms along them."""

import numpy as np
import pytest
from support.backends import JAX32, JAX64, TORCH32, TORCH64, assert_close, assert_same_kind, backends, in_library
from support.inputs import gaussian, grid
from support.mistakes import assert_explained, mistakes
from support.networks import network

import mlpoly as mp


def part(poly, x, degree):
    return poly.truncate(degree)(x) - poly.truncate(degree - 1)(x)


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_values_are_the_eigenvalues_of_the_covariance_of_one_degree(kind, degree):
    inputs = gaussian(d=3)
    poly = mp.fit(network(kind, "gelu", d=3, h=7, o=5), inputs, 3)
    x, weights = grid(inputs, 8)  # exact for polynomials of degree 15 in each coordinate
    values = part(poly, x, degree)
    covariance = (values * weights[:, None]).T @ values
    found = mp.principal_forms(poly, degree, k=9)
    assert found.degree == degree and found.values.shape == (5,)
    assert_close(found.values, np.linalg.eigvalsh(covariance)[::-1], 1e-12)
    assert_close(found.total, np.trace(covariance), 1e-12)
    assert_close(found.fractions, found.values / np.trace(covariance), 1e-12)
    assert_close(found.outputs @ found.outputs.T, np.eye(5), 1e-12)
    # The forms are uncorrelated, with these variances.
    along = values @ found.outputs.T
    assert_close((along * weights[:, None]).T @ along, np.diag(found.values), 1e-12)


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_forms_under_other_inputs_agree_with_their_features(degree):
    """The part of degree 2 in the basis of these inputs, from a grid, and the features of its forms."""
    other = gaussian(7, d=3)
    poly = mp.fit(network("GLU", "gelu", d=3, h=7, o=4), gaussian(d=3), degree)
    forms = mp.principal_forms(poly, 2, k=4, inputs=other)
    x, weights = grid(other, 8)
    z = (x - other.mean) @ other.inverse_root
    products = [z[:, i] * z[:, j] if i < j else (z[:, i] ** 2 - 1) / 2**0.5 for i in range(3) for j in range(i, 3)]
    coefficients = np.stack(products) @ (poly(x) * weights[:, None])  # of orthonormal quadratic polynomials
    assert_close(forms.values, np.linalg.eigvalsh(coefficients.T @ coefficients)[::-1], 1e-11)
    for form in range(4):
        features = forms.features(form, k=3).values
        assert 2 * np.sum(features**2) == pytest.approx(float(forms.values[form]), rel=1e-11, abs=1e-11)


def test_a_readout_of_none_and_bounds():
    inputs = gaussian(d=3)
    net = network("MLP", "tanh", d=3, h=5, o=2)
    neurons = mp.fit(mp.MLP(net.W1, net.b1, None, None, "tanh"), inputs, 2)
    same = mp.fit(mp.MLP(net.W1, net.b1, np.eye(5), None, "tanh"), inputs, 2)
    assert_close(mp.principal_forms(neurons).values, mp.principal_forms(same).values, 1e-12)
    poly = mp.fit(net, inputs, 2)
    assert_close(mp.principal_forms(poly.bounded(3.0)).values, mp.principal_forms(poly).values, 1e-14)


@backends(TORCH32, TORCH64, slow=(JAX32, JAX64))  # JAX compiles for half a minute
def test_array_libraries(backend):
    inputs, net = gaussian(d=4), network("GLU", "silu", d=4, h=6, o=3)
    expected = mp.principal_forms(mp.fit(net, inputs, 2), k=3)
    with backend.active():
        poly = mp.fit(in_library(net, backend), in_library(inputs, backend), 2)
        found = mp.principal_forms(poly, k=3)
        assert_same_kind(found.outputs, poly.prototype)
        assert_close(found.values, expected.values, 10 * backend.tolerance)
        assert_close(found.features(0).values, expected.features(0).values, 10 * backend.tolerance)


POLY = mp.fit(network(), gaussian(), 2)


ERRORS = [
    ("degree above", lambda: mp.principal_forms(POLY, 3), ValueError, "no part of degree 3", "fit it with degree=3"),
    ("degree zero", lambda: mp.principal_forms(POLY, 0), ValueError, "degree"),
    ("k zero", lambda: mp.principal_forms(POLY, k=0), ValueError, "k must"),
    ("inputs", lambda: mp.principal_forms(POLY, inputs=np.ones((5, 4))), TypeError, "inputs must be a Gaussian",
     "from_samples"),
    ("size", lambda: mp.principal_forms(POLY, inputs=mp.Gaussian.standard(7)), ValueError, "dimension 7", "takes 4"),
    ("no polynomial", lambda: mp.principal_forms("poly"), TypeError, "poly must be the polynomial of one hidden"),
    ("linear", lambda: mp.principal_forms(POLY, 1).features(0), ValueError, "no eigenvectors", "degree=2"),
    ("form", lambda: mp.principal_forms(POLY).features(9), ValueError, "form is 9, but there are 3"),
]  # fmt: skip


@mistakes(ERRORS)
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)
