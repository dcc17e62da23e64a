"""The polynomial of a block, fitted to the tokens that enter it, in two passes over them (MATH 13)."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlpoly.fitting.joint_features import Coefficients, features_of
from mlpoly.fitting.samples.joint import JointFit
from mlpoly.fitting.samples.neuronwise import SampleFit, best_of
from mlpoly.networks import Layer
from mlpoly.polynomials import Polynomial
from mlpoly.records import replace

_HELD = 5  # one token in so many is held out
_LEAST = 100  # tokens held out; fewer do not tell whether fitting together is better
_NUMBERS = 2**23  # values of features held at once
_SUMS = 2**28  # numbers in the sums of one pass, 2 GiB


class TokenFit:
    """First every neuron by itself, with the best of several bounds; then all neurons together."""

    def __init__(self, net: Layer, starts: Sequence[Any], coefficients: Coefficients) -> None:
        self._net, self._each = net, [SampleFit[Any](net, start) for start in starts]
        self._coefficients, self._random = coefficients, np.random.default_rng(0)
        widths = [1 + features.each.dim_out + net.dim_out for features in features_of(starts[0], coefficients)]
        self.numbers = 2 * sum(width**2 for width in widths)  # that the second pass holds
        self._rows = max(1, _NUMBERS // max(widths))

    def add(self, x: Tensor) -> None:
        """First pass: take inputs (n, d)."""
        for fit in self._each:
            fit.update(x)

    def settle(self) -> None:
        """Fit every neuron by itself, and prepare the second pass."""
        self._own, self._held, self._each = best_of(self._each).polynomial(), 0, []
        start = replace(self._own, inputs=None)
        self._together = [JointFit(self._net, features) for features in features_of(start, self._coefficients)]

    def add_together(self, x: Tensor) -> None:
        """Second pass: take inputs (n, d)."""
        held = torch.from_numpy(self._random.random(len(x)) < 1 / _HELD).to(x.device)
        self._held += int(held.sum())
        for which in (False, True):
            for rows in x[held == which].to(self._net.prototype.dtype).split(self._rows):
                for fit in self._together:
                    fit.add(rows, torch.ones_like(rows[:, :1], dtype=torch.float64), which)

    def polynomial(self) -> Polynomial:
        """Return what does best on the tokens held out, fitted to all of them."""
        own: Polynomial = self._own
        if not own.degree or self._held < _LEAST:
            return own
        best = min((fit.choose() for fit in self._together), key=lambda fit: fit.error)
        if not best.error < best.before:
            return own
        found: Polynomial = replace(best.polynomial(best.everything(), best.shrinkage), inputs=own.inputs)
        return found


def parts(fits: dict[str, TokenFit]) -> Iterator[list[str]]:
    """Divide blocks by name into parts whose sums fit into memory together; each takes one pass over the tokens."""
    part: list[str] = []
    for name, fit in fits.items():
        if part and fit.numbers + sum(fits[other].numbers for other in part) > _SUMS:
            yield part
            part = []
        part.append(name)
    yield part
