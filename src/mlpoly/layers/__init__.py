"""Through what: frozen records of weights that can be called."""

from mlpoly.layers.glu import GLU
from mlpoly.layers.mlp import MLP

__all__ = ["GLU", "MLP"]
