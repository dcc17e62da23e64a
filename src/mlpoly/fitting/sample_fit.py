"""Each neuron's own best polynomial on samples: a ridge form, from one pass over the data (MATH 4b, 4c).

Real activations have heavier tails than the Gaussian of their mean and covariance, and a neuron's polynomial is only
as good as the marginal that it is fitted under. The samples themselves provide that marginal. Every neuron needs the
moments of as many functions as its polynomial has coefficients, so one pass over the data suffices.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from mlpoly.arrays import (
    Array,
    as_float_array,
    cast_like,
    check_finite,
    chunks,
    eye,
    namespace,
    rounding_error,
    safe_inverse,
    widen,
)
from mlpoly.inputs import Gaussian
from mlpoly.networks import Layer, check_layer
from mlpoly.polynomials import BoundedPolynomial, RidgePolynomial, Source
from mlpoly.records import replace
from mlpoly.special import hermite
from mlpoly.units import Series, Units

__all__ = ["SampleFit"]

P = TypeVar("P", bound=RidgePolynomial | BoundedPolynomial)

METHOD = "least squares neuron by neuron on samples"
_NUMBERS = 2**24  # values of basis functions held at once


class SampleFit(Generic[P]):
    """Least squares on a stream of samples, neuron by neuron.

    For a bounded polynomial, each neuron is a polynomial of its preactivation within the bound and a straight line
    beyond it, and both are fitted together.

    The closed form acts as a prior, with the weight of a `fraction` of the samples. It decides where the samples do
    not: in directions that they do not cover, and when there are too few of them.

    Parameters
    ----------
    net : Layer
    start : RidgePolynomial or BoundedPolynomial
        The closed form, fitted to `net` under about the Gaussian of the samples; it determines the coordinates.
    fraction : float
        Weight of the closed form relative to that of all samples; above 0.

    Attributes
    ----------
    count : float
        Samples seen, or the sum of their weights.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.fitting import SampleFit
    >>> rng = np.random.default_rng(0)
    >>> net = mp.MLP(rng.standard_normal((8, 3)), None, rng.standard_normal((1, 8)), None, "relu")
    >>> x = rng.standard_t(3, (5000, 3))  # heavy tails
    >>> closed = mp.fit(net, mp.Gaussian.from_samples(x), 4)
    >>> fitted = SampleFit(net, closed).update(x).polynomial()
    >>> bool(mp.fvu(net, fitted, samples=x).total < 0.1 * mp.fvu(net, closed, samples=x).total)
    True
    """

    def __init__(self, net: Layer, start: P, fraction: float = 1e-3) -> None:
        if not isinstance(start, (RidgePolynomial, BoundedPolynomial)) or not isinstance(start.inputs, Gaussian):
            raise TypeError("start must be the result of mlpoly.fit for this network under a Gaussian, bounded or not.")
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not fraction > 0:
            raise ValueError(f"fraction must be a number above 0, such as 0.001, got {fraction!r}.")
        self._net, self._start, self._fraction = check_layer(net), start, float(fraction)
        given: Any = start
        lines = isinstance(start, BoundedPolynomial)
        self._closed: RidgePolynomial = given.inner if lines else given
        self._bounded: BoundedPolynomial | None = given if lines and start.degree else None  # degree 0 has no lines
        if self._closed.units.directions.shape != net.forms.directions.shape:
            raise ValueError(
                f"start has {self._closed.units.size} neurons of {start.dim_in} inputs, the network has "
                f"{net.dim_hidden} of {net.dim_in}; pass the polynomial that was fitted to it."
            )
        self.count = 0.0
        self._spreads: Array = None  # (h,), of the second factors given the preactivations
        gate = Units.under(net, start.inputs, spreads=True).gate if self._closed.series.gated is not None else None
        if gate is not None:
            along, xp = widen(gate.slopes), namespace(slopes=gate.slopes)
            real = gate.spreads**2 > 1e-6 * (gate.spreads**2 + along**2)  # below that it is rounding
            # Beyond a bound, where t stops, the residual grows by the part of the factor that t explained.
            self._spreads = xp.where(real, gate.spreads, along * 0 if self._bounded is None else xp.abs(along))
        self._gram: Array = None  # (h, basis, basis)
        self._right: Array = None  # (h, basis, 1)

    def update(self, samples: Array, weights: Array | None = None) -> SampleFit[P]:
        """Add samples (n, d), or (..., d) with leading axes flattened; returns self.

        Parameters
        ----------
        samples : array (n, d)
        weights : array (n,), optional
            Weights of the samples; one by default.
        """
        samples = as_float_array("samples", samples, integers=True)
        xp = namespace(samples=samples, net=self._net.prototype)
        dim = self._net.dim_in
        if len(samples.shape) < 2 or samples.shape[-1] != dim:
            raise ValueError(f"samples has shape {tuple(samples.shape)}, expected (n, {dim}): one sample in each row.")
        check_finite("samples", samples)
        rows = xp.reshape(samples, (-1, dim))
        width = self._closed.units.size * (2 * self._closed.degree + 5)
        for part in chunks(rows.shape[0], max(1, _NUMBERS // width)):
            # Sums of float32 products would be too inaccurate for a solution that depends on small differences.
            basis = widen(xp.permute_dims(self._basis(rows[part, ...]), (2, 0, 1)))  # (h, basis, n)
            target = widen(xp.permute_dims(self._net.hidden(rows[part, ...]), (1, 0)))[..., None]
            weighted = basis if weights is None else basis * widen(weights[part])
            gram, right = weighted @ xp.matrix_transpose(basis), weighted @ target
            self._gram = gram if self._gram is None else self._gram + gram
            self._right = right if self._right is None else self._right + right
        self.count += rows.shape[0] if weights is None else float(xp.sum(weights))
        return self

    def _basis(self, x: Array) -> Array:
        """Basis functions of each neuron, in the order of `_known`: (basis, n, h).

        They are he_k(t), and he_k(t) e / spread, orthonormal under the Gaussian; with a bound, t is clipped to it, and
        the excesses of t below and above the bound follow, alone and times e / spread.
        """
        closed, bounded, units = self._closed, self._bounded, self._closed.units
        xp, (y, z) = namespace(x=x), closed.forms_at(x)
        t = units.standardise(y)
        held = t if bounded is None else xp.clip(t, -bounded.bounds, bounded.bounds)
        functions = list(hermite(held, closed.degree))
        lines = [] if bounded is None else [xp.clip(t - held, None, 0.0), xp.clip(t - held, 0.0, None)]
        if z is None:
            return xp.stack([*functions, *lines])
        e = units.residual(z, held) * cast_like(safe_inverse(self._spreads), t)
        with_gate = [*functions[: closed.degree], *(lines if bounded and bounded.gate_slopes is not None else [])]
        return xp.stack([*functions, *lines, *(f * e for f in with_gate)])

    def _known(self) -> Array:
        """Coefficients of the closed form (basis, h)."""
        series, bounded = self._closed.series, self._bounded
        parts = [series.plain, *([] if bounded is None else [bounded.slopes])]
        second = [] if series.gated is None else [series.gated]
        if second and bounded is not None and bounded.gate_slopes is not None:
            second.append(bounded.gate_slopes)
        rows = [*map(widen, parts), *(widen(part) * self._spreads for part in second)]
        return namespace(closed=series.plain).concat(rows)

    def polynomial(self) -> P:
        """The polynomial of all samples so far, bounded if the start was."""
        if not self.count:
            raise ValueError("no samples yet: call update(batch) before polynomial().")
        closed, bounded, known = self._closed, self._bounded, self._known()
        xp, weight = namespace(closed=known), self._fraction * self.count
        # Under the Gaussian the Hermite basis is orthonormal: its Gram matrix is the identity, its right-hand side the
        # closed form. For the lines, the prior acts like that many samples one standard deviation beyond the bound.
        gram = self._gram + weight * eye(known.shape[0], self._gram)
        right = self._right + weight * xp.permute_dims(known, (1, 0))[..., None]
        # Massive activations make some functions thousands of times larger than others, so all are scaled to length
        # one. They may then be dependent up to the rounding errors of the sums, or of the stored coefficients. So
        # coefficients are penalised by as much as these errors: a higher degree can then do no harm.
        lengths = xp.sqrt(xp.linalg.diagonal(gram))[..., None]
        noise = float(xp.finfo(gram.dtype).eps)
        cost = max((4 * rounding_error(closed.series.plain)) ** 2, 10 * known.shape[0] * noise)
        unit = gram / lengths / xp.matrix_transpose(lengths) + cost * eye(known.shape[0], gram)
        solved = xp.permute_dims((xp.linalg.solve(unit, right / lengths) / lengths)[..., 0], (1, 0))  # (basis, h)
        order, lines, like = closed.degree + 1, 0 if bounded is None else 2, closed.series.plain
        plain, slopes, second = solved[:order, ...], solved[order : order + lines, ...], solved[order + lines :, ...]
        gated = gate_slopes = None
        if closed.series.gated is not None:
            second = cast_like(second * safe_inverse(self._spreads), like)
            gated, gate_slopes = second[: closed.degree, ...], second[closed.degree :, ...]
        series = Series(cast_like(plain, like), gated)
        source = Source(closed.source.activation, METHOD)
        made: Any = replace(closed, series=series, source=source)
        if isinstance(self._start, BoundedPolynomial):
            made = replace(self._start, inner=made, source=source)
        if bounded is not None:
            made = replace(made, slopes=cast_like(slopes, like))
            made = made if bounded.gate_slopes is None else replace(made, gate_slopes=gate_slopes)
        answer: P = made
        return answer
