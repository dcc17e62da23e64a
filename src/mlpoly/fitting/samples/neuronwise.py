"""Each neuron's own best polynomial on samples: a ridge form, from one pass over the data (MATH 4b, 4c).

Real activations have heavier tails than the Gaussian of their mean and covariance, and a neuron's polynomial is only
as good as the marginal that it is fitted under.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from mlpoly.arrays import Array, as_float_array, check_finite, chunks, namespace, scalar
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.neuron_equations import NeuronEquations
from mlpoly.inputs import Gaussian, Samples
from mlpoly.networks import Layer, check_layer
from mlpoly.polynomials import BoundedPolynomial, RidgePolynomial
from mlpoly.records import replace
from mlpoly.units import Units

P = TypeVar("P", bound=RidgePolynomial | BoundedPolynomial)

METHOD = "least squares neuron by neuron on samples"
_ROWS = 2**24  # numbers in a chunk of samples
_NUMBERS = 2**22  # values of hidden units held at once


class SampleFit(Generic[P]):
    """Least squares on a stream of samples, neuron by neuron; the lines of a bounded polynomial are fitted too.

    Parameters
    ----------
    net : Layer
    start : RidgePolynomial or BoundedPolynomial
        The closed form, fitted to `net` under about the Gaussian of the samples; it determines the coordinates.
    fraction : float
        Weight of the closed form, as a prior, relative to that of all samples; above 0. It decides where the samples do
        not: in directions that they do not cover, and when there are too few of them.

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
    >>> bool(mp.fvu(net, fitted, x).total < 0.1 * mp.fvu(net, closed, x).total)
    True
    """

    def __init__(self, net: Layer, start: P, fraction: float = 1e-3) -> None:
        if not isinstance(start, (RidgePolynomial, BoundedPolynomial)) or not isinstance(start.inputs, Gaussian):
            raise TypeError("start must be the result of mlpoly.fit for this network under a Gaussian, bounded or not.")
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not fraction > 0:
            raise ValueError(f"fraction must be a number above 0, such as 0.001, got {fraction!r}.")
        # with affine maps before and behind the hidden layer merged into it
        self._net = net = check_layer(net).at_least_single()
        self._fraction, self.count = float(fraction), 0.0
        if start.units.directions.shape != net.forms.directions.shape:
            raise ValueError(
                f"start has {start.units.size} neurons of {start.dim_in} inputs, the network has {net.dim_hidden} of "
                f"{net.dim_in}; pass the polynomial that was fitted to it."
            )
        gate = None if start.series.gated is None else Units.under(net, start.inputs, spreads=True).gate
        self._equations = NeuronEquations(start, gate)

    def update(self, samples: Array, weights: Array | None = None) -> "SampleFit[P]":
        """Add samples (n, d), or (..., d) with leading axes flattened, with weights (n,) or ones; returns self."""
        samples = as_float_array("samples", samples, integers=True)
        xp, dim, start = namespace(samples=samples, net=self._net.prototype), self._net.dim_in, self._equations.start
        if len(samples.shape) < 2 or samples.shape[-1] != dim:
            raise ValueError(f"samples has shape {tuple(samples.shape)}, expected (n, {dim}): one sample in each row.")
        check_finite("samples", samples)
        rows = xp.reshape(samples, (-1, dim))
        for part in chunks(rows.shape[0], max(1, _NUMBERS // start.units.size)):
            x, own = rows[part, ...], None if weights is None else weights[part][:, None]
            self._equations.add(*start.forms_at(x), self._net.hidden(x), own)
        self.count += rows.shape[0] if weights is None else scalar(xp.sum(weights))
        return self

    def polynomial(self) -> P:
        """The polynomial of all samples so far, bounded if the start was."""
        if not self.count:
            raise ValueError("no samples yet: call update(batch) before polynomial().")
        return self._equations.polynomial(self._fraction * self.count, METHOD)

    def misfit(self) -> float:
        """Mean squared errors of what the neurons add to the outputs, on the samples so far, summed over neurons."""
        return self._equations.misfit(self._fraction * self.count) / self.count


def fit_samples_neuronwise(net: Layer, inputs: Samples, degree: int, bounds: Sequence[float] = ()) -> Any:
    """Best polynomial of every neuron's own preactivation on samples, with lines beyond the best of some bounds."""
    closed = fit_gaussian(net, inputs.gaussian(), degree)
    fits = [SampleFit[Any](net, closed.bounded(bound)) for bound in bounds] or [SampleFit[Any](net, closed)]
    for x, weights in inputs.chunks(max(1, _ROWS // inputs.dim)):
        for each in fits:
            each.update(x, weights[:, 0])
    return replace(best_of(fits).polynomial(), inputs=inputs)


def best_of(fits: Sequence[SampleFit[Any]]) -> SampleFit[Any]:
    """The fit whose neurons have the least errors."""
    return min(fits, key=SampleFit.misfit) if len(fits) > 1 else fits[0]
