"""Products of orthonormal Hermite polynomials, prod_i he_{b_i}(w_i): values, and expansions of other forms in them.

They are orthonormal where w is standard normal, so a mean is the first coefficient and a variance the sum of the
squares of the others. All expansions are by recurrence: no moment is ever enumerated.
"""

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mlpoly.arrays import Array, constant, namespace, take_rows
from mlpoly.errors import TooLargeError
from mlpoly.special import hermite
from mlpoly.units import Series, Units

MOST_MONOMIALS = 10_000


def check_monomials(variables: int, degree: int, remedy: str) -> None:
    """Raise if there are too many monomials for matrices over all of them."""
    terms = math.comb(variables + degree, degree)
    if terms > MOST_MONOMIALS:
        raise TooLargeError(
            f"degree {degree} in {variables} directions has {terms} monomials, more than {MOST_MONOMIALS}; {remedy}."
        )


def multi_indices(variables: int, degree: int) -> np.ndarray:
    """Exponents (t, variables) of all monomials of total degree up to `degree`, by degree, then lexicographically."""
    rows = []
    for k in range(degree + 1):
        for chosen in itertools.combinations_with_replacement(range(variables), k):
            row = [0] * variables
            for i in chosen:
                row[i] += 1
            rows.append(row)
    return np.asarray(rows, dtype=np.int64).reshape(len(rows), variables)


def products(z: Array, exponents: np.ndarray) -> Array:
    """Values prod_i he_{a_i}(z_i) of products with exponents (t, r): (t, ...) for z (..., r)."""
    xp, variables = namespace(z=z), exponents.shape[1]
    table = hermite(z, int(exponents.max(initial=0)))  # (n + 1, ..., r)
    if not variables:
        return xp.sum(table[:1, ...], axis=-1) + 1  # no variable: the empty product, in the shape of the points
    rows = xp.reshape(xp.moveaxis(table, -1, 1), (table.shape[0] * variables, *z.shape[:-1]))  # row a r + i: he_a(z_i)
    # A product has at most as many factors as its degree, often far fewer than r; the rest are he_0 = 1.
    factors = max(1, int((exponents > 0).sum(axis=1).max(initial=0)))
    chosen = np.argsort(exponents == 0, axis=1, kind="stable")[:, :factors]
    places = np.take_along_axis(exponents, chosen, axis=1) * variables + chosen
    out = take_rows(rows, places[:, 0])
    for k in range(1, factors):
        out = out * take_rows(rows, places[:, k])
    return out


class Ladder(NamedTuple):
    """All multi-indices up to a degree, and for each variable the rows one step down and up (t where there is none)."""

    exponents: np.ndarray  # (t, r)
    down: np.ndarray  # (r, t)
    up: np.ndarray  # (r, t)

    @property
    def degrees(self) -> np.ndarray:
        """Total degree of each product, (t,)."""
        return self.exponents.sum(axis=1)

    @property
    def variables(self) -> int:
        """Number r of variables."""
        return int(self.exponents.shape[1])

    def raised(self, rows: Array, j: int) -> Array:
        """The part of w_j p that is one degree higher: coefficients (t, m) of p to coefficients (t, m)."""
        padded = namespace(rows=rows).concat([rows, rows[:1, ...] * 0])
        return constant(np.sqrt(self.exponents[:, j])[:, None], rows) * take_rows(padded, self.down[j])

    def lowered(self, rows: Array, j: int) -> Array:
        """The part of w_j p that is one degree lower."""
        padded = namespace(rows=rows).concat([rows, rows[:1, ...] * 0])
        return constant(np.sqrt(self.exponents[:, j] + 1.0)[:, None], rows) * take_rows(padded, self.up[j])

    def constant_row(self, like: Array) -> Array:
        """Coefficients (t, 1) of the constant one."""
        first = np.zeros((len(self.exponents), 1))
        first[0] = 1.0
        return constant(first, like)


@lru_cache(maxsize=8)
def ladder(variables: int, degree: int) -> Ladder:
    """All products of total degree up to `degree`."""
    exponents = multi_indices(variables, degree)
    t = len(exponents)
    where = {row.tobytes(): i for i, row in enumerate(exponents)}
    steps = np.eye(variables, dtype=np.int64)
    down = np.array([[where.get((row - s).tobytes(), t) for row in exponents] for s in steps]).reshape(variables, t)
    up = np.array([[where.get((row + s).tobytes(), t) for row in exponents] for s in steps]).reshape(variables, t)
    return Ladder(exponents, down, up)


