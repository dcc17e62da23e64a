"""A Gaussian given some of its inputs, which users name by index or name; its covariance may be singular (MATH 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.arrays import Array, device, namespace_of, no_gradients, readable, safe_inverse, triangular_factor
from mlpoly.arrays.placement import constant, constant_index, eye, rounding_error, take_rows, to_numpy, widen
from mlpoly.inputs.coordinates import principal_axes, rounding_floor

if TYPE_CHECKING:
    from mlpoly.inputs.gaussian import Gaussian
    from mlpoly.inputs.interface import Inputs


class Given:
    """A Gaussian split into the known inputs x_S and the others; in float64 where the library has it.

    Positions of the known inputs are `places` (s,), of the others `others`. `whitener` (r, s) makes
    w = whitener (x_S - mean_S) standard normal, in the `rank` r directions in which x_S varies. Where the covariance is
    diagonal, so is everything here, `whitener` too, (s,): no matrix of size d is made.
    """

    def __init__(self, inputs: Gaussian, places: np.ndarray) -> None:
        self.places = np.asarray(places, dtype=np.int64)
        self.others = np.setdiff1d(np.arange(inputs.dim), self.places)
        self.center, self._count = widen(inputs.mean), inputs.dim
        self.middle = take_rows(self.center, self.places)
        xp = namespace_of(self.center)
        # The covariance is known to the precision of its dtype: directions below that do not vary.
        floor = rounding_floor(inputs.mean, self.center, max(len(places), 1))
        self.slack = max(10 * math.sqrt(floor), 1e-6)  # standard deviations that may be hidden in these directions
        cov = xp.ones_like(self.center) if inputs.cov is None else widen(inputs.cov)
        self.covariance, self.diagonal = cov, len(cov.shape) == 1
        if self.diagonal:
            self.scale = self.whitener = safe_inverse(xp.sqrt(take_rows(cov, self.places)))
            self.rank, self.volume = int(xp.count_nonzero(self.scale)), -_log_sum(self.scale)
            return
        rows = take_rows(cov, self.places)  # (s, d)
        inner = take_rows(rows.T, self.places).T
        self.scale = scale = safe_inverse(xp.sqrt(xp.linalg.diagonal(inner)))
        axes = principal_axes(inner, inputs.mean)
        self.whitener, self.rank = axes.forward, int(axes.values.shape[0])
        self.support = axes.vectors @ axes.vectors.T
        self.factor = rows.T @ self.whitener.T
        if self.rank == int(xp.count_nonzero(scale)):
            self.volume = xp.sum(xp.log(axes.values)) / 2 - _log_sum(scale)
        else:  # inputs that determine one another vary in a subspace, whose volume is that of the columns of a factor
            factor = triangular_factor(take_rows(self.factor, self.places))
            self.volume = _log_sum(xp.abs(xp.linalg.diagonal(factor)))

    @cached_property
    def factor(self) -> Array:
        """A (d, r) with A A' = P_S, the covariance of E[x | x_S]: E[x | x_S] = mean + A w, w standard normal."""
        xp = namespace_of(self.center)
        spreads = take_rows(xp.sqrt(self.covariance), self.places)
        return self._placed(spreads * eye(len(self.places), spreads)).T

    def _placed(self, known: Array) -> Array:
        """Values (n, s) of the known inputs among zeros for all others, (n, d)."""
        xp, index = namespace_of(known), np.full(self._count, len(self.places))
        index[self.places] = np.arange(len(self.places))
        padded = xp.concat([known, xp.zeros((known.shape[0], 1), dtype=known.dtype, device=device(known))], axis=1)
        return take_rows(padded.T, index).T

    def coordinates(self, known: Array, size: Any = 1.0) -> Array:
        """The w (n, r) of values x_S (n, s), over a `size` (n, 1)."""
        u = widen(known) / size - self.middle / size
        return u * self.whitener if self.diagonal else u @ self.whitener.T

    def explained(self, rows: Array) -> Array:
        """Products (m, d) of rows (m, d) with P_S, the covariance of E[x | x_S]."""
        if not self.diagonal:
            return (rows @ self.factor) @ self.factor.T
        known = np.zeros(self._count)
        known[self.places] = 1.0
        return rows * (self.covariance * constant(known, self.center))

    def mean(self, known: Array) -> Array:
        """E[x | x_S] (n, d) of values x_S (n, s)."""
        if not self.diagonal:
            return self.center + self.coordinates(known) @ self.factor.T
        moved = namespace_of(self.scale).where(self.scale > 0, widen(known) - self.middle, 0.0)
        return self.center + self._placed(moved)

    @cached_property
    def left(self) -> Array:
        """Covariance of x given x_S, (d, d) or its diagonal (d,): zero for the known inputs."""
        xp = namespace_of(self.center)
        free = np.ones(self._count)
        free[self.places] = 0.0
        mask = constant(free, self.center)
        if self.diagonal:
            return self.covariance * mask
        left = self.covariance - self.factor @ self.factor.T
        # Rounding must not leave a negative variance: that would not be a covariance.
        variance = xp.linalg.diagonal(self.covariance)
        tiny = 64 * rounding_error(self.center) * variance
        mask = mask * xp.astype(xp.linalg.diagonal(left) > tiny, mask.dtype)
        return 0.5 * (left + left.T) * mask * mask[:, None]

    def possible(self, known: Array) -> Array:
        """Whether values x_S (n, s) can occur: where x_S does not vary there is only one."""
        xp, u = namespace_of(known), widen(known) - self.middle
        still = (self.scale == 0) & (xp.abs(u) > 1e-6 * (1 + xp.abs(self.middle)))
        if self.diagonal or not len(self.places):
            return ~xp.any(still, axis=1)
        gap = u * self.scale
        beyond = gap - gap @ self.support
        tolerance = self.slack * (1 + xp.max(xp.abs(gap), axis=1, keepdims=True))
        return ~xp.any(still | (xp.abs(beyond) > tolerance), axis=1)


