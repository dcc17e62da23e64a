"""A few test inputs that tell whether a module computes what its parts suggest.

Modules with the same parts need not do the same with them: some clamp the gate, scale it, or sparsify it. Weights taken
from such a module by name alone would describe another function, and nothing later would notice.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from mlpoly.arrays import readable
from mlpoly.layers import GLU, MLP

__all__ = ["difference"]

_POINTS = 8
_SIZES = (1.0, 100.0)  # the second one finds clamps, which ordinary inputs do not reach


@torch.no_grad()
def difference(module: nn.Module, net: MLP | GLU, residual: bool) -> float:
    """Largest relative difference, in norm, between a module in evaluation mode and a record on test inputs.

    Parameters
    ----------
    module : nn.Module
        It is not changed, its hooks do not run, and no random numbers are drawn from torch's generator.
    net : MLP or GLU
        Over the module's weights. Where those cannot be read (meta device, tracing) there is no difference.
    residual : bool
        Whether the module takes a second tensor that it adds to its output.
    """
    weight = net.W1 if isinstance(net, MLP) else net.W_gate
    if not readable(weight):
        return 0.0
    bare: Any = _bare(module)
    first = next(module.parameters(), weight)
    length = getattr(module, "chunk_size_feed_forward", 0) or _POINTS  # chunks must divide the points evenly
    points = torch.randn(1, length, net.dim_in, generator=torch.Generator().manual_seed(0))
    x = torch.cat([size * points for size in _SIZES]).to(first.device, first.dtype)
    found = bare(x, torch.zeros_like(x)) if residual else bare(x)
    expected = net(x)
    if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
        return float("inf")
    return max(_relative(*pair) for pair in zip(found, expected, strict=True))


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    seen = torch.isfinite(found)  # float16 may overflow
    found, expected = found.double()[seen], expected.double()[seen]
    size = float(expected.norm())
    return float((found - expected).norm()) / size if size else float(found.norm())


def _bare(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode without hooks, over the same parameters."""
    made = copy.copy(module)
    made.training = False
    for name in vars(made):
        if name.endswith("_hooks"):
            setattr(made, name, OrderedDict())
    made._modules = {name: None if child is None else _bare(child) for name, child in module._modules.items()}
    return made
