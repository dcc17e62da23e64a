"""Raw moments E[x^k act(x)] of any activation."""

from __future__ import annotations

from collections.abc import Callable

from mlpoly.activations import Activation, get, project
from mlpoly.arrays import Array, as_integer, astype, namespace, widen
from mlpoly.paper.moment_arguments import batch_shape, check_not_negative, together
from mlpoly.special import times_line


def raw_moments(activation: str | Activation | Callable[[Array], Array], mean: Array, std: Array, degree: int) -> Array:
    """E[x^k act(x)] for x ~ N(mean, std^2) and k = 0, ..., degree.

    The paper writes x = mean + std z and recombines the moments of z by the binomial theorem, activation by
    activation. Here multiplication by x acts on the orthonormal Hermite coefficients of the activation, one factor at
    a time, ``(X c)_k = mean c_k + std (sqrt(k) c_{k-1} + sqrt(k+1) c_{k+1})``, and entry 0 is the expectation. One
    formula serves every activation, and no binomial sum is formed.

    Parameters
    ----------
    activation : str, Activation or callable
        See `mlpoly.activations.get`.
    mean, std : array or float
        They broadcast against each other; ``std >= 0``.
    degree : int
        Highest k.

    Returns
    -------
    array (degree + 1, ...)
        In the array library and device of `mean` and `std` and the wider of their dtypes (16-bit floats give float32).

    Notes
    -----
    Errors are a few units of rounding relative to ``sqrt(E[act^2] E[x^(2k)])``, which bounds the moment. A moment that
    is itself much smaller, such as that of a ReLU many standard deviations below zero, has fewer correct digits.

    Examples
    --------
    >>> from mlpoly.paper import raw_moments
    >>> raw_moments("identity", 1.0, 2.0, 2).tolist()
    [1.0, 5.0, 13.0]
    """
    act = get(activation)
    degree = as_integer("degree", degree, 0)
    mean, std = together(mean=mean, std=std)
    check_not_negative("std", std, "pass a standard deviation, not a variance or a covariance")
    batch_shape(mean=mean.shape, std=std.shape)
    xp = namespace(mean=mean, std=std)
    mean, std = xp.broadcast_arrays(mean, std)
    dtype, mean, std = mean.dtype, widen(mean), widen(std)
    series = project(act, mean, std, degree)
    moments = [series[0, ...]]
    for _ in range(degree):
        series = times_line(series, mean, std)
        moments.append(series[0, ...])
    return astype(xp.stack(moments), dtype)
