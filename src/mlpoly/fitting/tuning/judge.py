"""Conversion between the caller's array library and torch, and the error on held-out samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mlpoly.arrays import Array, chunks, on, to_numpy
from mlpoly.fitting.tuning.trainable import Tensor
from mlpoly.networks import Layer
from mlpoly.scores import ErrorSums
from mlpoly.scores.classifiers import divergences
from mlpoly.scores.means import estimate

_ROWS = 4096  # samples evaluated at a time


class Bridge:
    """Arrays into torch for the training, and back to the caller's library, dtype and device.

    The network is evaluated in its own library: its activation may be a user's function for that library.
    """

    def __init__(self, torch: Any, net: Layer, like: Array) -> None:
        self.torch, self.net, self.like = torch, net, like
        self.native = isinstance(like, torch.Tensor)
        # Scales are computed in float64, which Apple's GPUs do not have.
        elsewhere = not self.native or like.device.type == "mps"
        self.device = torch.device("cpu") if elsewhere else like.device
        self.given = like.dtype if self.native else getattr(torch, str(like.dtype))
        self.dtype = torch.promote_types(self.given, torch.float32)
        self.place = torch.zeros(1, dtype=self.dtype, device=self.device)

    def inward(self, a: Array) -> Tensor:
        """Any array as a tensor to train with."""
        tensor = a.detach() if isinstance(a, self.torch.Tensor) else self.torch.tensor(to_numpy(a))
        return tensor.to(self.device, self.dtype)

    def samples(self, a: Array) -> Tensor:
        """Samples, rounded to the caller's precision, so that network and polynomial see the same numbers."""
        return self.inward(a).to(self.given).to(self.dtype)

    def outward(self, tensor: Tensor) -> Array:
        """A tensor in the caller's library, dtype and device."""
        return tensor.detach().to(self.like.dtype).to(self.like.device) if self.native else on(tensor, self.like)

    def apply(self, function: Callable[[Array], Array], x: Tensor) -> Tensor:
        """Values of the caller's network or polynomial at x (n, d), without a gradient."""
        with self.torch.no_grad():
            parts = [x[rows] for rows in chunks(len(x), _ROWS)]
            given = [p.to(self.like.device) if self.native else on(p, self.like) for p in parts]
            return self.torch.cat([self.inward(function(p)) for p in given])


class Judge:
    """The held-out samples, and the error of a polynomial on them.

    Parameters
    ----------
    samples : array (n, d)
    loss : {"mse", "kl"}
        Score: fraction of variance unexplained, or divergence in nats.
    """

    def __init__(self, bridge: Bridge, samples: Array, loss: str) -> None:
        self.torch, self.loss = bridge.torch, loss
        self.x = bridge.samples(samples)
        self.target = bridge.apply(bridge.net, self.x)
        self.variance = float(ErrorSums(standard_error=False).update(self.target, self.target).variance.sum())
        if not self.variance > 0:
            raise ValueError(
                "the network is constant on the held-out samples, so there is nothing to explain; "
                "use inputs on which it varies."
            )

    @property
    def spread(self) -> float:
        """Root mean square deviation of an output."""
        return math.sqrt(self.variance / self.target.shape[1])

    def fvu(self, values: Tensor) -> float:
        """Fraction of variance unexplained; infinite where a value is not finite."""
        return _finite(self._squares(values))

    def kl(self, values: Tensor) -> float:
        """Mean divergence of softmax values (n, o) from the softmax of the network, in nats."""
        return _finite(divergences(self.target, values))

    def score(self, values: Tensor) -> float:
        """The quantity to minimise: `kl` or `fvu`."""
        return _finite(self._each(values))

    def gain(self, before: Tensor, after: Tensor) -> tuple[float, float]:
        """Decrease of the score, and its standard error."""
        fall = self._each(before) - self._each(after)
        found = estimate(fall, fall)
        return float(found.mean), float(found.standard_error)

    def evaluate(self, function: Callable[[Tensor], Tensor]) -> float:
        """Score of a function of the tensors used in training."""
        with self.torch.no_grad():
            return self.score(self.torch.cat([function(self.x[rows]) for rows in chunks(len(self.x), _ROWS)]))

    def _each(self, values: Tensor) -> Tensor:
        return divergences(self.target, values) if self.loss == "kl" else self._squares(values)

    def _squares(self, values: Tensor) -> Tensor:
        return (values.double() - self.target).square().sum(1) / self.variance


def _finite(each: Tensor) -> float:
    value = float(each.mean())
    return value if math.isfinite(value) else math.inf