def _log_sum(a: Array) -> Array:
    """Sum of the logarithms of all positive entries."""
    xp = namespace_of(a)
    return xp.sum(xp.log(xp.where(a > 0, a, 1.0)))


def posterior(weights: Array, given: Sequence[Given], known: Array) -> Array:
    """Weights (n, c) of the components of a mixture, given values x_S (n, s).

    A component that varies in fewer directions of x_S has an infinite density there: it alone counts where the values
    lie in its subspace. Far out the squares |w_c|^2 leave the range of floats, and long before that their differences
    are rounding. So they are computed over the size of the values, and between components with the same covariance of
    x_S, where they are linear in x_S, from w_c - w_b = whitener (mean_b - mean_c).
    """
    xp, known = namespace_of(weights), widen(known)
    if not known.shape[1]:
        return xp.broadcast_to(weights, (known.shape[0], len(given))) + 0
    possible = xp.stack([g.possible(known) for g in given], axis=1) & (weights > 0)[None, :]
    ranks = [g.rank for g in given]
    if len(set(ranks)) > 1:
        rank = constant(np.asarray(ranks, dtype=float), weights)
        lowest = xp.min(xp.where(possible, rank, math.inf), axis=1, keepdims=True)
        possible = possible & (rank == lowest)
    with no_gradients(known):
        size = xp.max(xp.abs(known), axis=1, keepdims=True)
        size = xp.where(size > float(xp.finfo(known.dtype).max) ** 0.25, size, 1.0)
    w = [g.coordinates(known, size) for g in given]
    squares, beyond = [], []  # |w_c|^2 = size^2 square + size beyond
    alike: dict[tuple[Any, ...], int] = {}
    for c, g in enumerate(given):
        b = alike.setdefault((g.diagonal, to_numpy(g.whitener).tobytes()), c)
        step = (given[b].middle - g.middle) * g.whitener if g.diagonal else g.whitener @ (given[b].middle - g.middle)
        squares.append(xp.sum(w[b] ** 2, axis=1))
        beyond.append(xp.sum(step * (w[c] + w[b]), axis=1))
    order = constant_index(np.arange(len(given)), weights)
    level = xp.log(xp.where(weights > 0, weights, 1.0)) - xp.stack([g.volume for g in given])
    terms = (level[None, :], xp.stack(squares, axis=1), xp.stack(beyond, axis=1))

    def against(best: Array) -> Array:
        """Logarithms (n, c) of the weights over that of one component for each row, (n,)."""
        mine = best[:, None] == order[None, :]
        level, square, beyond = (a - xp.sum(xp.where(mine, a, 0.0), axis=1, keepdims=True) for a in terms)
        with np.errstate(over="ignore"):
            return xp.where(possible, level - size * (size * square + beyond) / 2, -math.inf)

    nearest = xp.argmin(xp.where(possible, terms[1], math.inf), axis=1)
    logs = against(xp.argmax(against(nearest), axis=1))
    parts = xp.where(possible, xp.exp(xp.where(possible, logs, 0.0)), 0.0)
    total = xp.sum(parts, axis=1, keepdims=True)
    return parts / xp.where(total > 0, total, 1.0)


