"""Simpler replacements of blocks, to compare polynomials with."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mlpoly.importers import find_blocks
from mlpoly.importers.polynomial_module import full_precision
from mlpoly.lm.model.graft import Constant
from mlpoly.lm.model.running import visit
from mlpoly.networks import Layer

Baseline = Literal["removed", "mean", "linear"]
BASELINES: tuple[Baseline, ...] = ("removed", "mean", "linear")
_RIDGE = 1e-8  # of the mean variance, for inputs that vary in fewer directions than they have


def baseline_modules(
    model: nn.Module, replaced: Mapping[str, Any], batches: Iterable[Any], baselines: Sequence[Baseline]
) -> dict[Baseline, dict[str, nn.Module]]:
    """For each baseline the modules in the places of the blocks named in `replaced`, estimated from the batches."""
    if not replaced or not baselines:  # the model need not have blocks then
        return {name: {} for name in baselines}
    blocks = [block for block in find_blocks(model) if block.name in replaced]
    sums = {block.name: _Regression(block.net()) for block in blocks}
    if blocks and {"mean", "linear"} & set(baselines):
        visit(model, blocks, batches, lambda block, x, _: sums[block.name].add(x))
    return {name: {block: s.module(name) for block, s in sums.items()} for name in baselines}


class _Regression:
    """Least-squares affine map from a block's inputs to its outputs; sums half the products of `MomentAccumulator`."""

    def __init__(self, net: Layer) -> None:
        self._net, self._count = net, 0
        self._shift: Any = None  # near the means, so that they cost no digits
        self._sum: Any = 0.0  # of inputs and outputs, (d + o,)
        self._products: Any = 0.0  # of inputs with both, (d, d + o)

    def add(self, x: Tensor) -> None:
        """Take inputs (n, d)."""
        x = x.to(self._net.prototype.dtype)
        both = torch.cat([x, self._net(x)], 1).double()
        if self._shift is None:
            self._shift = both.mean(0)
        both = both - self._shift
        self._count += x.shape[0]
        self._sum = self._sum + both.sum(0)
        self._products = self._products + both[:, : x.shape[1]].T @ both

    def module(self, baseline: Baseline) -> nn.Module:
        """Return a baseline as a module."""
        d, o = self._net.dim_in, self._net.dim_out
        if baseline == "removed" or not self._count:  # nothing is known of an expert that got no token
            return Constant(torch.zeros(o))
        gap = self._sum / self._count
        means = self._shift + gap
        if baseline == "mean":
            return Constant(means[d:].float())
        products = self._products / self._count - gap[:d, None] * gap[None, :]
        cov, cross = products[:, :d], products[:, d:]
        ridge = _RIDGE * torch.diagonal(cov).mean() + torch.finfo(cov.dtype).tiny
        weight = torch.linalg.solve(cov + ridge * torch.eye(d, dtype=cov.dtype, device=cov.device), cross).T
        made = _Wide(d, o, device=weight.device, dtype=torch.float32)
        made.weight.data.copy_(weight)
        made.bias.data.copy_(means[d:] - weight @ means[:d])
        return made.requires_grad_(False)


class _Wide(nn.Linear):
    """A linear map in float32, in a model of any dtype."""

    def forward(self, x: Tensor) -> Tensor:
        """Return values in the dtype of x."""
        with full_precision(x):
            return super().forward(x.float()).to(x.dtype)
