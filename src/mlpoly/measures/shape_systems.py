"""Linear systems for shape functions: projections on Hermite polynomials of inputs, and solutions of least norm."""

import math

import numpy as np

from mlpoly.arrays import Array, constant_index, eye, namespace, no_gradients, safe_inverse, safe_root, to_numpy, widen
from mlpoly.inputs import Gaussian
from mlpoly.moments import AnyExpansion, Expansion, Quadratic, inner
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
