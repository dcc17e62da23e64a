"""The quadratic of a class written out: its strongest monomials, and all of the best quadratic in a few pixels."""

from __future__ import annotations

import numpy as np

from mlpoly.arrays import to_numpy, widen
from mlpoly.inputs import Gaussian
from mlpoly.polynomials import Polynomial
from mlpoly.studies.paper.results import Formula, PixelTerm


def formulas(quadratic: Polynomial, inputs: Gaussian, k: int = 6, pixels: int = 3) -> tuple[Formula, ...]:
    """Write the quadratic of every class out, in float64.

    About the mean m, with u = x - m of covariance S, a class is c + g.u + u.Q.u, whose variance is g.S g + 2 tr(SQSQ).
    A monomial's effect is its standard deviation: sqrt(S_ii) |g_i|, or sqrt(S_ii S_jj + S_ij^2) |Q_ij + Q_ji| (once
    Q_ii where i = j). What is known of a class from the pixels A alone is its mean given u_A, which is a quadratic
    again: with r = S g and K = SQS it is

        c + tr(Q S) - tr(H S_AA) + h.u_A + u_A.H u_A,    h = S_AA^-1 r_A,    H = S_AA^-1 K_AA S_AA^-1,

    the best of all functions of these pixels.

    Terms are compared under `inputs`, whose covariance must not be singular. There are the `k` strongest monomials of
    one pixel and of two; the small formula has a few `pixels`, chosen one by one, each to explain most.
    """
    c = quadratic.coefficients()
    constant, linear, forms = (to_numpy(widen(part)) for part in (c.constant, c.linear, c.quadratic))
    m, S = to_numpy(widen(inputs.mean)), to_numpy(widen(inputs.covariance))
    S = np.diag(S) if S.ndim == 1 else S
    return tuple(
        _formula(label, constant[label] + linear[label] @ m + m @ Q @ m, linear[label] + 2 * Q @ m, Q, S, k, pixels)
        for label, Q in enumerate(forms)
    )


def _formula(label: int, c: float, g: np.ndarray, Q: np.ndarray, S: np.ndarray, k: int, pixels: int) -> Formula:
    strongest = _terms(g, Q, S, k)
    rest_g, rest_Q = g.copy(), Q.copy()
    for term in strongest:
        if len(term.pixels) == 1:
            rest_g[term.pixels] = 0
        else:
            rest_Q[term.pixels] = rest_Q[term.pixels[::-1]] = 0
    r, K = S @ g, S @ Q @ S

    def best(chosen: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """h, H and S_AA of the best function of these pixels."""
        block = np.ix_(chosen, chosen)
        inverse = np.linalg.inv(S[block])
        return inverse @ r[chosen], inverse @ K[block] @ inverse, S[block]

    chosen: list[int] = []
    while len(chosen) < min(pixels, len(g)):
        others = [i for i in range(len(g)) if i not in chosen]
        chosen.append(max(others, key=lambda i: _variance(*best([*chosen, i]))))
    chosen.sort()
    h, H, block = best(chosen)
    constant = PixelTerm((), float(c + np.sum(Q * S) - np.sum(H * block)), 0.0)
    terms = sorted(_terms(h, H, block), key=lambda term: (len(term.pixels), term.pixels))
    whole = _variance(g, Q, S) or np.nan  # a constant has nothing to explain
    return Formula(
        label=label,
        count=(len(g) + 1) * (len(g) + 2) // 2,
        strongest=tuple(strongest),
        strongest_fvu=_variance(rest_g, rest_Q, S) / whole,
        small=(constant, *(PixelTerm(tuple(chosen[i] for i in t.pixels), t.coefficient, t.effect) for t in terms)),
        small_fvu=1 - _variance(h, H, block) / whole,
    )


def _variance(g: np.ndarray, Q: np.ndarray, S: np.ndarray) -> float:
    return float(g @ S @ g + 2 * np.sum((S @ Q) * (Q @ S)))


def _terms(g: np.ndarray, Q: np.ndarray, S: np.ndarray, k: int | None = None) -> list[PixelTerm]:
    """The k strongest monomials of one pixel and the k strongest of two, or all, by effect; not the constant."""
    rows, columns = np.triu_indices(len(g))
    products = np.where(rows == columns, 1, 2) * Q[rows, columns]
    scale = np.diag(S)
    found = []
    for coefficients, spread, indices in (
        (g, scale, np.arange(len(g))[:, None]),
        (products, scale[rows] * scale[columns] + S[rows, columns] ** 2, np.stack([rows, columns], 1)),
    ):
        effects = np.abs(coefficients) * np.sqrt(spread)
        order = np.argsort(-effects, kind="stable")[:k]
        found += [PixelTerm(tuple(indices[i].tolist()), float(coefficients[i]), float(effects[i])) for i in order]
    return sorted(found, key=lambda term: -term.effect)
