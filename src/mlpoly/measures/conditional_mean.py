"""The mean of a function given some of its inputs: partial dependence for dependent inputs (MATH 10)."""

from collections.abc import Callable
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_result, chunks, constant, namespace, widen
from mlpoly.arrays.checks import as_float_array, check_columns, check_shape
from mlpoly.inputs import Gaussian, Given, Inputs, InputsLike, as_inputs, check_possible, input_places, posterior
from mlpoly.measures.functions import gaussians, measured, widened
from mlpoly.measures.regression import without_gaussians
from mlpoly.moments import smoothed
from mlpoly.networks import Layer, Network
from mlpoly.networks.layer import affine
from mlpoly.polynomials import Polynomial
from mlpoly.records import trusted
from mlpoly.tables import Plottable
from mlpoly.units import Units

REPLICATES = 8  # of draws that fill the space evenly, to show how large their error is
TO_ERROR = (REPLICATES - 1) ** -0.5  # from the standard deviation between them to the standard error of the mean
_NUMBERS = 2**21  # values of hidden units at once
_DRAWS = 128  # of the unknown inputs, in each replicate


class ConditionalMean(Plottable):
    """The function E[f | x_S] of the values of some inputs: f averaged over all others.

    Its `given` (s,) are the positions of the known inputs, and `names` their names, in the order of the columns of its
    argument; `dim_in` is their number s. `sampled` says what was sampled, and is empty for a closed form.
    """

    def __init__(self, net: Network | Polynomial, inputs: Inputs, given: np.ndarray, tolerance: float = 0.0) -> None:
        self._tolerance = tolerance  # relative error of the mean of a hidden unit that is small enough
        self._regression = without_gaussians(net, inputs)
        if self._regression is not None:
            self.sampled, self.factor = self._regression.sampled, self._regression.factor
            self.replicates = self._regression.replicates
            self.weights, self.dim_out = np.ones(1), int(self._regression.level.shape[0])
        else:
            self._wide, self._parts = widened(net), gaussians(net, inputs)
            weights = [w + widen(inputs.mean)[0] * 0 for w, _ in self._parts]
            self.weights = namespace(mean=inputs.mean).stack(weights)
            drawn = f"E[f | x_S], over {REPLICATES * _DRAWS} draws of the other inputs"
            closed = has_means(net)
            self.sampled, self.factor, self.replicates = ("", 0.0, 1) if closed else (drawn, TO_ERROR, REPLICATES)
            self.dim_out = net.dim_out
        self._set(net, inputs, given)

    def at(self, given: np.ndarray) -> "ConditionalMean":
        """The same for other inputs, without checking and widening everything again."""
        made = copy(self)
        made._set(self.net, self.inputs, given)
        return made

    def _set(self, net: Network | Polynomial, inputs: Inputs, given: np.ndarray) -> None:
        self.net, self.inputs, self.given = net, inputs, given
        self.names = None if inputs.names is None else tuple(inputs.names[i] for i in given.tolist())
        self.dim_in, self.components = len(given), list[Given]()
        if self._regression is not None:
            self.prototype, self._means = self._regression.level, [self._regression.mean_given(given)]
        else:
            self.prototype, self.components = net.prototype, [Given(g, given) for _, g in self._parts]
            self._means = [_mean_given(self._wide, g, self._tolerance) for g in self.components]

    def __repr__(self) -> str:
        which = ", ".join(self.names or map(str, self.given.tolist()))
        return f"ConditionalMean({self.net!r} given {which})"

    def __call__(self, x: Array) -> Array:
        """Means (n, o) given values (n, s) of the known inputs."""
        found = self._replicates(x)
        return cast_result(namespace(x=found).mean(found, axis=1), self.prototype)

    def standard_error(self, x: Array) -> Array:
        """Standard errors (n, o) of the means; zero for a closed form."""
        found = self._replicates(x)
        return cast_result(namespace(x=found).std(found, axis=1) * self.factor, self.prototype)

    def _replicates(self, x: Array) -> Array:
        check_columns("x", x, self.names, "mean.names")
        x = as_float_array("x", x, integers=True)
        namespace(x=x, net=self.prototype)
        check_shape("x", x, (None, self.dim_in), "one row for each point, one column for each known input")
        if self.components:
            check_possible("x", self.components, widen(x))
        return self.means(widen(x))

    def means(self, x: Array) -> Array:
        """Means (n, r, o) for unchecked values (n, s), by the r replicates of what is sampled; one in closed form."""
        size = max(1, _NUMBERS // max(getattr(self.net, "dim_hidden", 1), 1))
        parts = [self._mean(x[rows, :]) for rows in chunks(x.shape[0], size)]
        return namespace(x=x).concat(parts) if parts else self._mean(x)

    def _mean(self, x: Array) -> Array:
        if len(self._means) == 1:
            return self._means[0](x)
        weights = posterior(self.weights, self.components, x)  # (n, c)
        return sum(weights[:, c, None, None] * mean(x) for c, mean in enumerate(self._means))


def has_means(function: Any) -> bool:
    """Whether the means of a function given some inputs of a Gaussian are closed form."""
    return isinstance(function, Layer) or (
        isinstance(function, Polynomial) and function.closed_form and not function.piecewise
    )


def left_over(given: Given) -> Gaussian:
    """What x_S leaves of x, with mean zero."""
    return trusted(Gaussian, mean=given.center * 0, cov=given.left)


def _mean_given(function: Any, given: Given, tolerance: float) -> Callable[[Array], Array]:
    """E[function | x_S] under one Gaussian: values (n, s) to means (n, r, o)."""
    noise = left_over(given)
    if isinstance(function, Layer):
        # Given x_S only the means of the units change with its values, not their spreads.
        units = Units.under(function, noise)
        return lambda x: _mean_of_units(function, units, given.mean(x), tolerance)[:, None, :]
    if has_means(function):
        averaged = function.averaged(noise)
        return lambda x: averaged(given.mean(x))[:, None, :]
    moves = noise.colour(normal_draws(noise.dim, _DRAWS, given.center))  # (r, m, d)

    def by_draws(x: Array) -> Array:
        xp, at = namespace(x=x), given.mean(x)
        size = max(1, _NUMBERS // (REPLICATES * _DRAWS * at.shape[1]))
        parts = [xp.mean(function(at[rows, None, None, :] + moves), axis=2) for rows in chunks(at.shape[0], size)]
        return xp.concat(parts) if parts else xp.mean(function(at[:, None, None, :] + moves), axis=2)

    return by_draws


def _mean_of_units(net: Layer, units: Units, at: Array, tolerance: float) -> Array:
    """Means (n, o) of a layer for means (n, d) of its inputs, with the spreads of the units."""
    forms = net.forms
    means = affine(at, forms.directions, forms.bias)
    xp = namespace(means=means)
    flat, spread = (xp.reshape(a, (-1,)) for a in (means, xp.broadcast_to(units.scales, means.shape)))
    parts = smoothed(net.activation, flat, spread, int(units.gate is not None), tolerance)
    moments = [xp.reshape(part, means.shape) for part in parts]
    hidden = moments[0]
    if units.gate is not None:  # E[act(y) v.x] from E[act(y)] and E[act(y) t]
        hidden = hidden * affine(at, forms.gate_directions, forms.gate_bias) + moments[1] * units.gate.slopes
    return affine(hidden, net.readout, net.bias)


@lru_cache(maxsize=8)
def _sobol(dim: int, count: int, seed: int) -> np.ndarray:
    from scipy.special import ndtri
    from scipy.stats import qmc  # takes a moment to import

    rng = np.random.default_rng(seed)
    uniform = np.stack([qmc.Sobol(dim, seed=rng).random(count) for _ in range(REPLICATES)])
    return ndtri(np.clip(uniform, 2.0**-31, 1 - 2.0**-31))


def normal_draws(dim: int, count: int, like: Array, seed: int = 0) -> Array:
    """Standard normal draws (r, count, dim), in each replicate a scrambled Sobol sequence; a power of two of them."""
    return constant(_sobol(dim, count, seed), like)


def conditional_mean(net: Network | Polynomial, inputs: InputsLike, known: Any) -> ConditionalMean:
    """The mean of the outputs as a function of some inputs, by index or name.

    Unlike a partial dependence plot it knows that inputs are correlated: the others follow those that are known. Of a
    mixture, the weights of the components follow too.

    Parameters
    ----------
    net : network or Polynomial
        In closed form for networks with one hidden layer and for ridge, dense and chaos polynomials. Of deep networks,
        composed and bounded polynomials it is an average over draws of the other inputs, with a `standard_error`.
    inputs : Gaussian, GaussianMixture, Independent, Samples or data (n, d)
        Under independent inputs polynomials have a closed form. On data it is a polynomial in the known inputs, fitted
        to the outputs by least squares.
    known : inputs by index or name

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "identity")  # x0 + x1
    >>> g = mp.Gaussian(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> mp.conditional_mean(net, g, 0)(np.array([[2.0]])).tolist()  # 2 + 0.5 * 2
    [[3.0]]
    """
    net, inputs = measured(net, as_inputs(inputs))
    places = input_places("known", known, inputs)
    return ConditionalMean(net, inputs, places)
