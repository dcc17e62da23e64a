"""The matrices and coefficients of a polynomial, layer by layer, for compilers of encrypted networks."""

import math
from typing import Any

import numpy as np
from numpy.polynomial import HermiteE
from numpy.polynomial import Polynomial as PowerSeries

from mlpoly.arrays import as_float_array, check_finite, check_shape, to_numpy
from mlpoly.fitting.deep.layerwise import WIDER
from mlpoly.he.lowering import check_form, radius_for
from mlpoly.polynomials import ComposedPolynomial, Polynomial, RidgePolynomial
from mlpoly.records import record
from mlpoly.special import clenshaw, hermite, in_powers


@record
class UnitPolynomials:
    """Linear maps with a polynomial of every entry between each two; `unit_polynomials` makes it.

    Layer l maps v to ``u = weights[l] @ v + biases[l]``, and its unit i to the sum of ``coefficients[l][i, k] u_i^k``.
    The last weights and biases make the outputs. Every u is within [-1, 1] for inputs in range.

    Attributes
    ----------
    weights : tuple of ndarray (h, d)
        Matrices in the shapes of `torch.nn.Linear`, one more than there are hidden layers.
    biases : tuple of ndarray (h,)
    coefficients : tuple of ndarray (h, n + 1)
        Coefficients of 1, u, u^2, ..., u^n, a row for each unit of a hidden layer.
    """

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    coefficients: tuple[np.ndarray, ...]

    def __call__(self, x: Any) -> np.ndarray:
        """Values (..., o) at points x (..., d), in float64 and without encryption."""
        return self.run(x)[1]

    def run(self, x: Any) -> tuple[list[np.ndarray], np.ndarray]:
        """What enters the polynomials of each layer, (..., h), and the outputs (..., o), at points x (..., d)."""
        x = to_numpy(as_float_array("x", x, integers=True)).astype(np.float64)
        check_shape("x", x, (*x.shape[:-1], self.weights[0].shape[1]), "one row for each point")
        check_finite("x", x)
        u = [x @ self.weights[0].T + self.biases[0]]
        with np.errstate(over="ignore", invalid="ignore"):  # far outside the range
            for table, weight, bias in zip(self.coefficients, self.weights[1:], self.biases[1:], strict=True):
                u.append(np.polynomial.polynomial.polyval(u[-1], table.T, tensor=False) @ weight.T + bias)
        return u[:-1], u[-1]


def unit_polynomials(poly: Polynomial, shared: bool = False, outside: float = 1e-6) -> UnitPolynomials:
    """Return the matrices and coefficients of a polynomial, layer by layer.

    Parameters
    ----------
    poly : RidgePolynomial or ComposedPolynomial
        Without gated units, skip connections or bounds; `Polynomial.to_he` takes gates and skip connections too.
    shared : bool
        Whether all units of a layer have one polynomial, as libraries ask that know activations alone. It is the
        closest to all units' activations together, by least squares in closed form, and less accurate.
    outside : float
        Probability with which some unit may leave its range, under the Gaussian marginals of the fit.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(3), None, np.ones((2, 3)), None, "gelu")
    >>> poly = mp.fit(net, mp.Gaussian.standard(3), degree=4)
    >>> layers = mp.he.unit_polynomials(poly)
    >>> [table.shape for table in layers.coefficients], np.allclose(layers(np.eye(3)), poly(np.eye(3)))
    ([(3, 5)], True)
    """
    stages = _chain(poly)
    radius = radius_for(outside, sum(stage.units.size for stage in stages if stage.degree > 1))
    weights, biases, coefficients = [], [], []
    matrix, constant = np.eye(poly.dim_in), np.zeros(poly.dim_in)  # the values so far, from the last polynomials
    for p in stages:
        if p.degree <= 1:
            slope = p.tensor(1) if p.degree else np.zeros((p.dim_out, p.dim_in))
            matrix, constant = slope @ matrix, slope @ constant + p.tensor(0)
            continue
        units = p.units
        if shared:  # u = (y - middle) / half with the preactivation y = mean + scale t
            q = _shared(p, radius, _guard(poly))
            half, middle = np.diff(q.domain)[0] / 2, np.sum(q.domain) / 2
            scale, shift, table = units.scales / half, (units.means - middle) / half, np.tile(q.coef, (units.size, 1))
        else:  # u = t / radius
            scale, shift = np.full(units.size, 1 / radius), np.zeros(units.size)
            table = np.stack([c * radius**k for k, c in enumerate(in_powers(p.series.plain))], axis=1)
        scale = scale * units.inverse_scales
        weights.append(scale[:, None] * (units.directions @ matrix))
        biases.append(scale * (units.directions @ constant - units.shifts) + shift)
        coefficients.append(table)
        matrix = np.eye(units.size) if p.readout is None else p.readout
        constant = np.zeros(len(matrix)) if p.bias is None else p.bias
    return UnitPolynomials((*weights, matrix), (*biases, constant), tuple(coefficients))


