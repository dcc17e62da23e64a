"""Slopes for the neurons of a ridge polynomial beyond a bound, from the activation (MATH 4c)."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, cast_like, namespace, widen
from mlpoly.networks import Layer
from mlpoly.polynomials import RidgePolynomial, Tails
from mlpoly.polynomials.ridge import check_bound
from mlpoly.records import replace

__all__ = ["chord_tails", "with_tails"]


def with_tails(net: Layer, poly: RidgePolynomial, bound: float) -> RidgePolynomial:
    """The polynomial of a network's neurons, with lines along the network's activation beyond the bound.

    Parameters
    ----------
    net : MLP or GLU
        That the polynomial was fitted to.
    poly : RidgePolynomial
        With the network's neurons, in their order.
    bound : float
        Standard deviations of the preactivations, see `RidgePolynomial.__call__`.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from mlpoly.fitting.tails import with_tails
    >>> net = mp.MLP(np.eye(1), None, np.eye(1), None, "relu")
    >>> poly = with_tails(net, mp.fit(net, mp.Gaussian.standard(1), 4), 3.0)
    >>> far = np.array([[-50.0], [50.0]])
    >>> bool(abs(poly(far, bound=3.0) - net(far)).max() < 0.5), bool(abs(poly(far)).min() > 1e5)
    (True, True)
    """
    _check(net, poly)
    bound = check_bound(bound)
    slopes = chord_tails(net, poly, bound)
    gate = None if slopes.gate is None or poly.degree < 2 else cast_like(slopes.gate, poly.series)
    tails = Tails(cast_like(slopes.slopes, poly.series), gate, bound)
    return replace(poly, tails=tails if poly.degree > 0 else None)


def _check(net: Any, poly: Any) -> None:
    """Raise unless the polynomial has the network's neurons."""
    if not isinstance(poly, RidgePolynomial):
        raise TypeError(f"poly must be a RidgePolynomial, whose neurons can go on as lines; got {type(poly).__name__}.")
    weight = net.prototype
    other = poly.degree > 0 and (poly.gate is not None) != (net.forms.gate_directions is not None)
    if tuple(weight.shape) != tuple(poly.directions.shape) or other:
        raise ValueError(
            f"poly has {poly.directions.shape[0]} neurons of {poly.dim_in} inputs, the {type(net).__name__} has "
            f"{weight.shape[0]} of {weight.shape[1]}; give the network that the polynomial was fitted to."
        )


def chord_tails(net: Any, poly: RidgePolynomial, bound: float) -> Tails:
    """Slopes of the activation between one and two bounds from the mean, in standard deviations; in float64.

    A chord and not the tangent at the bound: it tells how the activation goes on, also where it is still bent there.
    A gated unit is act(z) u with u = shift + slope t + e; at the bound t is held in u, so that what it gives goes
    into e, and P has the slope of act(z) times what is left of u without e.
    """
    xp = namespace(shifts=poly.shifts)
    bias = net.forms.bias
    # The shifts are those of w.x, without the bias.
    center = widen(poly.shifts) + (0.0 if bias is None else widen(bias))
    scale = widen(poly.scales)

    def slope(sign: float) -> Array:
        near, far = (net.activation(center + sign * k * bound * scale) for k in (1, 2))
        return (far - near) * (sign / bound)

    slopes = xp.stack([slope(-1.0), slope(1.0)])
    if poly.gate is None:
        return Tails(slopes, None, bound)
    up = 0.0 if net.forms.gate_bias is None else widen(net.forms.gate_bias)
    middle, along = widen(poly.gate.shifts) + up, bound * widen(poly.gate.slopes)
    return Tails(slopes * xp.stack([middle - along, middle + along]), slopes, bound)
