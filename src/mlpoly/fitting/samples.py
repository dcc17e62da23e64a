"""Each neuron's own best polynomial on samples: a ridge form, from one pass over the data (MATH 4b, 4c).

Real activations have heavier tails than the Gaussian of their mean and covariance, and a neuron's polynomial is only
as good as the marginal that it is fitted under. The samples themselves give that marginal. Every neuron needs the
moments of as many functions as its polynomial has coefficients, so that one pass sums all there is to know.
"""

from __future__ import annotations

from typing import Any, cast

from mlpoly.arrays import (
    Array,
    as_float_array,
    as_integer,
    cast_like,
    check_finite,
    chunks,
    eye,
    namespace,
    rounding_error,
    safe_inverse,
    widen,
)
from mlpoly.fitting.checks import checked_inputs
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.preactivations import preactivations
from mlpoly.fitting.tails import with_tails
from mlpoly.inputs import Gaussian
from mlpoly.networks import Layer
from mlpoly.polynomials import RidgePolynomial, Source
from mlpoly.polynomials.ridge import check_bound
from mlpoly.records import replace
from mlpoly.special import hermite

__all__ = ["SampleFit"]

METHOD = "least squares neuron by neuron on samples"
_NUMBERS = 2**24  # values of basis functions that are held at once


