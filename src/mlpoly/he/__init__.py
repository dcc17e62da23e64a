"""Encrypted inference: polynomials as circuits for homomorphic encryption."""

from mlpoly.he.bounds import Bounds, bound
from mlpoly.he.circuit import Circuit, EncryptedLayer, LinearTerm
from mlpoly.he.ckks import CKKS, parameters
from mlpoly.he.client import EncryptedClient, Layout, client, layout, load_client, load_layout
from mlpoly.he.coefficients import UnitPolynomials, unit_polynomials
from mlpoly.he.files import EncryptedRows, load_circuit, save_circuit
from mlpoly.he.levels import LevelChoice, LevelPlan, plan
from mlpoly.he.ranges import LayerRange, RangeReport, range_report
from mlpoly.he.tenseal_run import EncryptedSession, load_session, session

__all__ = [
    "CKKS", "Bounds", "Circuit", "EncryptedClient", "EncryptedLayer", "EncryptedRows", "EncryptedSession", "LayerRange",
    "Layout", "LevelChoice", "LevelPlan", "LinearTerm", "RangeReport", "UnitPolynomials", "bound", "client", "layout",
    "load_circuit", "load_client", "load_layout", "load_session", "parameters", "plan", "range_report", "save_circuit",
    "session", "unit_polynomials",
]  # fmt: skip
