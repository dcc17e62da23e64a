"""Units for learning rates, from the Gauss-Newton matrix of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpoly.fitting.tuning.trainable import Tensor, Trainable

_ITERATIONS = 10  # of the power method, and draws of random signs: either result is needed only to a few per cent


def curvature_units(jacobian: Jacobian) -> list[float]:
    """1 / curvature for each group of parameters, such that one step of that size in all of them does not overshoot.

    The largest eigenvalue of J'J / n on a batch bounds the step. If features outnumber the samples of a batch, it
    exceeds the expected one by just the sampling noise that a step has to tolerate.
    """
    groups = range(len(jacobian.parameters))
    own = [jacobian.largest([float(i == j) for j in groups]) for i in groups]
    joint = jacobian.largest([v**-0.5 if v > 0 else 0.0 for v in own])
    return [1 / (v * joint) if v > 0 else 0.0 for v in own]


def spread_units(jacobian: Jacobian) -> list[float]:
    """For each group, the change of all its parameters that moves the values by about one, with signs at random."""
    return [1 / size if size > 0 else 0.0 for size in jacobian.row_norms()]


class Jacobian:
    """Products with the derivative J of the values (n, o) in the parameters, by differentiating twice.

    Parameters
    ----------
    coordinates : tensor
        Coordinates of a batch, as for `Trainable.evaluate`.
    """

    def __init__(self, torch: Any, problem: Trainable, coordinates: Tensor, seed: int) -> None:
        self.torch = torch
        chosen = [p[:1] if problem.separate else p for p in problem.parameters]
        self.parameters = [p.detach().requires_grad_() for p in chosen]
        self.values = problem.evaluate(self.parameters, coordinates)
        self.probe = torch.zeros_like(self.values, requires_grad=True)
        self.pulled = torch.autograd.grad(self.values, self.parameters, self.probe, create_graph=True)
        self.rng = np.random.default_rng(seed)

    def transposed(self, u: Tensor) -> Sequence[Tensor]:
        """J'u for u (n, o), one tensor per group."""
        image: Sequence[Tensor] = self.torch.autograd.grad(self.values, self.parameters, u, retain_graph=True)
        return image

    def forward(self, v: Sequence[Tensor]) -> Tensor:
        """J v: the derivative of J'u, which is linear in u."""
        return self.torch.autograd.grad(self.pulled, self.probe, v, retain_graph=True)[0]

    def largest(self, scales: Sequence[float]) -> float:
        """Largest eigenvalue of D J'J D / n, with D = scales on each group, by the power method."""
        v = [s * self._noise(p) for s, p in zip(scales, self.parameters, strict=True)]
        value = 0.0
        for _ in range(_ITERATIONS):
            size = _norm(v)
            if not size > 0:
                return 0.0
            image = self.transposed(self.forward([s * a / size for s, a in zip(scales, v, strict=True)]))
            v = [s * a / len(self.values) for s, a in zip(scales, image, strict=True)]
            value = _norm(v)
        return value

    def row_norms(self) -> list[float]:
        """Root mean square norm of the rows of J, for each group: E |J'u|^2 = |J|^2 for random signs u."""
        squares = np.zeros(len(self.parameters))
        for _ in range(_ITERATIONS):
            image = self.transposed(self._noise(self.values).sign())
            squares += [_norm([a]) ** 2 for a in image]
        return [math.sqrt(s / (_ITERATIONS * self.values.numel())) for s in squares]

    def _noise(self, like: Tensor) -> Tensor:
        return self.torch.tensor(self.rng.standard_normal(tuple(like.shape))).to(like)


def _norm(parts: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(a.square().sum()) for a in parts))
