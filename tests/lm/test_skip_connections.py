"""The affine part of a polynomial in the shapes of a transcoder's skip connection."""

from __future__ import annotations

import pytest

import mlpoly as mp

torch = pytest.importorskip("torch")
from mlpoly.lm.conversion.skip_connections import skip_initialiser  # noqa: E402 - after importorskip


def glu(d: int = 5, h: int = 9) -> mp.GLU:
    torch.manual_seed(0)
    weights = (torch.randn(h, d), torch.randn(h), torch.randn(h, d), torch.randn(h), torch.randn(d, h), torch.randn(d))
    return mp.GLU(*(w.double() for w in weights), activation="silu")


def inputs(d: int = 5) -> mp.Gaussian:
    return mp.Gaussian.from_samples(torch.randn(50, d, generator=torch.Generator().manual_seed(1)).double() + 1)


@pytest.mark.parametrize("degree", [1, 3])
def test_it_is_the_best_affine_map(degree: int) -> None:
    net, gaussian = glu(), inputs()
    weight, bias = skip_initialiser(mp.fit(net, gaussian, degree))
    x = gaussian.sample(20)
    torch.testing.assert_close(x @ weight.mT + bias, mp.fit(net, gaussian, 1)(x))
    assert weight.shape == (5, 5) and bias.shape == (5,)


def test_numpy_becomes_torch() -> None:
    net = mp.MLP([[1.0, 2.0]], [0.5], [[2.0], [0.0]], [1.0, 0.0], activation="identity")
    weight, bias = skip_initialiser(mp.fit(net, mp.Gaussian.standard(2), 1))
    assert weight.tolist() == [[2.0, 4.0], [0.0, 0.0]] and bias.tolist() == [2.0, 0.0]


def test_a_dense_quadratic_is_refused() -> None:
    mixture = mp.GaussianMixture.of(torch.tensor([0.5, 0.5]).double(), [inputs(), inputs()])
    poly = mp.fit(glu(), mixture, 2)
    with pytest.raises(ValueError, match="fit one with degree=1"):
        skip_initialiser(poly)
    with pytest.raises(TypeError, match="poly must be a polynomial"):
        skip_initialiser(3)  # type: ignore[arg-type]
