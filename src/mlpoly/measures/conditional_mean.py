"""The mean of a network given some of its inputs, in closed form: partial dependence for dependent inputs (MATH 10)."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_float_array, cast_result, check_columns, check_shape, chunks, namespace, widen
from mlpoly.inputs import Gaussian, Given, Inputs, check_possible, checked_inputs, input_places, posterior
from mlpoly.measures.functions import gaussians
from mlpoly.moments import smoothed
from mlpoly.networks import Layer, Network, check_layer
from mlpoly.networks.layer import affine
from mlpoly.records import map_arrays, trusted
from mlpoly.tables import Plottable
from mlpoly.units import Units

_NUMBERS = 2**21  # values of hidden units at once


class ConditionalMean(Plottable):
    """The function E[f | x_S] of the values of some inputs: the network averaged over all others.

    Its `given` (s,) are the positions of the known inputs, and `names` their names, in the order of the columns of its
    argument; `dim_in` is their number s.
    """

    def __init__(self, net: Layer, inputs: Inputs, given: np.ndarray, tolerance: float = 0.0) -> None:
        self._tolerance = tolerance  # relative error of the mean of a hidden unit that is small enough
        self._wide, self._parts = map_arrays(net, widen), gaussians(net, inputs)
        self._set(net, inputs, given)

    def at(self, given: np.ndarray) -> ConditionalMean:
        """The same for other inputs, without checking and widening everything again."""
        made = copy(self)
        made._set(self.net, self.inputs, given)
        return made

    def _set(self, net: Layer, inputs: Inputs, given: np.ndarray) -> None:
        self.net, self.inputs, self.given = net, inputs, given
        self.names = None if inputs.names is None else tuple(inputs.names[i] for i in given.tolist())
        self.dim_in, self.dim_out = len(given), net.dim_out
        self._weights = namespace(mean=inputs.mean).stack([w + widen(inputs.mean)[0] * 0 for w, _ in self._parts])
        self._given = [Given(g, given) for _, g in self._parts]
        # Given x_S only the means of the units change with its values, not their spreads.
        self._units = [Units.under(self._wide, trusted(Gaussian, mean=g.center, cov=g.left)) for g in self._given]

    def __repr__(self) -> str:
        which = ", ".join(self.names or map(str, self.given.tolist()))
        return f"ConditionalMean({self.net!r} given {which})"

    def __call__(self, x: Array) -> Array:
        """Means (n, o) given values (n, s) of the known inputs."""
        check_columns("x", x, self.names, "mean.names")
        x = as_float_array("x", x, integers=True)
        namespace(x=x, net=self.net.prototype)
        check_shape("x", x, (None, self.dim_in), "one row for each point, one column for each known input")
        check_possible("x", self._given, widen(x))
        size = max(1, _NUMBERS // max(self.net.dim_hidden, 1))
        parts = [self._mean(widen(x)[rows, :]) for rows in chunks(x.shape[0], size)]
        out = namespace(x=x).concat(parts) if parts else widen(x[:, :1]) @ (self._wide.prototype[:1, :1] * 0)
        return cast_result(out, self.net.prototype)

    def _mean(self, x: Array) -> Array:
        if len(self._given) == 1:
            return self._component(0, x)
        weights = posterior(self._weights, self._given, x)  # (n, c)
        return sum(weights[:, c : c + 1] * self._component(c, x) for c in range(len(self._given)))

    def _component(self, c: int, x: Array) -> Array:
        """Mean under one component, (n, o)."""
        units, net, at = self._units[c], self._wide, self._given[c].mean(x)
        forms = net.forms
        means = affine(at, forms.directions, forms.bias)
        xp = namespace(means=means)
        flat, spread = (xp.reshape(a, (-1,)) for a in (means, xp.broadcast_to(units.scales, means.shape)))
        parts = smoothed(net.activation, flat, spread, int(units.gate is not None), self._tolerance)
        moments = [xp.reshape(part, means.shape) for part in parts]
        hidden = moments[0]
        if units.gate is not None:  # E[act(y) v.x] from E[act(y)] and E[act(y) t]
            hidden = hidden * affine(at, forms.gate_directions, forms.gate_bias) + moments[1] * units.gate.slopes
        return affine(hidden, net.readout, net.bias)


def conditional_mean(net: Network, inputs: Inputs, known: Any) -> ConditionalMean:
    """The mean of the outputs of a network with one hidden layer, as a function of some inputs, by index or name.

    In closed form, under a Gaussian or a mixture. Unlike a partial dependence plot it knows that inputs are correlated:
    the others follow those that are known. Of a mixture, the weights of the components follow too.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "identity")  # x0 + x1
    >>> g = mp.Gaussian(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> mp.conditional_mean(net, g, 0)(np.array([[2.0]])).tolist()  # 2 + 0.5 * 2
    [[3.0]]
    """
    net = check_layer(net)
    gaussians(net, inputs)  # checks them
    return ConditionalMean(net, checked_inputs(net, inputs), input_places("known", known, inputs))
