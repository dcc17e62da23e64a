"""Standard normal coordinates: one rank for every use of them, whatever the units of the inputs."""

import numpy as np
import pytest
from support.backends import NUMPY32, NUMPY64, assert_close, make

import mlpoly as mp
from mlpoly.inputs.conditioning import Given
from mlpoly.inputs.coordinates import Coordinates, rounding_floor
from mlpoly.propagation.first_terms import coordinates

D = 4
UNITS = np.array([1e-100, 1e100, 1.0, 1e7])


def correlation(least):
    """Correlation matrix (d, d) whose lowest eigenvalue is `least`: two inputs are nearly the same."""
    found = np.eye(D)
    found[0, 1] = found[1, 0] = 0.5
    found[2, 3] = found[3, 2] = 1 - least
    return found


def ranks(g):
    """Number of directions in which the inputs vary, as all that needs it sees it."""
    twice = mp.GaussianMixture.of(np.full(2, 0.5, g.mean.dtype), [g, g])
    net = mp.MLP(np.eye(D, dtype=g.mean.dtype))
    return {
        "a Gaussian": Coordinates.of(g).kept,
        "a mixture": Coordinates.of(twice).kept,
        "conditioning": Given(g, np.arange(D)).rank,
        "an expansion": coordinates(net, g)[0].shape[0],
        "a fit under a mixture": mp.fit(net, twice, 1).report.details["kept"],
    }


@pytest.mark.parametrize("units", [np.ones(D), UNITS], ids=["ones", "mixed"])
@pytest.mark.parametrize("backend", [NUMPY64, NUMPY32], ids=lambda b: b.name)
def test_the_floor_is_one(backend, units):
    if backend is NUMPY32 and units is UNITS:
        units = np.array([1e-10, 1e10, 1.0, 1e3])  # with variances in the range of float32
    like = make(np.zeros(1), backend)
    # An expansion computes with what it was given in float64: there the rounding of float32 is not noise.
    own = {"an expansion"} if backend is NUMPY32 else set()
    floor = rounding_floor(like, np.zeros(1), D)
    for factor, rank in ((0.7, D - 1), (1.4, D)):
        g = mp.Gaussian(make(np.ones(D), backend), make(correlation(factor * floor) * units * units[:, None], backend))
        assert {k: v for k, v in ranks(g).items() if k not in own} == dict.fromkeys(ranks(g).keys() - own, rank)


@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1.0, 1e30, 1e100])
@pytest.mark.parametrize("least", [0.0, 1e-14, 1e-13, 1e-10, 1e-3])
def test_coordinates_at_every_scale(least, scale):
    """They have the identity covariance, and lead back to what varies; units change nothing."""
    plain = mp.Gaussian(np.arange(D) * 1.0, correlation(least))
    units = scale * np.array([1.0, 3.0, 0.2, 1e5])
    g = mp.Gaussian(plain.mean * units, plain.covariance * units * units[:, None])
    z = Coordinates.of(g)
    assert z.kept == D - int(least < 2e-14) and z.dropped == D - z.kept
    kept = max(least, 1e-3) if z.dropped else least  # the smallest variance that is kept, known to eps of one
    assert_close(z.forward @ z.back, np.eye(z.kept), 4e-15 / kept**0.5)
    assert_close(z.gaussian(g.mean, g.covariance)[1], np.eye(z.kept), 4e-15 / kept)
    assert_close(z.back @ z.back.T / units / units[:, None], plain.covariance, 1e-14)
    assert_close(z.gaussian(g.mean, g.covariance)[0], np.zeros(z.kept), 0)


def test_what_does_not_vary_is_left_out():
    for cov in (np.zeros(3), np.zeros((3, 3))):
        z = Coordinates.of(mp.Gaussian(np.ones(3), cov))
        assert (z.kept, z.dropped, z.within) == (0, 3, 1.0)
    points = mp.GaussianMixture(np.full(2, 0.5), np.array([[1.0, 0.0, 3.0], [-1.0, 0.0, 3.0]]), np.zeros(3))
    z = Coordinates.of(points)  # the means vary along one axis
    assert_close(np.abs(z.back), [[1.0], [0.0], [0.0]], 1e-15)


def test_ordered_for_begins_with_what_a_network_sees_most_of(rng):
    a = rng.standard_normal((D, D))
    z = Coordinates.of(mp.Gaussian(np.zeros(D), a @ a.T))
    weights = rng.standard_normal((7, D))
    turned = z.ordered_for(weights)
    seen = np.linalg.norm(weights @ turned.back, axis=0)
    assert_close(seen, np.linalg.svd(weights @ a, compute_uv=False), 1e-12)
    assert_close(turned.forward @ turned.back, np.eye(D), 1e-12)
