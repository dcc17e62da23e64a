"""A ridge polynomial in monomials: per neuron, and as dense tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mlpoly.arrays import Array, constant, eye, namespace, promote
from mlpoly.special import in_powers

if TYPE_CHECKING:
    from mlpoly.polynomials.ridge import RidgePolynomial


def neuron_powers(p: RidgePolynomial) -> tuple[list[Array], list[Array]]:
    """Each neuron as A_i(w_i.x) + (v_i.x) B_i(w_i.x): coefficients of A and B, ascending; B is empty without a gate."""
    a, units, g = in_powers(p.series.plain), p.units, p.units.gate
    slope, offset = units.inverse_scales, -units.shifts * units.inverse_scales
    b: list[Array] = []
    if g is not None and p.series.gated is not None:
        q = in_powers(p.series.gated)
        # (v.x - shift - slope t) q(t): the part without v.x joins the first polynomial.
        a = [a[k] - (g.shifts * q[k] if k < len(q) else 0) - (g.slopes * q[k - 1] if k else 0) for k in range(len(a))]
        b = _substitute(q, slope, offset)
    return _substitute(a, slope, offset), b


def _substitute(powers: list[Array], slope: Array, offset: Array) -> list[Array]:
    """Coefficients in y of a polynomial in t = slope y + offset, by Horner's rule."""
    out = [powers[-1]]
    for c in reversed(powers[:-1]):
        higher = [(out[j] * offset if j < len(out) else 0) + out[j - 1] * slope for j in range(1, len(out) + 1)]
        out = [out[0] * offset + c, *higher]
    return out


def ridge_tensor(p: RidgePolynomial, k: int) -> Array:
    """Symmetric tensor (o, d, ..., d) of the monomials of degree k."""
    a, b = neuron_powers(p)
    xp = namespace(directions=p.units.directions)
    o, d = p.dim_out, p.dim_in
    if k == 0:
        return p.read_out(a[0])
    if k > p.degree or p.units.directions.shape[0] == 0:
        return constant(np.zeros((o, *[d] * k)), p.units.directions)
    total = _contract(p, a[k], [p.units.directions] * k)
    if p.units.gate is not None and k - 1 < len(b):
        once = _contract(p, b[k - 1], [p.units.gate.directions] + [p.units.directions] * (k - 1))
        # Symmetrise: v takes each of the k positions with the same weight.
        for place in range(k):
            axes = (0, *range(2, place + 2), 1, *range(place + 2, k + 1))
            total = total + xp.permute_dims(once, axes) / k
    return total


def ridge_slices(p: RidgePolynomial, k: int) -> Callable[[tuple[int, ...]], Array]:
    """Return a function of k - 2 input indices to the slice (o, d, d) of the tensor of degree k >= 2 there.

    One slice is o matrix products; the tensor itself, of d^k numbers, is never made.
    """
    a, b = neuron_powers(p)
    xp, W, V = namespace(directions=p.units.directions), p.units.directions, None
    if p.units.gate is not None and k - 1 < len(b):
        V = p.units.gate.directions
    readout = eye(p.dim_out, W) if p.readout is None else p.readout

    def at(lead: tuple[int, ...]) -> Array:
        along = W[:, 0] * 0 + 1
        for i in lead:
            along = along * W[:, i]
        slices = []
        for o in range(p.dim_out):
            total = (W * (readout[o, :] * a[k] * along)[:, None]).T @ W
            if V is not None:
                # v takes each of the k positions with the same weight: one of the lead, or one of the last two.
                gated = readout[o, :] * b[k - 1] / k
                mixed = (V * (gated * along)[:, None]).T @ W
                total = total + mixed + mixed.T
                for place, i in enumerate(lead):
                    others = gated * V[:, i]
                    for j in lead[:place] + lead[place + 1 :]:
                        others = others * W[:, j]
                    total = total + (W * others[:, None]).T @ W
            slices.append(total)
        return xp.stack(slices)

    return at


def _contract(p: RidgePolynomial, weights: Array, forms: list[Array]) -> Array:
    """Sum over neurons of readout[o, i] weights[i] forms_1[i] x ... x forms_k[i], as one matrix product."""
    xp = namespace(directions=p.units.directions)
    h, d = p.units.directions.shape
    tail = None
    for form in forms[1:]:
        tail = form if tail is None else xp.reshape(tail[:, :, None] * form[:, None, :], (h, -1))
    tail, first = promote(weights[:, None] if tail is None else weights[:, None] * tail, forms[0])
    if p.readout is None:
        flat = first[:, :, None] * tail[:, None, :]
    else:
        (readout,) = promote(p.readout)[:1]
        flat = xp.stack([(first * readout[i, :][:, None]).T @ tail for i in range(p.dim_out)])
    return xp.reshape(flat, (p.dim_out, *[d] * len(forms)))
