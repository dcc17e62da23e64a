"""Smooth activations whose Hermite coefficients are elementary: GELU, erf, Gaussian bump, sine, cosine (MATH 3)."""

import math

from mlpoly.activations.record import Activation
from mlpoly.arrays import Array, erf, erfc, namespace, namespace_of
from mlpoly.arrays.placement import counts
from mlpoly.special import bell, hermite, normal_cdf, normal_pdf


def _project_gelu(mean: Array, std: Array, degree: int) -> Array:
    """c_k = (-s/v)^k (v he_{k-2}(u) / sqrt(k(k-1)) - he_k(u) / v) phi(u) for k >= 2, v^2 = 1 + s^2, u = m/v."""
    xp = namespace(mean=mean, std=std)
    v = xp.hypot(xp.ones_like(std), std)  # the square of a large std would overflow
    u = mean / v
    density, below = normal_pdf(u), normal_cdf(u)
    low = [mean * below + std / v * std * density, std * (below + u * density / v / v)][: degree + 1]
    if degree < 2:
        return xp.stack(low)
    ratio, k = -std / v, counts(degree, xp.stack(low))[1:, ...]
    functions = hermite(u, degree, density, ratio)
    return xp.concat(
        [xp.stack(low), v * ratio * ratio * functions[:-2, ...] / xp.sqrt(k * (k - 1)) - functions[2:, ...] / v]
    )


def _project_erf(mean: Array, std: Array, degree: int) -> Array:
    """erf(y) = 2 Phi(sqrt(2) y) - 1, so c_k = 2 (-1)^(k-1) (sqrt(2) s/v)^k he_{k-1}(u) phi(u) / sqrt(k), k >= 1."""
    xp = namespace(mean=mean, std=std)
    v = xp.hypot(xp.ones_like(std), math.sqrt(2) * std)
    u = mean / v * math.sqrt(2)
    level = erf(mean / v)[None, ...]
    if degree == 0:
        return level
    half, ratio = _half_density(u), -math.sqrt(2) * (std / v)
    functions = hermite(u, degree - 1, half, ratio) / xp.sqrt(counts(degree, level))
    return xp.concat([level, -2 / math.sqrt(2 * math.pi) * half * ratio * functions])


def _half_density(u: Array) -> Array:
    """exp(-u^2/4): he_k(u) times this stays of order 1, where he_k alone overflows and exp(-u^2/2) alone vanishes."""
    return bell(u * math.sqrt(0.5))


def _project_gaussian(mean: Array, std: Array, degree: int) -> Array:
    """c_k = (-s/v)^k he_k(u) exp(-u^2/2) / v with v^2 = 1 + s^2, u = m/v."""
    xp = namespace(mean=mean, std=std)
    v = xp.hypot(xp.ones_like(std), std)
    half = _half_density(mean / v)
    return half / v * hermite(mean / v, degree, half, -std / v)


def _project_wave(mean: Array, std: Array, degree: int, quarter: int) -> Array:
    """c_k = exp(-s^2/2) s^k / sqrt(k!) sin(m + (k + quarter) pi/2)."""
    xp = namespace(mean=mean, std=std)
    sine, cosine = xp.sin(mean), xp.cos(mean)
    cycle = (sine, cosine, -sine, -cosine)
    out, power = [], bell(std)
    for k in range(degree + 1):
        out.append(power * cycle[(k + quarter) % 4])
        power = power * std / math.sqrt(k + 1)
    return xp.stack(out)


def _sine(y: Array) -> Array:
    return namespace_of(y).sin(y)


def _cosine(y: Array) -> Array:
    return namespace_of(y).cos(y)


def _gelu_gate(y: Array) -> Array:
    """Phi(y); 1 + erf would lose all digits in the lower tail."""
    return 0.5 * erfc(y * -math.sqrt(0.5))


GELU = Activation(
    "gelu",
    lambda y: y * _gelu_gate(y),
    _project_gelu,
    "y Φ(y)",
    derivative=lambda y: _gelu_gate(y) + y * normal_pdf(y),
    bends=(-math.sqrt(2), math.sqrt(2)),
)
ERF = Activation(
    "erf",
    erf,
    _project_erf,
    "erf(y)",
    derivative=lambda y: 2 / math.sqrt(math.pi) * bell(y * math.sqrt(2)),
    bends=(0.0,),
)
GAUSSIAN = Activation(
    "gaussian", bell, _project_gaussian, "exp(-y²/2)", derivative=lambda y: -y * bell(y), bends=(-1.0, 1.0)
)
SIN = Activation("sin", _sine, lambda m, s, n: _project_wave(m, s, n, 0), "sin(y)", derivative=_cosine)
COS = Activation("cos", _cosine, lambda m, s, n: _project_wave(m, s, n, 1), "cos(y)", derivative=lambda y: -_sine(y))
