"""The optimal polynomial under a Gaussian mixture: the Gram-weighted average of the components' optima (MATH 4).

    ( sum_c pi_c G_c ) g = sum_c pi_c G_c g_c

Degree 0 and 1 are closed form. Degree 2 is solved directly while it is small, then with matrix products alone; higher
degrees directly where they fit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

from mlpoly.arrays import Array, astype, cast_like, chunks, namespace, no_gradients, on_cpu, scalar, widen
from mlpoly.fitting.blockcg import BlockSolution, block_cg
from mlpoly.fitting.chaos import solve_directly
from mlpoly.fitting.gaussian import fit_gaussian
from mlpoly.fitting.gram import (
    GramOperator,
    dense_from_matrices,
    gram_operator,
    matrices_of_chaos,
    matrices_of_dense,
    matrices_of_ridge,
    padded,
    standard_inverse,
)
from mlpoly.fitting.report import SolveReport
from mlpoly.fitting.whitening import Whitening, whiten
from mlpoly.inputs import GaussianMixture
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, Polynomial, Source, to_dense
from mlpoly.progress import progress
from mlpoly.records import replace

__all__ = ["METHOD", "fit_mixture_linear", "fit_mixture_quadratic", "normal_equations"]

METHOD = "least squares under a Gaussian mixture"
_DIRECT = 300  # monomials, which 23 inputs have: no tolerance, start or distance of components matters there
_COARSEST = 96  # whitened coordinates of the smallest problem worth solving first
# Least variance within the components, as a fraction of that between them, at which the stopping rule can be trusted;
# and at which its square, the curvature of what happens inside them, is above rounding.
_DISTANT, _OUT_OF_SIGHT = 1e-5, 1e-9
_COARSE_TOLERANCE = 2e-3
_OUTPUTS = 32  # outputs solved together: more share a larger Krylov space, but need more memory


def fit_mixture_linear(net: Layer, inputs: GaussianMixture, degree: int) -> DensePolynomial:
    """Degree 0 or 1, by the law of total covariance; minimum norm where the inputs do not vary."""
    whitening = whiten(inputs)
    means, cross, misfits = _output_moments(net, inputs, whitening)
    linear = (cross.T @ whitening.forward) if degree else None

    def cast(a: Array) -> Array:
        return cast_like(a, net.prototype)

    report = SolveReport("closed form", 0, True, 0.0, misfits[degree], 0.0, whitening.kept, whitening.dropped)
    return DensePolynomial(
        cast(whitening.center),
        cast(means),
        None if linear is None else cast(linear),
        inputs=inputs,
        report=report,
        source=Source(net.activation.name, METHOD),
    )


def _output_moments(
    net: Layer, inputs: GaussianMixture, whitening: Whitening
) -> tuple[Array, Array, tuple[float, float]]:
    """E[f] (o,) and Cov[z, f] (r, o) over the mixture, in whitened coordinates; misfits of degree 0 and 1."""
    weights = widen(inputs.weights)
    firsts, crosses, places, spreads = [], [], [], []
    for g in inputs.components:
        best = fit_gaussian(net, g, 1)
        place, cov = whitening.gaussian(g.mean, g.covariance)
        anywhere = cast_like(g.mean, best.directions)
        slopes = widen(best.gradient(anywhere)) @ whitening.back  # optimal linear map of the component, (o, r)
        firsts.append(widen(best(g.mean)))
        crosses.append(cov @ slopes.T)
        spreads.append(_total(crosses[-1] * slopes.T))
        places.append(place)
    mean = sum((weights[c] * f for c, f in enumerate(firsts)), start=firsts[0] * 0)
    cross = crosses[0] * 0
    between, within = 0.0, 0.0  # variance of the components' optima, of degree 0 and what degree 1 adds
    for c, (f, k, z) in enumerate(zip(firsts, crosses, places, strict=True)):
        cross = cross + weights[c] * (k + z[:, None] * (f - mean))
        between += scalar(weights[c]) * _total((f - mean) ** 2)
        within += scalar(weights[c]) * spreads[c]
    return mean, cross, (between, between + within - _total(cross * cross))


def _total(a: Array) -> float:
    return scalar(namespace(a=a).sum(a))


def fit_mixture_quadratic(
    net: Layer,
    inputs: GaussianMixture,
    start: Polynomial | None,
    tolerance: float,
    max_iterations: int,
    show_progress: bool,
) -> DensePolynomial:
    """Degree 2: directly where that is quick, else by block conjugate gradients with the matrix-free Gram operator.

    No gradients flow through it.
    """
    with no_gradients(net.prototype):
        whitening = whiten(inputs, net.prototype)
        if math.comb(whitening.kept + 2, 2) <= _DIRECT:
            values, report = solve_directly(net, inputs, 2, whitening)
            matrices = matrices_of_chaos(values)
        else:
            limits = (tolerance, max_iterations, show_progress)
            if _coarse_sizes(whitening.kept + 1):
                whitening = whitening.ordered_for(net.forms.stacked)
            matrices, report = _solve(net, inputs, start, limits, whitening)
        made = dense_from_matrices(matrices, whitening, lambda a: cast_like(a, net.prototype))
        return replace(made, inputs=inputs, report=report, source=Source(net.activation.name, METHOD))


def _solve(
    net: Layer,
    inputs: GaussianMixture,
    start: Polynomial | None,
    limits: tuple[float, int, bool],
    whitening: Whitening,
) -> tuple[Array, SolveReport]:
    """Matrices (o, n, n) of the optimum, by block conjugate gradients, some outputs at a time, and how that went."""
    tolerance, max_iterations, show = limits
    xp = namespace(means=inputs.means)
    rounding = _precision(inputs.means)  # inputs in float32 are known no better, whatever follows
    if whitening.within < _DISTANT:
        # What varies inside components that are far apart converges last, after a standstill that would pass for the
        # end; and its curvature, `within` squared, lies below the roundings of float32.
        tolerance, rounding = 0.0, _precision(whitening.center)
    operator = gram_operator(inputs, whitening, single=_single_suffices(inputs, tolerance))
    b, misfits = normal_equations(net, inputs, whitening, operator)
    first = None if start is None else matrices_of_dense(to_dense(start, start_center(start, whitening)), whitening)
    if first is not None and not bool(xp.all(xp.isfinite(first))):
        raise ValueError("start has NaN or infinite coefficients; leave it out, or pass the answer of an earlier fit.")
    answer, reports = [], []
    for part in chunks(b.shape[0], _OUTPUTS):
        matrices, report = _solve_outputs(
            operator,
            b[part, ...],
            scalar(namespace(m=misfits).sum(misfits[part])),
            None if first is None else first[part, ...],
            (tolerance, max_iterations, show),
            whitening,
            rounding,
        )
        answer.append(matrices)
        reports.append(report)
    report = _joined(reports)
    if whitening.within < _OUT_OF_SIGHT:
        warnings.warn(
            f"components are about {whitening.within**-0.5:.0e} of their own standard deviations apart: what a "
            f"quadratic of {inputs.dim} inputs can do inside them is lost in rounding; use method='neuronwise'.",
            stacklevel=4,
        )
        report = replace(report, converged=False, gain_left=math.nan)
    return xp.concat(answer), report


def _single_suffices(inputs: GaussianMixture, tolerance: float) -> bool:
    """Whether products in float32 are faster and cannot be seen at this tolerance.

    Their relative error is 1e-7 of a residual that the stopping rule lets stand at about the root of the tolerance;
    the vectors, the right-hand side and the certificate stay in float64.
    """
    return tolerance >= 1e-4 and inputs.dim >= 64 and on_cpu(inputs.means)


def start_center(start: Polynomial, whitening: Whitening) -> Array:
    """The mixture's mean in the dtype of the starting polynomial."""
    return astype(whitening.center, start.prototype.dtype)


