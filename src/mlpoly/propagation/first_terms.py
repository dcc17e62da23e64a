"""The first terms of a deep network's expansion under a Gaussian, and so its closest linear and quadratic map (MATH 9).

With z standard normal, every value of the network is m + a.z + (z'Qz - tr Q) + terms of higher degree. Stein's
identity, E[G z] = E[grad G], gives a and Q of a unit F(y, ...) from those of the forms y that enter it:

    a = E[grad F] = sum_p E[F_p grad p],     2 Q = E[grad grad' F]

    E[grad grad' F] = sum_p E[F_p grad grad' p] + sum_pq E[F_pq grad p grad q']

where p and q run over the forms, one for a plain unit and two for a gated one, and grad p = a_p + 2 Q_p z up to terms
of higher degree. Applied again to what z remains, it leaves a series in the Q_p, which is cut off.

In grad grad' p = 2 Q_p + 6 T_p.z the cubic part T_p matters as well: it adds 6 T_p.a_q to the factor of E[F_pq]. Every
hidden unit before p has a cubic part of its own, E[grad grad grad F] / 6 to leading order,

    sum_p sym(a_p x B_p),     B_p = sum_q E[F_pq] Q_q + sum_qr E[F_pqr] a_q a_r' / 6,     sym: mean of all orders

and on its way to p it is multiplied by slopes and weights. So T_p.a_q is a sum over all hidden units before, which
never needs r^3 numbers. All of it lives in the row space of the first layer. Exact for one hidden layer, where Q_p and
T_p are zero.
"""

import math

import numpy as np

from mlpoly.arrays import Array, chunks, constant, eye, namespace, to_numpy, widen
from mlpoly.errors import TooLargeError
from mlpoly.inputs import Gaussian
from mlpoly.inputs.coordinates import principal_axes
from mlpoly.moments import Expansion
from mlpoly.networks import Layer, Network, layers_of, walk
from mlpoly.propagation.closure import Closure, State
from mlpoly.records import record, replace

_ORDER = 2  # number of factors Q_p at which the series is cut off
_NUMBERS = 2**24  # entries of the largest intermediate
_LARGEST = 2**30  # entries of the quadratic parts of a layer's units: 8 GiB, of which several exist at a time


