"""Batch norm in evaluation mode: an affine map with a diagonal weight, which a Linear beside it takes up."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mlpoly.importers.probe import evaluated
from mlpoly.importers.weights import is_plain
from mlpoly.networks.assemble import Scaling


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
    return Scaling(scale, shift if bias is None else shift + bias, own.running_mean.dtype, "BatchNorm1d")


def _wide(tensor: Any) -> Any:
    return None if tensor is None else tensor.to(torch.promote_types(tensor.dtype, torch.float32))
