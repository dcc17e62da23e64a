"""What some of the inputs say about the others, under a Gaussian; its covariance may be singular (MATH 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.arrays import (
    Array,
    constant,
    namespace,
    readable,
    rounding_error,
    safe_inverse,
    take_rows,
    to_numpy,
    triangular_factor,
    widen,
)

if TYPE_CHECKING:
    from mlpoly.inputs.gaussian import Gaussian
    from mlpoly.inputs.interface import Inputs

__all__ = ["Given", "check_possible", "chosen_names", "input_places", "known_inputs", "posterior"]


class Given:
    """A Gaussian split into the known inputs x_S and the others; in float64 where the library has it.

    Attributes
    ----------
    places, others : integer array (s,), (d - s,)
        Positions of the inputs that are known, and of those that are not.
    factor : array (d, r)
        A with A A' = P_S, the covariance of E[x | x_S]: x_S tells E[x | x_S] = mean + A w, w standard normal.
    """

    def __init__(self, inputs: Gaussian, places: np.ndarray) -> None:
        self.places = np.asarray(places, dtype=np.int64)
        self.others = np.setdiff1d(np.arange(inputs.dim), self.places)
        self.center, self.covariance = widen(inputs.mean), widen(inputs.covariance)
        xp = namespace(mean=self.center)
        rows = take_rows(self.covariance, self.places)  # (s, d)
        inner = take_rows(rows.T, self.places).T
        self.scale = scale = safe_inverse(xp.sqrt(xp.linalg.diagonal(inner)))
        values, vectors = xp.linalg.eigh(0.5 * (inner + inner.T) * scale * scale[:, None])
        # The covariance is known to the precision of its dtype: directions below that do not vary.
        floor = 10 * rounding_error(inputs.mean) * max(len(places), 1)
        keep = np.flatnonzero(to_numpy(values) > floor)
        self.values, vectors = take_rows(values, keep), take_rows(vectors.T, keep).T
        # w = whitener (x_S - mean_S)
        self.whitener = (vectors * scale[:, None]).T * (1 / xp.sqrt(self.values))[:, None]
        self.support = vectors @ vectors.T
        self.factor = rows.T @ self.whitener.T

    def coordinates(self, known: Array) -> Array:
        """The w (n, r) of values x_S (n, s)."""
        return (widen(known) - take_rows(self.center, self.places)) @ self.whitener.T

    def mean(self, known: Array) -> Array:
        """E[x | x_S] (n, d) of values x_S (n, s)."""
        return self.center + self.coordinates(known) @ self.factor.T

    @cached_property
    def left(self) -> Array:
        """Covariance of x given x_S, (d, d): zero for the known inputs."""
        xp = namespace(center=self.center)
        free = np.ones(len(to_numpy(self.center)))
        free[self.places] = 0.0
        mask = constant(free, self.center)
        left = self.covariance - self.factor @ self.factor.T
        # Rounding must not leave a negative variance, which would be a covariance no more.
        variance = xp.linalg.diagonal(self.covariance)
        tiny = 64 * rounding_error(self.center) * variance
        mask = mask * xp.astype(xp.linalg.diagonal(left) > tiny, mask.dtype)
        return 0.5 * (left + left.T) * mask * mask[:, None]

    def possible(self, known: Array) -> Array:
        """Whether values x_S (n, s) can occur: where x_S does not vary there is only one."""
        xp = namespace(known=known)
        gap = (widen(known) - take_rows(self.center, self.places)) * self.scale
        still = (self.scale == 0) & (
            xp.abs(widen(known) - take_rows(self.center, self.places))
            > 1e-6 * (1 + xp.abs(take_rows(self.center, self.places)))
        )
        beyond = gap - gap @ self.support
        tolerance = 1e-6 * (1 + xp.max(xp.abs(gap), axis=1, keepdims=True)) if len(self.places) else 1.0
        return ~xp.any(still | (xp.abs(beyond) > tolerance), axis=1)

    def log_density(self, known: Array) -> Array:
        """Logarithm of the density of values x_S (n, s), on the subspace in which x_S varies."""
        xp = namespace(known=known)
        w, count = self.coordinates(known), int(self.values.shape[0])
        if count == int(xp.count_nonzero(self.scale)):
            volume = xp.sum(xp.log(self.values)) / 2 - xp.sum(xp.log(xp.where(self.scale > 0, self.scale, 1.0)))
        else:  # inputs that determine one another vary in a subspace, whose volume is that of the columns of a factor
            factor = triangular_factor(take_rows(self.factor, self.places))
            volume = xp.sum(xp.log(xp.abs(xp.linalg.diagonal(factor))))
        return -xp.sum(w * w, axis=1) / 2 - volume - count * math.log(2 * math.pi) / 2


def posterior(weights: Array, given: Sequence[Given], known: Array) -> Array:
    """Weights (n, c) of the components of a mixture, given values x_S (n, s).

    A component that varies in fewer directions of x_S has an infinite density there: it alone counts where the values
    lie in its subspace.
    """
    xp = namespace(weights=weights)
    ranks = np.array([int(g.values.shape[0]) for g in given])
    logs = xp.stack([xp.log(weights[c]) + g.log_density(known) for c, g in enumerate(given)], axis=1)
    possible = xp.stack([g.possible(known) for g in given], axis=1) & (weights > 0)[None, :]
    if len(set(ranks.tolist())) > 1:
        rank = constant(np.asarray(ranks, dtype=float), weights)
        lowest = xp.min(xp.where(possible, rank, math.inf), axis=1, keepdims=True)
        possible = possible & (rank == lowest)
    top = xp.max(xp.where(possible, logs, -math.inf), axis=1, keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0.0)
    parts = xp.where(possible, xp.exp(xp.where(possible, logs - top, 0.0)), 0.0)
    total = xp.sum(parts, axis=1, keepdims=True)
    return parts / xp.where(total > 0, total, 1.0)


def check_possible(given: Given, values: Array) -> Array:
    """Return values (s,) of the known inputs, or raise if they cannot occur."""
    if readable(values) and len(given.places) and not bool(given.possible(values[None, :])[0]):
        still = np.flatnonzero(to_numpy(given.scale) == 0)
        why = "the known inputs determine one another; give values that occur together"
        if len(still):
            place = given.places[still[0]]
            why = f"input {place} does not vary; its only value is {to_numpy(given.center)[place]:.6g}"
        raise ValueError(f"known has values that cannot occur: {why}.")
    return values


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
