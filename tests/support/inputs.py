"""Random inputs, points, and quadrature under them."""

import functools
import itertools

import numpy as np

import mlpoly as mp


def covariance(rng, d, rank=None):
    a = rng.standard_normal((d, d if rank is None else rank))
    return a @ a.T / d


def gaussian(seed=1, d=4, *, rank=None, spread=1.0, shift=1.0, ridge=0.0):
    """A Gaussian with correlated inputs; `seed` may be a generator, and `ridge` is added to all variances."""
    rng = np.random.default_rng(seed)
    cov = spread**2 * covariance(rng, d, rank) + ridge * np.eye(d)
    return mp.Gaussian(shift * rng.standard_normal(d), cov)


def mixture(d, c=3, *, rank=None, seed=1, gap=0.8):
    """Components that differ in place, shape and weight; with `rank`, of singular covariance."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((c, d, d if rank is None else rank))
    covs = a @ a.transpose(0, 2, 1) / d + (0.2 * np.eye(d) if rank is None else 0)
    return mp.GaussianMixture(rng.dirichlet(np.full(c, 4.0)), gap * rng.standard_normal((c, d)), covs)


def points(d, n=30, *, seed=3, spread=1.5):
    return spread * np.random.default_rng(seed).standard_normal((n, d))


def on_support(mix, rank):
    """Points on the affine subspaces of components of this rank. Samples lie beside them by the root of a rounding."""
    return np.concatenate([g.mean + points(rank) @ np.linalg.svd(g.covariance)[0][:, :rank].T for g in mix.components])


@functools.cache
def standard_grid(d, nodes):
    """Nodes (n, d) and weights (n,) of the tensor Gauss-Hermite rule under N(0, I), with `nodes` per axis."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    indices = np.array(list(itertools.product(range(nodes), repeat=d)), dtype=int).reshape(nodes**d, d)
    weights = np.prod((w / w.sum())[indices], axis=1)
    keep = weights > 1e-25  # the corners of the grid weigh nothing
    return z[indices][keep], weights[keep]


def grid(inputs, nodes):
    """Nodes (n, d) and weights (n,) under a Gaussian or a mixture of any ranks: a rule for each component.

    `nodes` per axis may depend on the number of axes: a dict by rank.
    """
    x, w = [], []
    for share, g in zip(inputs.weights, inputs.components, strict=True):
        values, vectors = np.linalg.eigh(g.covariance)
        kept = values > 1e-13 * max(values[-1], 1e-300)
        rank = int(kept.sum())
        z, weights = standard_grid(rank, nodes[rank] if isinstance(nodes, dict) else nodes)
        whole = rank == len(values)
        root = np.linalg.cholesky(g.covariance) if whole else vectors[:, kept] * np.sqrt(values[kept])
        x.append(g.mean + z @ root.T)
        w.append(share * weights)
    return np.concatenate(x), np.concatenate(w)


def exponents(d, degree):
    """Index tuples i_1 <= ... <= i_k of all monomials x_{i_1} ... x_{i_k}, by degree."""
    return [c for k in range(degree + 1) for c in itertools.combinations_with_replacement(range(d), k)]


def monomials(x, degree):
    return np.stack([np.prod(x[:, list(c)], axis=1) for c in exponents(x.shape[1], degree)], axis=1)
