"""PyTorch: from modules (`from_torch`, with one adapter per kind of block) and to modules (`PolynomialModule`)."""

from __future__ import annotations

from mlpoly.extras import explain_missing

with explain_missing("converting from and to PyTorch modules"):
    from mlpoly.integrations import experts, sequential, transformer_lens, transformers  # noqa: F401 - they add adapters
    from mlpoly.integrations.adapters import register_adapter
    from mlpoly.integrations.from_module import from_torch
    from mlpoly.integrations.module import PolynomialModule
    from mlpoly.integrations.torch_activations import activation_from_torch

__all__ = ["PolynomialModule", "activation_from_torch", "from_torch", "register_adapter"]