class SampleFit:
    """Least squares on a stream of samples, neuron by neuron.

    What is fitted is what will be computed: with a `bound` each neuron is a polynomial of its preactivation within the
    bound and a straight line beyond it, and both are fitted together (see `mlpoly.polynomials.Tails`).

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
        self, net: Layer, inputs: Gaussian, degree: int, bound: float | None = None, share: float = 1e-3
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
        if self.bound is not None:
            self._closed = with_tails(net, self._closed, self.bound)
        self._net = net
        self._spread = None if self._closed.gate is None else _residual_spread(net, inputs, self._closed)
        self._gram: Array = None  # (h, basis, basis)
        self._right: Array = None  # (h, basis, 1)

    def update(self, samples: Array, weights: Array | None = None) -> SampleFit:
        """Add samples (n, d), or (..., d) with leading axes flattened, and weights (n,) of mean one; returns self."""
        samples = as_float_array("samples", samples, integers=True)
        xp = namespace(samples=samples, net=self._closed.directions)
        dim = self._closed.dim_in
        if len(samples.shape) < 2 or samples.shape[-1] != dim:
            raise ValueError(f"samples has shape {tuple(samples.shape)}, expected (n, {dim}): one sample in each row.")
        check_finite("samples", samples)
        rows = xp.reshape(samples, (-1, dim))
        width = self._closed.directions.shape[0] * (2 * self._closed.degree + 5)
        for part in chunks(rows.shape[0], max(1, _NUMBERS // width)):
            self._add(rows[part, ...], None if weights is None else weights[part])
        self.count += rows.shape[0]
        return self

    def _add(self, x: Array, weights: Array | None) -> None:
        xp = namespace(x=x)
        # Products of float32 numbers would lose in the sums what the solution has to distinguish.
        basis = widen(xp.permute_dims(self._basis(x), (2, 0, 1)))  # (h, basis, n)
        target = widen(xp.permute_dims(self._net.hidden(x), (1, 0)))[..., None]
        weighted = basis if weights is None else basis * weights
        gram, right = weighted @ xp.matrix_transpose(basis), weighted @ target
        self._gram = gram if self._gram is None else self._gram + gram
        self._right = right if self._right is None else self._right + right

    def _basis(self, x: Array) -> Array:
        """The functions of each neuron that are fitted, in the order of `_known` (basis, n, h).

        They are he_k(t), and he_k(t) e / spread, orthonormal under the Gaussian; with a bound, t is held within it,
        and there are the excesses of t below and above it, and these times e / spread.
        """
        closed, bound = self._closed, self.bound
        xp = namespace(x=x)
        t = closed.standardise(x)
        held = t if bound is None else xp.clip(t, -bound, bound)
        functions = list(hermite(held, closed.degree))
        lines = [] if closed.tails is None else [xp.clip(t - held, None, 0.0), xp.clip(t - held, 0.0, None)]
        if self._spread is None:
            return xp.stack([*functions, *lines])
        e = closed.gate_residual(x, held) * cast_like(safe_inverse(self._spread), t)
        with_gate = [*functions[: closed.degree], *(lines if self._gate_slopes else [])]
        return xp.stack([*functions, *lines, *(f * e for f in with_gate)])

    @property
    def _gate_slopes(self) -> list[Array]:
        """Slopes of the gate beyond the bound, [(2, h)], or nothing."""
        tails = self._closed.tails
        return [] if tails is None or tails.gate is None else [tails.gate]

    def _known(self) -> Array:
        """Coefficients of the closed form (basis, h)."""
        closed, xp = self._closed, namespace(closed=self._closed.series)
        parts = [closed.series, *([] if closed.tails is None else [closed.tails.slopes])]
        if closed.gate is None:
            return widen(xp.concat(parts))
        with_gate = [closed.gate.series, *self._gate_slopes]
        return xp.concat([*map(widen, parts), *(widen(part) * self._spread for part in with_gate)])

    def polynomial(self) -> RidgePolynomial:
        """The polynomial of all samples so far."""
        if not self.count:
            raise ValueError("no samples yet: call update(batch) before polynomial().")
        xp, known = namespace(closed=self._closed.series), self._known()
        weight = self._share * self.count
        # Under the Gaussian the Hermite basis is orthonormal: its Gram matrix is the identity, its right side the
        # closed form. The lines beyond the bound count as if that many samples were a standard deviation beyond it.
        gram = self._gram + weight * eye(known.shape[0], self._gram)
        right = self._right + weight * xp.permute_dims(known, (1, 0))[..., None]
        # Massive activations make some functions thousands of times larger than others: first all to length one. What
        # they then have in common may leave less than the rounding errors of the sums, or of the coefficients once
        # they are stored, so coefficients cost as much as these errors: a higher degree can then do no harm.
        lengths = xp.sqrt(xp.linalg.diagonal(gram))[..., None]
        noise = float(xp.finfo(gram.dtype).eps)
        cost = max((4 * rounding_error(self._closed.series)) ** 2, 10 * known.shape[0] * noise)
        unit = gram / lengths / xp.matrix_transpose(lengths) + cost * eye(known.shape[0], gram)
        solved = xp.linalg.solve(unit, right / lengths) / lengths
        return self._with_coefficients(xp.permute_dims(solved[..., 0], (1, 0)))

    def _with_coefficients(self, solved: Array) -> RidgePolynomial:
        """The closed form with other coefficients (basis, h), in the order of `_known`."""
        closed, gate, tails = self._closed, self._closed.gate, self._closed.tails
        order, lines = closed.degree + 1, 0 if tails is None else 2
        series, slopes, times = solved[:order, ...], solved[order : order + lines, ...], solved[order + lines :, ...]
        if tails is not None:
            tails = replace(tails, slopes=cast_like(slopes, closed.series))
        if gate is not None:
            times = cast_like(times * safe_inverse(self._spread), gate.series)
            gate = replace(gate, series=times[: closed.degree, ...])
            if self._gate_slopes:
                tails = replace(tails, gate=times[closed.degree :, ...])
        changes = {"series": cast_like(series, closed.series), "gate": gate, "tails": tails}
        return replace(closed, **changes, source=Source(closed.source.activation, METHOD))


def _residual_spread(net: Any, inputs: Gaussian, closed: RidgePolynomial) -> Array:
    """Standard deviation (h,) of the part of the second factor that the preactivation does not explain."""
    assert closed.gate is not None
    forms = net.forms
    xp = namespace(weights=forms.gate_directions)
    variance = preactivations(inputs, forms.gate_directions).stds ** 2
    along = widen(closed.gate.slopes)
    left = variance - along**2
    real = left > 1e-6 * variance  # below that it is rounding
    # Beyond a bound the residual also has what the preactivation, held there, no longer explains.
    least = xp.abs(along) if closed.tails is not None else along * 0
    return xp.where(real, xp.sqrt(xp.where(real, left, 1.0)), least)
