"""Identities of models: by their weights, not by their names."""

import hashlib
from pathlib import Path
from typing import Any

from torch import nn

_SAMPLED = 64  # values of each parameter that enter the fingerprint


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Name, class, revision, dtype and a fingerprint of the weights."""
    config = getattr(model, "config", None)
    first = next(model.parameters(), None)
    name = str(getattr(config, "_name_or_path", "") or "")
    if name and Path(name).exists():  # the last part alone, which means the same on every machine
        name = Path(name).resolve().name
    return {
        "model": name or type(model).__name__,
        "architecture": type(model).__name__,
        "commit": getattr(config, "_commit_hash", None),
        "dtype": None if first is None else str(first.dtype).removeprefix("torch."),
        "weights": weights_fingerprint(model),
    }


def weights_fingerprint(model: nn.Module) -> str:
    """SHA-256 over names, shapes and a few values of every parameter: cheap, and changed by any training."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(f"{name}{tuple(weight.shape)}{weight.dtype}".encode())
        if weight.is_meta or weight.numel() == 0:
            continue
        flat = weight.detach().reshape(-1)
        step = max(flat.shape[0] // _SAMPLED, 1)
        digest.update(flat[::step][:_SAMPLED].cpu().double().numpy().tobytes())
    return digest.hexdigest()
