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
from mlpoly.lm.moments.row_sums import RowSums
from mlpoly.networks import Layer
from mlpoly.polynomials import Polynomial

__all__ = ["Fitter", "Method", "Parts", "Task", "check_method"]

Method = Literal["gaussian", "neuronwise", "components", "samples"]

Parts = dict[int, Polynomial]  # by component; {0: the only one} if there is one for all


def check_method(method: Method, sequential: bool) -> None:
    """Raise unless it is one that is there, and goes with `sequential`."""
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(map(repr, get_args(Method)))}, got {method!r}.")
    if sequential and method in ("neuronwise", "components"):
        raise ValueError("sequential=True does not tell components apart; use method='gaussian' or method='samples'.")


class Task(NamedTuple):
    """The fit of one block.

    Attributes
    ----------
    add : callable
        Looks at inputs (n, d).
    polynomials : callable
        Gives what came of it; the polynomial of most tokens comes first.
    """

    add: Callable[[Tensor], Any]
    polynomials: Callable[[], Parts]


@dataclass(frozen=True)
class Fitter:
    """What is the same for all blocks; see `mlpoly.lm.convert`."""

    moments: Moments
    degree: int
    method: Method
    bound: float | None
    sequential: bool
    shrinkage: float | str

    def describe(self) -> dict[str, Any]:
        """For provenance."""
        names = ("method", "degree", "bound", "sequential", "shrinkage")
        return {name: getattr(self, name) for name in names}

    def task(self, block: Block) -> Task:
        """The fit of a block, not yet begun."""
        net = block.net()
        if self.method == "gaussian" and self.sequential:
            sums = RowSums()

            def from_sums() -> Parts:
                found = sums.result()
                assert found is not None  # visit has seen to it
                inputs = Moments({"": {0: found}}, {}).gaussian("", self.shrinkage, net.prototype)
                return {0: self.under(net, inputs)}

            return Task(sums.add, from_sums)
        if self.method == "samples":
            samples = SampleFit(net, self.under(net, self.inputs(block.name, 0, net.prototype)))
            return Task(samples.update, lambda: {0: samples.polynomial()})
        numbers = [0]
        if self.method == "components":
            parts = self.moments.components(block.name)
            numbers = sorted(parts, key=lambda number: -parts[number].count)
            if parts[numbers[-1]].count < 2:
                raise ValueError(
                    f"component {numbers[-1]} of {block.name!r} has one token only, and a polynomial of its own needs "
                    f"several; collect from more tokens, or use method='neuronwise'."
                )
        under = self.under
        return Task(lambda _: None, lambda: {n: under(net, self.inputs(block.name, n, net.prototype)) for n in numbers})

    def inputs(self, name: str, number: int, like: Tensor) -> Any:
        """What the polynomial of a block, or of one of its components, is fitted under."""
        if self.method == "neuronwise":
            return self.moments.mixture(name, self.shrinkage, like)
        if self.method == "components":
            alone = Moments({name: {number: self.moments.components(name)[number]}}, {})
            return alone.gaussian(name, self.shrinkage, like)
        return self.moments.gaussian(name, self.shrinkage, like)

    def under(self, net: Layer, inputs: Any) -> Any:
        """The best polynomial, with lines beyond the bound if there is one."""
        poly: Any = fit(net, inputs, self.degree, method="neuronwise" if self.method == "neuronwise" else "exact")
        return poly if self.bound is None else poly.bounded(self.bound)
