"""One input with any distribution, standardised: quantiles, moments, orthogonal polynomials and quadrature (MATH 18).

Everything is an integral over a standard normal score z, of which the input is a monotone function u(z): Gauss-Legendre
on panels that are halved until polynomials represent u there. So one way serves bounded, skewed and heavy-tailed laws.
"""

import math
import warnings
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import ndtr

_REACH = 37  # scores beyond it have probability 1e-299
_SLOW = 12  # the same of distributions whose quantiles are found by iteration: 1e-33
_NODES = 16  # Gauss-Legendre nodes on each panel
_MIDDLE = 6  # scores up to which panels are narrow enough for polynomials of u of degree 100
_PANELS = 2048
_NEGLIGIBLE = 1e-14  # part of a moment that may lie at the ends of the scores
_TINY = 2.0**-10  # panels as narrow as this have a kink or a jump, whose error counts by its probability


class Marginal:
    """The law of u = (x - center) / scale, with mean zero and variance one.

    Attributes
    ----------
    center, scale : float
        Mean and standard deviation of x.
    u, weights : array (m,)
        A discrete law with the same moments, up to the order that `check_order` takes.
    """

    def __init__(self, quantile: Any, survival: Any, reach: int = _REACH) -> None:
        self._quantile, self._survival, self._reach = quantile, survival, reach
        self.center, self.scale = 0.0, 1.0
        self.scores, self.weights = self._panels()
        x = self.at(self.scores)
        self.center = float(self.weights @ x)
        with np.errstate(over="ignore"):
            self.scale = float(np.sqrt(self.weights @ (x - self.center) ** 2))
        if not (self.scale > 0 and math.isfinite(self.scale)):
            raise ValueError("it has no variance, or an infinite one")
        self.u = (x - self.center) / self.scale
        self.check_order(2)

    def at(self, scores: np.ndarray) -> np.ndarray:
        """The standardised input u at normal scores; in both tails with the relative accuracy of its quantiles."""
        z = np.asarray(scores, dtype=np.float64)
        tail = ndtr(-np.abs(z))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of quantiles so far out that `_edges` leaves them out
            x = np.where(z < 0, self._quantile(tail), self._survival(tail))
        return (x - self.center) / self.scale

    def _panels(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores and weights."""
        t, w = np.polynomial.legendre.leggauss(_NODES)
        # Legendre coefficients of the polynomial through the nodes: the last ones show whether it represents u.
        norms = np.arange(_NODES) + 0.5
        transform = (np.polynomial.legendre.legvander(t, _NODES - 1) * w[:, None]).T * norms[:, None]
        edges = self._edges()
        middle = edges[np.abs(edges) <= _MIDDLE]
        edges = np.union1d(edges, np.arange(middle[0], middle[-1], 1 / 4))
        left, width = edges[:-1], np.diff(edges)
        spread = np.ptp(self.at(np.array([-1.0, 1.0])))
        kept: list[np.ndarray] = []
        before = np.full(len(left), np.inf)
        while len(left):
            z = left[:, None] + width[:, None] * (t + 1) / 2
            spectrum = np.abs(self.at(z) @ transform.T)
            size, rest = spectrum.max(axis=1) + spread, spectrum[:, -2:].max(axis=1)
            mass = np.exp(-(left.clip(0) ** 2 + (left + width).clip(None, 0) ** 2) / 2) * width
            done = (rest <= 4e-15 * size) | ((width <= _TINY) & (rest * mass <= 1e-16 * spread))
            done |= (rest > before / 2) & (rest <= 1e-10 * size)  # the rounding of the quantiles themselves
            done |= (width <= 2.0**-40) | (len(kept) + len(left) > _PANELS)
            kept += list(np.stack([left[done], width[done]], axis=1))
            left, width, before = left[~done], width[~done] / 2, rest[~done]
            left, width, before = np.concatenate([left, left + width]), np.tile(width, 2), np.tile(before, 2)
        start, span = np.array(sorted(map(tuple, kept))).T
        z = (start[:, None] + span[:, None] * (t + 1) / 2).ravel()
        weights = (span[:, None] * w / 2).ravel() * np.exp(-(z**2) / 2)
        return z, weights / weights.sum()

    def _edges(self) -> np.ndarray:
        """Whole scores, as far as the quantiles are finite and in order, which those of SciPy are not everywhere."""
        z = np.arange(-self._reach, self._reach + 1.0)
        x, middle = self.at(z), len(z) // 2
        if not np.isfinite(x[middle - 8 : middle + 9]).all():
            raise ValueError("its quantiles are not finite")
        with np.errstate(invalid="ignore"):
            good = np.isfinite(x) & np.append(x[:-1] <= x[1:], True) & np.append(True, x[:-1] <= x[1:])
        low = np.flatnonzero(~good[:middle]).max(initial=-1) + 1
        high = np.flatnonzero(~good[middle:]).min(initial=len(z) - middle) + middle
        return z[low:high]

    def check_order(self, order: int) -> None:
        """Raise if the moment of this order is infinite, or comes from scores that floats do not have."""
        with np.errstate(all="ignore"):  # weights inside the powers, which may overflow by themselves
            parts = (np.abs(self.u) * np.exp(-(self.scores**2) / (2 * order))) ** order
            total = np.sum((np.abs(self.u) * self.weights ** (1 / order)) ** order) * math.sqrt(2 * math.pi)
        ends = np.array([parts[: _NODES // 2].max(), parts[-_NODES // 2 :].max()])
        if not (np.isfinite(total) and (ends <= _NEGLIGIBLE * total).all()):
            raise ValueError(f"its moment of order {order} is infinite or beyond floating point")

    def moments(self, order: int) -> np.ndarray:
        """E[u^k] for k = 0, ..., order."""
        self.check_order(max(order, 1))
        return np.array([1.0, *(np.sum((self.u * self.weights ** (1 / k)) ** k) for k in range(1, order + 1))])

    def recurrence(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients a (count,), b (count + 1,) of u p_k = b_{k+1} p_{k+1} + a_k p_k + b_k p_{k-1}.

        The p_k are orthonormal. By Lanczos' method with the discrete law, every vector made orthogonal to all before.
        """
        self.check_order(2 * max(count, 1))
        basis, a, b = [np.sqrt(self.weights)], np.zeros(count), np.zeros(count + 1)
        for k in range(count):
            new = self.u * basis[k]
            a[k] = basis[k] @ new
            size = np.linalg.norm(new)
            for _ in range(2):
                for v in basis:
                    new = new - (v @ new) * v
            b[k + 1] = np.linalg.norm(new)
            if b[k + 1] <= 1e-9 * size:
                raise ValueError(f"it has only {k + 1} values, which determine no polynomial of degree {k + 1}")
            basis.append(new / b[k + 1])
        return a, b

    def values(self, u: np.ndarray, degree: int) -> np.ndarray:
        """The orthonormal polynomials p_0, ..., p_degree at points u (n,): (n, degree + 1)."""
        a, b = self.recurrence(max(degree, 1))
        rows, before = [np.ones_like(u)], np.zeros_like(u)
        for k in range(degree):
            rows.append(((u - a[k]) * rows[k] - b[k] * before) / b[k + 1])
            before = rows[k]
        return np.stack(rows, axis=1)

    def in_hermite(self, degree: int) -> np.ndarray:
        """C with p_k = sum_j C[k, j] he_j, (degree + 1, degree + 1), by the recurrences of both."""
        a, b = self.recurrence(max(degree, 1))
        root = np.sqrt(np.arange(degree + 1.0))
        rows, before = [np.eye(1, degree + 1)[0]], np.zeros(degree + 1)
        for k in range(degree):
            now = rows[k]
            raised = np.append(0.0, root[1:] * now[:-1]) + np.append(root[1:] * now[1:], 0.0)  # u he_j
            rows.append((raised - a[k] * now - b[k] * before) / b[k + 1])
            before = now
        return np.array(rows)

    def gauss(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and weights (count,) that integrate polynomials of degree 2 count - 1 exactly."""
        return _gauss(*self.recurrence(count))

    def rule(self, count: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and weights (count,) for functions times polynomials of a degree: the better of two Gauss rules.

        One integrates polynomials of u exactly, the other those of the normal score. Where moments do not determine
        the law, as for a lognormal one, only the latter converges.
        """
        z, weights = _gauss(np.zeros(count), np.sqrt(np.arange(count + 1.0)))
        rules = [(self.at(z), weights)]
        with suppress(ValueError):  # where its moments are finite only up to a lower order
            rules.append(self.gauss(count))

        def products(u: np.ndarray, weights: np.ndarray) -> np.ndarray:
            bends = np.tanh(u[:, None] - np.array([-1.0, 0.0, 1.0, 2.0]))
            return self.values(u, degree).T @ (weights[:, None] * bends)

        wanted = products(self.u, self.weights)
        return min(rules, key=lambda rule: float(np.abs(products(*rule) - wanted).max()))

    @cached_property
    def series(self) -> np.ndarray:
        """Hermite coefficients (257,) of u as a function of its score, which decide covariances under a copula."""
        now, before, rows = np.exp(-(self.scores**2) / 4), np.zeros_like(self.scores), []
        weights = self.weights * np.exp(self.scores**2 / 4) * self.u  # the recurrence of he_k phi^(1/2) has no overflow
        for k in range(257):
            rows.append(weights @ now)
            now, before = (self.scores * now - math.sqrt(k) * before) / math.sqrt(k + 1), now
        return np.array(rows)


def _gauss(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gauss rule of a recurrence; far out, where polynomials are large, the weights 1 / sum p_k^2 keep their digits."""
    nodes = eigh_tridiagonal(a, b[1:-1], eigvals_only=True)
    now, before, total = np.ones_like(nodes), np.zeros_like(nodes), np.ones_like(nodes)
    logs = np.zeros_like(nodes)  # of the factors that are taken out against overflow
    for k in range(len(a) - 1):
        now, before = ((nodes - a[k]) * now - b[k] * before) / b[k + 1], now
        size = np.maximum(np.abs(now), 1.0)
        now, before, total, logs = now / size, before / size, total / size**2 + (now / size) ** 2, logs + np.log(size)
    weights = np.exp(-2 * logs) / total
    return nodes, weights / weights.sum()


def marginal_of(distribution: Any) -> tuple[Marginal, float, float]:
    """The standardised law of a frozen SciPy distribution or one like it, and mean and standard deviation of it."""
    from scipy import stats  # takes longer to import than the rest of this package

    if isinstance(getattr(distribution, "dist", None), stats.rv_discrete):
        raise TypeError("it is discrete; mlpoly.Samples(values, weights) takes all combinations of such inputs")
    known: Any = getattr(distribution, "dist", distribution)
    family: Any = type(getattr(stats, getattr(known, "name", ""), None))
    if type(known) is family:
        args, options = getattr(distribution, "args", ()), getattr(distribution, "kwds", {})
        shapes, loc, scale = known._parse_args(*args, **options)
        if all(np.ndim(v) == 0 for v in (*shapes, loc, scale)):
            law = _known(known.name, tuple(float(v) for v in shapes))
            return law, float(loc) + float(scale) * law.center, float(scale) * law.scale
        raise TypeError("it has parameters that are arrays; a marginal is the law of one number")
    names = (("ppf", "isf"), ("icdf", "iccdf"))
    for lower, upper in names:
        if callable(getattr(distribution, lower, None)) and callable(getattr(distribution, upper, None)):
            law = Marginal(getattr(distribution, lower), getattr(distribution, upper))
            return law, law.center, law.scale
    raise TypeError("it has no quantiles, ppf(q) and isf(q)")


@lru_cache(maxsize=256)
def _known(name: str, shapes: tuple[float, ...]) -> Marginal:
    """The standardised law of a family of SciPy, whatever its location and scale."""
    from scipy import stats

    family = getattr(stats, name)
    frozen, slow = family(*shapes), type(family)._ppf is stats.rv_continuous._ppf
    return Marginal(frozen.ppf, frozen.isf, _SLOW if slow else _REACH)
