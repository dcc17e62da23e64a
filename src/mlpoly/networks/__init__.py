"""Networks: frozen records of weights that can be called."""

from mlpoly.networks.affine import Affine
from mlpoly.networks.chain import Chain, Residual
from mlpoly.networks.glu import GLU
from mlpoly.networks.jacobian import jacobian, value_and_pullback
from mlpoly.networks.layer import Forms, Layer, Network
from mlpoly.networks.mlp import MLP
from mlpoly.networks.simplify import check_layer, check_network
from mlpoly.networks.walk import Walk, layers_of, walk

__all__ = [
    "GLU", "MLP", "Affine", "Chain", "Forms", "Layer", "Network", "Residual", "Walk", "check_layer", "check_network",
    "jacobian", "layers_of", "value_and_pullback", "walk",
]  # fmt: skip