def normal_equations(
    net: Layer, inputs: GaussianMixture, whitening: Whitening, operator: GramOperator
) -> tuple[Array, Array]:
    """Right-hand side sum_c pi_c G_c g_c, (o, n, n), and the misfit of the zero polynomial per output, (o,)."""
    xp = namespace(means=inputs.means)
    total, misfit = None, None
    for c, g in enumerate(inputs.components):
        best = matrices_of_ridge(fit_gaussian(net, g, 2), whitening)
        image = operator.weights[c] * operator.component(c, best)
        square = xp.sum(image * best, axis=(-1, -2))
        total = image if total is None else total + image
        misfit = square if misfit is None else misfit + square
    return total, misfit


def _solve_outputs(
    operator: GramOperator,
    b: Array,
    misfit: float,
    start: Array | None,
    limits: tuple[float, int, bool],
    whitening: Whitening,
    precision: float,
) -> tuple[Array, SolveReport]:
    """Matrices (o, n, n) that solve the normal equations for some outputs, and how that went."""
    tolerance, max_iterations, show = limits
    interrupted = False
    b = padded(b, operator.side)
    start = None if start is None else padded(start, operator.side)
    with progress("mixture fit", max_iterations, show) as update:

        def solve(
            op: GramOperator, right: Array, first: Array | None, share: float, at_zero: float = misfit
        ) -> BlockSolution:
            nonlocal interrupted
            found = block_cg(
                op.apply,
                standard_inverse(op.size, right),
                right,
                first,
                at_zero,
                share,
                0 if interrupted else max_iterations,
                lambda k, value: update(k, f"{op.size - 1} directions, misfit {value:.4g}"),
                max(precision, _precision(op.products)),
            )
            interrupted = interrupted or found.interrupted
            return found

        start = _cascade(operator, b, misfit, start, solve)
        found = solve(operator, b, start, tolerance)
        exact = operator.in_full_precision()  # the certificate is never computed in float32
        if found.exhausted and _precision(operator.products) > _precision(b):
            more = solve(exact, b, _symmetric(found.x), tolerance)
            found = more._replace(history=found.history + more.history)
    x = _symmetric(found.x)
    image = exact.apply(x)
    report = SolveReport(
        "block conjugate gradients",
        len(found.history),
        found.converged,
        _norm(b - image, operator.size) / max(_norm(b, operator.size), 1e-300),
        misfit + scalar(namespace(x=x).sum(x * (image - 2 * b))),
        found.gain_left,
        whitening.kept,
        whitening.dropped,
        tuple(found.history),
    )
    return x[:, : operator.size, : operator.size], report


