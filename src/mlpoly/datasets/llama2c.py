"""stories260K, a model of llama2.c, as a folder that `load_model` reads, and text that it writes."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from mlpoly.extras import library
from mlpoly.files import make_folder, replacing, write_json

_HEADER = struct.Struct("<7i")


def convert_llama2c(checkpoint: Path, vocabulary: Path, folder: Path) -> Any:
    """Write a model of llama2.c in the layout of Hugging Face, with its vocabulary as vocab.json, and return it.

    The checkpoint is in the first format of llama2.c, with one matrix for embedding and head: seven integers, then
    float32. Both files are whole, as their checksums say.
    """
    transformers = library("transformers", "transformers", "reading models of llama2.c")
    content = checkpoint.read_bytes()
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    sizes = dict(zip((*names, "vocab_size", "max_position_embeddings"), _HEADER.unpack_from(content), strict=True))
    weights = _weights(np.frombuffer(content, "<f4", offset=_HEADER.size), *sizes.values())
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    config = transformers.LlamaConfig(**sizes, **tokens, tie_word_embeddings=True, rms_norm_eps=1e-5)
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in weights.items()}, strict=False)
    config.architectures = [type(model).__name__]
    config.save_pretrained(make_folder(folder))
    with replacing(folder / "model.safetensors") as scratch:  # save_pretrained would draw a bar
        save_file({name: np.ascontiguousarray(a) for name, a in weights.items()}, scratch, {"format": "pt"})
    write_json(folder / "vocab.json", _read_vocabulary(vocabulary))
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


def _weights(
    flat: np.ndarray, d: int, h: int, layers: int, heads: int, kv_heads: int, vocabulary: int, length: int
) -> dict[str, np.ndarray]:
    """Weights by their names in LlamaForCausalLM, from all numbers of a checkpoint in their order."""
    kv, half = d // heads * kv_heads, d // heads // 2
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (vocabulary, d),
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
    }
    weights, start = {}, 0  # cosines and sines of the positions, at the end, are not read
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        array, start = flat[start : start + size].reshape(shape), start + size
        if name.startswith("model."):
            weights[f"{name}.weight"] = array
            continue
        # llama2.c rotates neighbouring coordinates together, transformers those of the two halves of a head.
        pairs = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads}.get(name)
        if pairs is not None:
            array = array.reshape(layers, pairs, half, 2, d).swapaxes(2, 3).reshape(shape)
        weights |= {f"model.layers.{i}.{name}.weight": one for i, one in enumerate(array)}
    return weights


def _read_vocabulary(path: Path) -> list[str]:
    """The texts of the tokens of llama2.c, by id; their scores are passed over."""
    content, tokens, start = path.read_bytes(), [], 4  # after the length of the longest
    while start < len(content):
        _, length = struct.unpack_from("<fi", content, start)
        tokens.append(content[start + 8 : start + 8 + length].decode("utf-8", "replace"))
        start += 8 + length
    return tokens
