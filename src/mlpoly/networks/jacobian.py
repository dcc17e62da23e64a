"""Derivatives of a network's outputs in its inputs, in reverse mode, with one formula for every array library."""

from collections.abc import Callable

from mlpoly.arrays import Array, check_points, eye, namespace_of, promote
from mlpoly.networks.layer import Layer, Network, affine
from mlpoly.networks.walk import walk

Pullback = Callable[[Array], Array]
State = tuple[Array, Pullback]


class _Reverse:
    """A walk that has at every place the values (n, m) and how to carry cotangents from there back to the inputs."""

    def layer(self, layer: Layer, state: State) -> State:
        (values, back), forms, readout = state, layer.forms, layer.readout
        y = affine(values, forms.directions, forms.bias)
        units = layer.activation(y)
        slopes = [(forms.directions, layer.activation.slope(y))]  # each hidden unit's derivatives in its linear forms
        if forms.gate_directions is not None:
            z = affine(values, forms.gate_directions, forms.gate_bias)
            slopes = [(forms.directions, slopes[0][1] * z), (forms.gate_directions, units)]
            units = units * z

        def pull(c: Array) -> Array:
            if readout is not None:
                c = _times(c, readout)
            return back(sum(_times(c * slope[:, None, :], w) for w, slope in slopes))

        return affine(units, readout, layer.bias), pull

    def enter(self, state: State) -> State:
        return state[0], lambda c: c

    def join(self, before: State, branch: State) -> State:
        return before[0] + branch[0], lambda c: before[1](c + branch[1](c))


def _times(c: Array, weight: Array) -> Array:
    """Product (n, c, m) of cotangents (n, c, k) and a weight matrix (k, m), as one product of two matrices."""
    c, weight = promote(c, weight)
    return namespace_of(c).tensordot(c, weight, axes=1)


def value_and_pullback(net: Network, x: Array) -> State:
    """Return the outputs (n, o) of a network at points x (n, d), and the pullback from there.

    The pullback takes cotangents (n, c, o), or (1, c, o) for the same at all points, to their products (n, c, d) with
    the Jacobian at each point. At kinks of an activation it takes the derivative from the right.
    """
    x = check_points(x, net.dim_in, weights=net.prototype)
    return walk(net, _Reverse(), (x, lambda c: c))


def jacobian(net: Network, x: Array) -> Array:
    """Derivatives (n, o, d) of all outputs in all inputs at points x (n, d)."""
    values, pull = value_and_pullback(net, x)
    return pull(eye(net.dim_out, values)[None, :, :])