def check_possible(name: str, given: Sequence[Given], values: Array) -> None:
    """Raise if values (n, s) of the known inputs cannot occur under any of some Gaussians."""
    if not readable(values) or any(g.rank == len(g.places) for g in given):
        return
    xp = namespace_of(values)
    possible = xp.any(xp.stack([g.possible(values) for g in given]), axis=0)
    if bool(xp.all(possible)):
        return
    why = "no component of the mixture can have them; check them, or its covs"
    if len(given) == 1:
        why = "the known inputs determine one another; give values that occur together"
        (g,), row = given, to_numpy(values)[np.argmin(to_numpy(possible))]
        centers = to_numpy(g.center)[g.places]
        still = (to_numpy(g.scale) == 0) & (np.abs(row - centers) > 1e-6 * (1 + np.abs(centers)))
        if still.any():
            place = np.argmax(still)
            why = f"input {g.places[place]} does not vary; its only value is {centers[place]:.6g}"
    raise ValueError(f"{name} has values that cannot occur under these inputs: {why}.")


# -- what users pass for inputs by index or name ----------------------------------------------------------------------


def known_inputs(known: Any, inputs: Inputs) -> tuple[np.ndarray, Array]:
    """Positions (s,) and values (s,) of the inputs in a mapping from index or name to value."""
    if not isinstance(known, Mapping) or not known:
        raise TypeError(f"known must be a mapping from inputs to values, such as {{0: 1.5}}, got {known!r:.60}.")
    places = input_places("known", list(known), inputs)
    if len(places) == inputs.dim:
        raise ValueError(f"known has all {inputs.dim} inputs, so that no others are left; leave some out.")
    values = np.array([_number(place, value) for place, value in known.items()])
    if not np.isfinite(values).all():
        raise ValueError("known has values that are NaN or infinite; leave these inputs out.")
    return places, constant(values, widen(inputs.mean))


def _number(place: Any, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"known must have one number for each input, but for {place!r} it has {value!r:.60}.") from None


def input_places(name: str, chosen: Any, inputs: Inputs) -> np.ndarray:
    """Positions of inputs given by index or name; raise for those that do not exist or come twice."""
    if isinstance(chosen, str | int | np.integer):
        chosen = [chosen]
    names, places = inputs.names, []
    for each in chosen:
        if isinstance(each, str):
            if names is None or each not in names:
                known = f"; the names are {', '.join(names[:8])}" if names else ", which have no names; use indices"
                raise ValueError(f"{name} has {each!r}, which is no name of the inputs{known}.")
            places.append(names.index(each))
        elif isinstance(each, bool) or not isinstance(each, int | np.integer):
            raise TypeError(f"{name} must hold indices or names of inputs, got {each!r}.")
        elif not -inputs.dim <= each < inputs.dim:
            raise ValueError(f"{name} has the index {each}, but the inputs are numbered from 0 to {inputs.dim - 1}.")
        else:
            places.append(int(each) % inputs.dim)
    if len(set(places)) < len(places):
        twice = next(place for place in places if places.count(place) > 1)
        raise ValueError(f"{name} has input {twice} more than once.")
    return np.asarray(places, dtype=np.int64)


def chosen_names(names: tuple[str, ...] | None, places: np.ndarray) -> tuple[str, ...] | None:
    """Names of some of the inputs."""
    return None if names is None else tuple(names[i] for i in places.tolist())
