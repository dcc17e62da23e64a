"""PyTorch: from modules (`from_torch`, with one adapter per kind of block) and to modules (`PolynomialModule`)."""

from mlpoly.extras import explain_missing

with explain_missing("converting from and to PyTorch modules"):
    from mlpoly.importers import experts, families, torch_modules
    from mlpoly.importers.adapters import ADAPTERS, register_adapter
    from mlpoly.importers.polynomial_module import PolynomialModule
    from mlpoly.importers.torch_activations import activation_from_torch
    from mlpoly.importers.torch_modules import from_torch

__all__ = ["PolynomialModule", "activation_from_torch", "from_torch", "register_adapter"]

# In this order, whichever of the modules was imported first: the latest adapter that matches is used.
ADAPTERS += [*torch_modules.ADAPTERS, *experts.ADAPTERS, *families.ADAPTERS]
