"""Tiny language models whose blocks say something: transformers starts with small weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

from mlpoly.integrations import find_blocks
from support.tiny_models import SIZES, VOCABULARY, D

__all__ = ["EXACT", "VOCABULARY", "D", "bert", "gpt2", "llama", "logits", "state", "strong", "token_ids"]


def strong(model: nn.Module) -> nn.Module:
    """Weights at which a block says something: transformers starts with small ones."""
    with torch.no_grad():
        for block in find_blocks(model):
            for weight in block.module.parameters():
                weight.mul_(8)
    return model.eval()


def llama(activation: str = "linear") -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=1, pad_token_id=0, hidden_act=activation)
    return strong(transformers.LlamaForCausalLM(config))


def gpt2(activation: str = "linear") -> nn.Module:
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=D, n_layer=2, n_head=2, n_positions=64, activation_function=activation
    )
    return strong(transformers.GPT2LMHeadModel(config))


def bert(activation: str = "linear") -> nn.Module:
    torch.manual_seed(2)
    return strong(transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, hidden_act=activation)))


EXACT = [(llama, 2), (gpt2, 1), (bert, 1)]  # with a linear activation: a bilinear unit, and two linear maps


def token_ids(n: int = 2, b: int = 3, t: int = 7, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, VOCABULARY, (b, t), generator=generator) for _ in range(n)]


def logits(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(ids).logits


def state(model: nn.Module) -> tuple[Any, ...]:
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return [id(m) for m in model.modules()], hooks, [p.sum().item() for p in model.parameters()]
