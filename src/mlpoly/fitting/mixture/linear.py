"""Degree 0 and 1 under a Gaussian mixture, by the law of total covariance (MATH 4)."""

from mlpoly.arrays import Array, cast_like, namespace, scalar, widen
from mlpoly.fitting.gaussian import Optimum, fit_gaussian
from mlpoly.fitting.report import UNDER_A_MIXTURE, FitReport
from mlpoly.inputs import Coordinates, GaussianMixture
from mlpoly.networks import Network
from mlpoly.polynomials import DensePolynomial, Source
from mlpoly.records import replace


def fit_mixture_linear(
    net: Network, inputs: GaussianMixture, degree: int, best_under: Optimum = fit_gaussian
) -> DensePolynomial:
    """Degree 0 or 1: E[f] and, in whitened coordinates z, Cov[z, f]; minimum norm where the inputs do not vary."""
    whitening = Coordinates.of(inputs)
    weights = widen(inputs.weights)
    parts = []  # of each component: weight, mean of its optimum, E[(z - place) f'], place and covariance of z
    within = 0.0  # variance of the components' optima: the part that degree 1 adds
    for c, g in enumerate(inputs.components):
        best = best_under(net, g, 1)
        place, cov = whitening.gaussian(g.mean, g.covariance)
        slopes = widen(best.gradient(cast_like(g.mean, best.prototype))) @ whitening.back  # the same everywhere, (o, r)
        parts.append((weights[c], widen(best(g.mean)), cov @ slopes.T, place, cov))
        within += scalar(weights[c]) * _total((cov @ slopes.T) * slopes.T)
    mean = sum(w * f for w, f, *_ in parts)
    cross = sum(w * (k + z[:, None] * (f - mean)) for w, f, k, z, _ in parts)
    between = sum(scalar(w) * _total((f - mean) ** 2) for w, f, *_ in parts)  # the part of degree 0
    poly = DensePolynomial(
        cast_like(whitening.center, net.prototype),
        cast_like(mean, net.prototype),
        cast_like(cross.T @ whitening.forward, net.prototype) if degree else None,
        inputs=inputs,
        source=Source(net.activation_names, UNDER_A_MIXTURE),
    )
    # The certificate of optimality: E[f - p] and E[(f - p) z] of the answer as it is stored, and of p = 0.
    left, at_zero = [], []
    flat = cross * 0 if poly.linear is None else (widen(poly.linear) @ whitening.back).T
    for g, (w, f, k, z, cov) in zip(inputs.components, parts, strict=True):
        gap = f - widen(poly(g.mean))
        left.append(w * _moments(gap, k - cov @ flat + z[:, None] * gap, degree))
        at_zero.append(w * _moments(f, k + z[:, None] * f, degree))
    gradient, largest = (_total(sum(each) ** 2) ** 0.5 for each in (left, at_zero))
    report = FitReport(
        UNDER_A_MIXTURE,
        "closed form",
        misfit=between + within - _total(cross * cross) if degree else between,
        gradient=gradient / max(largest, 1e-300),
        details={"gain_left": 0.0, "kept": whitening.kept, "dropped": whitening.dropped},
    )
    return replace(poly, report=report)


def _moments(first: Array, cross: Array, degree: int) -> Array:
    """Products of a function with 1 (o,) and z (r, o), in the rows of one array (1, o) or (1 + r, o)."""
    rows = [first[None, :], cross] if degree else [first[None, :]]
    return namespace(first=first).concat(rows)


def _total(a: Array) -> float:
    return scalar(namespace(a=a).sum(a))
