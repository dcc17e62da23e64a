"""Moments of Gaussian vectors with any mean: Isserlis' theorem in its noncentral form."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from mlpoly.arrays import Array, as_integer, astype, constant, widen
from mlpoly.paper.moment_arguments import batch_shape, symmetric, together

Index = tuple[int, ...]  # a multi-index, written as the sorted variables with repetition


def isserlis(mean: Array, cov: Array, index: Iterable[int]) -> Array:
    """E[X_i X_j ...] for a Gaussian vector X ~ N(mean, cov).

    The paper sums over partitions of the factors into singletons and pairs; here a recurrence over multi-indices gives
    the same number in far fewer steps.

    Parameters
    ----------
    mean : array (..., d)
    cov : array (..., d, d)
        Symmetric; may be singular. Leading axes broadcast against those of `mean`.
    index : iterable of int
        Variables from 0 to d - 1, repeated as often as they occur: ``(0, 0, 2, 3)`` is E[X_0^2 X_2 X_3]. The empty
        product is 1.

    Returns
    -------
    array (...)
        In the array library and device of `mean` and `cov` and the wider of their dtypes (16-bit floats give float32).

    Examples
    --------
    >>> from mlpoly.paper import isserlis
    >>> isserlis([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]], (0, 0, 1, 1)).item()
    1.5
    """
    mean, cov = together(mean=mean, cov=cov)
    if len(mean.shape) < 1:
        raise ValueError("mean is a single number, expected shape (..., d): one entry per variable on the last axis.")
    d = mean.shape[-1]
    if tuple(cov.shape[-2:]) != (d, d):
        raise ValueError(f"cov has shape {tuple(cov.shape)}, expected (..., {d}, {d}): mean has {d} variables.")
    shape = batch_shape(mean=mean.shape[:-1], cov=cov.shape[:-2])
    if not isinstance(index, Iterable) or isinstance(index, str):
        raise TypeError(f"index must be a tuple of variables such as (0, 0, 2), got {index!r}.")
    factors = tuple(as_integer("index", i, 0) for i in index)
    if factors and max(factors) >= d:
        raise ValueError(f"index holds variable {max(factors)}, but mean has {d} variables: 0 to {d - 1}.")
    dtype, mean, cov = mean.dtype, widen(mean), widen(symmetric("cov", cov))
    result = expected_product(
        factors,
        constant(np.ones(shape), mean),
        lambda i, value: mean[..., i] * value,
        lambda i, j: cov[..., i, j],
    )
    return astype(result, dtype)


def expected_product(
    index: Index, one: Array, times_mean: Callable[[int, Array], Array], cov: Callable[[int, int], Array]
) -> Array:
    """E[prod X_i] over i in `index`, by E[X_i R] = mean_i E[R] + sum_{j in R} Cov(X_i, X_j) E[R / X_j].

    Every multi-index is evaluated once, where the sum over partitions of n variables into singletons and pairs grows
    like sqrt(n!). `one` is the empty product; ``times_mean(i, value)`` is mean_i times value, where the means may
    themselves be polynomials of another variable; ``cov(i, j)`` is Cov(X_i, X_j).
    """
    whole = tuple(sorted(index))
    values: dict[Index, Array] = {(): one}
    # The multi-indices that this reaches. A recursive function would meet Python's limit at long products.
    found, stack = {whole}, [whole]
    while stack:
        rest = stack.pop()[1:]
        smaller = {rest, *(_without(rest, j) for j in set(rest))} - found
        found |= smaller
        stack.extend(smaller)
    for key in sorted(found - {()}, key=len):
        first, rest = key[0], key[1:]
        total = times_mean(first, values[rest])
        for j in sorted(set(rest)):
            # Equal factors give equal terms: their number is the weight.
            total = total + rest.count(j) * (cov(first, j) * values[_without(rest, j)])
        values[key] = total
    return values[whole]


def _without(index: Index, j: int) -> Index:
    at = index.index(j)
    return index[:at] + index[at + 1 :]
