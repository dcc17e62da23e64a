"""Each neuron's own best polynomial on samples: a ridge form, from one pass over the data (MATH 4b).

Real activations have heavier tails than the Gaussian of their mean and covariance, and a neuron's polynomial is only
as good as the marginal that it is fitted under. The samples themselves give that marginal. Every neuron needs the
moments of as many functions as its polynomial has coefficients, so that one pass sums all there is to know.
"""

from __future__ import annotations

from typing import Any, cast

from mlpoly.arrays import Array, as_float_array, as_integer, cast_like, check_finite, eye, namespace, widen
from mlpoly.arrays import blocks as slices
from mlpoly.fitting.fit import checked_inputs
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.preactivations import preactivations
from mlpoly.inputs import Gaussian
from mlpoly.layers import GLU, MLP
from mlpoly.polynomials import RidgePolynomial, Source
from mlpoly.polynomials.base import replace_fields
from mlpoly.polynomials.ridge import check_bound
from mlpoly.special import hermite

__all__ = ["SampleFit"]

METHOD = "least squares neuron by neuron on samples"
_NUMBERS = 2**24  # values of basis functions that are held at once


class SampleFit:
    """Least squares on a stream of samples, neuron by neuron.

    What is fitted is what will be computed: with a `bound` the basis functions of a neuron are those of its
    preactivation held within the bound, so the polynomial is the best one for use with that bound.

    The closed form under `inputs` takes part as if it were some more samples, a `share` of those that there are. It
    decides where the samples do not: in directions they have not seen, and with too few of them.

    Parameters
    ----------
    net : MLP or GLU
    inputs : Gaussian
        Mean and covariance of the samples, or nearly: they only choose the coordinates, and the closed form.
    degree : int
    bound : float, optional
        See `RidgePolynomial.__call__`.
    share : float
        Weight of the closed form, relative to that of all samples; above 0.

    Attributes
    ----------
    count : int
        Samples seen.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.fitting.samples import SampleFit
    >>> rng = np.random.default_rng(0)
    >>> net = mp.MLP(rng.standard_normal((8, 3)), None, rng.standard_normal((1, 8)), None, "relu")
    >>> x = rng.standard_t(3, (5000, 3))  # heavy tails
    >>> inputs = mp.Gaussian.from_samples(x)
    >>> closed, fitted = mp.fit(net, inputs, 4), SampleFit(net, inputs, 4).update(x).polynomial()
    >>> bool(mp.fvu(net, fitted, samples=x).total < 0.1 * mp.fvu(net, closed, samples=x).total)
    True
    """

    def __init__(
        self, net: MLP | GLU, inputs: Gaussian, degree: int, bound: float | None = None, share: float = 1e-3
    ) -> None:
        if not isinstance(inputs, Gaussian):
            raise TypeError(f"inputs must be a Gaussian, got {type(inputs).__name__}; use Gaussian.from_samples(x).")
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not share > 0:
            raise ValueError(f"share must be a number above 0, such as 0.001, got {share!r}.")
        inputs = cast(Gaussian, checked_inputs(net, inputs))
        self.bound = None if bound is None else check_bound(bound)
        self.count = 0
        self._share = float(share)
        self._closed = fit_gaussian(net, inputs, as_integer("degree", degree, 0))
        self._hidden: Any = replace_fields(net, **dict.fromkeys(_READOUT[type(net)]))
        self._spread = None if self._closed.gate is None else _residual_spread(net, inputs, self._closed)
        self._gram: Array = None  # (h, basis, basis)
        self._right: Array = None  # (h, basis, 1)

    def update(self, samples: Array) -> SampleFit:
        """Add samples (n, d), or (..., d) with leading axes flattened; returns self."""
        samples = as_float_array("samples", samples)
        xp = namespace(samples=samples, net=self._closed.directions)
        dim = self._closed.dim_in
        if len(samples.shape) < 2 or samples.shape[-1] != dim:
            raise ValueError(f"samples has shape {tuple(samples.shape)}, expected (n, {dim}): one sample in each row.")
        check_finite("samples", samples)
        rows = xp.reshape(samples, (-1, dim))
        width = self._closed.directions.shape[0] * (2 * self._closed.degree + 1)
        for part in slices(rows.shape[0], max(1, _NUMBERS // width)):
            self._add(rows[part, ...])
        self.count += rows.shape[0]
        return self

    def _add(self, x: Array) -> None:
        xp = namespace(x=x)
        basis = xp.permute_dims(self._basis(x), (2, 0, 1))  # (h, basis, n)
        target = xp.permute_dims(self._hidden(x), (1, 0))[..., None]
        gram, right = widen(basis @ xp.matrix_transpose(basis)), widen(basis @ target)
        self._gram = gram if self._gram is None else self._gram + gram
        self._right = right if self._right is None else self._right + right

    def _basis(self, x: Array) -> Array:
        """Functions he_k(t), then he_k(t) e / spread: orthonormal under the Gaussian (basis, n, h)."""
        closed = self._closed
        xp = namespace(x=x)
        t = closed.standardise(x)
        if self.bound is not None:
            t = xp.clip(t, -self.bound, self.bound)
        functions = list(hermite(t, closed.degree))
        if self._spread is not None:
            e = closed.gate_residual(x, t) * cast_like(_inverse(self._spread), t)
            functions += [f * e for f in functions[: closed.degree]]
        return xp.stack(functions)

    def polynomial(self) -> RidgePolynomial:
        """The polynomial of all samples so far."""
        if not self.count:
            raise ValueError("no samples yet: call update(batch) before polynomial().")
        closed, xp = self._closed, namespace(closed=self._closed.series)
        known = widen(closed.series)
        if closed.gate is not None:
            known = xp.concat([known, widen(closed.gate.series) * self._spread])
        weight = self._share * self.count
        # Under the Gaussian the basis is orthonormal: its Gram matrix is the identity, its right side the closed form.
        gram = self._gram + weight * eye(known.shape[0], self._gram)
        right = self._right + weight * xp.permute_dims(known, (1, 0))[..., None]
        solved = xp.permute_dims(xp.linalg.solve(gram, right)[..., 0], (1, 0))
        return self._with_series(solved)

    def _with_series(self, solved: Array) -> RidgePolynomial:
        closed, split = self._closed, self._closed.degree + 1
        gate = closed.gate
        if gate is not None:
            series = cast_like(solved[split:, ...] * _inverse(self._spread), gate.series)
            gate = replace_fields(gate, series=series)
        series = cast_like(solved[:split, ...], closed.series)
        return replace_fields(closed, series=series, gate=gate, source=Source(closed.source.activation, METHOD))


# What reads the hidden units out; without it a network gives those.
_READOUT: dict[type, tuple[str, str]] = {MLP: ("W2", "b2"), GLU: ("W_down", "b_down")}


def _residual_spread(net: Any, inputs: Gaussian, closed: RidgePolynomial) -> Array:
    """Standard deviation (h,) of the part of the second factor that the preactivation does not explain."""
    assert closed.gate is not None
    xp = namespace(weights=net.W_up)
    variance = preactivations(inputs, net.W_up).stds ** 2
    left = variance - widen(closed.gate.slopes) ** 2
    real = left > 1e-6 * variance  # below that it is rounding
    return xp.where(real, xp.sqrt(xp.where(real, left, 1.0)), 0.0)


def _inverse(spread: Array) -> Array:
    xp = namespace(spread=spread)
    positive = spread > 0
    return xp.where(positive, 1 / xp.where(positive, spread, 1.0), 0.0)
