"""Outputs for rows with gaps: mean and standard deviation of a network given what was observed (MATH 16)."""

import math
from typing import Any

import numpy as np

from mlpoly.arrays import Array, check_columns, check_shape, chunks, namespace, safe_root
from mlpoly.arrays.checks import as_float_array
from mlpoly.arrays.host import by_value
from mlpoly.arrays.placement import cast_result, constant_index, eye, take_rows, to_numpy, widen
from mlpoly.inputs import Gaussian, InputsLike, checked_inputs
from mlpoly.inputs.conditioning import check_possible, posterior
from mlpoly.measures.conditional_mean import ConditionalMean
from mlpoly.measures.functions import gaussians
from mlpoly.networks import Layer, Network, check_layer
from mlpoly.networks.layer import affine
from mlpoly.records import record, trusted
from mlpoly.special import times_line
from mlpoly.tables import Table, Tabular
from mlpoly.units import Units, angles

_SHORT, _LONG = 16, 64  # degrees of the variance, first and where the upper half of these is too much
_NUMBERS = 2**20  # values of hidden units times degrees at once


@record
class Conditional(Tabular):
    """Outputs given the observed inputs of each row.

    Attributes
    ----------
    mean, std : array (n, o)
        Mean and standard deviation of the output, over what is missing.
    missing : array (n,)
        Number of missing inputs.
    """

    mean: Array
    std: Array
    missing: Array

    def _table(self) -> Table:
        mean, std, missing = (to_numpy(a) for a in (self.mean, self.std, self.missing))
        several = mean.shape[1] > 1
        rows = [
            (row, *([o] if several else []), float(mean[row, o]), float(std[row, o]), int(missing[row]))
            for row in range(len(mean))
            for o in range(mean.shape[1])
        ]
        columns = ("row", *(("output",) if several else ()), "mean", "standard deviation", "missing inputs")
        return Table(columns, tuple(rows), "Outputs given what is observed", limit=20)


@by_value
def conditional(net: Network, inputs: InputsLike, x: Any, tolerance: float = 1e-3) -> Conditional:
    """Mean and standard deviation of the outputs of a network with one hidden layer, for rows with missing inputs.

    What is missing follows the observed inputs of its row, under a Gaussian or a mixture, whose posterior weights count
    too. The mean is closed form. The variance is a sum over Hermite degrees, a lower bound at any of them.

    Parameters
    ----------
    net : network with one hidden layer
    inputs : Gaussian or GaussianMixture
    x : array (n, d) or data frame
        Rows; NaN is a missing input. Rows with the same gaps are handled together.
    tolerance : float
        If degrees 9 to 16 hold a larger part of a variance of a row, degrees up to 64 are added.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.array([[1.0, 2.0]]), None, "identity")  # x0 + 2 x1
    >>> g = mp.Gaussian(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> found = mp.conditional(net, g, np.array([[2.0, np.nan], [2.0, 1.0]]))
    >>> found.mean[:, 0].round(6).tolist(), found.std[:, 0].round(6).tolist()
    ([4.0, 4.0], [1.732051, 0.0])
    """
    net = check_layer(net)
    gaussians(net, inputs)
    inputs = checked_inputs(net, inputs)
    check_columns("x", x, inputs.names)
    x = as_float_array("x", x, integers=True)
    namespace(x=x, net=net.prototype)
    check_shape("x", x, (None, net.dim_in), "one row for each point, one column per input, NaN where it is missing")
    values = to_numpy(x)
    if np.isinf(values).any():
        raise ValueError("x has infinite entries; write NaN for what is missing.")
    if not len(values):
        raise ValueError("x has no rows; pass at least one.")
    patterns, owner = np.unique(~np.isnan(values), axis=0, return_inverse=True)
    start = ConditionalMean(net, inputs, np.zeros(0, dtype=np.int64))
    parts = []
    for number, observed in enumerate(patterns):
        rows, known = np.flatnonzero(owner.reshape(-1) == number), np.flatnonzero(observed)
        at = widen(take_rows(take_rows(x, rows).T, known).T)
        if observed.all():
            mean = widen(net(at))
            parts.append((rows, mean, mean * 0))
        else:
            given = start.at(known)
            check_possible("x", given.components, at)
            parts.append((rows, *_moments(given, at, tolerance)))
    order, means, variances = zip(*parts, strict=True)
    xp, back = namespace(x=x), np.argsort(np.concatenate(order), kind="stable")
    mean, variance = (take_rows(xp.concat(list(found)), back) for found in (means, variances))
    made = cast_result(mean, net.prototype), cast_result(safe_root(variance), net.prototype)
    return Conditional(*made, constant_index(np.isnan(values).sum(axis=1), x))


