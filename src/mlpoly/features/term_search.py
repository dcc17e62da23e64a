"""Search for terms of a quadratic part: one after another among candidates, and all at once by descent."""

from collections.abc import Callable

import numpy as np

from mlpoly.arrays import Array, add_at, namespace
from mlpoly.arrays.placement import cast_like, constant, eye, rounding_error, scalar, take_rows, to_numpy, widen
from mlpoly.features.quadratic_part import QuadraticPart, gram


def matching_pursuit(a: Array, targets: Array, energy: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose terms one after another, each the one that explains most together with those before.

    Candidates are a_i a_i' for rows (m, d), with inner products `targets` (m, o) with the part, whose squared norm is
    `energy`. Returned are the chosen ones (r,), and the fractions (r,) that the first 1, ..., r explain. Orthogonal
    matching pursuit, by a Cholesky factorisation of the Gram matrix that computes only the columns of chosen terms; it
    ends early when what is left is rounding, or when all others depend on the chosen ones.
    """
    xp, eps = namespace(a=a), rounding_error(a)
    left = widen(xp.vecdot(a, a) ** 2)  # of each candidate's own norm
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
        column = widen((a @ take_rows(a, here)[0, :]) ** 2)
        column = column - take_rows(factor.T, here)[0, :] @ factor
        column = column * take_rows(left, here)[0] ** -0.5
        factor = add_at(factor, (step, ...), column)
        rest = rest - column[:, None] * (take_rows(rest, here) * take_rows(left, here)[0] ** -0.5)
        left = left - column * column
    return np.asarray(chosen, dtype=np.int64), np.cumsum(gains)


def descend(
    part: QuadraticPart, a: Array, energy: float, steps: int, penalty: float, step: Callable[[], None]
) -> Array:
    """Move unit directions a (r, d) to explain more, by L-BFGS on the energy that the best writes explain.

    With Gram matrix K of the terms a_i a_i' and inner products B with the part, that is tr B'(K + penalty)^-1 B. `step`
    is called after each of at most `steps` iterations.
    """
    from scipy.optimize import minimize  # takes a moment to import

    ridge = max(penalty, 10 * rounding_error(a)) * eye(int(a.shape[0]), widen(a))  # two terms may meet

    def directions(flat: np.ndarray) -> tuple[Array, np.ndarray]:
        rows = flat.reshape(tuple(a.shape))
        sizes = np.linalg.norm(rows, axis=1, keepdims=True)
        return constant(rows / sizes, a), sizes

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        a, sizes = directions(flat)
        xp = namespace(a=a)
        inner, seen = part.along(a)
        writes = xp.linalg.solve(widen(gram(a)) + ridge, widen(inner))
        explained = float((widen(inner) * writes).sum())
        weights = cast_like(writes, a)
        slopes = 4 * (part.slopes(weights, seen) - ((weights @ weights.T) * (a @ a.T)) @ a)
        rows, gradient = flat.reshape(sizes.shape[0], -1) / sizes, to_numpy(slopes).astype(np.float64)
        gradient = (gradient - rows * np.sum(gradient * rows, axis=1, keepdims=True)) / sizes  # along the sphere
        return -explained / energy, -gradient.ravel() / energy

    start = to_numpy(a).astype(np.float64).ravel()
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 10 * rounding_error(a), "gtol": 1e-9}
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", callback=lambda _: step(), options=options)
    return directions(optimum.x)[0]
