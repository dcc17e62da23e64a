"""Encrypted inference: polynomials as circuits for homomorphic encryption."""

from mlpoly.he.circuit import Circuit, EncryptedLayer, LinearTerm, load_circuit
from mlpoly.he.levels import LevelChoice, LevelPlan, plan
from mlpoly.he.safety import Bounds, LayerRange, RangeReport

__all__ = [
    "Bounds",
    "Circuit",
    "EncryptedLayer",
    "LayerRange",
    "LevelChoice",
    "LevelPlan",
    "LinearTerm",
    "RangeReport",
    "load_circuit",
    "plan",
]
