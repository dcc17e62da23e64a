"""The fit of one block: under its moments, or to the inputs that pass by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from torch import Tensor

from mlpoly.fitting import fit
from mlpoly.fitting.sample_fit import SampleFit
from mlpoly.integrations.blocks import Block
from mlpoly.lm.moments.block_moments import Moments
from mlpoly.polynomials import Polynomial

__all__ = ["Fitter", "Method", "Task", "check_method"]

Method = Literal["gaussian", "neuronwise", "samples"]


def check_method(method: Method) -> None:
    """Raise unless it is one that is there."""
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(map(repr, get_args(Method)))}, got {method!r}.")


class Task(NamedTuple):
    """The fit of one block.

    Attributes
    ----------
    add : callable
        Looks at inputs (n, d).
    polynomial : callable
        Gives what came of it.
    """

    add: Callable[[Tensor], Any]
    polynomial: Callable[[], Polynomial]


@dataclass(frozen=True)
class Fitter:
    """What is the same for all blocks; see `mlpoly.lm.convert`."""

    moments: Moments
    degree: int
    method: Method
    bound: float | None
    shrinkage: float | str

    def describe(self) -> dict[str, Any]:
        """For provenance."""
        return {name: getattr(self, name) for name in ("method", "degree", "bound", "shrinkage")}

    def task(self, block: Block) -> Task:
        """The fit of a block, not yet begun."""
        net = block.net()

        def closed() -> Any:
            inputs = self.inputs(block.name, net.prototype)
            poly: Any = fit(net, inputs, self.degree, method="neuronwise" if self.method == "neuronwise" else "exact")
            return poly if self.bound is None else poly.bounded(self.bound)

        if self.method == "samples":
            samples = SampleFit(net, closed())
            return Task(samples.update, samples.polynomial)
        return Task(lambda _: None, closed)

    def inputs(self, name: str, like: Tensor) -> Any:
        """What the polynomial of a block is fitted under."""
        if self.method == "neuronwise":
            return self.moments.mixture(name, self.shrinkage, like)
        return self.moments.gaussian(name, self.shrinkage, like)
