"""Shapley values of games: what every player adds, on average over all orders in which the players join."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_integer, namespace, safe_root
from mlpoly.inputs import Inputs, input_places

ENUMERATED = 12  # players up to which all subsets are used; above, orders are drawn
_PERMUTATIONS = 64

Worth = Callable[[tuple[int, ...]], Array]  # of a set of players, in ascending order, (o,)


def counted(worth: Worth, update: Callable[[int, str], Any]) -> Callable[[Sequence[int]], Array]:
    """A game whose evaluations are kept, and move a progress bar."""
    worths: dict[tuple[int, ...], Array] = {}

    def kept(chosen: Sequence[int]) -> Array:
        key = tuple(sorted(chosen))
        if key not in worths:
            worths[key] = worth(key)
            update(len(worths), "")
        return worths[key]

    return kept


def drawn_orders(count: int, permutations: int | None) -> int:
    """Number of orders that are drawn; zero where all subsets are used."""
    if permutations is None:
        return _PERMUTATIONS if count > ENUMERATED else 0
    number = as_integer("permutations", permutations, 2)
    if number % 2 or number < 4:
        why = "as every order is used in both directions"
        raise ValueError(f"permutations must be even, {why}, and at least 4 for a standard error; got {number}.")
    return number


def sets_needed(count: int, permutations: int | None, pairs: bool = False) -> int:
    """About how many sets are evaluated."""
    drawn = drawn_orders(count, permutations)
    return 2**count if not drawn else min(2**count, drawn * (count - 1) + 2 * count + pairs * count**2 // 2)


def shapley_values(worth: Callable[[Sequence[int]], Array], count: int, permutations: int | None, seed: int) -> Any:
    """Shapley values (g, o) of a game, and their standard errors where orders were drawn, else None."""
    drawn = drawn_orders(count, permutations)
    xp = namespace(worth=worth(()))
    if not drawn:
        total = [worth(()) * 0 for _ in range(count)]
        for i in range(count):
            others = [j for j in range(count) if j != i]
            for size in range(count):
                weight = 1 / (count * math.comb(count - 1, size))
                for chosen in itertools.combinations(others, size):
                    total[i] = total[i] + weight * (worth((*chosen, i)) - worth(chosen))
        return xp.stack(total), None
    growths, rng = [], np.random.default_rng(seed)
    for _ in range(drawn // 2):
        forward = rng.permutation(count).tolist()
        both = [_growth(worth, order) for order in (forward, forward[::-1])]  # in both directions: errors partly cancel
        growths.append((both[0] + both[1]) / 2)
    samples = xp.stack(growths)  # (draws / 2, g, o)
    mean = xp.mean(samples, axis=0)
    return mean, xp.sqrt(xp.sum((samples - mean) ** 2, axis=0) / (len(growths) * (len(growths) - 1)))


def _growth(worth: Callable[[Sequence[int]], Array], order: list[int]) -> Array:
    """How much the worth grows when each group joins those before it, (g, o)."""
    worths = [worth(order[:k]) for k in range(len(order) + 1)]
    growth = {player: after - before for player, before, after in zip(order, worths, worths[1:], strict=False)}
    return namespace(worth=worths[0]).stack([growth[i] for i in range(len(order))])


def averaged(values: Array, outputs: int, factor: float, more: Array | None = None) -> tuple[Array, Array]:
    """Means and standard errors (..., o) of values (..., r o) by replicates; `more` are other errors of each."""

    def split(a: Array) -> Array:
        return xp.reshape(a, (*a.shape[:-1], -1, outputs))

    xp = namespace(values=values)
    error = xp.std(split(values), axis=-2) * factor
    if more is not None:
        error = safe_root(error**2 + xp.mean(split(more) ** 2, axis=-2))
    return xp.mean(split(values), axis=-2), error


def input_groups(groups: Any, inputs: Inputs) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Names of the groups, and positions of their inputs."""
    labels = inputs.names or tuple(f"x{i}" for i in range(inputs.dim))
    if groups is None:
        return labels, [np.array([i]) for i in range(inputs.dim)]
    if not isinstance(groups, Mapping | Sequence | np.ndarray) or isinstance(groups, str):
        raise TypeError(f"groups must be a sequence of groups of inputs, such as [[0, 1], [2]], got {groups!r:.60}.")
    named = dict(groups) if isinstance(groups, Mapping) else None
    listed = list(named.values()) if named is not None else list(groups)
    if not listed:
        raise ValueError("groups is empty; leave it out to have every input as a group.")
    places = [input_places("groups", group, inputs) for group in listed]
    if any(len(place) == 0 for place in places):
        raise ValueError("groups has an empty group; every group needs an input.")
    owner: dict[int, int] = {}
    for number, place in enumerate(places):
        for i in place.tolist():
            if i in owner:
                raise ValueError(f"groups {owner[i]} and {number} both have input {i}; an input belongs to one group.")
            owner[i] = number
    names = list(named) if named is not None else [" + ".join(labels[i] for i in place.tolist()) for place in places]
    rest = np.setdiff1d(np.arange(inputs.dim), np.concatenate(places))
    if len(rest):
        names, places = [*names, "others"], [*places, rest]
    names = list(map(str, names))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        why = ", which is that of all inputs in no group" if len(rest) and twice == names[-1] else ""
        raise ValueError(f"groups has two groups of the name {twice!r}{why}; give one of them another name.")
    return tuple(names), places
