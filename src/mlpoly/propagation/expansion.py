"""The first terms of a deep network's expansion under a Gaussian, and so its closest linear and quadratic map (MATH 9).

With z standard normal, every value of the network is m + a.z + (z'Qz - tr Q) + terms of higher degree. Stein's
identity, E[G z] = E[grad G], gives a and Q of a unit F(y, ...) from those of the forms y that enter it:

    a = E[grad F] = sum_p E[F_p grad p],     2 Q = E[grad grad' F] = sum_p E[F_p] 2 Q_p + sum_pq E[F_pq grad p grad q']

where p and q run over the forms, one for a plain unit and two for a gated one, and grad p = a_p + 2 Q_p z up to terms
of higher degree. Applied again to what z remains, it leaves a series in the Q_p, which is cut off. All of it lives in
the row space of the first layer. Exact for one hidden layer, where Q_p = 0.
"""

from __future__ import annotations

import math

import numpy as np

from mlpoly.arrays import Array, constant, eye, namespace, to_numpy, widen
from mlpoly.inputs import Gaussian
from mlpoly.kernels import Hidden
from mlpoly.networks import Layer, Network, walk
from mlpoly.propagation.closure import Closure, State
from mlpoly.records import record, replace

__all__ = ["Expansion", "coordinates", "expand"]

_ORDER = 2  # number of factors Q_p at which the series is cut off
_NUMBERS = 2**28  # entries of the quadratic parts of all units of a layer: 2 GiB in float64


@record
class Expansion:
    """First terms of n values in standard normal z (r,): mean + linear z + (z' quadratic z - trace).

    Attributes
    ----------
    state : State
        Moments of the values.
    linear : array (n, r)
    quadratic : array (n, r, r) or None
        Symmetric; None for zero.
    """

    state: State
    linear: Array
    quadratic: Array | None


class _Expand:
    """A walk that carries the expansions of all values beside their moments."""

    def __init__(self, order: int) -> None:
        self.closure, self.order = Closure(), order

    def layer(self, layer: Layer, e: Expansion) -> Expansion:
        state = self.closure.layer(layer, e.state)
        hidden = self.closure.hidden
        forms = [hidden.net.forms.directions, hidden.net.forms.gate_directions]
        xp = namespace(linear=e.linear)
        given = [
            (w @ e.linear, None if e.quadratic is None else xp.tensordot(w, e.quadratic, axes=1))
            for w in forms
            if w is not None
        ]
        stein = _Stein(given, _derivatives(hidden, self.order + 3))
        linear, quadratic = stein.along((0, 0), self.order), 0.5 * stein.square((0, 0), self.order)
        readout = hidden.net.readout
        if readout is not None:
            linear, quadratic = readout @ linear, xp.tensordot(readout, quadratic, axes=1)
        return Expansion(state, linear, quadratic)

    def enter(self, e: Expansion) -> Expansion:
        return Expansion(self.closure.enter(e.state), e.linear, e.quadratic)

    def join(self, before: Expansion, branch: Expansion) -> Expansion:
        one, two = before.quadratic, branch.quadratic
        return Expansion(
            self.closure.join(before.state, branch.state),
            before.linear + branch.linear,
            two if one is None else one if two is None else one + two,
        )


