"""Encrypted inference: polynomials as circuits for homomorphic encryption."""

from mlpoly.he.ciphertexts import EncryptedRows
from mlpoly.he.circuit import Circuit, EncryptedLayer, LinearTerm
from mlpoly.he.circuit_files import load_circuit
from mlpoly.he.ckks import CKKS
from mlpoly.he.exports import ActivationNetwork, shared_polynomials, to_orion
from mlpoly.he.heir_program import to_heir
from mlpoly.he.levels import LevelChoice, LevelPlan, plan
from mlpoly.he.safety import Bounds, LayerRange, RangeReport
from mlpoly.he.tenseal_run import EncryptedSession, load_session

__all__ = [
    "CKKS",
    "ActivationNetwork",
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
    "load_session",
    "plan",
    "shared_polynomials",
    "to_heir",
    "to_orion",
]
