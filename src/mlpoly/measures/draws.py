"""Draws that fill the space evenly, in independent replicates that show how large the error is."""

from functools import lru_cache

import numpy as np

from mlpoly.arrays import Array, constant, namespace, safe_root

REPLICATES = 8
INDEPENDENT = (REPLICATES - 1) ** -0.5  # from the standard deviation between them to the standard error of the mean


@lru_cache(maxsize=8)
def _sobol(dim: int, count: int, seed: int) -> np.ndarray:
    from scipy.special import ndtri
    from scipy.stats import qmc  # takes a moment to import

    rng = np.random.default_rng(seed)
    uniform = np.stack([qmc.Sobol(dim, seed=rng).random(count) for _ in range(REPLICATES)])
    return ndtri(np.clip(uniform, 2.0**-31, 1 - 2.0**-31))


def normal_draws(dim: int, count: int, like: Array, seed: int = 0) -> Array:
    """Standard normal draws (r, count, dim), in each replicate a scrambled Sobol sequence; a power of two of them."""
    return constant(_sobol(dim, count, seed), like)


def averaged(values: Array, outputs: int, factor: float, more: Array | None = None) -> tuple[Array, Array]:
    """Means and standard errors (..., o) of values (..., r o) by replicates; `more` are other errors of each."""

    def split(a: Array) -> Array:
        return xp.reshape(a, (*a.shape[:-1], -1, outputs))

    xp = namespace(values=values)
    error = xp.std(split(values), axis=-2) * factor
    if more is not None:
        error = safe_root(error**2 + xp.mean(split(more) ** 2, axis=-2))
    return xp.mean(split(values), axis=-2), error
