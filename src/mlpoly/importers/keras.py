"""Keras: chains of dense layers, batch norms and activations."""

import warnings
from typing import Any

import numpy as np
from scipy.special import softmax as softmax_of

from mlpoly.activations import get
from mlpoly.extras import library
from mlpoly.importers.dense_layers import check_same, dense
from mlpoly.importers.scalar_functions import Elementwise, activations_of
from mlpoly.networks import Affine, Network
from mlpoly.networks.assemble import Piece, Scaling, assemble

# Names of layers, and of activations, that do nothing to vectors; a softmax at the end is left out.
_PASSED = ("InputLayer", "Dropout", "GaussianDropout", "GaussianNoise", "Flatten", "linear", "softmax", "Softmax")


def from_keras(model: Any) -> Network:
    """Return a Keras model of dense layers as a network in NumPy.

    Parameters
    ----------
    model : keras.Model
        A chain of Dense, BatchNormalization and activation layers; Dropout and Flatten are passed over. A softmax at
        the end is left out with a warning: the outputs are the logits. Layers and model are compared on test inputs;
        what an activation is, its values show.

    Returns
    -------
    Affine, MLP or Chain
    """
    keras = library("keras", "Keras", "from_keras")
    if not isinstance(model, keras.Model):
        raise TypeError(f"from_keras takes a keras.Model, got {type(model).__name__}.")
    layers = [layer for layer in model._flatten_layers(include_self=False) if not getattr(layer, "layers", None)]
    softmax = bool(layers) and _function(layers[-1]) in ("softmax", "Softmax")
    pieces = [piece for layer in layers for piece in _pieces(layer, keras)]
    if not any(isinstance(piece, Affine) for piece in pieces):
        raise TypeError("from_keras takes built models with Dense layers, and this one has none.")
    net = assemble(pieces)
    if softmax:
        warnings.warn(
            "from_keras leaves out the softmax at the end: the network's outputs are the logits that enter it.",
            stacklevel=2,
        )

    def run(x: np.ndarray) -> Any:
        shape = getattr(model, "input_shape", x.shape)
        return keras.ops.convert_to_numpy(model(x.reshape(-1, *shape[1:]), training=False))

    check_same("from_keras", run, net, (lambda y: softmax_of(y, axis=-1)) if softmax else None)
    return net


def _function(layer: Any) -> str:
    """The name of the activation of a layer, or of its class."""
    return getattr(getattr(layer, "activation", None), "__name__", type(layer).__name__)


def _pieces(layer: Any, keras: Any) -> list[Piece]:
    """What a layer does to vectors, up to a softmax."""
    kinds, place = keras.layers, f"layer {layer.name!r} ({type(layer).__name__})"
    arrays = [np.asarray(keras.ops.convert_to_numpy(a.value)) for a in layer.weights]
    if isinstance(layer, kinds.BatchNormalization):
        mean, variance = arrays[-2:]
        scale = (arrays[0] if layer.scale else 1) / np.sqrt(variance + layer.epsilon)
        shift = (arrays[int(layer.scale)] if layer.center else 0) - mean * scale
        return [Scaling(scale, shift, scale.dtype)]
    pieces: list[Piece] = []
    if isinstance(layer, kinds.Dense):
        pieces.append(dense("from_keras", place, arrays[0].T, arrays[1] if layer.use_bias else None))
    elif arrays:
        raise TypeError(f"from_keras takes Dense, BatchNormalization and activations, and cannot take {place}.")
    if _function(layer) in _PASSED:
        return pieces

    def function(y: np.ndarray) -> np.ndarray:
        values = keras.ops.convert_to_tensor(y.astype(np.float32))
        return np.asarray(keras.ops.convert_to_numpy(getattr(layer, "activation", layer)(values)), np.float64)

    if _function(layer) in ("leaky_relu", "LeakyReLU"):
        return [*pieces, get("leaky_relu", slope=-float(function(np.array([-1.0]))[0]))]
    for known in activations_of([Elementwise(function, place)], digits=4):
        if isinstance(known, tuple):
            raise TypeError(f"from_keras cannot take {place}, an activation that mlpoly has up to a factor alone.")
        pieces.append(known)
    return pieces
