"""A Gaussian when some inputs are set to values: the law of the others in a chain graph of ordered groups (MATH 17)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, namespace, take_rows, widen
from mlpoly.inputs.conditioning import Given, input_places
from mlpoly.inputs.gaussian import Gaussian
from mlpoly.records import trusted


class ChainGraph:
    """Groups of inputs in causal order; in each a common cause ("confounded"), or its members influence one another.

    Members of a group that are not set follow their law given all earlier groups as these now are, and given the
    members of their own group that are set, unless it is confounded.
    """

    def __init__(self, inputs: Gaussian, order: Any, confounded: Any) -> None:
        self.inputs = inputs
        self.order = [input_places("causal", group, inputs) for group in order]
        listed = np.concatenate(self.order) if self.order else np.zeros(0, dtype=np.int64)
        if len(np.unique(listed)) < len(listed) or len(listed) != inputs.dim:
            raise ValueError(
                f"causal must list every one of the {inputs.dim} inputs in one group, got {len(listed)} places for "
                f"{len(np.unique(listed))} inputs; put those without an order into one group."
            )
        flags: Sequence[bool] = [confounded] * len(self.order) if isinstance(confounded, bool) else list(confounded)
        if len(flags) != len(self.order) or not all(isinstance(flag, bool | np.bool_) for flag in flags):
            raise ValueError(f"confounding must be True, False, or one of them for each of {len(self.order)} groups.")
        self.confounded = flags

    def __str__(self) -> str:
        names = self.inputs.names or [f"x{i}" for i in range(self.inputs.dim)]
        groups = [" and ".join(names[i] for i in group.tolist()) for group in self.order]
        marks = [" (confounded)" if flag else "" for flag in self.confounded]
        return "causal order: " + ", then ".join(group + mark for group, mark in zip(groups, marks, strict=True))

    def given(self, places: np.ndarray, point: Array) -> Gaussian:
        """The law of all inputs when those at `places` are set to their values in `point` (d,)."""
        mean, covariance = widen(self.inputs.mean), widen(self.inputs.covariance)
        full = trusted(Gaussian, mean=mean, cov=covariance)
        xp, chosen = namespace(mean=mean), set(places.tolist())
        where: list[int] = []  # the inputs so far, with their mean m and covariance C
        m, C = mean[:0], covariance[:0, :0]
        for group, confounded in zip(self.order, self.confounded, strict=True):
            fixed, free = ([i for i in group.tolist() if (i in chosen) == inside] for inside in (True, False))
            fixed_at, free_at = np.asarray(fixed, dtype=np.int64), np.asarray(free, dtype=np.int64)
            known = np.asarray([*where, *([] if confounded else fixed)], dtype=np.int64)
            values = m if confounded else xp.concat([m, take_rows(point, fixed_at)])
            law = Given(full, known)
            weights = law.factor @ law.whitener if len(known) else covariance[:, :0]  # regression (d, k) on the known
            rows = take_rows(weights, free_at)
            average = take_rows(mean, free_at) + rows @ (values - take_rows(mean, known))
            own = rows[:, : len(where)]
            cross = own @ C
            left = take_rows(take_rows(law.left, free_at).T, free_at)
            C = _bordered(C, cross, cross @ own.T + left)
            size, more = int(C.shape[0]), len(fixed)
            C = _bordered(C, covariance[:more, :size] * 0, covariance[:more, :more] * 0)
            m = xp.concat([m, average, take_rows(point, fixed_at)])
            where = [*where, *free, *fixed]
        back = np.argsort(where)
        C = take_rows(take_rows(0.5 * (C + C.T), back).T, back)
        return trusted(Gaussian, mean=take_rows(m, back), cov=C)


def _bordered(inner: Array, side: Array, corner: Array) -> Array:
    """The matrix [[inner, side'], [side, corner]]."""
    xp = namespace(inner=inner)
    return xp.concat([xp.concat([inner, side.T], axis=1), xp.concat([side, corner], axis=1)])
