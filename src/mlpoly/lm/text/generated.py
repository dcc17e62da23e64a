"""Text that a model writes itself, for models that come without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


@torch.no_grad()
def generate_tokens(model: Any, sequences: int, length: int, start: int, seed: int = 0) -> np.ndarray:
    """Sample token ids (sequences, length) from a causal language model of transformers, at temperature 1.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    sequences, length : int
    start : int
        First token of every sequence; sampling goes on where the model ends a text.
    seed : int
        Seed of the draws; the caller's generator stays as it is.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    token, past = torch.full((sequences, 1), start, device=device), None
    tokens = [token]
    for _ in range(length - 1):
        found = model(input_ids=token, past_key_values=past, use_cache=True)
        past = found.past_key_values
        token = torch.multinomial(found.logits[:, -1].float().softmax(-1), 1, generator=generator)
        tokens.append(token)
    return torch.cat(tokens, 1).cpu().numpy()
