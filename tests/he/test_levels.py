"""Degrees for a budget of levels: against all choices, and against the exact error."""

import functools
import itertools
import math

import numpy as np
import pytest
from support.inputs import gaussian, mixture
from support.networks import chain, network

import mlpoly as mp
from mlpoly.he.levels import _choices, _errors
from mlpoly.networks import check_network, layers_of, walk
from mlpoly.propagation import Closure, State

D = 4
INPUTS = gaussian(d=D)
SKIP = mp.Chain([mp.Residual(network(activation="gelu", d=D, o=D)), network("GLU", d=D, seed=1)])


def test_one_layer_has_its_exact_error():
    for net in (network(activation="gelu", d=D), network("GLU", d=D), network(activation="relu", d=D, o=None)):
        for levels, degree in ((1, 1), (2, 1), (3, 2), (4, 4), (5, 8)):
            found = mp.he.plan(net, INPUTS, levels)
            assert found.degrees == (degree,) and found.levels == found.polynomial.to_he().levels <= levels
            exact = mp.fvu(net, mp.fit(net, INPUTS, degree), INPUTS)
            assert found.fvu == pytest.approx(float(exact.total), rel=1e-9)


def test_dynamic_programming_finds_the_best_of_all_choices():
    rng = np.random.default_rng(0)
    degrees = [1, 2, 4, 8]
    errors = np.sort(rng.exponential(size=(3, 4)), axis=1)[:, ::-1].tolist()
    for levels in range(1, 12):
        allowed = []
        for chosen in itertools.product(range(4), repeat=3):
            if 1 + sum(c + 1 for c in chosen if c) <= levels:
                allowed.append(sum(layer[c] for layer, c in zip(errors, chosen, strict=True)))
        found = _choices(errors, 2.0, degrees, levels)
        assert found[-1].fvu == pytest.approx(min(allowed) / 2.0, rel=1e-12)
        assert found[-1].levels <= levels
        assert all(a.levels < b.levels and a.fvu > b.fvu for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("net", [chain(sizes=(D, 8, 8, 8, 3)), chain("tanh", sizes=(D, 8, 8, 3)), SKIP])
def test_errors_of_deep_networks_against_samples(net):
    """What a layer's polynomial leaves out, through the linear parts of the layers behind it, on samples."""
    gated, net, closure = net is SKIP, check_network(net), Closure()
    walk(net, closure, State.at(INPUTS))
    linear = mp.fit(net, INPUTS, 1, method="composed").stages
    x = INPUTS.sample(20_000, seed=1)
    values = net(x)
    errors, _ = _errors(net, INPUTS, [1, 2, 4])
    for i, (layer, state) in enumerate(zip(layers_of(net), closure.before, strict=True)):
        z = state.inputs.sample(20_000, seed=2)
        behind = functools.reduce(lambda J, stage: stage.tensor(1) @ J, linear[i + 1 :], np.eye(layer.dim_out))
        for degree, predicted in zip((1, 2, 4), errors[i], strict=True):
            left = np.sum(((layer(z) - mp.fit(layer, state.inputs, degree)(z)) @ behind.T) ** 2, axis=1)
            assert abs(left.mean() - predicted) < 5 * left.std() / math.sqrt(len(left))
            if gated:  # behind a gate the linear part is the smaller one: an eighth of the truth
                continue
            # The network with this layer replaced: the layers behind are not linear, nor what enters Gaussian.
            stages, changed = mp.fit(net, INPUTS, degree, method=mp.methods.Composed(None)).stages, x
            for j, own in enumerate(net.layers):
                changed = stages[j](changed) if i == j else own(changed)
            assert 1 / 3 < predicted / np.mean(np.sum((changed - values) ** 2, axis=1)) < 3


def test_other_inputs_and_backends():
    import torch

    net = chain(sizes=(D, 8, 8, 3))
    assert mp.he.plan(net, mixture(D), 5).levels <= 5
    x = INPUTS.sample(400)
    found = mp.he.plan(net, mp.Samples(x), 5)
    assert found.polynomial.source.method.endswith("on samples")
    like = torch.zeros(1, dtype=torch.float64)
    moved = mp.he.plan(net.to(like), INPUTS.to(like), 5)
    assert moved.degrees == mp.he.plan(net, INPUTS, 5).degrees and isinstance(moved.fvu, float)


def test_a_guard_is_chosen_under_which_nothing_explodes():
    net = chain(sizes=(D, 16, 16, 16, 3), gain=4.0)
    found = mp.he.plan(net, INPUTS, 13)
    assert math.isfinite(found.fvu) and found.polynomial.report.details["guard"] > 0
    assert mp.he.range_report(found.polynomial.to_he(), INPUTS).overflow < 0.01
    with pytest.raises(ValueError, match="explodes"):
        mp.he.plan(net, INPUTS, 13, guard=None)


def test_bad_input():
    net = network(d=D)
    with pytest.raises(ValueError, match="levels must be at least 1"):
        mp.he.plan(net, INPUTS, 0)
    with pytest.raises(TypeError, match="levels must be an integer"):
        mp.he.plan(net, INPUTS, 2.5)
    with pytest.raises(ValueError, match="max_degree"):
        mp.he.plan(net, INPUTS, 3, max_degree=0)
    assert mp.he.plan(net, INPUTS, 9, max_degree=5).degrees == (4,)
    assert mp.he.plan(mp.Affine(np.eye(D)), INPUTS, 3).degrees == ()
    assert mp.he.plan(net, INPUTS, 10**12, max_degree=2).degrees == (2,)
    with pytest.raises(ValueError, match="outside must be a probability"):
        mp.he.plan(net, mp.Samples(INPUTS.sample(50)), 3, outside=-1)


def test_degrees_for_each_layer():
    net = chain(sizes=(D, 8, 8, 3))
    poly = mp.fit(net, INPUTS, [2, 4], method="composed")
    assert poly.degree == 8 and poly.report.details["degrees"] == (2, 4)
    for degree in ([2], [2, 3, 4]):
        with pytest.raises(ValueError, match="has 2 hidden layers"):
            mp.fit(net, INPUTS, degree, method="composed")
    with pytest.raises(TypeError, match="degree must be an integer"):
        mp.fit(net, INPUTS, [2, 2])
    with pytest.raises(ValueError, match=r"degree\[1\] must be at least 0"):
        mp.fit(net, INPUTS, [2, -1], method="composed")
    same = mp.fit(net, mp.Samples(INPUTS.sample(300)), [3, 3], method="composed")
    x = INPUTS.sample(5)
    np.testing.assert_array_equal(same(x), mp.fit(net, mp.Samples(INPUTS.sample(300)), 3, method="composed")(x))
