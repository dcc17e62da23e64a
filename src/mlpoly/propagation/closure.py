"""Moments through the layers of a network, each layer's inputs taken as Gaussian (MATH 9).

Mean and covariance behind a layer are exact if its inputs are Gaussian. They are for the first hidden layer; behind it
they are a closure. What the closure ignores first is the skewness of preactivations, so that is carried along to first
order: each hidden unit contributes its curvature to all units behind it, and a form a.z + z'Qz of a standard normal z
has the third cumulant 6 a'Qa (+ 8 tr Q^3, which is left out). Here it only says how far to trust the moments;
`ThirdCumulants` makes them better by it.
"""

import math

import numpy as np

from mlpoly.arrays import Array, namespace, readable, safe_inverse, widen
from mlpoly.inputs import Gaussian
from mlpoly.moments import Expansion, inner
from mlpoly.networks import Layer
from mlpoly.records import map_arrays, record, trusted


@record
class State:
    """Values at one place of a network, in float64 where the library has it.

    Beside the n values themselves it keeps what residual connections need: covariances with the m values that
    connections around this place will add. As functions of the network's standard normal inputs z, all of them have
    quadratic parts sum_k bends_ik (u_k.z)^2, with a few terms for every hidden unit so far. With the covariances of
    each with u_k.z, which are `along`, their third cumulants are

        K_abc = 2 sum_k (bends_ak along_bk along_ck + along_ak bends_bk along_ck + along_ak along_bk bends_ck)

    Fourth cumulants of pairs of hidden units are kept on request.
    """

    inputs: Gaussian  # mean (n,) and covariance (n, n) of the values
    outer: Array  # (m, n), covariances of the m outer values with these
    bends: Array  # (m + n, k), factors of the third cumulants of the outer values and of these
    along: Array  # (m + n, k)
    pairs: Array = None  # (h, h), fourth cumulants (i, i, j, j) of the last hidden units, if they are kept
    mix: Array = None  # (n, h), coefficients of these units in the values

    @classmethod
    def at(cls, inputs: Gaussian) -> "State":
        """The inputs of a network."""
        inputs = map_arrays(inputs, widen)
        none = inputs.mean[:, None][:, :0]
        return cls(inputs, none.T, none, none)


class Closure:
    """A walk through a network that keeps the state before every layer."""

    hidden: Expansion  # units of the last layer

    def __init__(self) -> None:
        self.before: list[State] = []  # in the order of the data
        self.skewness: list[Array] = []  # (h,), or (2 h,) for gated units: estimated for the forms that enter a layer
        # (h,), estimated error of the mean of each unit due to that skewness, in standard deviations of the unit
        self.shifts: list[Array] = []

    def layer(self, layer: Layer, state: State) -> State:
        """State behind a layer."""
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            hidden = self.hidden = Expansion.of(layer, state.inputs)
            mean, cov = hidden.mean, inner(hidden, hidden, full=True).tail
        xp = namespace(cov=cov)
        if readable(cov) and not bool(xp.all(xp.isfinite(cov))):
            raise ValueError(
                f"the moments behind {layer!r} overflow {cov.dtype}; scale the weights or the inputs down."
            )
        self.before.append(state)
        units, series, m = hidden.units, hidden.series(3), state.outer.shape[0]
        forms = widen(hidden.layer.forms.stacked)
        variance = xp.vecdot(hidden.inputs.times_covariance(forms), forms)
        bends, along = (forms @ a[m:, :] for a in (state.bends, state.along))
        inverse = safe_inverse(xp.sqrt(xp.clip(variance, 0, None)))
        skewness = 6 * xp.sum(bends * along**2, axis=1) * inverse**3
        self.skewness.append(skewness)
        # E[he_3(t)] = skewness / sqrt(6), so the mean of a unit moves by that times its third coefficient.
        shift = series.plain[3, :] * skewness[: units.size] / math.sqrt(6)
        self.shifts.append(shift * safe_inverse(xp.sqrt(hidden.variances)))
        slopes = hidden.slopes()  # E[Jacobian] (o, n); it carries covariances with the inputs to the outputs

        def carried(a: Array) -> Array:
            return xp.concat([a[:m, :], slopes @ a[m:, :]])

        # The layer's own units bend by P_2 he_2(t) and, if gated, Q_1 t e = Q_1 ((t + e)^2 - (t - e)^2) / 4.
        before = xp.concat([state.outer, hidden.inputs.covariance])
        t = carried(before @ units.directions.T) * units.inverse_scales  # covariances of all values with t
        readout = xp.concat([t[:m, :] * 0, hidden.weights])  # the outer values have no part in these units
        new = [(readout * (series.plain[2, :] / math.sqrt(2)), t)]
        if units.gate is not None and series.gated is not None:
            e = carried(before @ units.gate.directions.T) - t * units.gate.slopes
            quarter = readout * (series.gated[1, :] / 4)
            new += [(quarter, t + e), (-quarter, t - e)]
        old = carried(state.bends), carried(state.along)
        bends, along = (xp.concat(columns, axis=1) for columns in zip(old, *new, strict=True))
        return State(trusted(Gaussian, mean=mean, cov=0.5 * (cov + cov.T)), state.outer @ slopes.T, bends, along)

    def enter(self, state: State) -> State:
        """The same values, which a residual connection will add to their image."""
        xp, m = namespace(outer=state.outer), state.outer.shape[0]
        bends, along = (xp.concat([a, a[m:, :]]) for a in (state.bends, state.along))
        return State(state.inputs, xp.concat([state.outer, state.inputs.covariance]), bends, along)

    def join(self, before: State, branch: State) -> State:
        """Sum of the values before a residual connection and those at the end of its branch."""
        xp, (m, n) = namespace(outer=before.outer), before.outer.shape
        cross = branch.outer[m:, :]
        cov = before.inputs.covariance + branch.inputs.covariance + cross + cross.T
        summed = (xp.concat([a[:m, :], a[m : m + n, :] + a[m + n :, :]]) for a in (branch.bends, branch.along))
        inputs = trusted(Gaussian, mean=before.inputs.mean + branch.inputs.mean, cov=cov)
        return State(inputs, before.outer + branch.outer[:m, :], *summed)
