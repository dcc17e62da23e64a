"""All neurons fitted together under a mixture: the best polynomial of the ridge class, in closed form (MATH 13).

Under one Gaussian the optima of the neurons add up to the optimum of the layer. Under a mixture their errors are
correlated, and one neuron can make up for another. The features are the neurons' own polynomials ("readout"), or every
function that these are made of ("free"); their covariances are sums over the components.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mlpoly.arrays import Array, cast_like, constant, eye, namespace, widen
from mlpoly.errors import TooLargeError
from mlpoly.fitting.mixture.neuronwise import fit_neuronwise
from mlpoly.fitting.report import FitReport
from mlpoly.inputs import GaussianMixture
from mlpoly.linalg.shrinkage import ShrunkLeastSquares
from mlpoly.moments import Expansion, inner
from mlpoly.networks import Layer
from mlpoly.polynomials import RidgePolynomial
from mlpoly.records import map_arrays, replace
from mlpoly.units import Series

METHOD = "least squares over all neurons together under a Gaussian mixture"
FREE = 4096  # features up to which free coefficients are the default: decomposing their Gram matrix takes seconds
MOST = 2**14  # features on request: a Gram matrix of 2 GiB


def fit_mixture_joint(
    net: Layer,
    inputs: GaussianMixture,
    degree: int,
    coefficients: Literal["auto", "readout", "free"] = "auto",
    shrinkage: float = 0.0,
) -> RidgePolynomial:
    """Return the best polynomial of all neurons together under a mixture.

    Parameters
    ----------
    net : Layer
    inputs : GaussianMixture
    degree : int
    coefficients : {"auto", "readout", "free"}
        "auto" is "free" while its features are few.
    shrinkage : float
        Weight of the penalty on the distance from the fit neuron by neuron.
    """
    start = fit_neuronwise(net, inputs, degree)
    if not degree:
        return replace(start, report=FitReport(METHOD, "a constant", details={"kind": "neuronwise"}))
    count = net.dim_hidden * degree * (1 if start.series.gated is None else 2)
    if coefficients == "auto":
        coefficients = "free" if count <= FREE else "readout"
    if coefficients == "free" and count > MOST:
        raise too_many_features(degree, count)
    wide = map_arrays(replace(start, inputs=None), widen)
    each, old = _functions(wide) if coefficients == "free" else _neurons(wide)
    problem = ShrunkLeastSquares(_moments(net, inputs, each, old), each.dim_out)
    change, level = problem.solve(shrinkage)
    details: dict[str, Any] = {"kind": coefficients, "coefficients": each.dim_out, "rank": problem.rank}
    details |= {"effective": problem.effective(shrinkage), "shrinkage": shrinkage}
    report = FitReport(
        METHOD, f"{coefficients}, {each.dim_out} coefficients an output, rank {problem.rank}", details=details
    )
    poly = map_arrays(replace(each, readout=old + change.T, bias=level), lambda a: cast_like(a, net.prototype))
    return replace(poly, inputs=inputs, source=replace(start.source, method=METHOD), report=report)


def too_many_features(degree: int, count: int) -> TooLargeError:
    """The error for free coefficients whose Gram matrix is too large."""
    return TooLargeError(
        f"free coefficients of degree {degree} have {count} features, whose Gram matrix takes "
        f"{8 * count**2 / 2**30:.0f} GiB; the limit is {MOST}. Use coefficients='readout'."
    )


def _neurons(start: RidgePolynomial) -> tuple[RidgePolynomial, Array]:
    """The neurons as outputs, and their readout (o, h)."""
    like = start.series.plain
    return replace(start, readout=None, bias=None), eye(like.shape[1], like) if start.readout is None else start.readout


def _functions(start: RidgePolynomial) -> tuple[RidgePolynomial, Array]:
    """All he_k(t_j) and e_j he_(k-1)(t_j), k = 1, ..., n, as outputs, and their readout (o, m) in the start."""
    series, (neurons, readout) = start.series, _neurons(start)
    xp, n, h = namespace(plain=series.plain), start.degree, int(series.plain.shape[1])
    copies = n if series.gated is None else 2 * n

    def one_hot(rows: int, first: int) -> Array:
        """Rows of the copies' series: copy `first` + k has a one in row k."""
        return constant(np.kron(np.eye(rows, copies, first), np.ones((1, h))), series.plain)

    parts = [series.plain[k, :] for k in range(1, n + 1)]
    parts += [] if series.gated is None else [series.gated[k, :] for k in range(n)]
    units = map_arrays(start.units, lambda a: xp.concat([a] * copies, axis=0))
    gated = None if series.gated is None else one_hot(n, n)
    functions = replace(neurons, units=units, series=Series(one_hot(n + 1, -1), gated))
    return functions, xp.concat([readout * part for part in parts], axis=1)


def _moments(net: Layer, inputs: GaussianMixture, each: RidgePolynomial, old: Array) -> Array:
    """E[u u'] (1 + m + o, 1 + m + o) for u = (1, features, f - old features), as far as the solution needs it."""
    weights = widen(inputs.weights)
    xp = namespace(weights=weights)
    total: Array = 0.0
    for c, g in enumerate(inputs.components):
        f = Expansion.of(net, g)
        features = each.hermite(g)
        gram, cross = (inner(features, other, full=True).total for other in (features, f))
        mean = xp.concat([features.mean, f.mean - old @ features.mean])
        rest = xp.concat([gram, cross - gram @ old.T], axis=1)
        cov = xp.concat([rest, xp.concat([rest[:, gram.shape[0] :].T, old @ old.T * 0], axis=1)])
        row = xp.concat([xp.ones_like(mean[:1]), mean])
        total = total + weights[c] * (row[:, None] * row + _framed(cov))
    # A function that overflows on some component could not be evaluated there either: its coefficient is zero.
    usable = xp.isfinite(xp.linalg.diagonal(total))
    return xp.where(usable[:, None] & usable, total, 0.0) / xp.sum(weights)


def _framed(cov: Array) -> Array:
    """The matrix with a row and a column of zeros before it."""
    xp = namespace(cov=cov)
    cov = xp.concat([cov[:, :1] * 0, cov], axis=1)
    return xp.concat([cov[:1, :] * 0, cov])
