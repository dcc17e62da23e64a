"""Fraction of variance unexplained: how much of the network the polynomial misses."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from mlpoly.arrays import Array, cast_result, namespace
from mlpoly.inputs import Inputs, Samples
from mlpoly.measures.arguments import check_functions
from mlpoly.measures.number import FVU
from mlpoly.measures.outputs import fvu_of_outputs, outputs_of, unexplained
from mlpoly.measures.second_moments import components, gaussian_error
from mlpoly.networks import Layer, check_layer
from mlpoly.polynomials import Polynomial
from mlpoly.records import map_arrays, replace

__all__ = ["fvu"]


def fvu(
    net: Layer | Callable[[Array], Array],
    poly: Polynomial | Callable[[Array], Array],
    inputs: Inputs | None = None,
    *,
    samples: Array | None = None,
) -> FVU:
    """Fraction of the variance of a network that a polynomial leaves unexplained.

    ``E|f - p|^2 / E|f - E f|^2``, for each output and for all together. The residual is not centred: a constant error
    counts as an error, so the fraction may exceed 1.

    Parameters
    ----------
    net : Layer
        Network; on data also any callable from (n, d) to (n, o), such as a deep network.
    poly : Polynomial
        Polynomial; on data also any callable. In closed form it may have any form and origin: it need not be optimal,
        nor fitted under these inputs.
    inputs : Gaussian, GaussianMixture or Samples, optional
        Inputs: closed form under a distribution, without sampling (MATH 5), or the average over weighted samples. By
        default those that the polynomial was fitted under.
    samples : array (n, d), optional
        Data instead of `inputs`: population variance, with a standard error.

    Returns
    -------
    FVU
        In the array library, dtype and device of the network (float32 where that has 16 bits).

    Raises
    ------
    ValueError
        If arguments are missing or do not match, or an output of the network is constant, with no variance to explain.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "relu")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=2)
    >>> round(float(mp.fvu(net, poly).total), 4)
    0.0331
    >>> x = np.random.default_rng(0).standard_normal((1000, 2))
    >>> bool(mp.fvu(net, poly, samples=x).total < 0.1)
    True
    """
    if inputs is not None and samples is not None:
        raise ValueError("give either inputs (a distribution) or samples=x (data of shape (n, d)), and not both.")
    if inputs is None and samples is None:
        inputs = getattr(poly, "inputs", None)
    if isinstance(inputs, Samples):
        return fvu_of_outputs(*outputs_of(net, poly, inputs.x, minimum=2), inputs.weights)
    if samples is not None:
        return fvu_of_outputs(*outputs_of(net, poly, samples, minimum=2))
    check_functions(net, poly)
    if inputs is None:
        raise ValueError(
            "give inputs (a distribution) or samples=x (data of shape (n, d)): this polynomial, made by arithmetic or "
            "read from a file of an older version, does not know what it was fitted under."
        )
    layer = check_layer(net)
    parts = [(w, gaussian_error(layer, cast(Polynomial, poly), g)) for w, g in components(layer, inputs)]
    mean = sum(w * e.mean for w, e in parts)
    variance = sum(w * (e.variance + (e.mean - mean) ** 2) for w, e in parts)  # within the Gaussians and between them
    xp = namespace(variance=variance)
    variance = xp.where(variance > sum(w * e.rounding for w, e in parts), variance, 0.0)
    missed, squares = sum(w * e.miss_mean for w, e in parts), sum(w * e.miss for w, e in parts)
    bound = sum(w * e.bound for w, e in parts)
    found = replace(unexplained(mean, variance, missed, squares), bound=xp.sum(bound) / xp.sum(variance))
    return map_arrays(found, lambda a: cast_result(a, layer.prototype))
