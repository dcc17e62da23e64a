"""Encrypted inference: polynomials as circuits for homomorphic encryption."""

from mlpoly.he.circuit import Circuit, EncryptedLayer, LinearTerm, load_circuit
from mlpoly.he.ckks import CKKS
from mlpoly.he.levels import LevelChoice, LevelPlan, plan
from mlpoly.he.safety import Bounds, LayerRange, RangeReport
from mlpoly.he.tenseal_run import EncryptedRows, EncryptedSession

__all__ = [
    "CKKS",
    "Bounds",
    "Circuit",
    "EncryptedLayer",
    "EncryptedRows",
    "EncryptedSession",
    "LayerRange",
    "LevelChoice",
    "LevelPlan",
    "LinearTerm",
    "RangeReport",
    "load_circuit",
    "plan",
]
