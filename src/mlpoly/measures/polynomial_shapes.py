"""Shape functions that are polynomials of one degree, under mixtures and on data: one system for all degrees."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlpoly.arrays import Array, cast_result, constant, eye, namespace, safe_inverse, safe_root, to_numpy, widen
from mlpoly.inputs import GaussianMixture, Inputs, Samples
from mlpoly.inputs.coordinates import rounding_floor
from mlpoly.measures.functions import expansion, outputs_of
from mlpoly.measures.shape_functions import GRID, AdditiveModel
from mlpoly.measures.shape_systems import projections, solved
from mlpoly.moments import inner
from mlpoly.records import map_arrays
from mlpoly.special import hermite, normal_pdf

_NUMBERS = 2**22  # values of features at once


def under_mixture(net: Any, inputs: GaussianMixture, parts: Any, degree: int, note: str) -> AdditiveModel:
    """The closest additive polynomial of a degree under a mixture: one system for all degrees, in closed form.

    In a component z_i = place + factor s with s standard normal, and he_n(z_i) is a series in he_m(s).
    """
    mean = widen(inputs.mean)
    xp, inverse = namespace(mean=mean), safe_inverse(_deviation(inputs))
    each = [(weight, g, expansion(net, g)) for weight, g in parts]
    level = sum(weight * f.mean for weight, _, f in each)
    variance = sum(weight * (inner(f, f).total + (f.mean - level) ** 2) for weight, _, f in each)
    gram = average = rhs = density = mean[0] * 0
    for weight, g, f in each:
        own = _deviation(g)
        place, factor, back = (widen(g.mean) - mean) * inverse, own * inverse, safe_inverse(own)
        table = _rebased(place, factor, degree)  # (n, m, d)
        correlation = widen(g.covariance) * back * back[:, None]
        found = projections(f, g, eye(inputs.dim, back) * back, degree)
        found = xp.concat([found[:1, ...] * 0 + (f.mean - level), found])  # (m, d, o)
        rhs = rhs + weight * xp.sum(table[1:, :, :, None] * found, axis=1)
        average = average + weight * table[1:, 0, :]
        for m in range(degree + 1):
            row, power = table[1:, m, :], correlation**m if m else 1 + correlation * 0
            gram = gram + weight * row[:, :, None, None] * row * power[:, None, :]
        narrow = safe_inverse(factor)[:, None]
        density = density + weight * normal_pdf((constant(GRID, place) - place[:, None]) * narrow) * narrow
    note = f"closest{note} with polynomials of degree {degree} under a mixture, in closed form"
    return _made(gram, average, rhs, level, variance, inputs, density, note)


def _rebased(place: Array, factor: Array, degree: int) -> Array:
    """Coefficients (n + 1, m + 1, d) of he_n(place + factor s) in he_m(s), from the recurrence of the he_n."""
    xp, top = namespace(place=place), degree + 1
    root = constant(np.sqrt(np.arange(1.0, top))[:, None], place)
    empty = place[None, :] * 0
    rows = [xp.concat([empty + 1, *[empty] * degree])]
    for n in range(degree):
        now, before = rows[n], rows[n - 1] if n else rows[0] * 0
        raised, lowered = xp.concat([empty, root * now[:-1, :]]), xp.concat([root * now[1:, :], empty])
        rows.append((place * now + factor * (raised + lowered) - math.sqrt(n) * before) / math.sqrt(n + 1))
    return xp.stack(rows)


def on_data(net: Callable[[Array], Array], data: Samples, degree: int) -> AdditiveModel:
    """The closest additive polynomial of a degree on data: least squares."""
    values = widen(outputs_of("net", net, data.x))
    xp, mean, deviation = namespace(values=values), data.mean, _deviation(data)
    weights = None if data.weights is None else data.weights
    outputs = Samples(values, weights)
    level, inverse, start = outputs.mean, safe_inverse(deviation), 0
    gram = average = rhs = mean[0] * 0
    counts = np.zeros((data.dim, len(GRID)))
    edges = np.concatenate([GRID - (GRID[1] - GRID[0]) / 2, [GRID[-1] + (GRID[1] - GRID[0]) / 2]])
    for x, w in data.chunks(max(1, _NUMBERS // (data.dim * degree))):
        z = (widen(x) - mean) * inverse
        features = xp.concat([*hermite(z, degree)[1:, ...]], axis=1)  # (m, n d)
        gram, average = gram + (features * w).T @ features, average + xp.sum(w * features, axis=0)
        rhs = rhs + (features * w).T @ (values[start : start + x.shape[0], :] - level)
        start += x.shape[0]
        column, mass = to_numpy(z), to_numpy(w)[:, 0]
        counts += [np.histogram(column[:, i], edges, weights=mass)[0] for i in range(data.dim)]
    shape = (degree, data.dim)
    gram, average = xp.reshape(gram, (*shape, *shape)), xp.reshape(average, shape)
    density = constant(counts / (GRID[1] - GRID[0]), mean)
    variance = sum(xp.sum(w * (y - level) ** 2, axis=0) for y, w in outputs.chunks(_NUMBERS))
    note = f"closest with polynomials of degree {degree} on {data.count} samples"
    made = _made(gram, average, xp.reshape(rhs, (*shape, -1)), level, variance, data, density, note)
    return map_arrays(made, lambda a: cast_result(a, data.x))


def _deviation(inputs: Inputs) -> Array:
    """Standard deviations (d,) of inputs."""
    return safe_root(widen(inputs._variances()))


def _made(
    gram: Array, average: Array, rhs: Array, level: Array, variance: Array, inputs: Inputs, density: Array, note: str
) -> AdditiveModel:
    """The model of E[h h'] (n, d, n, d), E[h] (n, d) and E[h (f - E f)] (n, d, o) of the features h = he_n(z_i)."""
    xp, (n, d, o) = namespace(gram=gram), rhs.shape
    gram = gram - average[:, :, None, None] * average
    flat = xp.reshape(gram, (n * d, n * d))
    found = solved(flat, xp.reshape(rhs, (n * d, o)), rounding_floor(inputs.prototype, flat, n * d))
    explained = xp.sum(found * xp.reshape(rhs, (n * d, o)), axis=0)
    series = xp.reshape(found, (n, d, o))
    own = [xp.sum(series[:, i, :] * (gram[:, i, :, i] @ series[:, i, :]), axis=0) for i in range(d)]
    start = -xp.sum(series * average[:, :, None], axis=0)
    zero = variance * 0
    return AdditiveModel(
        mean=level,
        center=widen(inputs.mean),
        scale=_deviation(inputs),
        series=xp.concat([start[None, ...], series]),
        additive=explained * safe_inverse(variance),
        pairwise=zero,
        variance=variance,
        bound=zero,
        importance=safe_root(xp.stack(own)),
        density=density,
        names=inputs.names,
        note=note,
    )
