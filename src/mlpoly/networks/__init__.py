"""Networks: frozen records of weights that can be called."""

from mlpoly.networks.affine import Affine
from mlpoly.networks.glu import GLU
from mlpoly.networks.layer import Forms, Layer, Network, check_network
from mlpoly.networks.mlp import MLP

__all__ = ["GLU", "MLP", "Affine", "Forms", "Layer", "Network", "check_network"]
