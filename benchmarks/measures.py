"""Exact error against sampling: what does the FVU of an MNIST-sized network cost, and what would sampling cost?"""

from __future__ import annotations

import numpy as np

import mlpoly as mp
from benchmarks.common import save, seconds


def problem(components: int) -> tuple[mp.MLP, mp.GaussianMixture]:
    """A 784-256-10 ReLU network and a mixture with full covariances."""
    rng = np.random.default_rng(0)
    d, h, o = 784, 256, 10
    net = mp.MLP(rng.standard_normal((h, d)) / 28, rng.standard_normal(h), rng.standard_normal((o, h)) / 16, None)
    parts = []
    for _ in range(components):
        A = rng.standard_normal((d, d)) / 28
        parts.append(mp.Gaussian(rng.standard_normal(d) / 3, A @ A.T))
    return net, mp.GaussianMixture.of(np.full(components, 1 / components), parts)


def main() -> None:
    """FVU of a network under ten Gaussians, in closed form and on samples."""
    net, mixture = problem(10)
    poly = mp.fit(net, mixture, 2, method="neuronwise")
    dense = mp.fit(net, mixture, 1)
    exact = float(mp.fvu(net, poly, mixture).total)
    closed = seconds(lambda: mp.fvu(net, poly, mixture), repeats=3)
    n = 20_000
    estimate = mp.fvu(net, poly, samples=mixture.sample(n, seed=1))
    sampled = seconds(lambda: mp.fvu(net, poly, samples=mixture.sample(n, seed=1)), repeats=3)
    error = float(estimate.standard_error) / exact
    # The standard error falls with the root of the number of samples; closed form is good to 1e-10.
    results = {
        "FVU of a neuronwise quadratic, ten Gaussians, exact": exact,
        "the same on 20 000 samples": float(estimate.total),
        "distance in standard errors": abs(float(estimate.total) - exact) / float(estimate.standard_error),
        "closed form, ridge polynomial, s (goal 10)": closed,
        "closed form, dense polynomial, s (goal 10)": seconds(lambda: mp.fvu(net, dense, mixture), repeats=1),
        "degree spectrum to degree 8, s": seconds(lambda: mp.degree_spectrum(net, mixture), repeats=1),
        "sampling to 1 % of the FVU / closed form": sampled * (error / 1e-2) ** 2 / closed,
        "sampling to 0.01 % of the FVU / closed form": sampled * (error / 1e-4) ** 2 / closed,
    }
    save("measures", results)


if __name__ == "__main__":
    main()
