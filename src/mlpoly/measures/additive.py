"""The closest additive model of a function, for dependent inputs too (MATH 14).

Under one Gaussian, E[he_n(z_i) he_m(z_j)] is R_ij^n for n = m, else zero: for each degree one system R^(n) c_n = b_n,
with b_n,i = E[f he_n(z_i)]. The b_n are the series of E[f | x_i], and c_n - b_n falls like the largest correlation to
the power n. So where the series of E[f | x_i] needs too many degrees, as that of a ReLU of one input does, the units
that it is due to are kept beside it, averaged over the other inputs in closed form.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_integer, namespace, safe_inverse, safe_root
from mlpoly.arrays.host import by_value
from mlpoly.arrays.placement import cast_result, constant, eye, take_rows, to_numpy, widen
from mlpoly.fitting import fit
from mlpoly.inputs import Gaussian, Inputs, InputsLike, Samples, as_inputs, checked_inputs
from mlpoly.inputs.conditioning import input_places
from mlpoly.inputs.coordinates import rounding_floor
from mlpoly.measures.functions import checked_data, expansion, gaussians
from mlpoly.measures.pair_functions import with_pairs
from mlpoly.measures.polynomial_shapes import on_data, under_mixture
from mlpoly.measures.shape_functions import GRID, AdditiveModel
from mlpoly.measures.shape_systems import correlations, gathered, kept_beside, projections, solved
from mlpoly.moments import Expansion, inner
from mlpoly.networks import Layer, Network, check_network
from mlpoly.polynomials import Polynomial
from mlpoly.records import map_arrays, replace
from mlpoly.units import decay

_FIRST, _SHORT = 16, 64  # degrees of the first series, and up to which they grow before units are kept beside them
_DEGREE = 8  # of shape functions under a mixture and on data


@by_value
def additive(
    net: Network | Polynomial,
    inputs: InputsLike,
    pairs: int | Sequence[tuple[int | str, int | str]] = 0,
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
    pairs : int or sequence of pairs of inputs
        Number of functions of two inputs that are added, under one Gaussian: the pairs that explain most of what is
        left, each by itself, fitted together with the g_i up to degree 12. Or the pairs, by index or name.
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
    made = as_inputs(inputs)
    chosen: Any = as_integer("pairs", pairs, 0) if isinstance(pairs, int | np.integer) else _listed(pairs, made)
    degree = None if degree is None else as_integer("degree", degree, 1)
    if not (0 < tolerance < 1):
        raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}; 1e-10 is close to rounding.")
    if isinstance(made, Samples):
        if chosen:
            raise ValueError("pairs need one Gaussian; for data pass mlpoly.Gaussian.from_samples(x), or pairs=0.")
        found = on_data(net, checked_data(made, 2, net=net), degree or _DEGREE)
        return replace(found, output_names=getattr(net, "output_names", None))
    function: Any = net if isinstance(net, Polynomial) else check_network(net)
    note = ""
    if not isinstance(function, Layer | Polynomial):
        note, function = " to the quadratic polynomial of the network", fit(function, made, 2)
    parts = gaussians(function, made)
    if len(parts) == 1:
        found = _under_gaussian(function, parts[0][1], chosen, degree, tolerance, note)
    elif chosen:
        raise ValueError("pairs need one Gaussian; pass the one with the moments of the mixture, or pairs=0.")
    else:
        found = under_mixture(function, checked_inputs(function, made), parts, degree or _DEGREE, note)
    found = replace(found, output_names=net.output_names)
    return map_arrays(found, lambda a: cast_result(a, net.prototype))


# -- one Gaussian ------------------------------------------------------------------------------------------------------


def _listed(pairs: Any, inputs: Inputs) -> list[tuple[int, int]]:
    """Pairs of inputs by index or name as pairs of indices."""
    found = [input_places("pairs", pair, inputs).tolist() for pair in pairs]
    if any(len(pair) != 2 for pair in found):
        raise ValueError(f"pairs must be a number, or pairs of inputs such as [(0, 1), (0, 4)], got {pairs!r:.60}.")
    return [(i, j) for i, j in found]


def _distinct(correlation: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs that are no multiples of others, z_i = sign_i z_k with k = kept[owner_i]: kept (r,), owner and sign (d,).

    The last is how many inputs are multiples of one another, (d,). Where 1 - |r| is below the floor it is rounding.
    """
    same = np.abs(correlation) >= 1 - floor
    np.fill_diagonal(same, True)
    first = same.argmax(axis=1)
    first = first[first]
    kept, owner, counts = np.unique(first, return_inverse=True, return_counts=True)
    sign = np.where(correlation[np.arange(len(first)), first] < 0, -1.0, 1.0)
    return kept, owner, sign, counts[owner]