@record
class Cubic:
    """Cubic parts of n values, as far as they come from the h hidden units of one layer."""

    mix: Array  # (n, h), coefficients of the units in the values
    factors: tuple[tuple[Array, Array], ...]  # the a_p (h, r) and B_p (h, r, r) of the forms that enter the units

    def half(self, weights: Array, vectors: Array) -> Array:
        """Matrices X_i (n, r, r) with X_i + X_i' = 3 weight_i T_i.v_i, for vectors v_i (n, r)."""
        xp, mix, total = namespace(mix=self.mix), self.mix * weights[:, None], 0.0
        for a, bend in self.factors:
            sides = []
            for part in chunks(vectors.shape[0], max(1, _NUMBERS // (a.shape[0] * a.shape[1]))):
                images = xp.tensordot(vectors[part, :], bend, axes=([1], [2]))  # B_j v_i, (m, h, r)
                sides.append(xp.matrix_transpose(mix[part, :][:, :, None] * a) @ images)
            total = total + xp.concat(sides) + xp.tensordot(0.5 * mix * (vectors @ a.T), bend, axes=1)
        return total


@record
class FirstTerms:
    """First terms of n values in standard normal z (r,): mean + linear z + (z' quadratic z - trace)."""

    state: State  # moments of the values
    linear: Array  # (n, r)
    quadratic: Array | None  # (n, r, r), symmetric; None for zero
    cubic: tuple[Cubic, ...] = ()  # cubic part, from every hidden layer so far


class _Expand:
    """A walk that carries the expansions of all values beside their moments."""

    def __init__(self) -> None:
        self.closure = Closure()

    def layer(self, layer: Layer, e: FirstTerms) -> FirstTerms:
        state = self.closure.layer(layer, e.state)
        hidden = self.closure.hidden
        weights = [w for w in (hidden.layer.forms.directions, hidden.layer.forms.gate_directions) if w is not None]
        forms = [_image(w, e) for w in weights]
        stein = _Stein(forms, _derivatives(hidden, _ORDER + 3))
        linear, quadratic = stein.along((0, 0), _ORDER), 0.5 * stein.square()
        slopes = [mean[:, None] for _, mean, _ in stein.terms((0, 0))]
        cubic = [
            replace(parts[0], mix=sum(slope * part.mix for slope, part in zip(slopes, parts, strict=True)))
            for parts in zip(*(f.cubic for f in forms), strict=True)
        ]
        own = Cubic(eye(linear.shape[0], linear), stein.cubic())
        made = FirstTerms(state, linear, quadratic, (*cubic, own))
        return made if hidden.readout is None else _image(hidden.readout, made)

    def enter(self, e: FirstTerms) -> FirstTerms:
        return replace(e, state=self.closure.enter(e.state))

    def join(self, before: FirstTerms, branch: FirstTerms) -> FirstTerms:
        one, two, known = before.quadratic, branch.quadratic, len(before.cubic)
        both = zip(before.cubic, branch.cubic[:known], strict=True)
        return FirstTerms(
            self.closure.join(before.state, branch.state),
            before.linear + branch.linear,
            two if one is None else one if two is None else one + two,
            (*(replace(a, mix=a.mix + b.mix) for a, b in both), *branch.cubic[known:]),
        )


def _image(weight: Array, e: FirstTerms) -> FirstTerms:
    """First terms of weight @ values, with the state of the values."""
    xp = namespace(weight=weight)
    return FirstTerms(
        e.state,
        weight @ e.linear,
        None if e.quadratic is None else xp.tensordot(weight, e.quadratic, axes=1),
        tuple(replace(c, mix=weight @ c.mix) for c in e.cubic),
    )


class _Stein:
    """Expectations of derivatives of units in z, from the expansions of the forms p that enter them.

    A key (k, l) stands for G, the derivative of the units k times in the first form and l times in the second.
    """

    def __init__(self, forms: list[FirstTerms], expected: dict[tuple[int, int], Array]) -> None:
        self.forms, self.expected = forms, expected

    def terms(self, key: tuple[int, int]) -> list[tuple[tuple[int, int], Array, FirstTerms]]:
        """Keys of the derivatives G_p that are not zero, with E[G_p] and p."""
        next_keys = [(key[0] + 1, key[1]), (key[0], key[1] + 1)][: len(self.forms)]
        pairs = zip(next_keys, self.forms, strict=True)
        return [(k, self.expected[k], p) for k, p in pairs if k in self.expected]

    def along(self, key: tuple[int, int], order: int) -> Array:
        """E[G z] = sum_p E[G_p grad p], (h, r)."""
        total = 0.0
        for k, mean, p in self.terms(key):
            total = total + mean[:, None] * p.linear
            if order and p.quadratic is not None:
                total = total + 2 * _times(p.quadratic, self.along(k, order - 1))
        return total

    def square(self) -> Array:
        """E[grad grad' F] = sum_p E[F_p grad grad' p] + sum_pq E[F_pq grad p grad q'], (h, r, r)."""
        xp, total = namespace(linear=self.forms[0].linear), 0.0
        for k, mean, p in self.terms((0, 0)):
            if p.quadratic is not None:
                total = total + 2 * mean[:, None, None] * p.quadratic
            for k2, mean2, q in self.terms(k):
                products = [(p.linear, mean2[:, None] * q.linear)]  # of two vectors
                if p.quadratic is not None and q.quadratic is not None:
                    total = total + (4 * mean2[:, None, None] * p.quadratic) @ q.quadratic
                    w = 2 * self.along(k2, _ORDER - 1)
                    products += [(p.linear, _times(q.quadratic, w)), (_times(p.quadratic, w), q.linear)]
                    products += [
                        (4 * mean4[:, None] * _times(p.quadratic, r.linear), _times(q.quadratic, s.linear))
                        for k3, _, r in self.terms(k2)
                        for _, mean4, s in self.terms(k3)
                    ]
                left, right = zip(*products, strict=True)
                total = total + xp.stack(left, axis=2) @ xp.stack(right, axis=1)
                if p.cubic:
                    half = sum(part.half(2 * mean2, q.linear) for part in p.cubic)
                    total = total + half + xp.matrix_transpose(half)
        return total

    def cubic(self) -> tuple[tuple[Array, Array], ...]:
        """The a_p and B_p, whose symmetric products are the cubic parts of the units."""
        made = []
        for k, _, p in self.terms((0, 0)):
            bend = 0.0
            for k2, mean2, q in self.terms(k):
                if q.quadratic is not None:
                    bend = bend + mean2[:, None, None] * q.quadratic
                for _, mean3, r in self.terms(k2):
                    bend = bend + (mean3[:, None] / 6 * q.linear)[:, :, None] * r.linear[:, None, :]
            made.append((p.linear, bend))
        return tuple(made)


def _times(matrices: Array, vectors: Array) -> Array:
    return (matrices @ vectors[:, :, None])[:, :, 0]


def _derivatives(hidden: Expansion, order: int) -> dict[tuple[int, int], Array]:
    """E of the derivatives of the units in their forms, by key, (h,) each: d_k = E[act^(k)] = sqrt(k!) c_k / s^k."""
    units, inverse = hidden.units, hidden.units.inverse_scales
    c = replace(units, gate=None).expand(hidden.layer.activation, order).plain
    d = [math.sqrt(math.factorial(k)) * c[k, :] * inverse**k for k in range(order + 1)]
    gate = units.gate
    if gate is None:
        return {(k, 0): v for k, v in enumerate(d)}
    shared = gate.slopes * units.scales  # covariance of both forms
    plain = {(k, 0): gate.means * d[k] + shared * d[k + 1] for k in range(order)}
    return plain | {(k, 1): v for k, v in enumerate(d)}


def expand(net: Network, inputs: Gaussian) -> tuple[FirstTerms, Array]:
    """First terms of the outputs of a network, and the coordinates forward (r, d): z = forward (x - mean)."""
    start = State.at(inputs)
    forward, back = coordinates(net, start.inputs)
    r, widest = forward.shape[0], max(layer.dim_hidden for layer in layers_of(net))
    if widest * r**2 > _LARGEST:
        raise TooLargeError(
            f"the quadratic parts of {widest} units of a layer in {r} directions have {widest * r**2:.1e} entries, "
            f"more than {_LARGEST:.1e}; method='composed' fits a deep network of any size, method='sampled' its linear "
            f"map."
        )
    return walk(net, _Expand(), FirstTerms(start, back, None)), forward


def coordinates(net: Network, inputs: Gaussian) -> tuple[Array, Array]:
    """Standard normal coordinates z = forward (x - mean) of all that a network sees of its inputs, and Cov(x, z).

    `forward` (r, d) is in the row space of the first layer; the network at x is the network at mean + back z, with
    `back` = Cov(x, z), (d, r).
    """
    rows = net.entry
    rows = eye(inputs.dim, widen(inputs.mean)) if rows is None or rows.shape[0] > inputs.dim else widen(rows)
    xp, spread = namespace(rows=rows), inputs.times_covariance(rows)
    axes = principal_axes(spread @ rows.T, rows)
    if not axes.values.shape[0]:  # nothing varies: one coordinate, with back = 0
        return rows[:1, :], spread.T[:, :1] * 0
    # The axes along which the forms vary most come last. They have either sign; choose one, so that samples of z are
    # the same for every array library.
    turn = axes.forward.T @ xp.linalg.eigh(axes.back.T @ axes.back)[1]
    seen = to_numpy(turn.T @ rows)
    signs = np.sign(np.take_along_axis(seen, np.abs(seen).argmax(axis=1)[:, None], axis=1)[:, 0])
    turn = turn * constant(signs, turn)
    return turn.T @ rows, spread.T @ turn
