"""Telling the inputs of a block apart: ways to give each a component of the mixture."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from math import inf
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from mlpoly.lm.moments.fingerprint import function_fingerprint

__all__ = ["Components", "FirstToken", "Function", "NormOutliers", "as_components"]

Function = Callable[[Tensor, Tensor, Tensor], Tensor]


class Components:
    """One component for all inputs; the other ways are subclasses.

    Attributes
    ----------
    kind : str
        What provenance calls it; a pass is resumed, and moments are merged, only with the same.
    labels : dict of int to str
        What the components are, where that is known.
    calibrates : bool
        Whether `calibrate` wants to see the first batch before the pass.
    fingerprint : str or None
        Of a function of the user's, whose name does not tell what it does.
    """

    kind: str = "none"
    labels: dict[int, str] = {0: "all tokens"}  # noqa: RUF012 - subclasses replace it, nobody changes it
    calibrates: bool = False
    fingerprint: str | None = None

    def numbers(self, name: str, x: Tensor, positions: Tensor, tokens: Tensor) -> Tensor | None:
        """The component of each input (n,), or None if there is only one.

        Parameters
        ----------
        name : str
            Of the block.
        x : Tensor (n, d)
            Its inputs.
        positions, tokens : Tensor (n,)
            Of the tokens that they belong to: places in their sequences, and ids.
        """
        return None

    def calibrate(self, name: str, x: Tensor) -> None:
        """Look at a block's inputs (n, d) in the first batch."""

    @property
    def state(self) -> dict[str, float]:
        """What `calibrate` found, by block."""
        return {}

    @state.setter
    def state(self, found: dict[str, float]) -> None: ...

    def describe(self) -> dict[str, Any]:
        """For provenance."""
        return {"kind": self.kind, "labels": {str(number): label for number, label in self.labels.items()}}


class FirstToken(Components):
    """The first token of each sequence apart: attention sinks make its activations unlike all others."""

    kind = "first"
    labels = {0: "other tokens", 1: "first token of a sequence"}  # noqa: RUF012

    def numbers(self, name: str, x: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """1 for the first token that is no padding, else 0."""
        return (positions == 0).long()


class NormOutliers(Components):
    """Inputs of unusual length apart: above `factor` times the median length, or below the median over `factor`.

    The median is that of the first batch, and stays. Both sides are needed: behind a normalisation the tokens with
    massive activations, among them attention sinks that are not the first token, are the *short* ones (in SmolLM2-135M
    0.16 medians in the middle layers, 3.2 in the last), while the others stay between about 0.5 and 1.7.

    Parameters
    ----------
    factor : float
        Above 1. The default, 2, lies in the gap between these.
    """

    labels = {0: "usual", 1: "long", 2: "short"}  # noqa: RUF012
    calibrates = True

    def __init__(self, factor: float = 2.0) -> None:
        if isinstance(factor, bool) or not isinstance(factor, Real) or not 1 < float(factor) < inf:
            raise ValueError(f"factor must be a number above 1, got {factor!r}.")
        self.factor: float = float(factor)
        self._medians: dict[str, float] = {}

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The factor belongs to it."""
        return f"norm {self.factor:g}"

    def calibrate(self, name: str, x: Tensor) -> None:
        """Take the median length."""
        self._medians[name] = float(_lengths(x).median())

    @property
    def state(self) -> dict[str, float]:
        """Median lengths."""
        return dict(self._medians)

    @state.setter
    def state(self, found: dict[str, float]) -> None:
        self._medians = dict(found)

    def numbers(self, name: str, x: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """0 for usual, 1 for long, 2 for short inputs."""
        lengths, median = _lengths(x), self._medians[name]
        return (lengths > self.factor * median).long() + 2 * (lengths < median / self.factor).long()

    def describe(self) -> dict[str, Any]:
        """With the medians."""
        return super().describe() | {"medians": self.state}


class UserFunction(Components):
    """As a function of the user's says."""

    labels = {}  # noqa: RUF012

    def __init__(self, function: Function) -> None:
        self._function = function
        self.kind = f"function {getattr(function, '__qualname__', type(function).__qualname__)}"
        self.fingerprint = function_fingerprint(function)

    def numbers(self, name: str, x: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """What the function gives, checked."""
        found = torch.as_tensor(self._function(x, positions, tokens), device=x.device)
        if found.shape != x.shape[:1] or found.is_floating_point() or found.is_complex():
            raise ValueError(
                f"components gave {found.dtype} of shape {tuple(found.shape)} at {name!r}, expected one integer for "
                f"each of the {x.shape[0]} inputs."
            )
        return found.long()


def as_components(components: str | Components | Function) -> Components:
    """The way to tell inputs apart that an argument stands for."""
    named: dict[str, type[Components]] = {"none": Components, "first": FirstToken, "norm": NormOutliers}
    if isinstance(components, str) and components in named:
        return named[components]()
    if isinstance(components, Components):
        fresh = copy(components)  # what one model taught it must not be used for the next
        fresh.state = {}
        return fresh
    if callable(components) and not isinstance(components, type):
        return UserFunction(components)
    raise ValueError(
        f"components must be 'none', 'first', 'norm', mlpoly.lm.NormOutliers(factor) or a function "
        f"(x, positions, tokens) -> integers, got {components!r}."
    )


def _lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=1, dtype=torch.promote_types(x.dtype, torch.float32))
