"""The closest additive model of a function, for dependent inputs too (MATH 14).

Under one Gaussian, E[he_n(z_i) he_m(z_j)] is R_ij^n for n = m, else zero: for each degree one system R^(n) c_n = b_n,
with b_n,i = E[f he_n(z_i)]. The b_n are the series of E[f | x_i], and c_n - b_n falls like the largest correlation to
the power n. So where the series of E[f | x_i] needs too many degrees, as that of a ReLU of one input does, the units
that it is due to are kept beside it, averaged over the other inputs in closed form.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mlpoly.arrays import (
    Array,
    as_integer,
    cast_result,
    constant,
    eye,
    namespace,
    safe_inverse,
    safe_root,
    take_rows,
    to_numpy,
    widen,
)
from mlpoly.fitting import fit
from mlpoly.inputs import Gaussian, InputsLike, Samples, as_inputs, checked_inputs
from mlpoly.inputs.coordinates import rounding_floor
from mlpoly.measures.functions import checked_data, expansion, gaussians
from mlpoly.measures.shape_functions import GRID, AdditiveModel, SharpUnits
from mlpoly.measures.shape_systems import on_data, projections, solved, under_mixture
from mlpoly.moments import Expansion, inner
from mlpoly.networks import Layer, Network, check_network
from mlpoly.polynomials import Polynomial
from mlpoly.records import arrays_of, map_arrays, replace
from mlpoly.units import decay

_FIRST, _SHORT = 16, 64  # degrees of the first series, and up to which they grow before units are kept beside them
_DEGREE = 8  # of shape functions under a mixture and on data


def additive(
    net: Network | Polynomial,
    inputs: InputsLike,
    pairs: int = 0,
    degree: int | None = None,
    tolerance: float = 1e-10,
) -> AdditiveModel:
    """Return the closest additive model mean + sum_i g_i(x_i) of a function, in mean square under its inputs.

    Under a Gaussian exact, whatever the g_i are, for correlated inputs too: from weights and moments, without samples.
    Under a mixture in closed form too, and on data by least squares, with polynomials g_i of a fixed degree. Of inputs
    that determine one another linearly it is the solution of least norm: duplicates have equal parts.

    Parameters
    ----------
    net : network, Polynomial, or on data any callable
        Of a deep network under a distribution it is the model of its quadratic polynomial, and `note` says so.
    inputs : Gaussian, GaussianMixture, Samples or array (n, d)
    pairs : int
        Number of functions of two inputs that are added, under one Gaussian: the pairs that explain most of what is
        left, each by itself, fitted together.
    degree : int, optional
        Highest degree of the g_i. By default as many as `tolerance` needs under a Gaussian, up to 1024 (256 where
        coefficients are integrals), and 8 under a mixture and on data.
    tolerance : float
        Root mean square error of the g_i from series that end, as a multiple of the standard deviation of an output.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.array([[1.0, 2.0]]), None, "relu")  # relu(x0) + 2 relu(x1)
    >>> model = mp.additive(net, mp.Gaussian(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]])))
    >>> model.fraction["additive"].round(9).tolist()
    [1.0]
    >>> g = model.shape(1)
    >>> (g(np.array(3.0)) - g(np.array(-3.0))).round(9).tolist()
    [6.0]
    """
    pairs = as_integer("pairs", pairs, 0)
    degree = None if degree is None else as_integer("degree", degree, 1)
    if not (0 < tolerance < 1):
        raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}; 1e-10 is close to rounding.")
    if isinstance(made := as_inputs(inputs), Samples):
        if pairs:
            raise ValueError("pairs need one Gaussian; for data pass mlpoly.Gaussian.from_samples(x), or pairs=0.")
        return on_data(net, checked_data(made, 2, net=net), degree or _DEGREE)
    function: Any = net if isinstance(net, Polynomial) else check_network(net)
    note = ""
    if not isinstance(function, Layer | Polynomial):
        note, function = " to the quadratic polynomial of the network", fit(function, made, 2)
    parts = gaussians(function, made)
    if len(parts) == 1:
        found = _under_gaussian(function, parts[0][1], degree, tolerance, note)
    elif pairs:
        raise ValueError("pairs need one Gaussian; pass the one with the moments of the mixture, or pairs=0.")
    else:
        found = under_mixture(function, checked_inputs(function, made), parts, degree or _DEGREE, note)
    return map_arrays(found, lambda a: cast_result(a, net.prototype))


# -- one Gaussian ------------------------------------------------------------------------------------------------------


class _Distinct(NamedTuple):
    """Inputs under a Gaussian without those that are multiples of others: z_i = sign_i z_k, k = kept[owner_i]."""

    kept: np.ndarray  # (r,), their places
    owner: np.ndarray  # (d,), number of the kept input that an input is a multiple of
    sign: np.ndarray  # (d,)
    size: np.ndarray  # (d,), how many are multiples of one another

    @classmethod
    def of(cls, correlation: np.ndarray, floor: float) -> _Distinct:
        """From the correlations (d, d), where 1 - |r| below a floor is rounding."""
        same = np.abs(correlation) >= 1 - floor
        np.fill_diagonal(same, True)
        first = same.argmax(axis=1)
        first = first[first]
        kept, owner, counts = np.unique(first, return_inverse=True, return_counts=True)
        sign = np.where(correlation[np.arange(len(first)), first] < 0, -1.0, 1.0)
        return cls(kept, owner, sign, counts[owner])


def _under_gaussian(
    net: Layer | Polynomial, inputs: Gaussian, degree: int | None, tolerance: float, note: str
) -> AdditiveModel:
    f = expansion(net, inputs)
    variance = inner(f, f).total
    xp, size, covariance = namespace(variance=variance), safe_root(variance), widen(inputs.covariance)
    deviation = xp.sqrt(xp.linalg.diagonal(covariance))
    inverse = safe_inverse(deviation)
    correlation = covariance * inverse * inverse[:, None]
    floor = rounding_floor(inputs.mean, correlation, inputs.dim)
    distinct = _Distinct.of(to_numpy(correlation), floor)
    kept = take_rows(take_rows(correlation, distinct.kept).T, distinct.kept)
    directions = take_rows(eye(inputs.dim, inverse) * inverse, distinct.kept)
    sharp, bound = None, variance * 0
    if isinstance(f, Expansion) and f.activation is not None and degree is None:
        degree, rest, bound = _long_enough(f, _seen(f, directions), kept, size, tolerance)
        limit = tolerance * size / (f.units.size * math.sqrt(len(distinct.kept)))
        sharp = to_numpy(xp.any(rest > limit, axis=-1))
    degree = max(1, f.degree if degree is None else min(f.degree, degree))
    found = projections(f, inputs, directions, degree)  # (n, r, o)
    power, rows = kept, []
    for n in range(degree):
        rows.append(solved(power, found[n, ...], floor))
        power = power * kept
    series = xp.stack(rows)
    explained, spread = xp.sum(series * found, axis=(0, 1)), xp.sum(series**2, axis=0)
    series, beside = xp.concat([series[:1, ...] * 0, series]), None
    if sharp is not None and sharp.any():
        parts = [_beside(f, directions[i, :], degree, np.flatnonzero(column)) for i, column in enumerate(sharp.T)]
        series = series - xp.stack([lost for lost, _, _ in parts], axis=1)
        tails = xp.stack([tail for _, tail, _ in parts])
        explained, spread = explained + xp.sum(tails, axis=0), spread + tails
        beside = _gathered([units for _, _, units in parts], distinct)
    series = xp.stack([take_rows(series[n, ...], distinct.owner) for n in range(degree + 1)])
    sign = constant(distinct.sign ** np.arange(degree + 1)[:, None] / distinct.size, deviation)
    return AdditiveModel(
        mean=f.mean,
        center=widen(inputs.mean),
        scale=deviation,
        series=series * sign[:, :, None],
        additive=explained * safe_inverse(variance),
        pairwise=explained * 0,
        variance=variance,
        bound=bound,
        importance=xp.sqrt(take_rows(spread, distinct.owner)) * constant(1 / distinct.size[:, None], deviation),
        density=constant(np.exp(-(GRID**2) / 2) / math.sqrt(2 * math.pi), deviation) * (deviation > 0)[:, None],
        sharp=beside,
        names=inputs.names,
        note=f"closest{note} under a Gaussian, in closed form",
    )


def _seen(f: Expansion, directions: Array) -> Array:
    """Correlations (h, r) of hidden units with inputs; +-1 where only rounding is missing."""
    seen = (f.inputs.times_covariance(f.units.directions) @ directions.T) * f.units.inverse_scales[:, None]
    xp = namespace(seen=seen)
    return xp.where(xp.abs(seen) > 1 - 64 * float(xp.finfo(seen.dtype).eps), xp.sign(seen), seen)


def _long_enough(f: Expansion, seen: Array, kept: Array, size: Array, tolerance: float) -> tuple[int, Array, Array]:
    """Degree of the series; what each unit has beyond it in each input, (h, r, o); and the bound on the error, (o,).

    The part c_n - b_n that correlations between inputs add has nothing but its series. Beyond degree n it is at most
    the largest row of |R^(n + 1) - I|, over one minus that, times what all units have.
    """
    xp, degree = namespace(seen=seen), _FIRST
    others = xp.abs(kept) * (1 - eye(kept.shape[0], kept))
    inverse = safe_inverse(size)
    while True:
        reach = decay(seen, degree, f.units.gate is not None) * f.rests(degree)[:, None]
        rest = reach[:, :, None] * xp.abs(f.weights.T)[:, None, :]
        row = float(xp.max(xp.sum(others ** (degree + 1), axis=1)))
        factor = row / (1 - row) if row < 1 else math.inf
        error = safe_root(xp.sum(xp.sum(rest, axis=0) ** 2, axis=0)) * inverse
        coupled = xp.where(error > 0, xp.clip(error * factor, None, 1.0), 0.0) if row else error * 0
        settled = bool(xp.all(error <= tolerance)) or (degree >= _SHORT and bool(xp.all(coupled <= tolerance)))
        if settled or 2 * degree > f.longest:
            return degree, rest, coupled + tolerance * (size > 0)
        degree *= 2


def _beside(f: Any, direction: Array, degree: int, index: np.ndarray) -> tuple[Array, Array, SharpUnits | None]:
    """The series (n + 1, o) of some units in one input, their variance (o,) beyond it, and they themselves."""
    zero = f.mean * 0
    xp = namespace(zero=zero)
    if not len(index):
        return xp.stack([zero] * (degree + 1)), zero, None
    units = map_arrays(f.units, lambda a: take_rows(a, index))
    some = Expansion(units, f.inputs, take_rows(f.weights.T, index).T, None, f.activation)
    series = projections(some, f.inputs, direction[None, :], degree)[:, 0, :]
    known = f.inputs.times_covariance(direction[None, :])  # P_S = S_.i S_i. / S_ii, with z_i of variance one
    tail = inner(some, some, lambda rows: (rows @ known.T) @ known, degree=degree).tail
    seen = _seen(some, direction[None, :])[:, 0]
    left, gate = safe_root((1 - seen) * (1 + seen)), units.gate
    kept = SharpUnits((), f.activation, units.means, units.scales * seen, units.scales * left, some.weights.T)
    if gate is not None:  # the gate is slope t + e, and E[e z] = alone; Cov(e, t) = 0 gives its part along w
        alone = (f.inputs.times_covariance(gate.directions) @ direction) - gate.slopes * seen
        along = gate.slopes * left - alone * seen * safe_inverse(left)
        gates = {"gate_means": gate.means, "gate_slopes": gate.slopes * seen + alone, "gate_spreads": along}
        kept = replace(kept, **gates)
    return xp.concat([some.mean[None, :], series]), tail, kept


def _gathered(parts: list[SharpUnits | None], distinct: _Distinct) -> SharpUnits:
    """The units of all inputs; those of inputs that are multiples of one another have equal parts of them."""
    made, owners = [], list[int]()
    for i, owner in enumerate(distinct.owner.tolist()):
        units = parts[owner]
        if units is None:
            continue
        sign, count = float(distinct.sign[i]), int(distinct.size[i])
        gate = None if units.gate_slopes is None else units.gate_slopes * sign
        made.append(replace(units, slopes=units.slopes * sign, weights=units.weights / count, gate_slopes=gate))
        owners += [i] * int(units.means.shape[0])
    xp = namespace(means=made[0].means)
    arrays = {name: xp.concat([getattr(units, name) for units in made]) for name in arrays_of(made[0])}
    return replace(made[0], owners=tuple(owners), **arrays)
