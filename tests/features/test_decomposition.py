"""Short sums of squares for the quadratic part, against dense tensors and closed forms."""

import numpy as np
import pytest
from support.backends import JAX32, NUMPY32, TORCH32, TORCH64, assert_close, assert_same_kind, backends, in_library
from support.inputs import gaussian, mixture, points
from support.mistakes import assert_explained, mistakes
from support.networks import network

import mlpoly as mp
from mlpoly.features import decomposition
from mlpoly.features.quadratic_part import quadratic_part
from mlpoly.polynomials.dense import to_dense

D, H, OUT = 6, 9, 3
INPUTS = gaussian(3, D)


def fitted(kind="GLU", degree=3, seed=0, inputs=INPUTS):
    return mp.fit(network(kind, "gelu", D, H, OUT, seed=seed), inputs, degree)


def tensor(poly, inputs):
    """Whitened coefficients (o, d, d) of the part of degree 2, which are those of the best quadratic."""
    return inputs.root @ poly.truncate(2).coefficients().quadratic @ inputs.root


def limited(monkeypatch, steps, *arguments, **options):
    """A decomposition by at most so many steps; none leaves the neurons' own directions."""
    monkeypatch.setattr(decomposition, "_STEPS", steps)
    return mp.decompose(*arguments, **options)


def slices(found):
    """The terms as symmetric matrices (r, d d)."""
    return np.einsum("ri,rj->rij", found.vectors, found.vectors).reshape(len(found.vectors), -1)


def explained(terms, target):
    """Fraction of the squared norm of a tensor (o, d d) in the span of terms (r, d d), by least squares."""
    writes = np.linalg.lstsq(terms.T, target.T, rcond=None)[0]
    return 1 - np.sum((writes.T @ terms - target) ** 2) / np.sum(target**2), writes


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_variance_and_writes_equal_least_squares_on_dense_tensors(kind):
    poly = fitted(kind)
    found = mp.decompose(poly, 5)
    target, made = tensor(poly, INPUTS).reshape(OUT, -1), slices(found)
    for r in range(1, 6):
        fraction, writes = explained(made[:r], target)
        assert_close(found.explained[r - 1], fraction, 1e-11)
    assert_close(found.writes, writes, 1e-9)
    assert found.residual == pytest.approx(1 - fraction, abs=1e-11)
    assert_close(np.linalg.norm(found.vectors, axis=1), np.ones(5))
    assert_close(found.directions, found.vectors @ INPUTS.root)


def test_residual_is_the_variance_of_what_is_left():
    poly = fitted()
    found = mp.decompose(poly, 4)
    rest = poly.truncate(2) - poly.truncate(1) - found.polynomial()
    left, whole = (mp.degree_spectrum(p, INPUTS, 2).variance for p in (rest, poly))
    assert_close(np.sum(left[1]) / np.sum(whole[1]), found.residual, 1e-10)
    assert_close(left[0], np.zeros(OUT), 1e-12)  # the terms are of degree exactly 2


def test_values_of_terms_are_squares_of_whitened_inputs(rng):
    z = rng.standard_normal((7, D))
    x = INPUTS.mean + z @ INPUTS.root
    squares = mp.decompose(fitted(), 3)
    assert_close(squares.polynomial()(x), ((z @ squares.vectors.T) ** 2 - 1) @ squares.writes, 1e-11)
    assert_close((x - INPUTS.mean) @ squares.reads.T, z @ squares.vectors.T, 1e-11)