def _shared(p: RidgePolynomial, radius: float, guard: float) -> PowerSeries:
    """The polynomial q(y) of the preactivations that is closest to the activation over all units.

    Where every unit's own polynomial p_i is the closest to the activation under its Gaussian preactivation
    y = m_i + s_i t, what it leaves is orthogonal to all polynomials of its degree. So the q with the least sum of
    E[(p_i(t) - q(m_i + s_i t))^2] is the closest too; Gauss-Hermite nodes integrate these products exactly. Weights by
    the size of the units' readout made the outputs of two networks for MNIST worse at every degree from 2 to 7.
    """
    means, scales, n = p.units.means, p.units.scales, p.degree
    t, mass = np.polynomial.hermite_e.hermegauss(n + 1)
    t, mass = np.concatenate([t, math.sqrt(WIDER) * t]), np.concatenate([(1 - guard) * mass, guard * mass])
    t, mass = t[mass > 0, None], mass[mass > 0, None]
    y = means + scales * t
    # in Hermite polynomials of what all units together have as mean and spread
    middle = np.mean(means)
    spread = np.sqrt(np.mean(scales**2 + (means - middle) ** 2)) or 1.0
    root = np.sqrt(mass / np.sum(mass))
    columns = [(root * he).ravel() for he in hermite((y - middle) / spread, n)]
    values = root * clenshaw(p.series.plain, t + 0 * means)
    fitted = np.linalg.lstsq(np.stack(columns, axis=1), values.ravel(), rcond=None)[0]
    low, high = np.min(means - radius * scales), np.max(means + radius * scales)
    if low == high:
        low, high = low - 1, high + 1
    norms = np.sqrt(np.cumprod(np.maximum(np.arange(n + 1), 1.0)))  # he_k = He_k / sqrt(k!)
    series = HermiteE(fitted / norms, domain=[middle - spread, middle + spread])
    q = series.convert(kind=PowerSeries, domain=[low, high])
    return PowerSeries(np.pad(q.coef, (0, n + 1 - len(q.coef))), domain=q.domain)


def _guard(poly: Polynomial) -> float:
    """Weight of the wide component under which a polynomial was fitted."""
    guard = None if poly.report is None else poly.report.details.get("guard")
    if guard is None and isinstance(poly, ComposedPolynomial) and poly.guarded is not None:
        raise ValueError(
            "the weight of the polynomial's guard, under which a shared polynomial is the closest, is known to its "
            "report alone, which files do not have; pass the polynomial that mlpoly.fit returned."
        )
    return guard or 0.0


def _chain(poly: Any) -> list[Any]:
    """Hidden layers and affine maps in the order of the data, in float64 of NumPy; TypeError if they are no chain."""
    check_form(poly)
    if isinstance(poly, ComposedPolynomial):
        if poly.skip:
            raise TypeError("the polynomial has a skip connection, which a chain of layers has not; poly.to_he() does.")
        return [part for stage in poly.applied for part in _chain(stage)]
    if isinstance(poly, RidgePolynomial) and poly.series.gated is not None and poly.degree > 1:
        raise TypeError(
            "the polynomial has gated units (a GLU): products of two linear forms, which no polynomial of a single "
            "number is; poly.to_he() has them."
        )
    return [poly.to(np.zeros(1))]
