"""The paper's master theorem: one function of one Gaussian variable times any number of others."""

from __future__ import annotations

import numpy as np

from mlpoly.arrays import Array, astype, constant, namespace, widen
from mlpoly.paper.isserlis import expected_product
from mlpoly.paper.moment_arguments import batch_shape, check_not_negative, symmetric, together


def master_theorem(mean_x: Array, var_x: Array, mean_y: Array, cov_xy: Array, cov_yy: Array) -> Array:
    """Coefficients a_k with E[g(X) Y_1 ... Y_n] = sum_{k <= n} a_k E[g(X) X^k] for every function g.

    X and Y are jointly Gaussian. Regression on X splits each Y_i into alpha_i + beta_i X + eps_i, with eps Gaussian
    and independent of X. So E[prod Y | X] is a polynomial of degree n in X, and a_k are its coefficients. The paper's
    sum stops at n - 1 and its n = 2 case multiplies where it should add; the sum runs to n, and for n = 2 the constant
    is alpha_1 alpha_2 + Cov(eps_1, eps_2) (MATH 8).

    Parameters
    ----------
    mean_x, var_x : array (...) or float
        Mean and variance of X. Where the variance is 0, a_0 = E[prod Y] and the other coefficients are 0.
    mean_y : array (..., n)
    cov_xy : array (..., n)
        Cov(X, Y_i).
    cov_yy : array (..., n, n)
        Symmetric. Leading axes of all arguments broadcast against each other.

    Returns
    -------
    array (n + 1, ...)
        In the array library and device of the arguments and the widest of their dtypes (16-bit floats give float32).

    Notes
    -----
    The coefficients belong to raw powers of X, as in the paper. Where |mean_x| is many standard deviations, the terms
    a_k E[g(X) X^k] are much larger than their sum; the Hermite route of `mlpoly.fit` has no such sum.

    Examples
    --------
    For n = 1 this is Stein's lemma: E[g(X) Y] = a_0 E[g(X)] + a_1 E[g(X) X].

    >>> from mlpoly.paper import master_theorem
    >>> master_theorem(1.0, 4.0, [3.0], [2.0], [[5.0]]).tolist()
    [2.5, 0.5]
    """
    mean_x, var_x, mean_y, cov_xy, cov_yy = together(
        mean_x=mean_x, var_x=var_x, mean_y=mean_y, cov_xy=cov_xy, cov_yy=cov_yy
    )
    if len(mean_y.shape) < 1:
        raise ValueError("mean_y is a single number, expected shape (..., n): one entry per Y on the last axis.")
    n = mean_y.shape[-1]
    if tuple(cov_xy.shape[-1:]) != (n,):
        raise ValueError(f"cov_xy has shape {tuple(cov_xy.shape)}, expected (..., {n}): mean_y has {n} variables.")
    if tuple(cov_yy.shape[-2:]) != (n, n):
        raise ValueError(f"cov_yy has shape {tuple(cov_yy.shape)}, expected (..., {n}, {n}): mean_y has {n} variables.")
    whole = {"mean_x": mean_x.shape, "var_x": var_x.shape}
    shape = batch_shape(**whole, mean_y=mean_y.shape[:-1], cov_xy=cov_xy.shape[:-1], cov_yy=cov_yy.shape[:-2])
    check_not_negative("var_x", var_x, "pass the variance of X")
    dtype, cov_yy = mean_x.dtype, symmetric("cov_yy", cov_yy)
    mean_x, var_x, mean_y, cov_xy, cov_yy = map(widen, (mean_x, var_x, mean_y, cov_xy, cov_yy))
    # Regression of Y on X: intercepts and slopes (..., n), and covariances (..., n, n) of what is left.
    xp = namespace(mean_x=mean_x)
    moving = (var_x > 0)[..., None]
    # The division by a safe number keeps gradients finite where X is constant and explains nothing.
    beta = xp.where(moving, cov_xy / xp.where(moving, var_x[..., None], 1.0), 0.0)
    alpha = mean_y - beta * mean_x[..., None]
    residual = cov_yy - beta[..., :, None] * cov_xy[..., None, :]
    # Values are coefficients (n + 1, ...) of a polynomial of X. Times X, the last one, 0 below degree n, comes first.
    one = constant(np.eye(n + 1)[0].reshape(-1, *[1] * len(shape)) * np.ones(shape), alpha)
    result = expected_product(
        tuple(range(n)),
        one,
        lambda i, value: alpha[..., i] * value + beta[..., i] * xp.concat([value[-1:, ...], value[:-1, ...]]),
        lambda i, j: residual[..., i, j],
    )
    return astype(result, dtype)