@pytest.mark.parametrize(("kind", "rank"), [("MLP", H), ("GLU", 2 * H)])
def test_enough_terms_are_the_quadratic_part(kind, rank):
    poly = fitted(kind, degree=2)
    found = mp.decompose(poly, rank)
    x = points(D)
    assert_close((poly.truncate(1) + found.polynomial())(x), poly(x), 1e-9)
    assert (
        found.residual <= 1e-11
    )  # equations for at most 21 squares, whose condition of a thousand costs 21 e3 roundings
    # More than enough are not kept.
    assert mp.decompose(poly, 50).vectors.shape[0] <= min(rank, D * (D + 1) // 2)


def test_no_move_of_the_directions_explains_more(monkeypatch):
    monkeypatch.setattr(decomposition, "_PENALTY", 0.0)
    poly = fitted()
    target = tensor(poly, INPUTS).reshape(OUT, -1)
    found = limited(monkeypatch, 1000, poly, 3)
    start = limited(monkeypatch, 0, poly, 3)
    assert found.residual < 0.9 * start.residual
    rng = np.random.default_rng(0)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(20):
            rows = found.vectors + size * rng.standard_normal(found.vectors.shape)
            moved = np.einsum("ri,rj->rij", rows, rows).reshape(3, -1)
            assert explained(moved, target)[0] <= found.explained[-1] + 1e-9


def test_other_units_give_the_same_terms(monkeypatch):
    poly, scale, shift = fitted(), np.geomspace(0.1, 30, D), np.arange(D) - 2.0
    one = limited(monkeypatch, 25, poly, 4)
    two = limited(monkeypatch, 25, poly.in_units(scale, shift), 4)
    # The two roots of the covariance differ by a rotation, which L-BFGS follows up to rounding.
    assert_close(two.explained, one.explained, 1e-7)
    cosines = np.sum(two.directions / scale * one.directions, axis=1) / (
        np.linalg.norm(two.directions / scale, axis=1) * np.linalg.norm(one.directions, axis=1)
    )
    assert_close(np.abs(cosines), np.ones(4), 1e-7)
    assert_close(two.writes, one.writes, 1e-4)


@pytest.mark.parametrize("form", ["ridge", "dense", "chaos", "bounded"])
def test_part_of_degree_two_of_every_form(form):
    """Of a cubic, under other inputs than those of the fit: the cubic part has a share of degree 2 there."""
    poly, other = fitted("MLP"), gaussian(8, D)
    if form == "bounded":
        poly = poly.bounded(1.5)
    elif form == "dense":
        poly = to_dense(fitted("MLP", degree=2), INPUTS.mean)
    elif form == "chaos":
        net = mp.Chain([network("MLP", "gelu", D, H, OUT), mp.Affine(np.eye(OUT))])
        poly = mp.fit(net, mp.Samples(INPUTS.sample(400)), 3)
    best = mp.degree_spectrum(poly, other, 2).variance[1]
    assert_close(2 * quadratic_part(poly, other).energy(), np.sum(best), 1e-10)
    found = mp.decompose(poly, 4, other)
    rest = mp.degree_spectrum(found.polynomial(), other, 2).variance[1]
    assert_close(np.sum(rest), found.explained[-1] * np.sum(best), 1e-10)


def test_singular_covariance_and_constant_units(rng):
    inputs = gaussian(4, D, rank=3)
    net = network("GLU", "silu", D, H, OUT)
    net = mp.GLU(np.concatenate([net.W_gate[:-1], np.zeros((1, D))]), *[getattr(net, name) for name in
                 ("b_gate", "W_up", "b_up", "W_down", "b_down")], activation="silu")  # fmt: skip
    poly = mp.fit(net, inputs, 2)
    found = mp.decompose(poly, 50)
    assert found.vectors.shape[0] <= 6  # symmetric matrices over three dimensions
    x = inputs.sample(20)
    # Samples leave the three dimensions by the root of the rounding error of the covariance; its terms do not see that.
    assert_close((poly.truncate(1) + found.polynomial())(x), poly(x), 20 * np.finfo(float).eps ** 0.5)


def test_many_inputs_without_a_square_matrix(rng, monkeypatch):
    d = 20_000
    net = mp.GLU(*[rng.standard_normal(s) / 100 for s in ((12, d), 12, (12, d), 12, (4, 12), 4)], activation="silu")
    poly = mp.fit(net, mp.Gaussian(np.zeros(d), rng.uniform(0.5, 2, d)), 2)
    found = limited(monkeypatch, 3, poly, 24)
    assert found.residual <= 1e-12


@backends(NUMPY32, TORCH32, TORCH64, slow=(JAX32,))
def test_every_backend(backend, monkeypatch):
    net = network("GLU", "gelu", D, H, OUT)
    exact = limited(monkeypatch, 10, mp.fit(net, INPUTS, 2), 3)
    poly = mp.fit(in_library(net, backend), in_library(INPUTS, backend), 2)
    found = limited(monkeypatch, 10, poly, 3)
    for name in ("writes", "vectors", "explained", "directions", "reads"):
        assert_same_kind(getattr(found, name), poly.prototype)
    # Ten steps amplify rounding: the fractions are stationary, the directions are not compared.
    assert_close(found.explained, exact.explained, 1e4 * backend.tolerance)
    assert_same_kind(found.polynomial()(in_library(INPUTS, backend).sample(3)), poly.prototype)


def test_a_quadratic_part_that_is_rounding_is_refused():
    """A linear map has none: what a fit leaves there is 1e-33 of its variance. A part of 1e-20 is one."""
    rng = np.random.default_rng(0)
    linear, tiny = mp.Affine(rng.standard_normal((2, D))), 1e-10 * rng.standard_normal((2, D, D))
    for inputs in (mixture(D), mp.Samples(rng.standard_normal((500, D)))):
        poly = mp.fit(linear, inputs, 2)
        assert 0 < np.abs(poly.coefficients().quadratic).max() < 1e-13
        with pytest.raises(ValueError, match=r"is zero, up to rounding, .*nothing to decompose"):
            mp.decompose(poly, 2, INPUTS)
    whole = mp.polynomials.DensePolynomial(np.zeros(D), np.ones(2), linear.W, tiny + np.swapaxes(tiny, 1, 2))
    assert mp.decompose(whole, D * (D + 1) // 2, INPUTS).residual < 1e-6


POLY = fitted()


@mistakes(
    [
        ("no polynomial", lambda: mp.decompose(3, 2), TypeError, "poly must be", "mlpoly.fit"),
        ("a line", lambda: mp.decompose(POLY.truncate(1), 2), ValueError, "poly has degree 1", "degree=2"),
        ("no terms", lambda: mp.decompose(POLY, 0), ValueError, "^k ", "at least 1"),
        ("half a term", lambda: mp.decompose(POLY, 2.5), TypeError, "^k ", "integer"),
        ("no inputs", lambda: mp.decompose(POLY + fitted(inputs=gaussian(8, D)), 2), ValueError, "inputs", "Gaussian"),
        ("other inputs", lambda: mp.decompose(POLY, 2, gaussian(1, 4)), ValueError, "inputs have dimension 4", "6"),
        ("no distribution", lambda: mp.decompose(POLY, 2, "data"), TypeError, "inputs must be", "Gaussian"),
        ("nothing there", lambda: mp.decompose(0.0 * POLY, 2), ValueError, "poly is zero", "nothing to decompose"),
    ]
)  # fmt: skip
def test_mistakes_are_explained(act, exception, patterns):
    assert_explained(act, exception, patterns)
