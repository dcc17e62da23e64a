"""Language models of two layers with random weights, and token ids for them, that several tests share."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

D, VOCABULARY = 16, 32
SIZES = {"vocab_size": VOCABULARY, "hidden_size": D, "intermediate_size": 24, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "max_position_embeddings": 64}


def llama(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=1, pad_token_id=0, **options)
    return transformers.LlamaForCausalLM(config).eval()


def gpt2(**options: Any) -> nn.Module:
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=D, n_layer=2, n_head=2, n_positions=64, **options)
    return transformers.GPT2LMHeadModel(config).eval()


def bert(**options: Any) -> nn.Module:
    torch.manual_seed(2)
    return transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, **options)).eval()


def albert(**options: Any) -> nn.Module:
    """Embeddings of half the width of the layers."""
    torch.manual_seed(2)
    return transformers.AlbertForMaskedLM(transformers.AlbertConfig(**SIZES, embedding_size=D // 2, **options)).eval()


def gemma2(**options: Any) -> nn.Module:
    torch.manual_seed(2)
    config = transformers.Gemma2Config(**SIZES, num_key_value_heads=1, head_dim=8, pad_token_id=0, **options)
    return transformers.Gemma2ForCausalLM(config).eval()


def token_ids(n: int, b: int = 3, t: int = 7, seed: int = 0) -> list[torch.Tensor]:
    """Batches (b, t), n of them; 0, which pads, is not among the ids."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, VOCABULARY, (b, t), generator=generator) for _ in range(n)]
