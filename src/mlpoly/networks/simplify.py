"""Networks with as few layers as their function needs."""

from typing import Any

import numpy as np

from mlpoly.arrays import constant
from mlpoly.networks.affine import Affine
from mlpoly.networks.chain import Chain, Residual, check_kind
from mlpoly.networks.layer import Forms, Layer, Network


def check_network(net: Any) -> Network:
    """Return the network with its affine maps merged into its layers, or raise if it is not one of this library."""
    check_kind("net", net)
    return simplified(net)


def check_layer(net: Any) -> Layer:
    """Return the network as one layer, or raise unless it is a network of this library with one hidden layer."""
    layer = check_network(net)
    if isinstance(layer, Layer):
        return layer
    raise TypeError(
        f"net must have one hidden layer here, got {net!r}; of deep networks mlpoly.propagate has the moments, "
        f"mlpoly.fit the polynomials and mlpoly.fvu their error."
    )


def simplified(net: Network) -> Network:
    """The same function with every affine map merged into a layer beside it; a chain of one layer is that layer."""
    if isinstance(net, Residual):
        return Residual(simplified(net.net))
    if isinstance(net, Layer) and not net.dim_hidden:
        # One unit of zeros, so that no other code meets empty arrays.
        W, readout = (constant(np.zeros(shape), net.prototype) for shape in ((1, net.dim_in), (net.dim_out, 1)))
        return net.with_parts(Forms(W, None, None if net.forms.gate_directions is None else W), readout, net.bias)
    if not isinstance(net, Chain):
        return net
    made: list[Network] = []
    for part in map(simplified, net.layers):
        before = made[-1] if made else None
        if isinstance(part, Affine) and isinstance(before, Layer):
            made[-1] = before.followed_by(part)
        elif isinstance(part, Layer) and isinstance(before, Affine):
            made[-1] = part.preceded_by(before)
        else:
            made.append(part)
    return made[0] if len(made) == 1 else Chain(made)