def _under_gaussian(
    net: Layer | Polynomial, inputs: Gaussian, pairs: Any, degree: int | None, tolerance: float, note: str
) -> AdditiveModel:
    f = expansion(net, inputs)
    variance = inner(f, f).total
    xp, size, covariance = namespace(variance=variance), safe_root(variance), widen(inputs.covariance)
    deviation = xp.sqrt(xp.linalg.diagonal(covariance))
    inverse = safe_inverse(deviation)
    correlation = covariance * inverse * inverse[:, None]
    floor = rounding_floor(inputs.mean, correlation, inputs.dim)
    chosen, owner, sign, count = _distinct(to_numpy(correlation), floor)
    kept = take_rows(take_rows(correlation, chosen).T, chosen)
    directions = take_rows(eye(inputs.dim, inverse) * inverse, chosen)
    sharp, bound = None, variance * 0
    if isinstance(f, Expansion) and f.activation is not None and degree is None:
        degree, rest, bound = _long_enough(f, correlations(f, directions), kept, size, tolerance)
        limit = tolerance * size / (f.units.size * math.sqrt(len(chosen)))
        sharp = to_numpy(xp.any(rest > limit, axis=-1))
    degree = max(1, f.degree if degree is None else min(f.degree, degree))
    found = projections(f, inputs, directions, degree)  # (n, r, o)
    power, rows = kept, []
    for n in range(degree):
        rows.append(solved(power, found[n, ...], floor))
        power = power * kept
    series = xp.stack(rows)
    explained, gained, more = xp.sum(series * found, axis=(0, 1)), variance * 0, dict[str, Any]()
    if pairs:
        for i, j in () if isinstance(pairs, int) else pairs:
            if owner[i] == owner[j]:
                raise ValueError(f"pairs has inputs {i} and {j}, which are multiples of one another; leave it out.")
        places = pairs if isinstance(pairs, int) else sorted({tuple(sorted(owner[[i, j]].tolist())) for i, j in pairs})
        series, gained, more = with_pairs(f, inputs, directions, kept, found, series, places, floor)
        more["places"] = tuple((int(chosen[i]), int(chosen[j])) for i, j in more["places"])
    spread = xp.sum(series**2, axis=0)
    series, beside = xp.concat([series[:1, ...] * 0, series]), None
    if sharp is not None and sharp.any():
        parts = [kept_beside(f, directions[i, :], degree, np.flatnonzero(column)) for i, column in enumerate(sharp.T)]
        series = series - xp.stack([lost for lost, _, _ in parts], axis=1)
        tails = xp.stack([tail for _, tail, _ in parts])
        explained, spread = explained + xp.sum(tails, axis=0), spread + tails
        beside = gathered([units for _, _, units in parts], owner, sign, count)
    series = xp.stack([take_rows(series[n, ...], owner) for n in range(degree + 1)])
    shares = constant(sign ** np.arange(degree + 1)[:, None] / count, deviation)
    return AdditiveModel(
        mean=f.mean,
        center=widen(inputs.mean),
        scale=deviation,
        series=series * shares[:, :, None],
        additive=explained * safe_inverse(variance),
        pairwise=gained * safe_inverse(variance),
        variance=variance,
        bound=bound,
        importance=xp.sqrt(take_rows(spread, owner)) * constant(1 / count[:, None], deviation),
        density=constant(np.exp(-(GRID**2) / 2) / math.sqrt(2 * math.pi), deviation) * (deviation > 0)[:, None],
        sharp=beside,
        **more,
        names=inputs.names,
        note=f"closest{note} under a Gaussian, in closed form",
    )


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
