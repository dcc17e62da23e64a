"""Search for terms of a quadratic part: one after another among candidates, and all at once by descent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlpoly.arrays import Array, add_at, namespace
from mlpoly.arrays.placement import cast_like, constant, eye, rounding_error, scalar, take_rows, to_numpy, widen
from mlpoly.features.quadratic_part import QuadraticPart, gram


def matching_pursuit(a: Array, b: Array, targets: Array, energy: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose terms one after another, each the one that explains most together with those before.

    Candidates are sym(a_i b_i') for rows (m, d), with inner products `targets` (m, o) with the part, whose squared norm
    is `energy`. Returned are the chosen ones (r,), and the fractions (r,) that the first 1, ..., r explain. Orthogonal
    matching pursuit, by a Cholesky factorisation of the Gram matrix that computes only the columns of chosen terms; it
    ends early when what is left is rounding, or when all others depend on the chosen ones.
    """
    xp, eps = namespace(a=a), rounding_error(a)
    left = widen(xp.vecdot(a, a) * xp.vecdot(b, b) + xp.vecdot(a, b) ** 2) / 2  # of each candidate's own norm
    floor, rest = eps**0.5 * left, widen(targets)
    count = min(count, int(a.shape[0]))
    factor = constant(np.zeros((count, a.shape[0])), rest)
    chosen: list[int] = []
    gains: list[float] = []
    for step in range(count):
        usable = left > floor
        gain = xp.where(usable, xp.vecdot(rest, rest) / xp.where(usable, left, 1.0), -1.0)
        here = np.asarray([int(xp.argmax(gain))])
        best = scalar(take_rows(gain, here)[0]) / energy
        if best <= eps**1.5 and chosen:  # rounding, over a norm that may be as small as its root
            break
        chosen.append(int(here[0]))
        gains.append(best)
        ai, bi = take_rows(a, here)[0, :], take_rows(b, here)[0, :]
        column = widen((a @ ai) * (b @ bi) + (a @ bi) * (b @ ai)) / 2
        column = column - take_rows(factor.T, here)[0, :] @ factor
        column = column * take_rows(left, here)[0] ** -0.5
        factor = add_at(factor, (step, ...), column)
        rest = rest - column[:, None] * (take_rows(rest, here) * take_rows(left, here)[0] ** -0.5)
        left = left - column * column
    return np.asarray(chosen, dtype=np.int64), np.cumsum(gains)


def descend(
    part: QuadraticPart, a: Array, b: Array, energy: float, steps: int, penalty: float, step: Callable[[], None]
) -> tuple[Array, Array]:
    """Move unit directions a, b (r, d) to explain more, by L-BFGS on the energy that the best writes explain.

    With Gram matrix K of the terms sym(a_i b_i') and inner products B with the part, that is tr B'(K + penalty)^-1 B.
    Squares, where both are the same array, stay squares. `step` is called after each of at most `steps` iterations.
    """
    from scipy.optimize import minimize  # takes a moment to import

    tied, shape = b is a, (1 if b is a else 2, *a.shape)
    ridge = max(penalty, 10 * rounding_error(a)) * eye(int(a.shape[0]), widen(a))  # two terms may meet

    def directions(flat: np.ndarray) -> tuple[Array, Array, np.ndarray]:
        rows = flat.reshape(shape)
        sizes = np.linalg.norm(rows, axis=2, keepdims=True)
        made = [constant(rows[i] / sizes[i], a) for i in range(len(rows))]
        return made[0], made[0] if tied else made[1], sizes

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        a, b, sizes = directions(flat)
        xp = namespace(a=a)
        inner, seen = part.along(a, b)
        writes = xp.linalg.solve(widen(gram(a, b)) + ridge, widen(inner))
        explained = float((widen(inner) * writes).sum())
        weights = cast_like(writes, a)
        in_a, in_b = part.slopes(weights, seen)
        both = weights @ weights.T
        if tied:
            slopes = [4 * (in_a - (both * (a @ a.T)) @ a)]
        else:
            aa, bb, ab = a @ a.T, b @ b.T, a @ b.T
            slopes = [2 * in_a - (both * bb) @ a - (both * ab.T) @ b, 2 * in_b - (both * aa) @ b - (both * ab) @ a]
        rows = flat.reshape(shape) / sizes
        gradient = np.stack([to_numpy(s).astype(np.float64) for s in slopes])
        gradient = (gradient - rows * np.sum(gradient * rows, axis=2, keepdims=True)) / sizes  # along the sphere
        return -explained / energy, -gradient.ravel() / energy

    start = np.stack([to_numpy(rows).astype(np.float64) for rows in ((a,) if tied else (a, b))]).ravel()
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 10 * rounding_error(a), "gtol": 1e-9}
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", callback=lambda _: step(), options=options)
    a, b, _ = directions(optimum.x)
    return a, b
