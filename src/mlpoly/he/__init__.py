"""Encrypted inference: polynomials as circuits for homomorphic encryption."""

from mlpoly.he.circuit import Circuit, EncryptedLayer, LinearTerm, load_circuit
from mlpoly.he.exports import ActivationNetwork, shared_polynomials, to_orion
from mlpoly.he.heir_program import to_heir
from mlpoly.he.levels import LevelChoice, LevelPlan, plan
from mlpoly.he.safety import Bounds, LayerRange, RangeReport

__all__ = [
    "ActivationNetwork",
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
    "shared_polynomials",
    "to_heir",
    "to_orion",
]
