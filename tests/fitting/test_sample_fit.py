"""The fit on a stream of samples, neuron by neuron, against plain least squares."""

import numpy as np
import pytest
from support.backends import assert_close

import mlpoly as mp
from mlpoly.fitting.samples.neuronwise import SampleFit
from mlpoly.polynomials import BoundedPolynomial
from mlpoly.records import replace


def network(kind, rng, d=3, h=5):
    w = rng.standard_normal
    if kind == "MLP":
        return mp.MLP(w((h, d)), w(h), w((2, h)), w(2), activation="tanh")
    return mp.GLU(w((h, d)), w(h), w((h, d)), w(h), w((2, h)), w(2), activation="silu")


@pytest.mark.parametrize("bound", [None, 1.5])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_each_neuron_is_fitted_by_least_squares(kind, bound, rng):
    net = network(kind, rng)
    x = rng.standard_t(4, (400, 3)) + 0.5
    inputs = mp.Gaussian.from_samples(x)
    start = mp.fit(net, inputs, 3)
    fit = SampleFit(net, start if bound is None else start.bounded(bound), fraction=1e-14)
    poly = fit.update(x[:150]).update(x[150:]).polynomial()
    assert fit.count == 400
    assert type(poly) is (mp.polynomials.RidgePolynomial if bound is None else BoundedPolynomial)
    units = poly.units
    gate, up = (net.W1, None) if kind == "MLP" else (net.W_gate, net.W_up)
    bias = net.b1 if kind == "MLP" else net.b_gate
    for i in range(5):
        t = (x @ gate[i] - units.shifts[i]) / units.scales[i]
        held = t if bound is None else np.clip(t, -bound, bound)
        lines = [] if bound is None else [np.maximum(t - bound, 0), np.minimum(t + bound, 0)]
        columns, target = [*(held**k for k in range(4)), *lines], net.activation(x @ gate[i] + bias[i])
        if up is not None:
            e = x @ up[i] - units.gate.slopes[i] * held  # beyond the bound this differs from x @ up by no polynomial
            columns += [f * e for f in [*(held**k for k in range(3)), *lines]]
            target = target * (x @ up[i] + net.b_up[i])
        best = np.stack(columns, 1) @ np.linalg.lstsq(np.stack(columns, 1), target, rcond=None)[0]
        alone = poly.neurons(*poly.forms_at(x))[:, i]
        assert_close(alone, best, 1e-8)  # both solve normal equations of condition 1e6


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_with_few_samples_the_closed_form_decides(kind, rng):
    net = network(kind, rng)
    inputs = mp.Gaussian(np.ones(3), np.eye(3))
    closed = mp.fit(net, inputs, 3)
    for start in (closed, closed.bounded(1.0)):
        poly = SampleFit(net, start, fraction=1e9).update(rng.standard_normal((2, 3))).polynomial()
        assert_close(poly(inputs.sample(50)), start(inputs.sample(50)), 1e-6)


def test_degree_zero_and_a_constant_neuron(rng):
    net = network("GLU", rng)
    x = np.ones((20, 3))
    for degree in (0, 2):
        start = mp.fit(net, mp.Gaussian.from_samples(x), degree).bounded(4.0)
        poly = SampleFit(net, start).update(x).polynomial()
        assert isinstance(poly, BoundedPolynomial) and poly.degree == degree
        assert_close(poly(x[:1]), net(x[:1]), 1e-6)


def test_the_fit_says_what_is_wrong(rng):
    net, inputs = network("MLP", rng), mp.Gaussian.standard(3)
    start = mp.fit(net, inputs, 2)
    with pytest.raises(ValueError, match="no samples yet"):
        SampleFit(net, start).polynomial()
    with pytest.raises(ValueError, match=r"expected \(n, 3\)"):
        SampleFit(net, start).update(np.zeros((4, 2)))
    for fraction in (0, -1.0, True, "a"):
        with pytest.raises(ValueError, match="fraction must be a number above 0"):
            SampleFit(net, start, fraction)  # type: ignore[arg-type]
    mixture = mp.GaussianMixture.of(np.ones(1), [inputs])
    for wrong in (3, None, mp.fit(net, mixture, 2), replace(start, inputs=None)):
        with pytest.raises(TypeError, match=r"start must be the result of mlpoly\.fit for this network"):
            SampleFit(net, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start has 4 neurons of 3 inputs, the network has 5 of 3"):
        SampleFit(net, mp.fit(network("MLP", rng, h=4), inputs, 2))


def test_affine_maps_beside_the_hidden_layer_are_merged():
    rng = np.random.default_rng(1)
    first = mp.Affine(rng.standard_normal((4, 3)), rng.standard_normal(4))
    layer = mp.MLP(rng.standard_normal((8, 4)), None, rng.standard_normal((2, 8)), None, "gelu")
    net, x = mp.Chain([first, layer]), rng.standard_normal((500, 3))
    start = mp.fit(net, mp.Gaussian.standard(3), 2)
    merged = mp.MLP(layer.W1 @ first.W, layer.W1 @ first.b, layer.W2, None, "gelu")
    found, want = (SampleFit(n, start).update(x).polynomial() for n in (net, merged))
    assert_close(found(x), want(x), 1e-12)
