"""Simpler things to put in a block's place, to compare polynomials with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mlpoly.integrations import find_blocks
from mlpoly.integrations.module import full_precision
from mlpoly.lm.model.graft import Constant
from mlpoly.lm.model.visit import visit
from mlpoly.networks import Layer

__all__ = ["BASELINES", "baseline_modules"]

BASELINES = ("removed", "mean", "linear")
_RIDGE = 1e-8  # of the mean variance, for inputs that vary in fewer directions than they have


def baseline_modules(
    model: nn.Module, replaced: Mapping[str, Any], batches: Iterable[Any], baselines: Sequence[str]
) -> dict[str, dict[str, nn.Module]]:
    """For each baseline, what takes the place of each of the blocks in `replaced`.

    Parameters
    ----------
    model : nn.Module
    replaced : mapping
        Its keys are names of blocks.
    batches : iterable
        What means and linear maps are estimated from; the model runs on them once, if those are asked for.
    baselines : sequence of {"removed", "mean", "linear"}
    """
    if not replaced or not baselines:
        return {name: {} for name in baselines}
    blocks = [block for block in find_blocks(model) if block.name in replaced]
    sums = {block.name: _Regression(block.net()) for block in blocks}
    if blocks and {"mean", "linear"} & set(baselines):
        visit(model, blocks, batches, lambda block, x, _: sums[block.name].add(x), stop=True)
    return {name: {block: _MAKERS[name](s) for block, s in sums.items()} for name in baselines}


class _Regression:
    """Least-squares affine map from a block's inputs to its outputs, from sums over inputs."""

    def __init__(self, net: Layer) -> None:
        self.net = net
        self._count = 0
        self._shift: Tensor | None = None  # near the means, so that they cost no digits
        self._sum: Any = 0.0  # of inputs and outputs, (d + o,)
        self._products: Any = 0.0  # of inputs with both, (d, d + o)

    def add(self, x: Tensor) -> None:
        """Take inputs (n, d)."""
        x = x.to(self.net.prototype.dtype)
        both = torch.cat([x, self.net(x)], 1).double()
        if self._shift is None:
            self._shift = both.mean(0)
        both = both - self._shift
        self._count += x.shape[0]
        self._sum = self._sum + both.sum(0)
        self._products = self._products + both[:, : x.shape[1]].T @ both

    @property
    def means(self) -> Tensor:
        """Mean input and mean output, (d + o,)."""
        assert self._shift is not None  # visit has seen to it
        return self._shift + self._sum / self._count

    def constant(self) -> Constant:
        """The mean output as a module."""
        return Constant(self.means[self.net.dim_in :].float())

    def linear(self) -> nn.Linear:
        """The map as a module that computes in float32."""
        d, gap = self.net.dim_in, self._sum / self._count
        products = self._products / self._count - gap[:d, None] * gap[None, :]
        cov, cross = products[:, :d], products[:, d:]
        ridge = _RIDGE * torch.diagonal(cov).mean() + torch.finfo(cov.dtype).tiny
        weight = torch.linalg.solve(cov + ridge * torch.eye(d, dtype=cov.dtype, device=cov.device), cross).T
        made = _Wide(d, self.net.dim_out, device=weight.device, dtype=torch.float32)
        made.weight.data.copy_(weight)
        made.bias.data.copy_(self.means[d:] - weight @ self.means[:d])
        return made.requires_grad_(False)


class _Wide(nn.Linear):
    """A linear map in float32, in a model of any dtype."""

    def forward(self, x: Tensor) -> Tensor:
        """Values in the dtype of x."""
        with full_precision(x):
            return super().forward(x.float()).to(x.dtype)


_MAKERS: dict[str, Callable[[_Regression], nn.Module]] = {
    "removed": lambda s: Constant(torch.zeros(s.net.dim_out)),
    "mean": _Regression.constant,
    "linear": _Regression.linear,
}
