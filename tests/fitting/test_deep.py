"""The closest linear and quadratic map of a deep network: identities, and the optimum by regression."""

import re

import numpy as np
import pytest
from support.backends import assert_close
from support.inputs import gaussian, mixture, monomials, points
from support.networks import chain, network

import mlpoly as mp

D = 4
X = points(D)
degrees = pytest.mark.parametrize("degree", [0, 1, 2])


@degrees
@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
@pytest.mark.parametrize("h", [2, 6])
def test_one_hidden_layer_is_todays_fit(kind, h, rank, degree):
    """On the range of the inputs, with fewer hidden units than inputs and with more."""
    net, inputs = network(kind, "gelu", D, h), gaussian(d=D, rank=rank)
    x = inputs.mean + X @ inputs.covariance  # in the range of a singular covariance, up to rounding
    want, found = mp.fit(net, inputs, degree), mp.fit(net, inputs, degree, method="expansion")
    assert_close(found(x), want(x), 1e-11)


@degrees
def test_one_hidden_layer_under_a_mixture(degree):
    net, inputs = network("MLP", "relu", D), mixture(D)
    want, found = mp.fit(net, inputs, degree), mp.fit(net, inputs, degree, method="expansion")
    assert_close(found(X), want(X), 1e-10)
    assert "expansion" in found.source.method


@degrees
def test_a_residual_layer_is_exact(degree):
    net, inputs = network("GLU", "silu", D, o=D), gaussian(d=D)
    want = mp.fit(net, inputs, degree)(X) + (X if degree else inputs.mean)
    assert_close(mp.fit(mp.Residual(net), inputs, degree)(X), want, 1e-11)


@pytest.mark.parametrize("inputs", [gaussian(d=D), mixture(D)], ids=["one", "mix"])
def test_deep_linear_networks_are_exact(inputs):
    net = mp.Chain([mp.Residual(mp.Residual(network("MLP", "identity", D, o=D))), network("MLP", "identity", D)])
    for degree in (1, 2):
        assert_close(mp.fit(net, inputs, degree)(X), net(X), 1e-11)


def test_quadratic_layers_before_linear_ones_are_exact():
    """A polynomial of degree 2 in all, whatever the layers."""
    net = mp.Chain(
        [network("MLP", "identity", D, o=D), network("GLU", "identity", D, o=D), network("MLP", "identity", D)]
    )
    assert_close(mp.fit(net, gaussian(d=D), 2)(X), net(X), 1e-10)


@pytest.mark.parametrize(
    ("activation", "inputs"), [("relu", gaussian(d=12)), ("tanh", gaussian(d=12)), ("relu", mixture(12, 2))]
)
def test_close_to_the_optimum(activation, inputs):
    """Least squares on many samples is the optimum; the closed form is within some per cent of its error."""
    net, x = chain(activation, (12, 48, 48, 4)), inputs.sample(60_000)
    f = net(x)
    for degree, limit in ((1, 1.02), (2, 1.12)):
        terms = monomials((x - inputs.mean) / x.std(0), degree)
        best = terms @ np.linalg.lstsq(terms, f, rcond=None)[0]
        found = float(mp.fvu(net, mp.fit(net, inputs, degree), x))
        least = float(((f - best) ** 2).sum() / ((f - f.mean(0)) ** 2).sum())
        assert least < found < limit * least


def test_error_by_draws_and_by_the_closure():
    net, inputs = chain("relu", (12, 48, 48, 4)), gaussian(d=12)
    for degree in (1, 2):
        poly = mp.fit(net, inputs, degree)
        found, want = mp.fvu(net, poly), mp.fvu(net, poly, inputs.sample(50_000, seed=9))
        assert abs(float(found) - float(want)) < 5 * (float(found.standard_error) + float(want.standard_error))
        assert abs(float(found.closure) - float(want)) < 0.05  # of the variance, which the closure knows no better
        assert abs(poly.report.fvu - float(want)) < 0.1 * float(want)  # on 1024 samples
        least = float(mp.fvu(net, mp.fit(net, inputs, degree, method=mp.methods.Sampled(1e-3)), inputs))
        assert abs(poly.report.excess / poly.report.misfit - (float(found) / least - 1)) < 0.03
        off = mp.fvu(net, poly + 0.1, inputs)
        shift = 4 * 0.01 / np.trace(mp.propagate(net, inputs, cumulants=3)[-1].cov)
        assert abs(float(off.closure) - float(found.closure) - shift) < 1e-9
    assert mp.fvu(net, mp.fit(net, mixture(12), 1)).closure is None
    again = mp.fvu(net, poly, inputs, draws=1000, seed=1)
    assert float(again) != float(found)
    assert float(again.standard_error) > float(found.standard_error)