def _moments(given: ConditionalMean, at: Array, tolerance: float) -> tuple[Array, Array]:
    """Mean and variance (n, o) for rows (n, s) with the same gaps: over the components, by total variance."""
    wide, xp = given._wide, namespace(at=at)
    parts = [_Pattern(wide, g.center, g.left) for g in given.components]
    size = max(1, _NUMBERS // (max(wide.dim_hidden, 1) * _SHORT))
    means, variances = [], []
    for rows in chunks(at.shape[0], size):
        some = at[rows, :]
        each = [(given._means[c](some)[:, 0, :], part.variance(given.components[c].mean(some), tolerance))
                for c, part in enumerate(parts)]  # fmt: skip
        if len(each) == 1:
            mean, variance = each[0]
        else:
            weights = posterior(given.weights, given.components, some)
            mean = sum(weights[:, c : c + 1] * m for c, (m, _) in enumerate(each))
            variance = sum(weights[:, c : c + 1] * (v + (m - mean) ** 2) for c, (m, v) in enumerate(each))
        means.append(mean)
        variances.append(variance)
    return xp.concat(means), xp.concat(variances)


class _Pattern:
    """A network under Gaussians of one covariance and many means: the variance of its outputs for each mean."""

    def __init__(self, net: Layer, center: Array, left: Array) -> None:
        gaussian = trusted(Gaussian, mean=center, cov=left)
        self.net, self.units = net, Units.under(net, gaussian, spreads=True)
        self.angles = list(angles(self.units, self.units, gaussian.times_covariance, own=True))

    def variance(self, at: Array, tolerance: float) -> Array:
        """Variances (n, o) for the means `at` (n, d) of the inputs; by degree, more where the last ones hold much."""
        xp, terms = namespace(at=at), self._terms(at, _SHORT)
        total, late = sum(terms), sum(terms[_SHORT // 2 :])
        short = xp.any(late > tolerance * total, axis=1)
        rows = np.flatnonzero(to_numpy(short))
        if len(rows):
            place = np.zeros(at.shape[0], dtype=np.int64)
            place[rows] = np.arange(len(rows))
            total = xp.where(short[:, None], take_rows(sum(self._terms(take_rows(at, rows), _LONG)), place), total)
        return xp.clip(total, 0, None)

    def _terms(self, at: Array, degree: int) -> list[Array]:
        """Variances (n, o) at degree 1, 2, ..., `degree`; the formula is in `mlpoly.units.series`."""
        xp, forms, gate = namespace(at=at), self.net.forms, self.units.gate
        y = affine(at, forms.directions, forms.bias)
        shape = (-1, *y.shape)
        flat = xp.reshape(xp.broadcast_to(self.units.scales, y.shape), (-1,))
        top = degree + int(gate is not None)
        plain = xp.reshape(self.net.activation.project(xp.reshape(y, (-1,)), flat, top), shape)
        gated = plain
        if gate is not None:
            plain = times_line(plain, affine(at, forms.gate_directions, forms.gate_bias), gate.slopes)
        readout = eye(self.units.size, y) if self.net.readout is None else self.net.readout

        def read(series: Array, k: int, part: slice) -> Array:
            """Weighted coefficients (n, o, a)."""
            return series[k, :, part][:, None, :] * readout[:, part]

        found = []
        for k in range(1, degree + 1):
            total = 0.0
            for rows, columns, chunk in self.angles:
                p, q = read(plain, k, rows), read(plain, k, columns)
                value = _form(p, chunk.rho**k, q)
                if gate is not None:
                    pg, qg = read(gated, k - 1, rows), read(gated, k - 1, columns)
                    before = chunk.rho ** (k - 1)
                    value = value + math.sqrt(k) * (
                        _form(p, before * chunk.right, qg) + _form(pg, before * chunk.left, q)
                    )
                    square = before * chunk.gates
                    if k > 1:
                        square = square + (k - 1) * chunk.rho ** (k - 2) * chunk.right * chunk.left
                    value = value + _form(pg, square, qg)
                total = total + (value if rows == columns else 2 * value)
            found.append(total)
        return found


def _form(left: Array, matrix: Array, right: Array) -> Array:
    """Left' M right (n, o) for rows (n, o, a) and (n, o, b)."""
    xp, shape = namespace(left=left), left.shape
    product = xp.reshape(xp.reshape(left, (-1, shape[2])) @ matrix, (shape[0], shape[1], matrix.shape[1]))
    return xp.sum(product * right, axis=2)
