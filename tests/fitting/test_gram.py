"""The Gram operator of quadratics under a mixture, and its preconditioner, against moments by quadrature."""

import numpy as np
import pytest
from support.backends import NUMPY64, assert_close, assert_same_kind, make, to_numpy
from support.inputs import covariance, grid

import mlpoly as mp
from mlpoly.fitting.mixture.gram import gram_operator, padded, standard_inverse
from mlpoly.inputs.coordinates import Coordinates

D, COMPONENTS, OUTPUTS = 4, 3, 2


def make_mixture(backend=NUMPY64, d=D):
    rng = np.random.default_rng(0)
    covs, means = [covariance(rng, d) for _ in range(COMPONENTS)], rng.standard_normal((COMPONENTS, d))
    return mp.GaussianMixture(*(make(a, backend) for a in ([0.5, 0.3, 0.2], means, covs)))


def operator(backend=NUMPY64, d=D, **options):
    inputs = make_mixture(backend, d)
    return gram_operator(inputs, Coordinates.of(inputs), **options)


def quadratics(n, outputs=OUTPUTS):
    block = np.random.default_rng(1).standard_normal((outputs, n, n))
    return block + block.transpose(0, 2, 1)


def by_quadrature(matrices):
    """E[q(z) zh zh'] under the whitened mixture: degree 4 in z, so that three nodes a side are exact."""
    inputs = make_mixture()
    whitening = Coordinates.of(inputs)
    total = np.zeros_like(matrices)
    for share, g in zip(inputs.weights, inputs.components, strict=True):
        mean, cov = whitening.gaussian(g.mean, g.covariance)
        z, weights = grid(mp.Gaussian(mean, cov), 3)
        zh = np.concatenate([np.ones((len(z), 1)), z], axis=1)
        values = np.einsum("ki,oij,kj->ok", zh, matrices, zh)
        total += share * np.einsum("k,ok,ki,kj->oij", weights, values, zh, zh)
    return total


def test_operator_is_the_moment_it_stands_for():
    op, H = operator(), quadratics(D + 1)
    expected = by_quadrature(H)
    assert (op.size, op.side) == (5, 8)
    image = op.apply(padded(H, op.side))
    assert_close(image[:, :5, :5], expected, 1e-13)
    assert not image[:, 5:, :].any() and not image[:, :, 5:].any()  # what was padded stays zero
    each = sum(op.weights[c] * op.component(c, H) for c in range(COMPONENTS))
    assert_close(each, expected, 1e-13)


@pytest.mark.parametrize("numbers", [1, 300])  # chunks of one component, and of two and one
def test_components_in_chunks_are_the_same(numbers, monkeypatch):
    op = operator()
    H = padded(quadratics(D + 1), op.side)
    whole = op.apply(H)
    monkeypatch.setattr("mlpoly.fitting.mixture.gram._NUMBERS", numbers)
    assert_close(op.apply(H), whole, 1e-14)


def test_products_in_single_precision_err_like_single_precision():
    rough, exact = operator(single=True), operator()
    H = padded(quadratics(D + 1), exact.side)
    error = np.abs(rough.apply(H) - exact.apply(H)).max() / np.abs(exact.apply(H)).max()
    assert 1e-10 < error < 1e-6
    assert rough.apply(H).dtype == np.float64
    assert_close(rough.in_full_precision().apply(H), exact.apply(H), 0)


def test_leading_part_is_the_operator_of_fewer_coordinates():
    op = operator(d=12)
    few = op.leading(8)
    H = quadratics(8)
    assert (few.size, few.side) == (8, 8)
    assert_close(few.apply(H), op.apply(padded(H, op.side))[:, :8, :8], 1e-14)


@pytest.mark.parametrize("side", [5, 8])
def test_preconditioner_inverts_the_operator_of_a_standard_normal(side, backend):
    H = make(padded(quadratics(5), side), backend)
    inside = np.zeros((side, side))
    inside[range(5), range(5)] = 1

    def standard(m):
        """2 H + tr(H) I - 2 H_00 e e', on the first five coordinates."""
        m = to_numpy(m)
        out = 2 * m + np.trace(m, axis1=1, axis2=2)[:, None, None] * inside
        out[:, 0, 0] -= 2 * m[:, 0, 0]
        return out

    solved = standard_inverse(5, H)(H)
    assert_same_kind(solved, H)
    assert_close(standard(solved), H, backend.tolerance)
    assert not to_numpy(solved)[:, 5:, :].any()
