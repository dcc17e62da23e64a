"""What users pass for inputs by index or name: some of them, or the values of some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpoly.arrays import Array, constant, widen

if TYPE_CHECKING:
    from mlpoly.inputs.interface import Inputs


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