def change_of_basis(place: Array, factor: Array, basis: Ladder, own: Ladder) -> Array:
    """B (own terms, terms): column a holds prod he_{a_i}(z_i), z = place + factor w, in the products he_b(w).

    Column by column from sqrt(a_i) he_{a_i} = z_i he_{a_i - 1} - sqrt(a_i - 1) he_{a_i - 2}, one degree at a time.
    """
    xp = namespace(place=place)
    columns = own.constant_row(place)
    for k in range(1, int(basis.degrees.max(initial=0)) + 1):
        new = np.flatnonzero(basis.degrees == k)
        variable = np.argmax(basis.exponents[new] > 0, axis=1)
        count = basis.exponents[new, variable]
        parent = basis.down[variable, new]
        grand = basis.down[variable, parent]
        parents = take_rows(columns.T, parent).T
        slopes = take_rows(factor, variable)  # (m, q)
        total = parents * take_rows(place, variable)
        for j in range(own.variables):
            total = total + slopes[:, j] * (own.raised(parents, j) + own.lowered(parents, j))
        # Without he_{a_i - 2} its weight is zero, and any column will do.
        earlier = take_rows(columns.T, np.where(grand < columns.shape[1], grand, 0)).T
        total = total - earlier * constant(np.sqrt(count - 1.0), place)
        columns = xp.concat([columns, total / constant(np.sqrt(count), place)], axis=1)
    return columns


def exchanged(values: Array, matrices: Sequence[np.ndarray], own: Ladder) -> Array:
    """Coefficients (t, o) in products of other polynomials q_k of each variable, where p_k = sum_j M[k, j] q_j, j <= k.

    The coefficients given are those of the products of the p_k, one matrix M for each variable.
    """
    xp, t = namespace(values=values), len(own.exponents)
    for variable, matrix in enumerate(matrices):
        powers, total = own.exponents[:, variable], values * 0
        up, place = np.append(own.up[variable], t), np.arange(t)
        for step in range(len(matrix)):  # products whose exponent of this variable is so much higher
            reached = np.flatnonzero(place < t)
            factors = np.zeros(t)
            factors[reached] = matrix[powers[reached] + step, powers[reached]]
            padded = xp.concat([values, values[:1, ...] * 0])
            total = total + constant(factors[:, None], values) * take_rows(padded, place)
            place = up[place]
        values = total
    return values


def conditioned(values: Array, mix: Array, own: Ladder) -> Array:
    """Coefficients (t, o) of E[p | w'] in the products he_b(w'), of p given in those of w, where E[w | w'] = mix w'.

    Each degree stays by itself: a conditional mean replaces every factor of a Wick product by its own.
    """
    degrees = own.degrees
    columns, first = own.constant_row(values), 0
    total = columns @ values[:1, :]
    for k in range(1, int(degrees.max(initial=0)) + 1):
        new = np.flatnonzero(degrees == k)
        variable = np.argmax(own.exponents[new] > 0, axis=1)
        parents = take_rows(columns.T, own.down[variable, new] - first).T
        slopes = take_rows(mix, variable)
        columns = sum(slopes[:, j] * own.raised(parents, j) for j in range(own.variables))
        columns = columns / constant(np.sqrt(own.exponents[new, variable]), values)
        total, first = total + columns @ take_rows(values, new), int(new[0])
    return total


def project_units(units: Units, series: Series, back: Array, own: Ladder) -> Array:
    """Coefficients (t, h) of hidden units under N(mean, back back') in the products he_b(w).

    For a unit vector a, he_k(a.w) = sum over |b| = k of sqrt(k!/b!) a^b he_b(w); e = q.w with q orthogonal to a
    multiplies it by the raising part alone.
    """
    xp, highest = namespace(back=back), int(own.degrees.max(initial=0))
    t = (units.directions @ back) * units.inverse_scales[:, None]
    # Rows sqrt(k!/b!) a^b for every multi-index b and every unit with a = t_i, (t, h), degree by degree.
    powers = constant(np.ones((1, t.shape[0])), t)
    for k in range(1, highest + 1):
        new = np.flatnonzero(own.degrees == k)
        variable = np.argmax(own.exponents[new] > 0, axis=1)
        scale = constant(np.sqrt(k / own.exponents[new, variable])[:, None], t)
        parents = take_rows(powers, own.down[variable, new])
        powers = xp.concat([powers, parents * take_rows(t.T, variable) * scale])
    series = series.padded(max(highest, series.degree), series.gated is not None)
    hidden = powers * take_rows(series.plain, own.degrees)
    if units.gate is None or series.gated is None:
        return hidden
    q = units.gate.directions @ back - units.gate.slopes[:, None] * t
    mixed = powers * 0
    for j in range(own.variables):
        mixed = mixed + q[:, j] * own.raised(powers, j)
    return hidden + mixed * take_rows(xp.concat([series.gated[:1, ...] * 0, series.gated]), own.degrees)
