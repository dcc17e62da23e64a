"""Polynomials for libraries in which all neurons of a layer share one polynomial, such as Orion.

A layer of such a library is a matrix, a bias and an activation that is the same for every entry; scales, shifts and
factors belong to the matrices around it. The neurons' own polynomials p_i take this form in two ways:

- Exactly, with the power u^n as activation. At degree 2 a neuron is one square, a s^2 + b s = a (s + v)^2 - a v^2 with
  v = b / 2a, or two where it is almost linear and v large. Above it a neuron is n entries, the powers (s + c_j)^n at n
  places c_j, which together with a constant span all polynomials of degree n.
- Approximately, with one polynomial q(y) of the preactivations, the closest to all p_i at once.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.polynomial import HermiteE
from numpy.polynomial import Polynomial as PowerSeries

from mlpoly.arrays import as_float_array, check_finite, check_shape, to_numpy
from mlpoly.fitting.deep.layerwise import WIDER
from mlpoly.he.lowering import check_form, radius_for
from mlpoly.polynomials import ComposedPolynomial, Polynomial, RidgePolynomial
from mlpoly.records import record
from mlpoly.special import clenshaw, hermite, in_powers

_FAR = 16.0  # a parabola whose vertex is farther off than this many ranges becomes two squares


@record
class ActivationNetwork:
    """Linear maps with one polynomial between each two, the same for all entries; `to_orion` makes it.

    What enters a polynomial is within [-1, 1] for inputs in range.

    Attributes
    ----------
    weights : tuple of ndarray (h, d)
        Matrices in the shapes of `torch.nn.Linear`, one more than there are hidden layers.
    biases : tuple of ndarray (h,)
    coefficients : tuple of ndarray (n + 1,)
        Polynomial of each hidden layer, highest power first, as ``orion.nn.Activation`` and `numpy.polyval` take it.
        (1, 0, 0) is the square, ``orion.nn.Quad``, and (1, 0, 0, 0, 0) two squarings.
    """

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    coefficients: tuple[np.ndarray, ...]

    def __call__(self, x: Any) -> np.ndarray:
        """Values (..., o) at points x (..., d), in float64 and without encryption."""
        return self._run(x)[1]

    def intermediates(self, x: Any) -> list[np.ndarray]:
        """What enters each polynomial, (..., h), at points x (..., d); within the range at most one in size."""
        return self._run(x)[0]

    def _run(self, x: Any) -> tuple[list[np.ndarray], np.ndarray]:
        x = to_numpy(as_float_array("x", x, integers=True)).astype(np.float64)
        check_shape("x", x, (*x.shape[:-1], self.weights[0].shape[1]), "one row for each point")
        check_finite("x", x)
        entering = [x @ self.weights[0].T + self.biases[0]]
        for c, weight, bias in zip(self.coefficients, self.weights[1:], self.biases[1:], strict=True):
            entering.append(np.polyval(c, entering[-1]) @ weight.T + bias)
        return entering[:-1], entering[-1]

    @property
    def levels(self) -> int:
        """Levels that Orion uses: one for a matrix, ceil(log2(n + 1)) for an ``Activation``, one for a ``Quad``."""
        return len(self.weights) + sum(_squarings(c) or (len(c) - 1).bit_length() for c in self.coefficients)

    def __repr__(self) -> str:
        sizes = " -> ".join(str(n) for n in (self.weights[0].shape[1], *(len(bias) for bias in self.biases)))
        kinds = ["powers" if _is_power(c) else "polynomials" for c in self.coefficients]
        listed = ", ".join(f"{kind} of degree {len(c) - 1}" for kind, c in zip(kinds, self.coefficients, strict=True))
        return f"ActivationNetwork({sizes}, {listed or 'linear'}, {self.levels} levels)"


def shared_polynomials(poly: Polynomial, outside: float = 1e-6) -> list[PowerSeries]:
    """One polynomial for all neurons of each hidden layer, by least squares in closed form.

    Where every neuron's own polynomial p_i is the closest to the activation under its Gaussian preactivation
    y = m_i + s_i t, the polynomial q with the least sum of E[(p_i(t) - q(m_i + s_i t))^2] is the closest to the
    activation too: what p_i leaves is orthogonal to all polynomials of its degree. A guard's wide component counts as
    in the fit. All neurons have the same weight: weights by the size of their readout made the outputs of two networks
    for MNIST worse at every degree from 2 to 7.

    Parameters
    ----------
    poly : RidgePolynomial or ComposedPolynomial
        Without gated units, skip connections or bounds.
    outside : float
        Probability with which some preactivation may leave its domain, under the Gaussian marginals of the fit.

    Returns
    -------
    list of numpy.polynomial.Polynomial
        Functions q(y) of the preactivation, one for each hidden layer. ``q.domain`` is the range of the layer's
        preactivations, which ``q.coef`` belongs to after scaling it to [-1, 1]; ``q.convert().coef`` are the
        coefficients of 1, y, y^2, ...

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.Chain([mp.MLP(np.eye(3), activation="square"), mp.MLP(np.ones((2, 3)), activation="gelu")])
    >>> poly = mp.fit(net, mp.Gaussian.standard(3), degree=(2, 4), method="composed")
    >>> first, second = mp.he.shared_polynomials(poly)
    >>> first.degree(), second.degree(), round(float(first(3.0)), 6)
    (2, 4, 9.0)
    """
    stages = _chain(poly)
    radius, guard = _radius(stages, outside), _guard(poly)
    return [_shared(stage, radius, guard) for stage in stages if stage.degree > 1]


def to_orion(
    poly: Polynomial, form: Literal["neurons", "shared"] = "neurons", outside: float = 1e-6
) -> ActivationNetwork:
    """A polynomial as ``Linear``, ``Quad`` or ``Activation``, ``Linear``, ..., as Orion has them.

    Parameters
    ----------
    poly : RidgePolynomial or ComposedPolynomial
        Without gated units, skip connections or bounds.
    form : "neurons" or "shared"
        "neurons" is exact: activations are powers u^n, and a layer of degree n > 2 has n entries for every neuron. The
        weights behind it, which multiply the noise of an encryption, grow two- to threefold with each degree.
        "shared" keeps the sizes of the network, with the polynomial of `shared_polynomials` for all neurons of a layer.
    outside : float
        Probability with which some preactivation may leave its range, under the Gaussian marginals of the fit.

    Returns
    -------
    ActivationNetwork

    Raises
    ------
    TypeError
        If the polynomial does not have this form; the message says why.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(3), None, np.ones((2, 3)), None, "gelu")
    >>> poly = mp.fit(net, mp.Gaussian.standard(3), degree=4)
    >>> mp.he.to_orion(poly)
    ActivationNetwork(3 -> 12 -> 2, powers of degree 4, 4 levels)
    >>> mp.he.to_orion(poly, "shared")
    ActivationNetwork(3 -> 3 -> 2, polynomials of degree 4, 5 levels)
    >>> np.allclose(mp.he.to_orion(poly)(np.eye(3)), poly(np.eye(3)))
    True
    """
    if form not in ("neurons", "shared"):
        raise ValueError(f"form must be 'neurons' or 'shared', got {form!r}.")
    stages = _chain(poly)
    radius = _radius(stages, outside)
    weights, biases, coefficients = [], [], []
    matrix, constant = np.eye(poly.dim_in), np.zeros(poly.dim_in)  # the values so far, from the last activations
    for p in stages:
        if p.degree <= 1:
            slope = p.tensor(1) if p.degree else np.zeros((p.dim_out, p.dim_in))
            matrix, constant = slope @ matrix, slope @ constant + p.tensor(0)
            continue
        entries = _entries(p, _shared(p, radius, _guard(poly))) if form == "shared" else _powers(p, radius)
        inverse = p.units.inverse_scales
        t = inverse[:, None] * (p.units.directions @ matrix), inverse * (p.units.directions @ constant - p.units.shifts)
        weights.append(entries.scale[:, None] * t[0][entries.unit])
        biases.append(entries.scale * t[1][entries.unit] + entries.shift)
        coefficients.append(entries.coefficients)
        readout = np.eye(p.units.size) if p.readout is None else p.readout
        matrix, constant = readout[:, entries.unit] * entries.factor, readout @ entries.constant
        constant = constant if p.bias is None else constant + p.bias
    return ActivationNetwork((*weights, matrix), (*biases, constant), tuple(coefficients))


class _Entries(NamedTuple):
    """Neurons p_i(t_i) = constant_i + sum of factor_j q(scale_j t_i + shift_j) over the entries j with unit_j = i."""

    unit: np.ndarray
    scale: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    constant: np.ndarray
    coefficients: np.ndarray  # of q, highest power first


def _powers(p: RidgePolynomial, radius: float) -> _Entries:
    """Neurons as sums of n-th powers: one square each at degree 2, unless they are almost linear, else n translates."""
    n = p.degree
    constant, *powers = (c * radius**k for k, c in enumerate(in_powers(p.series.plain)))  # of s = t / radius
    slope, bend = powers[:2]
    lone = (np.abs(slope) <= 2 * _FAR * np.abs(bend)) & (n == 2)
    one, many = np.flatnonzero(lone & (bend != 0)), np.flatnonzero(~lone)
    # ((s + c) / reach)^n for n places c, which with the constants span all polynomials of degree n
    places = np.linspace(-1, 1, n) * (1.6 if n % 2 else 1.0)
    reach = 1 + np.abs(places)
    table = [
        [math.comb(n, k) * c ** (n - k) / r**n for c, r in zip(places, reach, strict=True)] for k in range(1, n + 1)
    ]
    factors = np.linalg.solve(np.array(table), np.stack(powers)[:, many])
    vertex = slope[one] / (2 * bend[one])
    span = 1 + np.abs(vertex)
    constant[one] -= bend[one] * vertex**2
    constant[many] -= (places / reach) ** n @ factors
    return _Entries(
        np.concatenate([one, np.tile(many, n)]),
        np.concatenate([1 / span, np.repeat(1 / reach, len(many))]) / radius,
        np.concatenate([vertex / span, np.repeat(places / reach, len(many))]),
        np.concatenate([bend[one] * span**2, factors.ravel()]),
        constant,
        np.eye(n + 1)[0],
    )


def _entries(p: RidgePolynomial, q: PowerSeries) -> _Entries:
    """All neurons with the same polynomial of their preactivations, whose domain is scaled to [-1, 1]."""
    middle, half = np.sum(q.domain) / 2, np.diff(q.domain)[0] / 2
    n = p.units.size
    scale, shift = p.units.scales / half, (p.units.means - middle) / half
    return _Entries(np.arange(n), scale, shift, np.ones(n), np.zeros(n), q.coef[::-1])


def _shared(p: RidgePolynomial, radius: float, guard: float) -> PowerSeries:
    """Least squares at Gauss-Hermite nodes, which integrate products of two polynomials of degree n exactly."""
    means, scales, n = p.units.means, p.units.scales, p.degree
    t, mass = np.polynomial.hermite_e.hermegauss(n + 1)
    t, mass = np.concatenate([t, math.sqrt(WIDER) * t]), np.concatenate([(1 - guard) * mass, guard * mass])
    t, mass = t[mass > 0, None], mass[mass > 0, None]
    y = means + scales * t
    # in Hermite polynomials of what all neurons together have as mean and spread
    middle = np.mean(means)
    spread = np.sqrt(np.mean(scales**2 + (means - middle) ** 2)) or 1.0
    root = np.sqrt(mass / np.sum(mass))
    columns = [(root * he).ravel() for he in hermite((y - middle) / spread, n)]
    values = root * clenshaw(p.series.plain, t + 0 * means)
    found = np.linalg.lstsq(np.stack(columns, axis=1), values.ravel(), rcond=None)[0]
    low, high = np.min(means - radius * scales), np.max(means + radius * scales)
    if low == high:
        low, high = low - 1, high + 1
    norms = np.sqrt(np.cumprod(np.maximum(np.arange(n + 1), 1.0)))  # he_k = He_k / sqrt(k!)
    series = HermiteE(found / norms, domain=[middle - spread, middle + spread])
    q = series.convert(kind=PowerSeries, domain=[low, high])
    return PowerSeries(np.pad(q.coef, (0, n + 1 - len(q.coef))), domain=q.domain)


def _is_power(coefficients: np.ndarray) -> bool:
    return bool(coefficients[0] == 1 and not coefficients[1:].any())


def _squarings(coefficients: np.ndarray) -> int:
    """Number of squarings, one after the other, that a polynomial is; 0 if it is not a power u^2, u^4, u^8, ..."""
    n = len(coefficients) - 1
    return n.bit_length() - 1 if _is_power(coefficients) and n & (n - 1) == 0 else 0


def _guard(poly: Polynomial) -> float:
    """Weight of the wide component under which a polynomial was fitted."""
    guard = getattr(poly.report, "guard", None)
    if guard is None and isinstance(poly, ComposedPolynomial) and poly.guarded is not None:
        raise ValueError(
            "the weight of the polynomial's guard, under which a shared polynomial is the closest, is known to its "
            "report alone, which files do not have; pass the polynomial that mlpoly.fit returned."
        )
    return guard or 0.0


def _radius(stages: list[Any], outside: float) -> float:
    """Standard deviations that all preactivations together leave with a probability of at most `outside`."""
    return radius_for(outside, sum(stage.units.size for stage in stages if stage.degree > 1))


def _chain(poly: Any) -> list[Any]:
    """Hidden layers and affine maps in the order of the data, in float64 of NumPy; TypeError if they are no chain."""
    check_form(poly)
    if isinstance(poly, ComposedPolynomial):
        if poly.skip:
            raise TypeError(
                "the polynomial has a skip connection, which a chain of layers has not; poly.to_he() and "
                "mlpoly.he.to_heir(poly) keep it."
            )
        return [part for stage in poly.applied for part in _chain(stage)]
    if isinstance(poly, RidgePolynomial) and poly.series.gated is not None and poly.degree > 1:
        raise TypeError(
            f"the polynomial has gated units (a GLU): products of two linear forms, which no activation of a single "
            f"number is. They cost a second matrix, and one more product of ciphertexts for each of the {poly.degree} "
            f"terms of the gate; poly.to_he() and mlpoly.he.to_heir(poly) have them."
        )
    return [poly.to(np.zeros(1))]