def test_least_squares_on_samples_of_a_deep_network():
    """Over all monomials, as for one layer."""
    net, x = chain(), gaussian(d=4).sample(3000)
    poly = mp.fit(net, mp.Samples(x), 3)
    terms = monomials(x, 3)
    assert_close(poly(x), terms @ np.linalg.lstsq(terms, net(x), rcond=None)[0], 1e-8)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"degree": 3}, ValueError, "only up to degree 2"),
        ({"method": "exact"}, TypeError, "one hidden layer, got .*use 'expansion'"),
        ({"method": "neuronwise"}, TypeError, "'neuronwise' needs a network with one hidden layer"),
        ({"method": "best"}, ValueError, "method must be one of 'auto', 'exact'"),
        ({"inputs": mp.Gaussian.standard(3)}, ValueError, "dimension 3"),
        ({"inputs": mp.Samples(np.zeros((5, 4))), "method": "expansion"}, TypeError, "needs a Gaussian"),
    ],
)
def test_bad_input(options, kind, message):
    with pytest.raises(kind, match=message):
        mp.fit(chain(), **{"inputs": gaussian(d=4), **options})


def test_too_many_monomials_on_samples():
    net, x = chain(sizes=(60, 5, 5, 2)), np.random.default_rng(0).standard_normal((100, 60))
    with pytest.raises(mp.TooLargeError, match="method='composed'"):
        mp.fit(net, mp.Samples(x), 3)


def test_a_network_too_wide_for_its_quadratic_parts():
    wide = mp.Chain([mp.MLP(np.eye(1100)), mp.MLP(np.eye(1100))])
    with pytest.raises(mp.TooLargeError, match="method='composed' fits a deep network of any size"):
        mp.fit(wide, mp.Gaussian.standard(1100), 2)


def test_the_report_judges_by_the_variance_of_the_network():
    """Also where the closed form is far from the optimum, so that its own variance is another."""
    rng = np.random.default_rng(0)
    first = mp.MLP(rng.normal(size=(6, 3)), rng.normal(size=6), activation="silu")
    net = mp.Chain([first, mp.MLP(rng.normal(size=(4, 6)) / 2, None, rng.normal(size=(2, 4)), None, "tanh")])
    poly = mp.fit(net, mp.Gaussian.standard(3), 2)
    assert abs(poly.report.fvu - float(mp.fvu(net, poly))) < 0.05
    assert "above that of the optimum" in str(poly.report)
    assert poly.report.excess > 0.05 * poly.report.misfit and "method='sampled' comes closer" in str(poly.report)


def _random_chain(seed, gated):
    """Two to four hidden layers of 8 to 64 units, residual or gated ones too, with weights from small to large."""
    rng = np.random.default_rng([gated, seed])
    activation, scale = str(rng.choice(["relu", "gelu", "tanh"])), float(np.exp(rng.uniform(np.log(0.3), np.log(3))))
    d, o, depth, residual = (int(rng.integers(*ends)) for ends in ((2, 11), (1, 4), (2, 5), (0, 3)))
    width, layers = d, []
    for _ in range(depth):
        hidden, kind = int(rng.integers(8, 65)), "GLU" if gated and rng.random() < 0.7 else "MLP"
        forms = []
        for _ in range(1 + (kind == "GLU")):
            W = scale * rng.normal(size=(hidden, width)) * (2 / width) ** 0.5
            forms += [W, 0.3 * scale * rng.normal(size=hidden)]
        if residual == 2:
            back = scale * rng.normal(size=(width, hidden)) / hidden**0.5
            layers.append(mp.Residual(getattr(mp, kind)(*forms, back, None, activation)))
        else:
            layers.append(getattr(mp, kind)(*forms, activation=activation))
            width = hidden
    A = rng.normal(size=(d, d))
    inputs = mp.Gaussian(0.5 * rng.normal(size=d), A @ A.T / d + 0.1 * np.eye(d))
    return mp.Chain([*layers, mp.Affine(rng.normal(size=(o, width)) / width**0.5)]), inputs


