"""A model that runs with features of a block removed, scaled or added."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mlpoly.arrays import as_number
from mlpoly.importers.blocks import Block
from mlpoly.importers.experts import unrolled
from mlpoly.lm.model.graft import grafted
from mlpoly.lm.model.running import hooked
from mlpoly.lm.reading.feature_set import FeatureSet, as_sets, blocks_of


@contextmanager
def steer(
    model: nn.Module, features: FeatureSet, amount: float = 0.0, how: Literal["scale", "add"] = "scale"
) -> Iterator[nn.Module]:
    """Run a model with features of one block changed; afterwards it is as it was, whatever happens.

    Parameters
    ----------
    model : torch.nn.Module
        The language model that the features belong to.
    features : FeatureSet
        One feature, ``features[3]``, or several, which are changed together.
    amount : float
        Factor of the features' values, or what is added, see `how`.
    how : {"scale", "add"}
        "scale" multiplies the values by `amount`: 0 removes the features, 2 doubles them. Features that read a
        direction are changed in the block's *input*, which moves along the features' directions until their values are
        as wanted. Forms and neurons are changed in its output. "add" adds `amount` times what the features write, each
        of them once, to the block's output at every token.
    """
    (features,) = as_sets([features])
    standing = grafted(model)  # a polynomial is steered in its block's place
    block = standing.get(features.block) or blocks_of(model, [features])[features.block]
    amount = as_number("amount", amount, "a number, such as 0.0 to remove features")
    if how not in ("scale", "add"):
        raise ValueError(f"how must be 'scale' or 'add', got {how!r}.")
    with steered(model, block, features, amount, how):
        yield model


@contextmanager
def steered(
    model: nn.Module, block: Block, features: FeatureSet, factor: float, how: Literal["scale", "add"] = "scale"
) -> Iterator[None]:
    """Run a model with features of a block changed, see `steer`."""
    kept = list[Tensor]()

    def check_place(x: Tensor) -> None:
        """Raise where a graft inside this context has taken the block out, and there is nothing to steer."""
        if not any(module is block.module for module in model.modules()):
            raise RuntimeError(f"{features.block!r} was replaced inside steer; use steer inside graft instead.")

    def with_input(x: Tensor) -> Tensor:
        """The input with other values of the features."""
        some = features.to(x.device)
        assert some.functionals is not None and some.directions is not None
        # Directions that are not orthogonal in the metric of the inputs move one another's values.
        overlap = some.functionals @ some.directions.T
        change = (factor - 1) * some.values(x.flatten(0, -2)) @ torch.linalg.pinv(overlap).T
        return (x.flatten(0, -2) + (change @ some.directions).to(x.dtype)).reshape(x.shape)

    def remember(x: Tensor) -> None:
        kept[:] = [x]

    def with_output(x: Tensor | None, output: Any) -> Any:
        y = output[0] if isinstance(output, tuple) else output
        some = features.to(y.device)
        if how == "add":
            change = factor * some.writes.sum(0)
        else:
            change = (factor - 1) * some.amounts(kept.pop().flatten(0, -2)) @ some.writes
        made = y + change.to(y.dtype).expand(y.flatten(0, -2).shape).reshape(y.shape)
        return (made, *output[1:]) if isinstance(output, tuple) else made

    moved = how == "scale" and features.squares
    before = [(block.entry, with_input if moved else remember)] if how == "scale" else []
    after = [] if moved else [(block.exit, with_output)]
    with unrolled(model, [block.module]), hooked([(model, check_place), *before], after):
        yield
