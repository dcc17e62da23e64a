"""Where moments come from: which model, and with which versions; what may be merged."""

from __future__ import annotations

import hashlib
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from mlpoly._version import __version__

__all__ = ["check_same_model", "describe_model", "merged_provenance", "versions", "weights_fingerprint"]

_SAMPLED = 64  # values of each parameter that enter the fingerprint


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Name, class, revision, dtype and a fingerprint of the weights."""
    config = getattr(model, "config", None)
    first = next(model.parameters(), None)
    name = str(getattr(config, "_name_or_path", "") or "")
    if name and Path(name).exists():  # of a local folder the last part alone, which means the same on every machine
        name = Path(name).resolve().name
    return {
        "model": name or type(model).__name__,
        "architecture": type(model).__name__,
        "commit": getattr(config, "_commit_hash", None),
        "dtype": None if first is None else str(first.dtype).removeprefix("torch."),
        "weights": weights_fingerprint(model),
    }


def weights_fingerprint(model: nn.Module) -> str:
    """SHA-256 over names, shapes and a few values of every parameter: cheap, and another after every training step."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(f"{name}{tuple(weight.shape)}{weight.dtype}".encode())
        if weight.is_meta or weight.numel() == 0:
            continue
        flat = weight.detach().reshape(-1)
        step = max(flat.shape[0] // _SAMPLED, 1)
        digest.update(flat[::step][:_SAMPLED].cpu().double().numpy().tobytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Of this library and of those whose numbers enter."""
    transformers = sys.modules.get("transformers")
    found = {"mlpoly": __version__, "torch": str(torch.__version__), "numpy": np.__version__}
    if transformers is not None:
        found["transformers"] = transformers.__version__
    return found | {"python": platform.python_version()}


def check_same_model(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Refuse moments that cannot be merged.

    Raises
    ------
    ValueError
    """
    if one.get("weights") != other.get("weights"):
        raise ValueError(
            f"the moments are of different models: {_title(one)} and {_title(other)}; merge only those of one model, "
            f"revision and dtype."
        )
    kinds = [p.get("components", {}).get("kind") for p in (one, other)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"the components were told apart in different ways, {kinds[0]!r} and {kinds[1]!r}; collect both with the "
            f"same components=."
        )


def _title(provenance: dict[str, Any]) -> str:
    commit = provenance.get("commit")
    parts = [str(provenance.get("model")), *([f"commit {commit}"] if commit else []), str(provenance.get("dtype"))]
    return f"{', '.join(parts)} (weights {str(provenance.get('weights'))[:8]})"


def merged_provenance(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What both have in common, the tokens of both, and the list of all parts."""
    parts = [part for whole in (one, other) for part in whole.get("merged", [whole])]
    common = {key: value for key, value in one.items() if key != "merged" and other.get(key) == value}
    components = {k: v for k, v in one.get("components", {}).items() if other.get("components", {}).get(k) == v}
    tokens = one.get("tokens", 0) + other.get("tokens", 0)
    return common | {"components": components, "tokens": tokens, "merged": parts}
