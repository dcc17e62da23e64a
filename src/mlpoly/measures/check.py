"""Whether what is true under a distribution is true on the data: closed forms beside data, and which fit to use."""

import warnings
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from mlpoly.arrays import as_integer, cast_like, namespace, safe_inverse, safe_root, scalar, take_rows, to_numpy, widen
from mlpoly.errors import DataWarning
from mlpoly.fitting import fit
from mlpoly.inputs import Gaussians, InputsLike, Samples, checked_inputs, require_gaussians
from mlpoly.measures.functions import checked_data
from mlpoly.measures.fvu import far_apart, fvu
from mlpoly.networks import Layer, Network, check_network
from mlpoly.scores import FVU, fvu_of_outputs
from mlpoly.tables import Table, Tabular

_OUTSIDE = 4.0  # standard deviations; a normal preactivation is farther out in 6e-5 of the rows


@dataclass(frozen=True)
class UnitCheck:
    """The preactivation of one hidden unit on data, in the mean and deviation that the distribution gives it."""

    unit: int
    weight: float  # fraction of the variance of all units' contributions to the outputs that is this one's
    skewness: float  # third and fourth standardised moment, less those under the distribution
    kurtosis: float
    outside: float  # fraction of the rows beyond four standard deviations


@dataclass(frozen=True)
class DataCheck(Tabular):
    """Closed forms under a distribution beside the same on data, and the fit to use."""

    closed: tuple[FVU, ...]  # of the closest polynomials of degree 1, 2, ... under the distribution
    data: tuple[FVU, ...]  # of the same on the data
    units: tuple[UnitCheck, ...]  # those that matter most, the most important first; empty for deep networks
    advice: str

    @property
    def holds(self) -> bool:
        """Whether the closed forms of all degrees are within a factor of two of the data."""
        return not any(far_apart(closed, data) for closed, data in zip(self.closed, self.data, strict=True))

    def _table(self) -> Table:
        rows = [
            (f"degree {k}", float(closed), float(data), scalar(data.standard_error))
            for k, (closed, data) in enumerate(zip(self.closed, self.data, strict=True), 1)
        ]
        columns = ("fraction of variance unexplained", "closed form", "on the data", "standard error")
        odd = [u for u in self.units if abs(u.skewness) > 1 or abs(u.kurtosis) > 3 or u.outside > 1e-3]
        note = self.advice
        if odd:
            note += f" Of the {len(self.units)} units that matter most, {len(odd)} see other values than it expects"
            worst = max(odd, key=lambda u: abs(u.kurtosis))
            note += f" (unit {worst.unit}: skewness {worst.skewness:.2g}, kurtosis {worst.kurtosis:.2g})."
        return Table(columns, tuple(rows), note=note)


def check(net: Network, inputs: InputsLike, x: InputsLike, degree: int = 2, k: int = 10) -> DataCheck:
    """Compare closed forms under a distribution with the data that it stands for, and say which fit to use.

    Parameters
    ----------
    net : network
    inputs : Gaussian or GaussianMixture
    x : data (n, d), or Samples
        Better not the rows which the distribution was estimated from.
    degree, k : int
        Highest degree that is compared, at least 1, and number of hidden units that are looked at.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> rng = np.random.default_rng(0)
    >>> net = mp.MLP(rng.normal(size=(8, 20)), -3 * np.ones(8), rng.normal(size=(1, 8)), None, "sigmoid")
    >>> rare = (rng.random((4000, 20)) < 0.05).astype(float)
    >>> mp.check(net, mp.Gaussian.from_samples(rare), rare).holds
    False
    """
    net, degree = check_network(net), as_integer("degree", degree, 1)
    inputs, rows = require_gaussians(checked_inputs(net, inputs)), checked_data(x, 2, net=net, poly=net)
    points = cast_like(rows.x, net.prototype)
    outputs, closed, data = net(points), [], []
    for n in range(1, degree + 1):
        poly = fit(net, inputs, n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # the answer says so
            closed.append(fvu(net, poly, inputs))
        data.append(fvu_of_outputs(outputs, poly(points), rows.weights))
    units = _units(net, inputs, Samples(points, rows.weights), k) if isinstance(net, Layer) else ()
    answer = DataCheck(tuple(closed), tuple(data), units, advice="")
    missed, stated = float(data[-1]), float(closed[-1])
    last = f"{missed:.2g} of the variance at degree {degree}, where the closed form says {stated:.2g}."
    if answer.holds:
        return replace(answer, advice=f"The distribution stands for these data: its polynomial leaves {last}")
    advice = f"The distribution does not stand for these data: its polynomial leaves {last} Use a fit on the data, "
    advice += f"mp.fit(net, x, {degree})"
    if isinstance(net, Layer):
        with suppress(ValueError):  # too few rows
            own = float(fvu(net, fit(net, rows, degree), rows))
            advice += f", which leaves {own:.2g} on the rows that it is fitted to"
    return replace(answer, advice=f"{advice}.")


def _units(net: Layer, inputs: Gaussians, rows: Samples, k: int) -> tuple[UnitCheck, ...]:
    """The k units whose contributions to the outputs vary most on the rows."""
    W, mass = widen(net.forms.directions), rows.weights
    hidden = Samples(widen(net.hidden(rows.x)), mass)
    readout = 1.0 if net.readout is None else (to_numpy(widen(net.readout)) ** 2).sum(axis=0)
    weight = readout * to_numpy(namespace(x=rows.x).linalg.diagonal(hidden.covariance))
    weight = weight / (weight.sum() or 1.0)
    chosen = np.argsort(-weight)[:k]
    W = take_rows(W, chosen)
    apart = to_numpy(rows.projection_moments(W, 4) - inputs.projection_moments(W, 4))
    spread = safe_root(namespace(W=W).sum((W @ widen(inputs.covariance)) * W, axis=1))
    t = to_numpy(((widen(rows.x) - widen(inputs.mean)) @ W.T) * safe_inverse(spread))
    outside = np.average(np.abs(t) > _OUTSIDE, axis=0, weights=None if mass is None else to_numpy(mass))
    return tuple(
        UnitCheck(int(i), float(weight[i]), float(apart[3, j]), float(apart[4, j]), float(outside[j]))
        for j, i in enumerate(chosen)
    )
