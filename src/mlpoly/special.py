"""Special functions with one formula for every array library: normal tails and Hermite polynomials.

Hermite polynomials are orthonormal throughout the library: he_k = He_k / sqrt(k!). Coefficients then have the size of
the function at every degree, also in float32.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, add_product, constant, namespace, namespace_of, promote, scan
from mlpoly.arrays.placement import counts

Read = Callable[[Array], Array]

_HORNER = 3  # up to this degree monomials are as accurate as Hermite polynomials
WIDEST = 37.0  # standard deviations; beyond, the density is below 1e-297
LADDER = (0.0, *(sign * 3.0**j for j in range(-1, 9) for sign in (-1, 1)))  # where functions without pieces may bend
_FAR = 1.0e4  # beyond this many standard deviations every tail is zero, and squares must not overflow


def bell(u: Array) -> Array:
    """exp(-u^2 / 2)."""
    xp = namespace_of(u)
    u = xp.clip(u, -_FAR, _FAR)
    return xp.exp(-0.5 * u * u)


def normal_pdf(u: Array) -> Array:
    """Standard normal density."""
    return bell(u) * (1 / math.sqrt(2 * math.pi))


def normal_cdf(u: Array) -> Array:
    """Standard normal distribution function, with full relative accuracy in the lower tail."""
    xp = namespace_of(u)
    tail = normal_pdf(u) * tail_integrals(xp.abs(u))[0]
    return xp.where(u > 0, 1 - tail, tail)


def in_deviations(distance: Array, std: Array) -> Array:
    """Distance / std, clipped to 10^4 standard deviations, because a tiny `std` > 0 would overflow."""
    xp = namespace(distance=distance, std=std)
    near = xp.abs(distance) / _FAR <= std
    return xp.where(near, xp.where(near, distance, 0.0) / std, xp.sign(distance) * _FAR)


def images(points: Sequence[float], mean: Array, scale: Array) -> Array:
    """Values of t, (k, h), at which mean + scale t passes k points, clipped like `in_deviations`; scale is not zero."""
    distance = constant(np.asarray(points, dtype=float).reshape(-1, 1), mean) - mean
    return in_deviations(distance, namespace_of(scale).abs(scale)) * namespace_of(scale).sign(scale)


def panels(grid: np.ndarray, edges: Sequence[Array], nodes: int, splits: int = 1) -> tuple[Array, Array]:
    """Gauss-Legendre on panels in t between a grid and other edges, for h integrals over a standard normal t.

    The grid (m,) is ascending and common to all integrals, from their lower end to the upper. The edges, arrays (k, h),
    are in any order; those beyond the grid are moved to its ends. Every panel is cut into `splits` parts of `nodes`
    nodes each. Returns t and weights ((m - 1 + sum of the k) nodes splits, h); these contain the normal density.
    """
    xp, like = namespace_of(edges[0]), edges[0]
    common = xp.broadcast_to(constant(grid, like)[:, None], (len(grid), like.shape[1]))
    inner = [xp.clip(e, float(grid[0]), float(grid[-1])) for e in edges]
    cuts = xp.sort(xp.concat([common, *inner], axis=0), axis=0)
    left, width = cuts[:-1, None, :], ((cuts[1:, :] - cuts[:-1, :]) / splits)[:, None, :]
    x, w = np.polynomial.legendre.leggauss(nodes)
    inside = constant((np.arange(splits)[:, None] + (x + 1) / 2).reshape(1, -1, 1), like)
    fractions = constant(np.tile(w / 2, splits).reshape(1, -1, 1), like)
    t = xp.reshape(left + width * inside, (-1, like.shape[1]))
    return t, xp.reshape(width * fractions, t.shape) * normal_pdf(t)


def reach_of(degree: int) -> float:
    """Number of standard deviations beyond which less than 1e-13 of the norm of he_k remains, up to a degree.

    By Cauchy and Schwarz, |E[f he_k 1(|t| > T)]| <= sqrt(E[f^2]) sqrt(E[he_k^2 1(|t| > T)]), whatever f is.
    """
    return max(11 + 1.2 * math.sqrt(degree), 7 + 2 * math.sqrt(degree))


def tail_integrals(x: Array) -> tuple[Array, Array, Array]:
    """Scaled tail integrals I_0, I_1, I_2 of the standard normal for x >= 0.

    ``I_r(x) = E[(t - x)_+^r] / (r! phi(x))``; I_0 is Mills' ratio. All three keep full relative accuracy for any
    x >= 0, where phi(u) + u Phi(u) would lose every digit (MATH 3). I_1 and I_2 come from Chebyshev series in
    w = (x - K) / (x + K), made by tools/make_tail_table.py; I_0 = x I_1 + 2 I_2 is the stable direction of the
    recurrence, a sum of positive terms.
    """
    scale = 1 / (x + _TAIL_SCALE)
    w = (x - _TAIL_SCALE) * scale
    one = _chebyshev(_TAIL_1, w) * scale * scale
    two = _chebyshev(_TAIL_2, w) * scale * scale * scale
    return x * one + 2 * two, one, two


def _chebyshev(series: tuple[float, ...], w: Array) -> Array:
    """Clenshaw's recurrence for a Chebyshev series."""
    twice, later = 2 * w, namespace_of(w).zeros_like(w)
    ahead = later + series[-1]
    for c in reversed(series[1:-1]):
        ahead, later = add_product(c - later, twice, ahead), ahead
    return add_product(series[0] - later, w, ahead)


