"""Files of llama2.c from models of transformers: what its export writes."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def checkpoint_bytes(model: Any) -> bytes:
    """A LlamaForCausalLM in the first format of llama2.c."""
    c, weights = model.config, {name: p.detach().numpy() for name, p in model.state_dict().items()}
    head = c.hidden_size // c.num_attention_heads

    def layers(name: str, heads: int = 0) -> np.ndarray:
        found = np.stack([weights[f"model.layers.{i}.{name}.weight"] for i in range(c.num_hidden_layers)])
        if heads:  # neighbouring coordinates rotate together
            return found.reshape(c.num_hidden_layers, heads, 2, head // 2, -1).swapaxes(2, 3).reshape(found.shape)
        return found

    frequencies = 1.0 / 10000.0 ** (torch.arange(0, head, 2)[: head // 2].float() / head)
    angles = torch.outer(torch.arange(c.max_position_embeddings), frequencies).float()
    parts = [
        weights["model.embed_tokens.weight"],
        layers("input_layernorm"),
        layers("self_attn.q_proj", c.num_attention_heads),
        layers("self_attn.k_proj", c.num_key_value_heads),
        layers("self_attn.v_proj"),
        layers("self_attn.o_proj"),
        layers("post_attention_layernorm"),
        layers("mlp.gate_proj"),
        layers("mlp.down_proj"),
        layers("mlp.up_proj"),
        weights["model.norm.weight"],
        angles.cos().numpy(),
        angles.sin().numpy(),
    ]
    sizes = [c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads]
    sizes += [c.vocab_size, c.max_position_embeddings]
    return struct.pack("<7i", *sizes) + b"".join(np.ascontiguousarray(p, "<f4").tobytes() for p in parts)


def vocabulary_bytes(pieces: Sequence[bytes], learned: int = 259) -> bytes:
    """Tokens of llama2.c; those from the number `learned` on have their order as scores."""
    found = struct.pack("<i", max(map(len, pieces)))
    for i, piece in enumerate(pieces):
        score = 0.0 if i < learned else -float(i - learned)  # of the first that was learned, -0.0
        found += struct.pack("<fi", score, len(piece)) + piece
    return found