class _Stein:
    """Expectations of derivatives of units in z, from those of the forms (a_p, Q_p) that enter them.

    A key (k, l) stands for G, the derivative of the units k times in the first form and l times in the second.
    """

    def __init__(self, forms: list[tuple[Array, Array | None]], expected: dict[tuple[int, int], Array]) -> None:
        self.forms, self.expected = forms, expected

    def _terms(self, key: tuple[int, int]) -> list[tuple[tuple[int, int], Array, Array, Array | None]]:
        """Keys of the derivatives G_p that are not zero, with E[G_p], a_p and Q_p."""
        next_keys = [(key[0] + 1, key[1]), (key[0], key[1] + 1)][: len(self.forms)]
        pairs = zip(next_keys, self.forms, strict=True)
        return [(k, self.expected[k], a, q) for k, (a, q) in pairs if k in self.expected]

    def along(self, key: tuple[int, int], order: int) -> Array:
        """E[G z] = sum_p E[G_p grad p], (h, r)."""
        total = 0.0
        for k, mean, a, q in self._terms(key):
            total = total + mean[:, None] * a
            if order and q is not None:
                total = total + 2 * _times(q, self.along(k, order - 1))
        return total

    def square(self, key: tuple[int, int], order: int) -> Array:
        """E[grad grad' G] = sum_p E[G_p] 2 Q_p + sum_pq E[G_pq grad p grad q'], (h, r, r)."""
        total = 0.0
        for k, mean, a, q in self._terms(key):
            if order and q is not None:
                total = total + 2 * mean[:, None, None] * q
            for k2, mean2, b, p in self._terms(k):
                total = total + (mean2[:, None] * a)[:, :, None] * b[:, None, :]
                if order and q is not None and p is not None:
                    w = self.along(k2, order - 1)
                    total = total + 2 * (
                        a[:, :, None] * _times(p, w)[:, None, :] + _times(q, w)[:, :, None] * b[:, None, :]
                    )
                if order >= 2 and q is not None and p is not None:
                    inner = self.square(k2, order - 2) + mean2[:, None, None] * eye(a.shape[1], a)
                    total = total + 4 * q @ inner @ p
        return total


def _times(matrices: Array, vectors: Array) -> Array:
    return (matrices @ vectors[:, :, None])[:, :, 0]


def _derivatives(hidden: Hidden, order: int) -> dict[tuple[int, int], Array]:
    """E of the derivatives of the units in their forms, by key, (h,) each: d_k = E[act^(k)] = sqrt(k!) c_k / s^k."""
    units, inverse = hidden.kernel.units, hidden.kernel.units.inverse_scales
    c = replace(units, gate=None).expand(hidden.net.activation, order).plain
    d = [math.sqrt(math.factorial(k)) * c[k, :] * inverse**k for k in range(order + 1)]
    gate = units.gate
    if gate is None:
        return {(k, 0): v for k, v in enumerate(d)}
    shared = gate.slopes * units.scales  # covariance of both forms
    plain = {(k, 0): gate.means * d[k] + shared * d[k + 1] for k in range(order)}
    return plain | {(k, 1): v for k, v in enumerate(d)}


def expand(net: Network, inputs: Gaussian, order: int = _ORDER) -> tuple[Expansion, Array]:
    """Expansion of the outputs of a network, and the coordinates forward (r, d): z = forward (x - mean)."""
    start = State.at(inputs)
    forward, back = coordinates(net, start.inputs)
    return walk(net, _Expand(order), Expansion(start, back, None)), forward


def coordinates(net: Network, inputs: Gaussian) -> tuple[Array, Array]:
    """Standard normal coordinates z = forward (x - mean) of all that a network sees of its inputs.

    Returns
    -------
    forward : array (r, d)
        In the row space of the first layer.
    back : array (d, r)
        Cov(x, z), so that the network at x is the network at mean + back z.
    """
    rows = net.entry
    rows = eye(inputs.dim, widen(inputs.mean)) if rows is None or rows.shape[0] > inputs.dim else widen(rows)
    xp, spread = namespace(rows=rows), inputs.times_covariance(rows)
    values, vectors = xp.linalg.eigh(spread @ rows.T)
    known = to_numpy(values)
    # At least one, with back = 0 where nothing varies.
    keep = max(int((known > 10 * known.size * float(xp.finfo(values.dtype).eps) * max(known[-1], 0.0)).sum()), 1)
    turn = (vectors / xp.sqrt(xp.where(values > 0, values, 1.0)))[:, known.size - keep :]
    # Eigenvectors have either sign; choose one, so that samples of z are the same for every array library.
    seen = to_numpy(turn.T @ rows)
    signs = np.sign(np.take_along_axis(seen, np.abs(seen).argmax(axis=1)[:, None], axis=1)[:, 0])
    turn = turn * constant(signs, turn)
    return turn.T @ rows, spread.T @ turn
