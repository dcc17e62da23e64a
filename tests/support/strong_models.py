"""Tiny language models whose blocks say something: transformers starts with small weights."""

import torch

import mlpoly as mp
from mlpoly.importers import find_blocks
from support import tiny_models
from support.tiny_models import VOCABULARY, D

__all__ = ["EXACT", "VOCABULARY", "D", "bert", "gpt2", "llama", "logits", "polynomials", "state", "strong", "token_ids"]


def strong(model):
    with torch.no_grad():
        for block in find_blocks(model):
            for weight in block.module.parameters():
                weight.mul_(8)
    return model.eval()


def llama(activation="linear"):
    return strong(tiny_models.llama(hidden_act=activation))


def gpt2(activation="linear"):
    return strong(tiny_models.gpt2(activation_function=activation))


def bert(activation="linear"):
    return strong(tiny_models.bert(hidden_act=activation))


EXACT = [(llama, 2), (gpt2, 1), (bert, 1)]  # with a linear activation: a bilinear unit, and two linear maps


def token_ids(n=2, b=3, t=7, seed=0):
    return tiny_models.token_ids(n, b, t, seed)


def logits(model, ids):
    with torch.no_grad():
        return model(ids).logits


def state(model):
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return [id(m) for m in model.modules()], hooks, [p.sum().item() for p in model.parameters()]


def polynomials(model, degree):
    """Closed forms of all blocks under the standard Gaussian."""
    return {b.name: mp.fit(b.net(), mp.Gaussian.standard(D), degree) for b in find_blocks(model)}
