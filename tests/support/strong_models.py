"""Tiny language models whose blocks say something: transformers starts with small weights."""

from typing import Any

import torch
from torch import nn

import mlpoly as mp
from mlpoly.importers import find_blocks
from support import tiny_models
from support.tiny_models import VOCABULARY, D

__all__ = ["EXACT", "VOCABULARY", "D", "bert", "gpt2", "llama", "logits", "polynomials", "state", "strong", "token_ids"]


def strong(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for block in find_blocks(model):
            for weight in block.module.parameters():
                weight.mul_(8)
    return model.eval()


def llama(activation: str = "linear") -> nn.Module:
    return strong(tiny_models.llama(hidden_act=activation))


def gpt2(activation: str = "linear") -> nn.Module:
    return strong(tiny_models.gpt2(activation_function=activation))


def bert(activation: str = "linear") -> nn.Module:
    return strong(tiny_models.bert(hidden_act=activation))


EXACT = [(llama, 2), (gpt2, 1), (bert, 1)]  # with a linear activation: a bilinear unit, and two linear maps


def token_ids(n: int = 2, b: int = 3, t: int = 7, seed: int = 0) -> list[torch.Tensor]:
    return tiny_models.token_ids(n, b, t, seed)


def logits(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(ids).logits


def state(model: nn.Module) -> tuple[Any, ...]:
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return [id(m) for m in model.modules()], hooks, [p.sum().item() for p in model.parameters()]


def polynomials(model: nn.Module, degree: int) -> dict[str, Any]:
    """Closed forms of all blocks under the standard Gaussian."""
    return {b.name: mp.fit(b.net(), mp.Gaussian.standard(D), degree) for b in find_blocks(model)}
