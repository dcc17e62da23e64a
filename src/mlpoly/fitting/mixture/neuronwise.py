"""Each neuron's own best polynomial under a mixture: a ridge form, in closed form, for any degree and size (MATH 4b).

The one-dimensional problem has the form of the whole one, with a matrix B per component as small as the degree, which
re-expands the pooled Hermite basis in the component's own.
"""

import math

from mlpoly.activations import Activation
from mlpoly.arrays import Array, namespace, rounding_error, safe_inverse, widen
from mlpoly.fitting.gaussian import fit_gaussian, ridge_polynomial
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.linalg.least_squares import LeastSquares
from mlpoly.networks import Layer
from mlpoly.polynomials import RidgePolynomial
from mlpoly.records import replace
from mlpoly.special import times_line
from mlpoly.units import Series, Units

METHOD = "least squares neuron by neuron under a Gaussian mixture"


def fit_neuronwise(net: Layer, inputs: Gaussian | GaussianMixture, degree: int) -> RidgePolynomial:
    """Ridge polynomial whose neurons are each optimal under their own marginal of the inputs."""
    if isinstance(inputs, Gaussian):
        return fit_gaussian(net, inputs, degree)
    weights, like = widen(inputs.weights), net.prototype
    xp, (pooled, parts) = namespace(weights=weights), Units.pooled(net, inputs)
    systems = [_system(net.activation, pooled, own, degree) for own in parts]
    # A basis function that overflows on some component could not be evaluated there either: its coefficient is zero.
    usable = systems[0][0][:1, ...] == systems[0][0][:1, ...]
    for basis, _ in systems:
        usable = usable & xp.all(xp.isfinite(basis), axis=0, keepdims=True)
    problem = LeastSquares()
    for c, (basis, target) in enumerate(systems):
        rows = xp.permute_dims(xp.where(usable, basis, 0.0), (2, 0, 1))
        problem.add(weights[c], rows, target.T[..., None])
    solved = problem.solve(rounding_error(like))[..., 0].T
    gate, gated = pooled.gate, None
    if gate is not None and degree:
        gated = solved[degree + 1 :, ...] * safe_inverse(gate.spreads)
    units = replace(pooled, gate=None if gate is None else replace(gate, spreads=None))
    return ridge_polynomial(net, inputs, units, Series(solved[: degree + 1, ...], gated), METHOD)


def _system(activation: Activation, pooled: Units, own: Units, degree: int) -> tuple[Array, Array]:
    """The pooled basis (rows, basis, h) and the unit (rows, h), in a component's own he_j(t) and he_j(t) e / spread."""
    gap, inverse = own.shifts - pooled.shifts, safe_inverse(pooled.scales)
    xp = namespace(gap=gap)
    # Column k of the plain part (degree + 1, degree + 1, h) is he_k(t), where t = offset + slope * the component's t.
    offset, slope, zero = gap * inverse, own.scales * inverse, gap * 0
    columns = [xp.stack([zero + 1] + [zero] * degree)]
    before = columns[0] * 0
    for k in range(degree):
        raised = times_line(xp.concat([columns[-1], columns[-1][:1, ...] * 0]), offset, slope)
        columns.append((raised - math.sqrt(k) * before) / math.sqrt(k + 1))
        before = columns[-2]
    # A neuron that is constant under the whole mixture has a constant as its only basis function.
    moving = xp.where(pooled.scales > 0, 1.0, 0.0)
    basis = xp.stack([columns[0], *[c * moving for c in columns[1:]]], axis=1)
    target = own.expand(activation, degree)
    if own.gate is None or pooled.gate is None or target.gated is None:
        return basis, target.plain
    # e = e0 + e1 t + own spread * noise in the component's coordinates
    narrow = safe_inverse(pooled.gate.spreads)
    e0 = own.gate.shifts - pooled.gate.shifts - pooled.gate.slopes * gap * inverse
    e1 = own.gate.slopes - pooled.gate.slopes * own.scales * inverse
    lower = basis[: degree + 1, :degree, ...]
    gated = times_line(xp.concat([lower, lower[:1, ...] * 0]), e0, e1) * narrow
    across = basis[:degree, :degree, ...] * (own.gate.spreads * narrow)
    top = xp.concat([basis, gated], axis=1)
    bottom = xp.concat([basis[:degree, ...] * 0, across], axis=1)
    return xp.concat([top, bottom]), xp.concat([target.plain, target.gated * own.gate.spreads])
