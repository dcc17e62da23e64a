"""The paper's own formulas, in NumPy: Isserlis' theorem, the master theorem, raw moments of activations.

`mlpoly.fit` needs none of them, so that they are an independent route to the same polynomials.
"""

import math

import numpy as np

from mlpoly.activations import get
from mlpoly.special import times_line


def partitions(items):
    """Every way to split a tuple into singletons and pairs: the sum that the paper writes down."""
    if not items:
        yield (), ()
        return
    head, rest = items[0], items[1:]
    for singles, pairs in partitions(rest):
        yield (head, *singles), pairs
    for at, other in enumerate(rest):
        for singles, pairs in partitions(rest[:at] + rest[at + 1 :]):
            yield singles, ((head, other), *pairs)


def isserlis(mean, cov, index):
    """E[prod X_i] over i in `index` for X ~ N(mean, cov), with any mean (after eq. 8)."""
    mean, cov = np.asarray(mean, dtype=float), np.asarray(cov, dtype=float)
    return sum(
        math.prod(mean[i] for i in singles) * math.prod(cov[i, j] for i, j in pairs)
        for singles, pairs in partitions(tuple(index))
    )


def master_theorem(mean_x, var_x, mean_y, cov_xy, cov_yy):
    """Coefficients a (n + 1, ...) with E[g(X) Y_1 ... Y_n] = sum_{k <= n} a_k E[g(X) X^k] for every g (Theorem 3.1).

    Regression on X splits each Y_i into alpha_i + beta_i X + eps_i, with eps Gaussian and independent of X, so that
    E[prod Y | X] is a polynomial in X. The paper's sum stops at n - 1; it runs to n (MATH 8). X has shape (...), Y has
    (..., n).
    """
    mean_x, var_x, mean_y, cov_xy = (np.asarray(a, dtype=float) for a in (mean_x, var_x, mean_y, cov_xy))
    cov_yy, n = np.asarray(cov_yy, dtype=float), mean_y.shape[-1]
    beta = np.where(var_x[..., None] > 0, cov_xy / np.where(var_x > 0, var_x, 1.0)[..., None], 0.0)
    alpha = mean_y - beta * mean_x[..., None]
    residual = cov_yy - beta[..., :, None] * cov_xy[..., None, :]
    total = np.zeros((n + 1, *mean_x.shape))
    for singles, pairs in partitions(tuple(range(n))):
        product = np.zeros_like(total)
        product[0] = math.prod(residual[..., i, j] for i, j in pairs)
        for i in singles:  # times alpha_i + beta_i X
            product = alpha[..., i] * product + beta[..., i] * np.roll(product, 1, axis=0)
        total += product
    return total


def raw_moments(activation, mean, std, degree):
    """E[x^k act(x)] (degree + 1, ...) for x ~ N(mean, std^2): multiplications by x of the Hermite series."""
    mean, std = np.broadcast_arrays(np.asarray(mean, dtype=float), np.asarray(std, dtype=float))
    series = get(activation).project(mean, std, degree)
    moments = [series[0, ...]]
    for _ in range(degree):
        series = times_line(series, mean, std)
        moments.append(series[0, ...])
    return np.stack(moments)
