"""Features of a block: what each of them reads at an input, and what it writes into the block's output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from mlpoly.importers import find_blocks
from mlpoly.importers.blocks import Block, listed
from mlpoly.lm.model.loading import weights_fingerprint
from mlpoly.tables import Table, Tabular

FeatureKind = Literal["principal", "token", "term", "form", "neuron", "direction", "pca", "random"]


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSet(Tabular):
    """Features of one block. Feature r adds ``amounts(x)[:, r] * writes[r]`` to the block's output.

    Most kinds read one direction: the value z of a feature is a coordinate of the input with mean 0 and variance 1
    under the moments, and enters as its square, with the amount z^2 - 1. For "form" and "neuron" value and amount are
    the same: a principal form or a hidden unit, standardised.

    Attributes
    ----------
    block, kind, names, weights
        Block, kind, k names, and the fingerprint of the block's weights.
    writes, strengths : Tensor (k, o) and (k,)
        What one unit of the amount adds to the block's output, and the standard deviation of that under the moments.
    center : Tensor (d,)
        Mean of the block's inputs.
    functionals, directions : Tensor (k, d) or None
        For squares: the value is functional . (x - center), and directions are how the input changes, on average, while
        the value rises by one.
    reader : callable or None
        Function from inputs (n, d) to values (n, k), for the other kinds.
    """

    block: str
    kind: FeatureKind
    names: tuple[str, ...]
    writes: Tensor
    strengths: Tensor
    center: Tensor
    weights: str
    functionals: Tensor | None = None
    directions: Tensor | None = None
    reader: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, which: int | slice | Sequence[int]) -> "FeatureSet":
        """One feature, or some, as a set."""
        chosen, whole = np.atleast_1d(np.arange(len(self))[which]).tolist(), self.reader
        reader = None if whole is None else lambda x: whole(x)[:, chosen]
        return self._with(lambda t: t[chosen], names=tuple(self.names[i] for i in chosen), reader=reader)

    def _with(self, change: Callable[[Tensor], Tensor], **fields: Any) -> "FeatureSet":
        """The set with other fields, and its tensors of one row for each feature changed."""
        for name in ("writes", "strengths", "functionals", "directions"):
            tensor = getattr(self, name)
            fields[name] = None if tensor is None else change(tensor)
        return replace(self, **fields)

    @property
    def squares(self) -> bool:
        """Whether the features read directions, and enter as squares."""
        return self.functionals is not None

    def values(self, x: Tensor) -> Tensor:
        """Values (n, k) at inputs (n, d) of the block."""
        x = x.to(self.writes)
        if self.functionals is not None:
            return (x - self.center) @ self.functionals.T
        assert self.reader is not None  # one of the two is there
        return self.reader(x)

    def amounts(self, x: Tensor) -> Tensor:
        """Amounts (n, k), of mean zero under the moments, that multiply `writes`."""
        return self.amounts_of(self.values(x))

    def amounts_of(self, values: Tensor) -> Tensor:
        """Amounts that belong to values."""
        return values**2 - 1 if self.squares else values

    def to(self, device: torch.device | str) -> "FeatureSet":
        """The same features on another device."""
        if self.writes.device == torch.device(device):
            return self
        reader = self.reader.to(device) if isinstance(self.reader, nn.Module) else self.reader
        return self._with(lambda t: t.to(device), center=self.center.to(device), reader=reader)

    def _table(self) -> Table:
        rows = zip(range(len(self)), self.names, self.strengths.tolist(), strict=True)
        return Table(("feature", "name", "strength"), tuple(rows), f"{self.kind} features of {self.block}", limit=20)

    def __repr__(self) -> str:
        return f"FeatureSet({self.block}, {self.kind}, k={len(self)})"


def as_sets(features: FeatureSet | Sequence[FeatureSet]) -> list[FeatureSet]:
    """One or several sets of features as a list, which must not be empty."""
    sets = [features] if isinstance(features, FeatureSet) else list(features)
    if not sets:
        raise ValueError("features is empty; pass one FeatureSet or several.")
    for some in sets:
        if not isinstance(some, FeatureSet):
            raise TypeError(f"features must be a FeatureSet, see block_features; got {type(some).__name__}.")
    return sets


def blocks_named(model: nn.Module, names: Sequence[str]) -> dict[str, Block]:
    """Blocks of a model by name; raises if it has not all of them."""
    blocks = {block.name: block for block in find_blocks(model)}
    for name in names:
        if name not in blocks:
            raise ValueError(f"the model has no block {name!r}; its blocks are {listed(list(blocks))}.")
    return {name: blocks[name] for name in names}


def blocks_of(model: nn.Module, sets: Sequence[FeatureSet]) -> dict[str, Block]:
    """The blocks that features belong to, by name; raises if they are not of this model."""
    blocks = blocks_named(model, [features.block for features in sets])
    weights = {name: weights_fingerprint(block.module) for name, block in blocks.items()}
    for features in sets:
        if features.weights != weights[features.block]:
            raise ValueError(
                f"the features of {features.block!r} belong to a block with other weights than that of this model; "
                f"make them again with block_features(poly, model, {features.block!r})."
            )
    return blocks
