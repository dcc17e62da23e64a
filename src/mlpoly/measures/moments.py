"""Mean and covariance of a network's outputs under its inputs, without a sample (MATH 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, cast_result, constant, namespace, widen
from mlpoly.inputs import Gaussian, Inputs, Samples
from mlpoly.measures.components import components
from mlpoly.measures.on_samples import moments_on_samples
from mlpoly.measures.pairs import Kernel, kernel_of
from mlpoly.measures.readout import OutputSum
from mlpoly.measures.series import energies, terms
from mlpoly.measures.units import Angles, angles, block_count, hidden_units
from mlpoly.networks import Layer
from mlpoly.progress import progress
from mlpoly.records import record

__all__ = ["Hidden", "SecondMoment", "Variance", "hidden_of", "output_mean", "second_moment", "variance_by_degree"]


@record
class SecondMoment:
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
        What cut series may have left out of `cov` and `raw` at most, rounding aside; zero for exact kernels.
    """

    mean: Array
    raw: Array
    cov: Array
    bound: Array

    def __repr__(self) -> str:
        return f"SecondMoment(outputs={self.mean.shape[0]})"


class Hidden(NamedTuple):
    """A network under one Gaussian: its hidden units and the way to its outputs."""

    kernel: Kernel
    readout: Array | None
    bias: Array | None


class Variance(NamedTuple):
    """Mean of the outputs, (o,), and their variance degree by degree: (n, o), all above n (o,), what was cut (o,)."""

    mean: Array
    head: Array
    tail: Array
    bound: Array


def second_moment(net: Layer, inputs: Inputs) -> SecondMoment:
    """Mean, E[f f'] and covariance of a network's outputs.

    Exact for ReLU and every piecewise-linear activation. Other activations, and gated units, are summed as a series in
    the degree with a bound on what was cut; units that are strongly correlated or identical are integrated exactly.

    Parameters
    ----------
    net : MLP or GLU
    inputs : Gaussian, GaussianMixture or Samples

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
    if isinstance(inputs, Samples):
        return SecondMoment(*moments_on_samples(net, inputs))
    parts = [(weight, _gaussian_moments(net, part)) for weight, part in components(net, inputs)]
    mean = sum(weight * m for weight, (m, _, _) in parts)
    gaps = [(weight, m - mean) for weight, (m, _, _) in parts]
    cov = sum(weight * c for weight, (_, c, _) in parts) + sum(w * g[:, None] * g[None, :] for w, g in gaps)
    bound = sum(weight * b for weight, (_, _, b) in parts)
    raw = cov + mean[:, None] * mean[None, :]
    like = net.prototype
    return SecondMoment(*[cast_result(a, like) for a in (mean, raw, cov, bound)])


def _gaussian_moments(net: Layer, inputs: Gaussian) -> tuple[Array, Array, Array]:
    """Mean (o,), covariance (o, o) and its bound (o, o) under one Gaussian."""
    hidden = hidden_of(net, inputs, 0)
    readout = hidden.readout
    if readout is None:
        readout = constant(np.eye(net.dim_hidden), hidden.kernel.variances)
    xp = namespace(readout=readout)
    cov, bound = OutputSum(readout, full=True), OutputSum(xp.abs(readout), full=True)
    for rows, columns, inner in _blocks(hidden):
        tail = hidden.kernel.tail(rows, columns, inner, 0)
        cov.add_tail(rows, columns, tail)
        if tail.bound is not None:
            bound.add(rows, columns, tail.bound)
    return output_mean(hidden), cov.value, bound.value if bound.used else cov.value * 0


def hidden_of(net: Layer, inputs: Gaussian, degree: int) -> Hidden:
    """Hidden units of a network under one Gaussian, with series up to `degree` at least."""
    kernel = kernel_of(net.activation, hidden_units(net, inputs), degree)
    return Hidden(kernel, *[None if a is None else widen(a) for a in (net.readout, net.bias)])


def output_mean(hidden: Hidden) -> Array:
    """E[f], (o,)."""
    units = hidden.kernel.series.plain[0, :]
    out = units if hidden.readout is None else hidden.readout @ units
    return out if hidden.bias is None else out + hidden.bias


def variance_by_degree(hidden: Hidden, degree: int) -> Variance:
    """Variance of every output at degree 1, ..., `degree` and above; never an (o, o) array."""
    if hidden.readout is None:
        return _unit_variance(hidden, degree)
    kernel = hidden.kernel
    xp = namespace(readout=hidden.readout)
    head = [OutputSum(hidden.readout, full=False) for _ in range(degree)]
    tail, bound = OutputSum(hidden.readout, full=False), OutputSum(xp.abs(hidden.readout), full=False)
    for rows, columns, inner in _blocks(hidden):
        left, right = kernel.series.rows(rows), kernel.series.columns(columns)
        for total, term in zip(head, terms(left, right, inner, degree), strict=True):
            total.add(rows, columns, term)
        rest = kernel.tail(rows, columns, inner, degree)
        tail.add_tail(rows, columns, rest)
        if rest.bound is not None:
            bound.add(rows, columns, rest.bound)
    zero = tail.value * 0
    stacked = xp.stack([h.value for h in head]) if head else zero[None, :][:0, :]
    return Variance(output_mean(hidden), stacked, xp.clip(tail.value, 0, None), bound.value if bound.used else zero)


def _unit_variance(hidden: Hidden, degree: int) -> Variance:
    """Where the units are the outputs no pair is needed."""
    kernel = hidden.kernel
    xp = namespace(variances=kernel.variances)
    energy = energies(kernel.series, kernel.units)[1 : degree + 1, ...]
    tail = xp.clip(kernel.variances - xp.sum(energy, axis=0), 0, None)
    return Variance(output_mean(hidden), energy, tail, tail * 0)


def _blocks(hidden: Hidden) -> Iterator[tuple[slice, slice, Angles]]:
    units = hidden.kernel.units
    with progress("pairs of hidden units", block_count(units)) as update:
        for done, block in enumerate(angles(units)):
            update(done, "")
            yield block
