"""Expected products of Gaussian variables, by one recurrence that moments and the master theorem share."""

from __future__ import annotations

from collections.abc import Callable

from mlpoly.arrays import Array

__all__ = ["expected_product"]

Index = tuple[int, ...]  # a multi-index, written as the sorted variables with repetition


def expected_product(
    index: Index, one: Array, times_mean: Callable[[int, Array], Array], cov: Callable[[int, int], Array]
) -> Array:
    """E[prod X_i] over i in `index`, by E[X_i R] = mean_i E[R] + sum_{j in R} Cov(X_i, X_j) E[R / X_j].

    Every multi-index is evaluated once, where the sum over partitions of n variables into singletons and pairs grows
    like sqrt(n!).

    Parameters
    ----------
    index : tuple of int
        Variables, repeated as often as they occur in the product.
    one : array
        The empty product.
    times_mean : callable
        ``times_mean(i, value)`` is mean_i times value; the means may themselves be polynomials of another variable.
    cov : callable
        ``cov(i, j)`` is Cov(X_i, X_j).

    Returns
    -------
    array, of the shape of `one`
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
