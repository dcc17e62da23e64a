"""All neurons fitted together under a mixture: the best polynomial of the ridge class, in closed form (MATH 13).

Under one Gaussian the optima of the neurons add up to the optimum of the layer. Under a mixture their errors are
correlated, and one neuron can make up for another. The covariances of the features are sums over the components.
"""

from typing import Any

from mlpoly.arrays import Array, cast_like, namespace, widen
from mlpoly.fitting.joint_features import Coefficients, Features, features_of
from mlpoly.fitting.mixture.neuronwise import fit_neuronwise
from mlpoly.fitting.report import FitReport
from mlpoly.inputs import GaussianMixture
from mlpoly.linalg.shrinkage import ShrunkLeastSquares
from mlpoly.moments import Expansion, inner
from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial, RidgePolynomial
from mlpoly.records import map_arrays, replace

METHOD = "least squares over all neurons together under a Gaussian mixture"


def fit_mixture_joint(
    net: Layer,
    inputs: GaussianMixture,
    degree: int,
    coefficients: Coefficients = "auto",
    shrinkage: float = 0.0,
    start: RidgePolynomial | BoundedPolynomial | None = None,
) -> Any:
    """The best polynomial of all neurons together under a mixture; with "auto", coefficients are free while few.

    It starts from the fit neuron by neuron, or from `start`, which may be bounded.
    """
    start = fit_neuronwise(net, inputs, degree) if start is None else start
    if not degree:
        return replace(start, report=FitReport(METHOD, "a constant", details={"kind": "neuronwise"}))
    features = features_of(map_arrays(replace(start, inputs=None), widen), coefficients)[-1]
    problem = ShrunkLeastSquares(_moments(net, inputs, features), features.each.dim_out)
    details = features.details(problem, shrinkage)
    summary = "{kind}, {coefficients} coefficients an output, rank {rank}".format(**details)
    poly = map_arrays(features.changed(*problem.solve(shrinkage), METHOD), lambda a: cast_like(a, net.prototype))
    return replace(poly, inputs=inputs, report=FitReport(METHOD, summary, details=details))


def _moments(net: Layer, inputs: GaussianMixture, fitted: Features) -> Array:
    """E[u u'] (1 + m + o, 1 + m + o) for u = (1, features, f - old features), as far as the solution needs it."""
    weights, old = widen(inputs.weights), fitted.readout
    xp = namespace(weights=weights)
    total: Array = 0.0
    for c, g in enumerate(inputs.components):
        f = Expansion.of(net, g)
        features = fitted.each.hermite(g)
        gram, cross = (inner(features, other, full=True).total for other in (features, f))
        mean = xp.concat([features.mean, f.mean - old @ features.mean])
        rest = xp.concat([gram, cross - gram @ old.T], axis=1)
        cov = xp.concat([rest, xp.concat([rest[:, gram.shape[0] :].T, old @ old.T * 0], axis=1)])
        row = xp.concat([xp.ones_like(mean[:1]), mean])
        cov = xp.concat([cov[:, :1] * 0, cov], axis=1)
        total = total + weights[c] * (row[:, None] * row + xp.concat([cov[:1, :] * 0, cov]))
    # A function that overflows on some component could not be evaluated there either: its coefficient is zero.
    usable = xp.isfinite(xp.linalg.diagonal(total))
    return xp.where(usable[:, None] & usable, total, 0.0) / xp.sum(weights)
