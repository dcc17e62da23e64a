"""Moments of a network's outputs under its inputs, alone and compared with a polynomial, without sampling (MATH 5).

The network differs from its own best polynomial of the same degree by the tail of its degree spectrum, and that
difference is orthogonal to every polynomial of the degree. So E|f - g|^2 = E|f - g_n|^2 + E|g_n - g|^2, and the second
term is the second moment of a polynomial.
"""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, cast_result, decidable, namespace, to_numpy, widen
from mlpoly.inputs import Gaussian, InputsLike, Samples, as_inputs, checked_inputs, require_gaussians
from mlpoly.kernels import hidden_of, output_moments, variance_by_degree
from mlpoly.measures.on_samples import moments_on_samples
from mlpoly.networks import Layer, Network, check_layer
from mlpoly.plottable import Plottable
from mlpoly.polynomials import Polynomial
from mlpoly.records import record
from mlpoly.tables import Table, Tabular


@record
class SecondMoment(Tabular, Plottable):
    """First and second moments of outputs f(x).

    Attributes
    ----------
    mean : array (o,)
        E[f].
    raw : array (o, o)
        E[f f'].
    cov : array (o, o)
        Cov[f].
    bound : array (o, o)
        Bound on the error of `cov` and `raw` from truncated series, rounding aside; zero for exact kernels.
    """

    mean: Array
    raw: Array
    cov: Array
    bound: Array

    def _table(self) -> Table:
        variance = to_numpy(self.cov).diagonal().clip(min=0)
        rows = zip(range(len(variance)), to_numpy(self.mean).tolist(), (variance**0.5).tolist(), strict=True)
        return Table(("output", "mean", "standard deviation"), tuple(rows), limit=20)

    def __repr__(self) -> str:
        return f"SecondMoment(outputs={self.mean.shape[0]})"


def components(net: Layer | Polynomial, inputs: Any) -> list[tuple[Any, Gaussian]]:
    """Weights and Gaussians of the inputs, in the array library of the network; one Gaussian has weight 1.

    Every measure in closed form is a weighted sum over them, plus a part from the spread of their means.
    """
    inputs = require_gaussians(checked_inputs(inputs, net.dim_in, net.prototype, net.names))
    if not decidable(net.prototype, inputs.mean):
        raise TypeError(
            "closed-form measures choose their route by value; call them outside jax.jit and torch.compile."
        )
    weights = widen(inputs.weights)
    weights = weights / namespace(weights=weights).sum(weights)
    return [(weights[c], g) for c, g in enumerate(inputs.components)]


def second_moment(net: Network, inputs: InputsLike) -> SecondMoment:
    """Mean, E[f f'] and covariance of a network's outputs.

    Exact for ReLU and every piecewise-linear activation. Other activations, and gated units, are summed as a series in
    the degree, with a bound on the truncation error; strongly correlated or identical units are integrated exactly.

    Parameters
    ----------
    net : network
        A network with one hidden layer; on samples any. `mlpoly.propagate` has the moments of deep ones.
    inputs : Gaussian, GaussianMixture, Samples or data (n, d)

    Returns
    -------
    SecondMoment
        In the network's array library, dtype and device (float32 where that has 16 bits).

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "relu")
    >>> round(float(second_moment(net, mp.Gaussian.standard(2)).cov[0, 0]), 6)  # 1 - 1/pi
    0.68169
    """
    if isinstance(inputs := as_inputs(inputs), Samples):
        return SecondMoment(*moments_on_samples(net, inputs))
    net = check_layer(net)
    parts = []  # weight, mean (o,), covariance (o, o) and its bound (o, o) under each Gaussian
    for weight, part in components(net, inputs):
        parts.append((weight, *output_moments(hidden_of(net, part, 0))))
    mean = sum(w * m for w, m, _, _ in parts)
    gaps = [(w, m - mean) for w, m, _, _ in parts]
    cov = sum(w * c for w, _, c, _ in parts) + sum(w * g[:, None] * g[None, :] for w, g in gaps)
    bound = sum(w * b for w, _, _, b in parts)
    raw = cov + mean[:, None] * mean[None, :]
    return SecondMoment(*[cast_result(a, net.prototype) for a in (mean, raw, cov, bound)])


# -- compared with a polynomial ----------------------------------------------------------------------------------------


@record
class Error:
    """Moments under one Gaussian, (o,) each; those of a mixture are their weighted means."""

    mean: Array  # E[f]
    variance: Array  # Var[f]
    miss_mean: Array  # E[f - g]
    miss: Array  # E[(f - g)^2]
    bound: Array  # on the truncation error of `variance` and `miss`
    rounding: Array  # a variance below this is zero


def gaussian_error(net: Layer, poly: Polynomial, inputs: Gaussian) -> Error:
    """Moments of a network and of its difference from any polynomial under one Gaussian."""
    poly, missing = poly.projected(inputs)
    n = poly.degree
    hidden = hidden_of(net, inputs, n)
    spread = variance_by_degree(hidden, n)
    gap_mean, gap_variance = poly.gap(hidden.best(n), hidden.inputs)
    xp = namespace(tail=spread.tail)
    variance = spread.tail + xp.sum(spread.head, axis=0)
    miss = spread.tail + gap_variance + gap_mean**2
    # Deviations from the mean have the rounding of the values, variances that of terms that cancel between units.
    eps = 100 * float(xp.finfo(variance.dtype).eps)
    spreads, values = xp.sqrt(hidden.kernel.variances), xp.abs(hidden.kernel.series.plain[0, :])
    if hidden.net.readout is not None:
        spreads, values = xp.abs(hidden.net.readout) @ spreads, xp.abs(hidden.net.readout) @ values
    rounding, bound = eps * spreads**2 + (eps * values) ** 2, spread.bound
    if missing is not None:
        # Beyond the degree, the network and a piecewise polynomial may partly cancel or add up.
        bound = bound + missing + 2 * xp.sqrt(missing * spread.tail)
    return Error(spread.mean, variance, gap_mean, miss, bound, rounding)