def weighted_hermite(t: Array, degree: int, weight: Array | float = 1.0, read: Read | None = None) -> Array:
    """Weight * phi(t) * he_k(t) for k = 0, ..., degree, at any t, (degree + 1, ...), or what `read` makes of each.

    Where phi underflows, gradients of long recurrences would be zero times infinity: t stops there.
    """
    xp = namespace_of(t)
    limits = xp.finfo(t.dtype)
    reach = math.sqrt(-2 * math.log(float(limits.smallest_normal) * float(limits.eps)))
    t = xp.clip(t, -reach, reach)
    return hermite(t, degree, normal_pdf(t) * weight, read=read)


def hermite(
    t: Array, degree: int, start: Array | float = 1.0, ratio: Array | None = None, read: Read | None = None
) -> Array:
    """Start * he_k(t) for k = 0, ..., degree, (degree + 1, ...): orthonormal probabilists' Hermite polynomials.

    With a `ratio`, times ratio^k; with `read`, a sum for example, what it makes of each.
    """
    line, square = (t, None) if ratio is None else (ratio * t, ratio * ratio)

    def step(state: tuple[Array, Array], root: Any, following: Any) -> tuple[tuple[Array, Array], Array]:
        now, before = state
        ahead = (line * now - root * before) / following
        return (ahead, now if square is None else square * now), now if read is None else read(now)

    roots = [math.sqrt(k) for k in range(degree + 2)]
    start = line * 0 + start
    return scan(step, (start, start * 0), roots[:-1], roots[1:])[1]


def clenshaw(coefficients: Array, t: Array) -> Array:
    """The sum of coefficients[k] he_k(t) over k; coefficients (degree + 1, ...) broadcast against t (..., h)."""
    return recurrence(coefficients)(t)


def recurrence(coefficients: Array) -> Callable[[Array], Array]:
    """`clenshaw` of these coefficients, with what does not depend on t computed once."""
    (coefficients,) = promote(coefficients)  # powers of 16-bit numbers lose their digits
    last = coefficients.shape[0] - 1
    if last == 0:
        return lambda t: coefficients[0, ...] + t * 0
    if last <= _HORNER:
        # In powers of t: one pass over the memory less, and equally accurate at low degree.
        *lower, top = in_powers(coefficients)

        def horner(t: Array) -> Array:
            ahead = top
            for c in reversed(lower):
                ahead = add_product(c, t, ahead)
            return ahead

        return horner
    # The top two steps hold one coefficient each, so they work on rows of coefficients and not on arrays like t.
    top, second = coefficients[last, ...], coefficients[last, ...] * (1 / math.sqrt(last))

    def steps(t: Array) -> Array:
        later, ahead = top, add_product(coefficients[last - 1, ...], t, second)
        for k in range(last - 2, -1, -1):
            start = later * -math.sqrt((k + 1) / (k + 2)) + coefficients[k, ...]
            ahead, later = add_product(start, t, ahead, 1 / math.sqrt(k + 1)), ahead
        return ahead

    return steps


