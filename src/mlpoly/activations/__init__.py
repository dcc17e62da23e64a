"""Activations: one record each, with its function and its Hermite coefficients."""

from mlpoly.activations.hermite import hermite_coefficients
from mlpoly.activations.record import Activation
from mlpoly.activations.registry import Family, families, get, names, register_activation

__all__ = [
    "Activation", "Family", "families", "get", "hermite_coefficients", "names", "register_activation",
]  # fmt: skip
