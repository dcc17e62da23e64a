"""What shape functions are made of: projections on Hermite polynomials of inputs, systems, and sharp hidden units."""

import math
from typing import Any

import numpy as np

from mlpoly.arrays import Array, namespace, no_gradients, safe_inverse, safe_root
from mlpoly.arrays.placement import constant_index, eye, take_rows, to_numpy, widen
from mlpoly.inputs import Gaussian
from mlpoly.measures.shape_functions import SharpUnits
from mlpoly.moments import AnyExpansion, Expansion, Quadratic, inner
from mlpoly.records import arrays_of, map_arrays, replace
from mlpoly.units import Series, Units


def projections(f: AnyExpansion, inputs: Gaussian, directions: Array, degree: int) -> Array:
    """E[f he_n(z)] (n, r, o), n = 1, ..., degree, for z = directions (x - mean) of variance one, or constant."""
    xp, mean = namespace(directions=directions), widen(inputs.mean)
    along = inputs.times_covariance(directions)  # rows Cov(z, x)
    if isinstance(f, Quadratic):  # no d x d form for each direction
        empty = xp.stack([f.mean] * int(directions.shape[0])) * 0
        rows = [] if f.linear is None else [along @ f.linear.T]
        if f.form is not None:
            forms = map(f.form, range(int(f.mean.shape[0])))
            rows.append(math.sqrt(2) * xp.stack([xp.vecdot(along @ form, along) for form in forms], axis=1))
        return xp.stack([*rows[:degree], *[empty] * (degree - len(rows))])
    scales = xp.astype(xp.any(directions != 0, axis=1), directions.dtype)
    ones = Series(xp.stack([scales * 0 + 1] * (degree + 1)))
    probe = Expansion(Units(directions, directions @ mean, scales), inputs, series=ones)
    return xp.matrix_transpose(inner(f, probe, degree=degree, full=True).head)


def solved(gram: Array, rhs: Array, floor: float) -> Array:
    """Solution (n, o) of least norm of a positive semidefinite system, in units in which the diagonal is one."""
    xp = namespace(gram=gram)
    inverse = safe_inverse(safe_root(xp.linalg.diagonal(gram)))
    scaled, rhs = gram * inverse * inverse[:, None], rhs * inverse[:, None]
    with no_gradients(scaled):
        row = float(xp.max(xp.sum(xp.abs(scaled - eye(int(scaled.shape[0]), scaled)), axis=1)))
        basis = None
        if row >= 0.5:  # otherwise, by Gershgorin's theorem, no eigenvalue is below a half
            values, vectors = xp.linalg.eigh(scaled)
            index = np.flatnonzero(to_numpy(values) > floor)
            if len(index) < gram.shape[0]:
                basis = xp.take(vectors, constant_index(index, vectors), axis=1)
    if row <= float(xp.finfo(scaled.dtype).eps):
        return rhs * inverse[:, None]
    if basis is None:
        return xp.linalg.solve(scaled, rhs) * inverse[:, None]
    return (basis @ xp.linalg.solve(basis.T @ scaled @ basis, basis.T @ rhs)) * inverse[:, None]


def correlations(f: Expansion, directions: Array) -> Array:
    """Correlations (h, r) of hidden units with inputs; +-1 where only rounding is missing."""
    seen = (f.inputs.times_covariance(f.units.directions) @ directions.T) * f.units.inverse_scales[:, None]
    xp = namespace(seen=seen)
    return xp.where(xp.abs(seen) > 1 - 64 * float(xp.finfo(seen.dtype).eps), xp.sign(seen), seen)


def kept_beside(f: Any, direction: Array, degree: int, index: np.ndarray) -> tuple[Array, Array, SharpUnits | None]:
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
    seen = correlations(some, direction[None, :])[:, 0]
    left, gate = safe_root((1 - seen) * (1 + seen)), units.gate
    kept = SharpUnits((), f.activation, units.means, units.scales * seen, units.scales * left, some.weights.T)
    if gate is not None:  # the gate is slope t + e, and E[e z] = alone; Cov(e, t) = 0 gives its part along w
        alone = (f.inputs.times_covariance(gate.directions) @ direction) - gate.slopes * seen
        along = gate.slopes * left - alone * seen * safe_inverse(left)
        gates = {"gate_means": gate.means, "gate_slopes": gate.slopes * seen + alone, "gate_spreads": along}
        kept = replace(kept, **gates)
    return xp.concat([some.mean[None, :], series]), tail, kept


def gathered(parts: list[SharpUnits | None], owner: np.ndarray, sign: np.ndarray, size: np.ndarray) -> SharpUnits:
    """The units of all inputs; those of inputs that are multiples of one another have equal parts of them."""
    made, owners = [], list[int]()
    for i, number in enumerate(owner.tolist()):
        units = parts[number]
        if units is None:
            continue
        along, count = float(sign[i]), int(size[i])
        gate = None if units.gate_slopes is None else units.gate_slopes * along
        made.append(replace(units, slopes=units.slopes * along, weights=units.weights / count, gate_slopes=gate))
        owners += [i] * int(units.means.shape[0])
    xp = namespace(means=made[0].means)
    arrays = {name: xp.concat([getattr(units, name) for units in made]) for name in arrays_of(made[0])}
    return replace(made[0], owners=tuple(owners), **arrays)
