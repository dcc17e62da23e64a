"""Piecewise polynomials (ReLU and its relatives): Hermite coefficients in closed form.

At the mean the function is one of its pieces, whose coefficients are exact; every other piece enters through the normal
tail beyond its break. Tails are small and computed with full relative accuracy, so nothing cancels, however far the
mean is from the breaks.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mlpoly.activations.record import Activation
from mlpoly.arrays import Array, constant, namespace, namespace_of
from mlpoly.special import in_deviations, normal_pdf, powers_in_hermite, tail_integrals, weighted_hermite

_HIGHEST_JUMP = 2  # that of the tail integrals
Polynomial = Sequence[float]  # coefficients in powers of y, ascending


def piecewise(
    name: str, formula: str, function: Callable[[Array], Array], breaks: Sequence[float], pieces: Sequence[Polynomial]
) -> Activation:
    """Build the record of a piecewise polynomial, whose piece j holds on breaks[j - 1] < y <= breaks[j].

    The breaks ascend, and jumps between neighbouring pieces have a degree of at most 2.
    """
    size = max(len(p) for p in pieces)
    padded = [[*map(float, p), *[0.0] * (size - len(p))] for p in pieces]
    for at, left, right in zip(breaks, padded, padded[1:], strict=False):
        jump = max((k for k in range(size) if left[k] != right[k]), default=0)
        if jump > _HIGHEST_JUMP:
            raise ValueError(
                f"pieces of {name!r} jump at {at:g} by a polynomial of degree {jump}, and the closed form goes up to "
                f"degree {_HIGHEST_JUMP}; pass the function itself as activation, which is then integrated."
            )

    def project(mean: Array, std: Array, degree: int) -> Array:
        xp = namespace(mean=mean, std=std)
        if len(breaks) < 2:
            return _project(mean, std, padded, breaks, degree)
        # Breaks that are close together on the scale of the Gaussian: their tails would cancel, or overflow.
        close = (breaks[-1] - breaks[0]) / 2 < std
        wide = _project(mean, xp.where(close, 1.0, std), padded, breaks, degree)
        outer = _project(mean, std, [padded[0], padded[-1]], breaks[:1], degree)
        return xp.where(close, outer + _between_breaks(mean, std, padded, breaks, degree), wide)

    def derivative(y: Array) -> Array:
        xp, rising = namespace_of(y), [[k * c for k, c in enumerate(p)][1:] for p in padded]
        slope = _horner(rising[0], y)
        for at, piece in zip(breaks, rising[1:], strict=True):
            slope = xp.where(y >= at, _horner(piece, y), slope)
        return slope

    about = (formula, "closed form", tuple(map(float, breaks)), tuple(map(tuple, padded)))
    return Activation(name, function, project, *about, derivative=derivative)


def _horner(coefficients: Polynomial, y: Array) -> Array:
    """Values of a polynomial, in the shape of y."""
    *lower, top = coefficients or (0.0,)
    value = y * 0 + top  # not a constant: its gradient is zero, not missing
    for c in reversed(lower):
        value = value * y + c
    return value


def _project(mean: Array, std: Array, pieces: list[list[float]], breaks: Sequence[float], degree: int) -> Array:
    """Coefficients as the piece at the mean plus one tail per break."""
    xp = namespace(mean=mean, std=std)
    moving = std > 0
    safe = xp.where(moving, std, 1.0)
    # The piece at the mean, extended to the whole line: powers of (y - mean) = std t, then t^r in Hermite
    # polynomials.
    size, zero = len(pieces[0]), xp.zeros_like(mean)
    chosen = [zero + c for c in pieces[0]]
    for at, piece in zip(breaks, pieces[1:], strict=True):
        chosen = [xp.where(mean > at, c, old) for c, old in zip(piece, chosen, strict=True)]
    in_t = []
    for r, c in enumerate(_recentred(chosen, mean)):
        for _ in range(r):  # one by one: a power of a large std may overflow, and infinity times a zero slope is NaN
            c = c * std
        in_t.append(c)
    table = powers_in_hermite(size - 1)
    inside = [sum((in_t[r] * table[r][k] for r in range(k, size, 2)), start=zero) for k in range(min(size, degree + 1))]
    total = xp.stack([*inside, *[zero] * (degree + 1 - len(inside))])
    for at, left, right in zip(breaks, pieces, pieces[1:], strict=False):
        jump = _recentred([b - a for a, b in zip(left, right, strict=True)], at)
        tail = _tail(mean, safe, at, jump, degree)
        total = total + xp.where(moving, tail, 0.0)  # a neuron without variance sees only the piece at its mean
    return total


def _between_breaks(mean: Array, std: Array, pieces: list[list[float]], breaks: Sequence[float], degree: int) -> Array:
    """Contribution of the inner pieces, by Gauss-Legendre on intervals of at most two standard deviations."""
    xp = namespace(mean=mean, std=std)
    safe = xp.where(std > 0, std, 1.0)
    # he_k turns by sqrt(k) within a standard deviation, and n nodes follow any angle below n.
    x, w = np.polynomial.legendre.leggauss(16 + math.ceil(math.sqrt(degree)))
    total = mean * 0
    for low, high, piece in zip(breaks, breaks[1:], pieces[1:], strict=False):
        y = (low + high) / 2 + (high - low) / 2 * x
        weight = (high - low) / 2 * w * np.polyval((np.asarray(piece) - np.asarray(pieces[-1]))[::-1], y)
        shape = (-1, *[1] * len(mean.shape))  # nodes on a leading axis
        t = in_deviations(constant(y.reshape(shape), mean) - mean, safe)
        sums = weighted_hermite(t, degree, constant(weight.reshape(shape), mean), partial(xp.sum, axis=0))
        total = total + sums / safe
    return total


def _recentred(coefficients: Sequence[Any], at: Any) -> list[Any]:
    """Coefficients in powers of (y - at), by repeated synthetic division."""
    out = list(coefficients)
    for start in range(len(out)):
        for j in range(len(out) - 2, start - 1, -1):
            out[j] = out[j] + at * out[j + 1]
    return out


def _tail(mean: Array, std: Array, at: float, jump: list[float], degree: int) -> Array:
    """Coefficients of the jump polynomial beyond a break, on the side away from the mean.

    For the mean on the left this is jump(y) 1[y > at]; on the right, -jump(y) 1[y < at]. With x the distance of the
    break in standard deviations, E[(y - at)_+^r he_k] is std^r r! / sqrt(k!) times phi I_{r-k} for k <= r, and
    times He_{k-r-1} phi above (MATH 3); the mirror image has the sign (-1)^(r + k).
    """
    xp = namespace(mean=mean, std=std)
    right = mean > at
    x = in_deviations(xp.where(right, mean - at, at - mean), std)
    density, integrals = normal_pdf(x), tail_integrals(x)
    functions = weighted_hermite(x, max(degree - 1, 0))
    total = xp.zeros_like(mean)
    for r, q in enumerate(jump):
        if q == 0:
            continue
        values = [density * integrals[r - k] / math.sqrt(math.factorial(k)) for k in range(min(r, degree) + 1)]
        values = xp.concat([xp.stack(values), functions[: max(degree - r, 0), ...]])
        factors = [1 / math.sqrt(math.prod(range(k - r, k + 1))) if k > r else 1.0 for k in range(degree + 1)]
        mirrored = constant([(-1.0) ** (r + k + 1) * f for k, f in enumerate(factors)], mean)
        shape = (-1, *[1] * len(mean.shape))
        signs = xp.where(right, xp.reshape(mirrored, shape), xp.reshape(constant(factors, mean), shape))
        total = total + signs * (q * math.factorial(r) * std**r) * values
    return total
