"""Derivatives of a network's outputs in its inputs, in reverse mode, with one formula for every array library."""

from collections.abc import Callable
from dataclasses import dataclass

from mlpoly.arrays import Array, check_points, eye, namespace_of, promote
from mlpoly.networks.layer import Layer, Network, affine
from mlpoly.networks.walk import walk

Pullback = Callable[[Array], Array]


@dataclass(frozen=True)
class _Values:
    """Values (n, m) at one place of the network, and the pullback from there to the inputs."""

    values: Array
    pull: Pullback


class _Reverse:
    """A walk that keeps at every place how to carry cotangents from there back to the inputs."""

    def layer(self, layer: Layer, before: _Values) -> _Values:
        forms, readout = layer.forms, layer.readout
        y = affine(before.values, forms.directions, forms.bias)
        units = layer.activation(y)
        slopes = [(forms.directions, layer.activation.slope(y))]  # each hidden unit's derivatives in its linear forms
        if forms.gate_directions is not None:
            z = affine(before.values, forms.gate_directions, forms.gate_bias)
            slopes = [(forms.directions, slopes[0][1] * z), (forms.gate_directions, units)]
            units = units * z

        def pull(c: Array) -> Array:
            if readout is not None:
                c = _times(c, readout)
            return before.pull(sum(_times(c * slope[:, None, :], w) for w, slope in slopes))

        return _Values(affine(units, readout, layer.bias), pull)

    def enter(self, before: _Values) -> _Values:
        return _Values(before.values, lambda c: c)

    def join(self, before: _Values, branch: _Values) -> _Values:
        return _Values(before.values + branch.values, lambda c: before.pull(c + branch.pull(c)))


def _times(c: Array, weight: Array) -> Array:
    """Product (n, c, m) of cotangents (n, c, k) and a weight matrix (k, m), as one product of two matrices."""
    c, weight = promote(c, weight)
    return namespace_of(c).tensordot(c, weight, axes=1)


def value_and_pullback(net: Network, x: Array) -> tuple[Array, Pullback]:
    """Return the outputs (n, o) of a network at points x (n, d), and the pullback from there.

    The pullback takes cotangents (n, c, o), or (1, c, o) for the same at all points, to their products (n, c, d) with
    the Jacobian at each point. At kinks of an activation it takes the derivative from the right.
    """
    x = check_points(x, net.dim_in, weights=net.prototype)
    state = walk(net, _Reverse(), _Values(x, lambda c: c))
    return state.values, state.pull


def jacobian(net: Network, x: Array) -> Array:
    """Derivatives (n, o, d) of all outputs in all inputs at points x (n, d)."""
    values, pull = value_and_pullback(net, x)
    return pull(eye(net.dim_out, values)[None, :, :])
