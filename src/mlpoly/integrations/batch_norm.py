"""Batch norm in evaluation mode: an affine map with a diagonal weight, which a Linear beside it takes up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import nn

from mlpoly.integrations.probe import evaluated
from mlpoly.integrations.weights import is_plain
from mlpoly.networks import Affine, Layer, Network

__all__ = ["Scaling", "fold_scalings", "is_batch_norm", "scaling"]


@dataclass(frozen=True, eq=False)
class Scaling:
    """x -> scale * x + shift, both (n,), in float32 or wider; the weights they enter keep their own dtype."""

    scale: torch.Tensor
    shift: torch.Tensor
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Number of inputs and outputs n."""
        return len(self.scale)

    def __repr__(self) -> str:
        return f"BatchNorm1d({self.size})"

    def of(self, other: Scaling) -> Scaling:
        """The scaling that comes after another one, joined with it."""
        return Scaling(self.scale * other.scale, self.scale * other.shift + self.shift, self.dtype)

    def of_affine(self, first: Affine) -> Affine:
        """The affine map x -> scale * first(x) + shift."""
        W, b = first.W, first.b
        moved = self.shift if b is None else self.scale * b + self.shift
        return Affine((self.scale[:, None] * W).to(W.dtype), moved.to(W.dtype))

    def before_affine(self, last: Affine) -> Affine:
        """The affine map x -> last(scale * x + shift)."""
        W, b = last.W, last.b
        moved = W.to(self.shift.dtype) @ self.shift
        return Affine((W * self.scale).to(W.dtype), (moved if b is None else moved + b).to(W.dtype))

    def affine(self, dtype: torch.dtype) -> Affine:
        """The scaling as an affine map with a diagonal weight."""
        return Affine(torch.diag(self.scale).to(dtype), self.shift.to(dtype))


def is_batch_norm(module: nn.Module) -> bool:
    """Whether a module is a batch norm of vectors."""
    return is_plain(module, nn.BatchNorm1d) or is_plain(module, nn.SyncBatchNorm)


def scaling(module: nn.Module) -> Scaling:
    """The scaling that a batch norm is in evaluation mode, over its own parameters.

    Raises
    ------
    TypeError
        In training mode, and without running statistics.
    """
    name = type(module).__name__
    own: Any = evaluated(module)
    mean, variance, weight, bias = (_wide(getattr(own, n)) for n in ("running_mean", "running_var", "weight", "bias"))
    if mean is None or variance is None:
        raise TypeError(
            f"{name} without running statistics normalises each batch by the batch's own mean and variance, so it is "
            f"no function of one input. Build it with track_running_stats=True and run some batches in training mode."
        )
    if module.training:
        raise TypeError(
            f"{name} is in training mode, in which it normalises each batch by the batch's own mean and variance; "
            f"call module.eval() first, then it uses its running statistics."
        )
    scale = (variance + own.eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean * scale
    return Scaling(scale, shift if bias is None else shift + bias, own.running_mean.dtype)


def fold_scalings(pieces: Sequence[Network | Scaling | nn.Module]) -> list[Network | nn.Module]:
    """Join every scaling with the affine map before it, or else the layer behind it, or else the layer before it.

    Parameters
    ----------
    pieces : list
        Scalings, networks, and modules of activations, one computed after the other.

    Returns
    -------
    list
        Pieces of the same function without scalings; one with no layer beside it has become an affine map.
    """
    made: list[Any] = []
    for piece in pieces:
        before = made[-1] if made else None
        if isinstance(piece, Scaling) and isinstance(before, Scaling):
            made[-1] = piece.of(before)
        elif isinstance(piece, Scaling) and isinstance(before, Affine):
            made[-1] = piece.of_affine(before)
        elif isinstance(piece, Affine) and isinstance(before, Scaling):
            made[-1] = before.before_affine(piece)
        elif isinstance(piece, Layer) and isinstance(before, Scaling):
            made[-1] = piece.preceded_by(before.affine(piece.prototype.dtype))
        else:
            made.append(piece)
    folded: list[Network | nn.Module] = []
    for piece, following in zip_longest(made, made[1:]):
        before = folded[-1] if folded else None
        if not isinstance(piece, Scaling):
            folded.append(piece)
        elif isinstance(before, Layer) and not isinstance(following, nn.Module):
            folded[-1] = before.followed_by(piece.affine(before.prototype.dtype))
        else:
            folded.append(piece.affine(piece.dtype))
    return folded


def _wide(tensor: Any) -> Any:
    return None if tensor is None else tensor.to(torch.promote_types(tensor.dtype, torch.float32))