def _cascade(
    operator: GramOperator, b: Array, misfit: float, start: Array | None, solve: Callable[..., BlockSolution]
) -> Array | None:
    """A start for large problems: solve in the directions that the network sees most of, then in more and more of them.

    The network's variance lies in few directions, so that this does most of the work at a fraction of the cost: on
    MNIST it replaces 40 of 60 iterations. The start lies in the span of the leading directions, so where several
    quadratics agree on the whole mixture the answer may differ from the one of minimum norm. A start that the caller
    gives is corrected in the same way.
    """
    n = operator.size
    sizes = _coarse_sizes(n)
    if not sizes:
        return start
    if start is not None:
        image = operator.apply(start)
        misfit += scalar(namespace(b=b).sum(start * (image - 2 * b)))
        b = b - image
    x: Array | None = None
    for m in sizes:
        first = None if x is None else padded(x, m)
        x = _symmetric(solve(operator.leading(m), b[:, :m, :m] + 0, first, _COARSE_TOLERANCE, misfit).x)
    correction = padded(x, operator.side)
    return correction if start is None else start + correction


def _coarse_sizes(n: int) -> list[int]:
    """Sides of the smaller problems that are worth solving before one of side n."""
    return [-(-m // 8) * 8 for m in (n * 10 // 55, n * 10 // 28, n * 10 // 16) if m >= _COARSEST]


def _precision(a: Array) -> float:
    """Relative rounding error of the numbers in an array."""
    return float(namespace(a=a).finfo(a.dtype).eps)


def _symmetric(matrices: Array) -> Array:
    return 0.5 * (matrices + namespace(m=matrices).matrix_transpose(matrices))


def _norm(residual: Array, n: int) -> float:
    """Size of a gradient in the metric of N(0, I), in which the problem is well scaled."""
    xp = namespace(residual=residual)
    return max(scalar(xp.sum(residual * standard_inverse(n, residual)(residual))), 0.0) ** 0.5


def _joined(reports: list[SolveReport]) -> SolveReport:
    """One report for all blocks of outputs: the worst of each figure."""
    first = reports[0]
    if len(reports) == 1:
        return first
    return SolveReport(
        first.method,
        max(r.iterations for r in reports),
        all(r.converged for r in reports),
        max(r.gradient for r in reports),
        sum(r.misfit for r in reports),
        max(r.gain_left for r in reports),
        first.kept,
        first.dropped,
    )