@pytest.mark.slow
@pytest.mark.parametrize(("gated", "count"), [(False, 60), (True, 45)])
def test_the_report_knows_how_far_the_optimum_is_or_says_that_it_does_not(gated, count):
    """Random chains, against the optimum from a hundred times as many samples.

    An excess that the report states, of four standard errors or more, is off by a factor of two at two of them, and a
    limit is four above the estimate. Were errors normal, one of 30 000 limits would be too low; of 2 200 on other
    random networks 3 were. The standard errors of a U-statistic are those far from the optimum and above them near it.
    """
    apart, ratios, limits = [], [], []
    for seed in range(count):
        net, inputs = _random_chain(seed, gated)
        degree = 1 + (seed % 5 > 0)
        poly = mp.fit(net, inputs, degree)
        best = mp.fit(net, inputs, degree, method=mp.methods.Sampled(tolerance=2e-4, max_samples=2**17))
        report, drawn = poly.report, best.report.excess
        mean, variance = (poly - best).moments(inputs)
        actual = float((mean**2 + variance).sum()) - drawn
        said = re.search(r"(at most about )?([\d.]+)% above", str(report))
        if said is None:
            assert "from one pair of samples, which leaves open how far the optimum is" in str(report)
            continue
        apart.append((report.excess - actual) / np.hypot(report.details["standard_error"], drawn))
        stated = float(said[2]) / 100
        x = inputs.sample(2**17)
        misfit = ((net(x) - best(x)) ** 2).sum(1).mean() - drawn
        if said[1]:
            limits.append((actual - 2 * drawn) / misfit / (stated + 5e-4))  # which is rounded
        else:
            ratios.append(stated * misfit / actual)
    assert len(ratios) + len(limits) >= count / 2
    assert min(ratios) > 0.5 and max(ratios) < 2 and max(limits) <= 1
    assert np.abs(apart).max() < 4 and 0.3 < np.sqrt(np.mean(np.square(apart))) < 1.5


def test_an_excess_within_its_error_is_only_bounded():
    """A network close to linear, whose closed form is closer to the optimum than a thousand samples can tell."""
    net, inputs = mp.Chain([mp.MLP(0.1 * np.eye(3), activation="tanh")] * 2), gaussian(d=3)
    report = mp.fit(net, inputs, 2).report
    assert report.excess < 4 * report.details["standard_error"] and "at most about" in str(report)


def test_an_excess_that_rests_on_one_sample_is_not_stated():
    """The samples of a product of eight Gaussians miss most of its variance, which is 105^2."""
    square = mp.GLU(np.eye(1), None, np.eye(1), None, activation="identity")
    report = mp.fit(mp.Chain([square] * 3), mp.Gaussian.standard(1), 2).report
    assert "from one pair of samples, which leaves open how far the optimum is" in str(report)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_exact_fit_is_not_compared_with_its_rounding(dtype):
    double = mp.MLP(np.eye(2, dtype=dtype) / 3, activation="identity")
    net = mp.Chain([double, mp.GLU(*(np.ones((2, 2), dtype) / 7, None) * 2, activation="identity")])
    report = mp.fit(net, gaussian(d=2), 2).report
    assert report.fvu < 1e-10 and "optimum" not in report.summary


def test_networks_that_do_not_vary_or_overflow():
    inputs = mp.Gaussian.standard(3)
    flat = mp.Chain([mp.MLP(np.zeros((3, 3))), mp.MLP(np.eye(3))])
    assert "does not vary" in str(mp.fit(flat, inputs, 2).report)
    large = mp.Chain([mp.MLP(1e100 * np.eye(3)), mp.MLP(1e100 * np.eye(3))])
    for method in ("expansion", "composed"):
        with pytest.raises(ValueError, match="overflow float64; scale the weights"):
            mp.fit(large, inputs, 2, method=method)
