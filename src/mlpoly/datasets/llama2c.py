"""Models of llama2.c, such as stories260K, as folders that `load_model` reads, and text that they write."""

from __future__ import annotations

import struct
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from mlpoly.errors import FileFormatError
from mlpoly.extras import library
from mlpoly.files import make_folder, replacing, write_json

_HEADER = struct.Struct("<7i")


def convert_llama2c(
    checkpoint: str | PathLike[str], vocabulary: str | PathLike[str], folder: str | PathLike[str]
) -> Any:
    """Write a model of llama2.c in the layout of Hugging Face, with its vocabulary as vocab.json, and return it.

    The checkpoint is in the first format of llama2.c, as stories260K.bin: seven integers, then float32.
    """
    transformers = library("transformers", "transformers", "reading models of llama2.c")
    sizes, weights = _read_checkpoint(Path(checkpoint))
    texts = [piece.decode("utf-8", "replace") for piece in read_vocabulary(vocabulary)]
    if len(texts) != sizes["vocab_size"]:
        raise FileFormatError(f"{vocabulary} has {len(texts)} tokens, but {checkpoint} knows {sizes['vocab_size']}.")
    tied, tokens = "lm_head.weight" not in weights, {"bos_token_id": 1, "eos_token_id": 2}
    config = transformers.LlamaConfig(**sizes, **tokens, tie_word_embeddings=tied, rms_norm_eps=1e-5)
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in weights.items()}, strict=not tied)
    config.architectures = [type(model).__name__]
    config.save_pretrained(make_folder(folder))
    with replacing(Path(folder, "model.safetensors")) as scratch:  # save_pretrained would draw a bar
        save_file({name: np.ascontiguousarray(a) for name, a in weights.items()}, scratch, {"format": "pt"})
    write_json(Path(folder, "vocab.json"), texts)
    return model


@torch.no_grad()
def generate_tokens(model: Any, sequences: int, length: int, start: int, seed: int = 0) -> np.ndarray:
    """Sample token ids (sequences, length) that begin with the token `start` from a causal model at temperature 1."""
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    token, past = torch.full((sequences, 1), start, device=device), None
    tokens = [token]
    for _ in range(length - 1):
        output = model(input_ids=token, past_key_values=past, use_cache=True)
        past = output.past_key_values
        token = torch.multinomial(output.logits[:, -1].float().softmax(-1), 1, generator=generator)
        tokens.append(token)
    return torch.cat(tokens, 1).cpu().numpy()


def _read_checkpoint(path: Path) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Sizes by their names in LlamaConfig, and weights by their names in LlamaForCausalLM."""
    content = path.read_bytes()
    d, h, layers, heads, kv_heads, vocabulary, length = _HEADER.unpack_from(content)
    kv, half, tied = d // heads * kv_heads, d // heads // 2, vocabulary > 0
    shapes = {
        "model.embed_tokens": (abs(vocabulary), d),
        "input_layernorm": (layers, d),
        "self_attn.q_proj": (layers, d, d),
        "self_attn.k_proj": (layers, kv, d),
        "self_attn.v_proj": (layers, kv, d),
        "self_attn.o_proj": (layers, d, d),
        "post_attention_layernorm": (layers, d),
        "mlp.gate_proj": (layers, h, d),
        "mlp.down_proj": (layers, d, h),
        "mlp.up_proj": (layers, h, d),
        "model.norm": (d,),
        "cosines and sines of the positions": (2, length, half),
        **({} if tied else {"lm_head": (abs(vocabulary), d)}),
    }
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    if len(content) != _HEADER.size + 4 * sum(sizes):
        expected = _HEADER.size + 4 * sum(sizes)
        raise FileFormatError(f"{path} has {len(content)} bytes, its header promises {expected}; it may be truncated.")
    flat = np.split(np.frombuffer(content, "<f4", offset=_HEADER.size), np.cumsum(sizes)[:-1])
    parts = {name: a.reshape(shape) for (name, shape), a in zip(shapes.items(), flat, strict=True)}
    weights = {}
    for name, array in parts.items():
        if name.startswith(("model.", "lm_head")):
            weights[f"{name}.weight"] = array
        elif "positions" not in name:
            # llama2.c rotates neighbouring coordinates together, transformers those of the two halves of a head.
            pairs = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads}.get(name)
            if pairs is not None:
                array = array.reshape(layers, pairs, half, 2, d).swapaxes(2, 3).reshape(array.shape)
            weights |= {f"model.layers.{i}.{name}.weight": one for i, one in enumerate(array)}
    named = {"hidden_size": d, "intermediate_size": h, "num_hidden_layers": layers, "num_attention_heads": heads}
    named |= {"num_key_value_heads": kv_heads, "vocab_size": abs(vocabulary), "max_position_embeddings": length}
    return named, weights


def read_vocabulary(path: str | PathLike[str]) -> list[bytes]:
    """Read the tokens of llama2.c, by id; their scores are passed over."""
    content, tokens = Path(path).read_bytes(), []
    start = 4  # after the length of the longest
    try:
        while start < len(content):
            _, length = struct.unpack_from("<fi", content, start)
            tokens.append(content[start + 8 : start + 8 + length])
            if len(tokens[-1]) != length:
                raise struct.error(f"a token of {length} bytes at {start}")
            start += 8 + length
    except struct.error as error:
        raise FileFormatError(f"{path} is not a vocabulary of llama2.c ({error}); it may be truncated.") from None
    return tokens
