"""Moments behind every layer: exact where the values are Gaussian, close to samples where they are not."""

import numpy as np
import pytest
import torch
from scipy import stats
from support.backends import JAX64, NUMPY64, TORCH32, TORCH64, assert_close, backends, in_library
from support.inputs import gaussian, mixture
from support.networks import chain, network

import mlpoly as mp

D = 4


def relative(found, want):
    return float(np.linalg.norm(found - want) / np.linalg.norm(want))


@pytest.mark.parametrize("inputs", [gaussian(d=D), gaussian(d=D, rank=2), mixture(D)], ids=["one", "singular", "mix"])
@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_one_hidden_layer_is_exact(kind, inputs):
    net = network(kind, "gelu", D)
    behind, want = mp.propagate(net, inputs), mp.second_moment(net, inputs)
    assert len(behind) == 1
    assert_close(behind[0].mean, want.mean, 1e-12)
    assert_close(behind[0].cov, want.cov, 1e-12)
    assert float(behind[0].excess) == 0


@pytest.mark.parametrize("inputs", [gaussian(d=D), mixture(D)], ids=["one", "mix"])
def test_deep_linear_networks_are_exact(inputs):
    """Residual connections within residual connections included: their cross-covariance is linear algebra."""
    rng = np.random.default_rng(0)
    A, B, C = (rng.standard_normal((D, D)) for _ in range(3))
    eye = np.eye(D)
    inner = mp.Residual(mp.Chain([mp.Affine(A), mp.Residual(mp.Affine(B)), mp.Affine(C)]))
    behind = mp.propagate(mp.Chain([mp.Affine(B), inner, mp.Affine(A[:2])]), inputs)
    whole = A[:2] @ (eye + C @ (eye + B) @ A) @ B
    assert_close(behind[-1].mean, whole @ inputs.mean, 1e-12)
    assert_close(behind[-1].cov, whole @ inputs.covariance @ whole.T, 1e-12)
    assert len(behind) == 3


def test_a_residual_layer_is_exact_under_a_gaussian():
    """x + f(x) is a layer with identity units beside the others."""
    net, inputs = network("MLP", "relu", D, o=D), gaussian(d=D)
    behind = mp.propagate(mp.Residual(net), inputs)[0]
    assert_close(behind.mean, inputs.mean + mp.second_moment(net, inputs).mean, 1e-12)
    # Cov(f, x) = E[J] S, and E[J] from the best linear map.
    J = mp.fit(net, inputs, 1).coefficients().linear
    S = inputs.covariance
    want = S + mp.second_moment(net, inputs).cov + J @ S + (J @ S).T
    assert_close(behind.cov, want, 1e-12)


def test_wide_networks_against_samples():
    """Covariances between units matter: with their variances alone, layer by layer, the answer is far off."""
    net, inputs = chain("relu", (64, 64, 64, 64, 5)), mp.Gaussian.standard(64)
    values = net(inputs.sample(50_000))
    behind = mp.propagate(net, inputs)
    assert np.all(np.abs(behind[-1].mean - values.mean(0)) < 0.05 * values.std(0))
    alone = inputs
    for layer in net.layers:
        moments = mp.propagate(layer, alone)[0]
        alone = mp.Gaussian(moments.mean, np.diag(moments.cov))
    errors = [relative(cov, np.cov(values.T)) for cov in (behind[-1].cov, alone.covariance)]
    assert errors[0] < 0.25 * errors[1]


@pytest.mark.parametrize("kind", ["MLP", "GLU"])
def test_skewness_is_that_of_samples(kind):
    """To leading order: behind a residual connection with a weak branch, what is left out is small."""
    rng, inputs = np.random.default_rng(0), gaussian(d=6)
    branch = mp.Chain([network(kind, "gelu", 6, 30, 6, seed=1, bias=0.5), mp.Affine(0.03 * np.eye(6))])
    net = mp.Chain([mp.Residual(branch), mp.MLP(rng.standard_normal((40, 6)))])
    before = net.layers[0](inputs.sample(100_000)) @ net.layers[1].W1.T
    want, found = stats.skew(before), mp.propagate(net, inputs)[1].skewness[0]
    # Standard error of a skewness from 1e5 samples: 0.008; of what is left out, the fraction is that of the variance.
    assert np.abs(want - found).max() < 0.04 + 0.1 * np.abs(want).max()
    assert np.abs(want).max() > 0.1


@backends(NUMPY64, TORCH64, TORCH32, slow=(JAX64,))
def test_every_library(backend):
    net, inputs = mp.Chain([mp.Residual(network("GLU", "silu", D, o=D)), *chain().layers]), mixture(D)
    want = mp.propagate(net, inputs)
    found = mp.propagate(in_library(net, backend), in_library(inputs, backend))
    for one, two in zip(found, want, strict=True):
        assert_close(one.mean, two.mean, 10 * backend.tolerance)
        assert_close(one.cov, two.cov, 10 * backend.tolerance)


def test_gradients_reach_weights_and_inputs():
    *layers, last = in_library(chain(), TORCH64).layers

    def moments(mean, *weights):
        moved = [mp.MLP(w, layer.b1) for w, layer in zip(weights, layers, strict=True)]
        behind = mp.propagate(mp.Chain([*moved, last]), mp.Gaussian(mean))[-1]
        return behind.mean, behind.cov

    leaves = [a.clone().requires_grad_() for a in (torch.zeros(4).double(), *(layer.W1 for layer in layers))]
    assert torch.autograd.gradcheck(moments, leaves, eps=1e-5, atol=1e-7, rtol=1e-6, fast_mode=True)


def test_bad_input():
    with pytest.raises(TypeError, match=r"Gaussian or a GaussianMixture, got Samples; mlpoly.Gaussian.from_samples"):
        mp.propagate(chain(), mp.Samples(np.zeros((3, 4))))
    with pytest.raises(ValueError, match="inputs have dimension 3, but the network takes 4"):
        mp.propagate(chain(), mp.Gaussian.standard(3))
    with pytest.raises(TypeError, match="net must be"):
        mp.propagate(np.eye(3), mp.Gaussian.standard(3))
    assert repr(mp.propagate(chain(), mp.Gaussian.standard(4))).count("LayerMoments") == 3
