"""All neurons together under a mixture, against least squares on a tensor grid and against fits of other classes."""

import numpy as np
import pytest
from support.backends import NUMPY64, TORCH32, TORCH64, assert_close, backends, in_library, make
from support.inputs import grid

import mlpoly as mp
from mlpoly.fitting import joint_features
from mlpoly.records import replace

D, H, OUT = 2, 5, 2


def case(kind, seed=0, components=2):
    """A network, a mixture, and nodes and weights that integrate polynomials times the network under it."""
    rng = np.random.default_rng(seed)
    layers = [rng.normal(size=s) for s in ([(H, D), H] if kind == "MLP" else [(H, D), H, (H, D), H])]
    net = getattr(mp, kind)(*layers, rng.normal(size=(OUT, H)), rng.normal(size=OUT), activation="gelu")
    roots = [rng.normal(size=(D, D)) for _ in range(components)]
    covs = np.stack([r @ r.T + 0.2 * np.eye(D) for r in roots])
    weights = rng.dirichlet(np.full(components, 3.0))
    mixture = mp.GaussianMixture(weights, rng.normal(size=(components, D)), covs)
    x, mass = grid(mixture, 180)
    return net, mixture, x, mass[:, None]


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("coefficients", ["readout", "free"])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_it_is_least_squares_on_a_grid(kind, coefficients, degree):
    net, mixture, x, mass = case(kind)
    poly = mp.fit(net, mixture, degree, method=mp.methods.Joint(coefficients))
    start = replace(mp.fit(net, mixture, degree, method="neuronwise"), inputs=None, report=None)
    functions = joint_features.features_of(start, coefficients)[0].each
    rows = np.sqrt(mass) * np.concatenate([np.ones_like(mass), functions(x)], axis=1)
    # The functions span at most the polynomials of the degree, so that some may be combinations of others.
    solved, _, rank, _ = np.linalg.lstsq(rows, np.sqrt(mass) * net(x), rcond=1e-9)
    # A Gram matrix of condition 1e6 loses 1e6 roundings; what the grid loses is far less at 180 nodes.
    assert_close(np.sqrt(mass) * poly(x), rows @ solved, 1e-9)
    assert poly.report.details["rank"] == rank - 1
    errors = [float((mass * (p(x) - net(x)) ** 2).sum()) for p in (poly, start)]
    assert errors[0] <= errors[1] * (1 + 1e-12)


@pytest.mark.parametrize("bound", [None, 1.5])
@pytest.mark.parametrize("coefficients", ["readout", "free"])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_on_samples_its_error_is_uncorrelated_with_every_function(kind, coefficients, bound):
    """The conditions of least squares, as means over many rows, within their standard errors."""
    net, mixture, _, _ = case(kind)
    poly = mp.fit(net, mixture, 2, method=mp.methods.Joint(coefficients), bound=bound)
    own = mp.fit(net, mixture, 2, method="neuronwise", bound=bound)
    each = joint_features.features_of(replace(own, inputs=None, report=None), coefficients)[0].each
    count, first, second = 1_000_000 if bound is None else 200_000, 0.0, 0.0
    for seed in range(10):
        x = mixture.sample(count // 10, seed)
        functions = np.concatenate([np.ones((len(x), 1)), each(x)], axis=1)
        products = (poly(x) - net(x))[:, None, :] * functions[:, :, None]
        first, second = first + products.sum(0) / count, second + (products**2).sum(0) / count
    scores = first / np.sqrt((second - first**2) / count)
    # Three standard errors for one condition; for the largest of up to 82 the same chance is at 4.2.
    assert np.abs(scores).max() < 4.2 and np.sqrt((scores**2).mean()) < 2
    assert float(mp.fvu(net, poly).total) < float(mp.fvu(net, own).total)


@pytest.mark.parametrize("seed", range(12))
def test_it_is_never_worse_than_neuron_by_neuron(seed):
    net, mixture, _, _ = case(("MLP", "GLU")[seed % 2], seed, components=1 + seed % 4)
    degree = 1 + seed % 3
    fits = [mp.fit(net, mixture, degree, method=m) for m in ("neuronwise", mp.methods.Joint("readout"), "joint")]
    errors = [float(mp.fvu(net, poly).total) for poly in fits]
    best = float(mp.fvu(net, mp.fit(net, mixture, degree)).total)
    assert (
        best <= errors[2] * (1 + 1e-6) and errors[2] <= errors[1] * (1 + 1e-6) and errors[1] <= errors[0] * (1 + 1e-6)
    )


@backends(NUMPY64, TORCH32, TORCH64)
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_one_component_gives_the_optimum_under_it(kind, backend):
    net, mixture, x, _ = case(kind, components=1)
    there, inputs = in_library(net, backend), in_library(mixture, backend)
    poly, exact = mp.fit(there, inputs, 3, method="joint"), mp.fit(net, mixture.components[0], 3)
    assert_close(poly(make(x[::97], backend)), exact(x[::97]), 100 * backend.tolerance)
    assert float(mp.fvu(there, poly).total) == pytest.approx(float(mp.fvu(net, exact).total), rel=1e-3)


def test_a_penalty_leads_back_to_neuron_by_neuron():
    net, mixture, x, _ = case("MLP")
    near = mp.fit(net, mixture, 2, method=mp.methods.Joint("free", shrinkage=1e12))
    assert_close(near(x), mp.fit(net, mixture, 2, method="neuronwise")(x), 1e-8)


def test_constants_and_refusals(monkeypatch):
    net, mixture, _, _ = case("GLU")
    flat = mp.fit(net, mixture, 0, method="joint")
    assert_close(flat.coefficients().constant, mp.second_moment(net, mixture).mean, 1e-12)
    with pytest.raises(TypeError, match="a mixture or samples"):
        mp.fit(net, mixture.components[0], 2, method="joint")
    monkeypatch.setattr(joint_features, "MOST", 10)
    with pytest.raises(mp.TooLargeError, match="20 features"):
        mp.fit(net, mixture, 2, method=mp.methods.Joint("free"))