def in_powers(series: Array) -> list[Array]:
    """Hermite series (n + 1, ...) as a list of coefficients of 1, t, t^2, ..."""
    n = series.shape[0]
    table = hermite_in_powers(n - 1)

    def power(j: int) -> Array:
        terms = [series[k, ...] * table[k][j] for k in range(j, n, 2)]
        return sum(terms[1:], start=terms[0])

    return [power(j) for j in range(n)]


def times_line(series: Array, offset: Array, slope: Array) -> Array:
    """Hermite series (n, ...) of (offset + slope t) p(t), for the series (n + 1, ...) of p: one degree is lost.

    From t he_k = sqrt(k+1) he_{k+1} + sqrt(k) he_{k-1}. The top coefficient of the product would need one more of p,
    so a polynomial that is known in full is padded with a row of zeros first.
    """
    xp, n = namespace_of(series), series.shape[0] - 1
    if n < 1:
        return series[:0, ...] * offset
    roots = xp.sqrt(counts(n, series))
    beside = series[1:, ...] * roots
    if n > 1:
        beside = xp.concat([beside[:1, ...], add_product(beside[1:, ...], series[: n - 1, ...], roots[: n - 1, ...])])
    return add_product(offset * series[:n, ...], slope, beside)


def hermite_in_powers(degree: int) -> list[list[float]]:
    """Row k holds the coefficients of he_k in powers of t, ascending."""
    rows = [[1.0] + [0.0] * degree]
    for k in range(degree):
        shifted = [0.0, *rows[k][:-1]]
        previous = rows[k - 1] if k else [0.0] * (degree + 1)
        rows.append([(a - math.sqrt(k) * b) / math.sqrt(k + 1) for a, b in zip(shifted, previous, strict=True)])
    return rows


def powers_in_hermite(degree: int) -> list[list[float]]:
    """Row r holds the coefficients of t^r in the he_k, ascending; t he_k = sqrt(k+1) he_{k+1} + sqrt(k) he_{k-1}."""
    rows = [[1.0] + [0.0] * degree]
    for _ in range(degree):
        last = [*rows[-1], 0.0]
        raised = [math.sqrt(k) * last[k - 1] if k else 0.0 for k in range(degree + 1)]
        lowered = [math.sqrt(k + 1) * last[k + 1] for k in range(degree + 1)]
        rows.append([a + b for a, b in zip(raised, lowered, strict=True)])
    return rows


_TAIL_SCALE = 5.0
_TAIL_1 = (
    7.8597380034808975, -10.280105529426146, 4.690862672933098, -1.6321977169554296,
    0.43846751693311253, -0.08748852861635262, 0.011162389695205745, -0.0002484003688461305,
    -0.00023179221148506316, 4.149688759768298e-05, 1.1217487339251781e-06, -1.3576670065970656e-06,
    9.272504767275665e-08, 3.7154486381916865e-08, -5.538035992550984e-09, -1.04042888325423e-09,
    2.430750999842619e-10, 3.338052563193299e-11, -1.0043787356494317e-11, -1.3141007795784934e-12,
    4.1052976797493524e-13, 6.278312717264468e-14, -1.6460752582861707e-14, -3.3815586977054583e-15,
    6.152147619177619e-16, 1.9009609166204326e-16, -1.853964800239124e-17,
)  # fmt: skip
_TAIL_2 = (
    21.267862398885327, -31.956301555521936, 16.536143261382716, -6.338319057038805,
    1.8193572477171187, -0.37272190399325217, 0.04418727444560652, 0.001083285257331783,
    -0.001505710282684181, 0.00020151011866697464, 2.2235768184581033e-05, -9.395774251343168e-06,
    1.073134700984578e-07, 3.3741218851029606e-07, -2.5525324690613675e-08, -1.2016175508641706e-08,
    1.4710043010909186e-09, 4.66317656527941e-10, -6.885236417262309e-11, -2.0415652765902888e-11,
    2.922826668554289e-12, 9.965610710298741e-13, -1.0994758271584323e-13, -5.2075081952589945e-14,
    3.038235850176333e-15, 2.7734510006410745e-15, 1.5322012825204343e-17,
)  # fmt: skip
