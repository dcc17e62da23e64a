"""The optimal quadratic under a Gaussian mixture: the Gram-weighted average of the components' optima (MATH 4).

    ( sum_c pi_c G_c ) g = sum_c pi_c G_c g_c

Here g_c is the optimum of component c and G_c its Gram operator. Up to 23 inputs this is solved directly. For more, the
left side is only applied, with matrix products, in block conjugate gradients. Above some 150 inputs these begin in the
directions in which the network's preactivations vary most.
"""

import math
import warnings
from dataclasses import dataclass
from numbers import Real

from mlpoly.arrays import Array, as_integer, chunks, namespace, no_gradients, on_cpu
from mlpoly.arrays.placement import cast_like, eye, rounding_error, scalar
from mlpoly.fitting.gaussian import Optimum, fit_gaussian
from mlpoly.fitting.mixture import gram
from mlpoly.fitting.mixture.direct import solve_directly
from mlpoly.fitting.mixture.gram import GramOperator
from mlpoly.fitting.report import UNDER_A_MIXTURE, FitReport
from mlpoly.inputs import Coordinates, GaussianMixture
from mlpoly.linalg.block_cg import BlockSolution, block_cg
from mlpoly.networks import Network
from mlpoly.polynomials import DensePolynomial, Polynomial, Source, to_dense
from mlpoly.progress_bars import progress_bar
from mlpoly.records import replace

_DIRECT = 300  # monomials, as 23 inputs have: up to there neither tolerance, start nor distant components matter
_COARSEST = 96  # whitened coordinates of the smallest problem worth solving first
_COARSE_TOLERANCE = 2e-3
# Least variance within the components, as a fraction of the whole, at which the stopping rule can be trusted; and at
# which its square, the curvature of a quadratic within the components, is above rounding.
_DISTANT, _OUT_OF_SIGHT = 1e-5, 1e-9
_OUTPUTS = 32  # outputs solved together: more outputs search a larger Krylov space, but need more memory


@dataclass(frozen=True)
class ConjugateGradients:
    """Options of the iterative solver, as in `mlpoly.methods.Exact`; each smaller problem has its own iterations."""

    tolerance: float = 1e-3
    max_iterations: int = 500
    start: Polynomial | None = None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        as_integer("max_iterations", self.max_iterations, 1)
        start = self.start
        if start is not None and not isinstance(start, Polynomial):
            kind = type(start).__name__
            raise TypeError(f"start must be a polynomial made by mlpoly.fit or mlpoly.load, got {kind}.")
        if start is not None and start.degree > 2:
            raise ValueError(f"start has degree {start.degree}, more than 2; use start.truncate(2).")


def check_tolerance(tolerance: float) -> None:
    """Raise unless a tolerance is a number from zero on."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not float(tolerance) >= 0:
        raise ValueError(f"tolerance must be a number >= 0, such as 0.01, got {tolerance!r}.")


def fit_mixture_quadratic(
    net: Network, inputs: GaussianMixture, solver: ConjugateGradients, best_under: Optimum = fit_gaussian
) -> DensePolynomial:
    """Degree 2: directly where that is quick, else by block conjugate gradients with the matrix-free Gram operator.

    No gradients flow through it.
    """
    if (start := solver.start) is not None:
        if (start.dim_in, start.dim_out) != (net.dim_in, net.dim_out):
            raise ValueError(
                f"start maps {start.dim_in} -> {start.dim_out}, but the network {net.dim_in} -> {net.dim_out}; "
                f"they must have the same inputs and outputs."
            )
        namespace(net=net.prototype, start=start.prototype)
    with no_gradients(net.prototype):
        whitening = Coordinates.of(inputs, net.prototype)
        if math.comb(whitening.kept + 2, 2) <= _DIRECT:
            values, report = solve_directly(net, inputs, 2, whitening, best_under)
            matrices = gram.matrices_of_chaos(values)
        else:
            if _coarse_sizes(whitening.kept + 1):
                forms = net.entry
                whitening = whitening.ordered_for(eye(inputs.dim, whitening.center) if forms is None else forms)
            matrices, report = _solve_iteratively(net, inputs, whitening, solver, best_under)
        made = gram.dense_from_matrices(matrices, whitening, net.prototype)
        return replace(made, inputs=inputs, report=report, source=Source(net.activation_names, UNDER_A_MIXTURE))


def _solve_iteratively(
    net: Network, inputs: GaussianMixture, whitening: Coordinates, solver: ConjugateGradients, best_under: Optimum
) -> tuple[Array, FitReport]:
    """Matrices (o, n, n) of the optimum, solved for a few outputs at a time, and the report."""
    xp = namespace(means=inputs.means)
    rounding = rounding_error(inputs.means)  # float32 inputs are not known more precisely, whatever the later precision
    if whitening.within < _DISTANT:
        # If components are far apart, the variation within them converges last, after a plateau that the stopping rule
        # would mistake for the end; and its curvature, `within` squared, is below the rounding of float32.
        solver, rounding = replace(solver, tolerance=0.0), rounding_error(whitening.center)
    # On a CPU, products in float32 are faster. Their error of 1e-7 is invisible beside the residual, which the stopping
    # rule accepts at about the root of the tolerance. The vectors, the right-hand side and the certificate stay in
    # float64.
    single = solver.tolerance >= 1e-4 and inputs.dim >= 64 and on_cpu(inputs.means)
    operator = gram.gram_operator(inputs, whitening, single)
    # The right-hand side sum_c pi_c G_c g_c, (o, n, n), and the misfit of the zero polynomial per output, (o,).
    b: Array = 0.0
    misfits: Array = 0.0
    for c, g in enumerate(inputs.components):
        best = gram.matrices_of(best_under(net, g, 2), whitening)
        image = operator.weights[c] * operator.component(c, best)
        b, misfits = b + image, misfits + xp.sum(image * best, axis=(-1, -2))
    first = None
    if solver.start is not None:
        known = solver.start
        first = gram.matrices_of(to_dense(known, cast_like(whitening.center, known.prototype)), whitening)
        if not bool(xp.all(xp.isfinite(first))):
            raise ValueError(
                "start has NaN or infinite coefficients; leave it out, or pass the answer of an earlier fit."
            )
    answers, solutions, gradients, reached = [], [], [], []
    for part in chunks(b.shape[0], _OUTPUTS):
        right, at_zero = gram.padded(b[part, ...], operator.side), scalar(xp.sum(misfits[part]))
        start = None if first is None else gram.padded(first[part, ...], operator.side)
        solution = _solve_outputs(operator, right, at_zero, start, solver, rounding)
        # The certificate of optimality, recomputed and never in float32. Gradients are measured in the metric of
        # N(0, I), in which the problem is well scaled.
        x = _symmetric(solution.x)
        image = operator.in_full_precision().apply(x)
        inverse = gram.standard_inverse(operator.size, right)
        gradient, at_start = (max(scalar(xp.sum(a * inverse(a))), 0.0) ** 0.5 for a in (right - image, right))
        gradients.append(gradient / max(at_start, 1e-300))
        reached.append(at_zero + scalar(xp.sum(x * (image - 2 * right))))
        answers.append(x[:, : operator.size, : operator.size])
        solutions.append(solution)
    if any(s.interrupted for s in solutions):
        warnings.warn("the mixture fit was interrupted; the polynomial found so far is returned.", stacklevel=7)
    out_of_sight = whitening.within < _OUT_OF_SIGHT
    if out_of_sight:
        warnings.warn(
            f"components are about {whitening.within**-0.5:.0e} of their own standard deviations apart: within them a "
            f"quadratic of {inputs.dim} inputs is determined only by rounding errors; use method='neuronwise'.",
            stacklevel=7,
        )
    converged = all(s.converged for s in solutions) and not out_of_sight
    iterations = max(len(s.history) for s in solutions)
    gain_left = math.nan if out_of_sight else max(s.gain_left for s in solutions)
    # Outputs that are solved earlier keep the misfit they reached.
    rows = [
        s.history + (s.history[-1:] or (m,)) * (iterations - len(s.history))
        for s, m in zip(solutions, reached, strict=True)
    ]
    report = FitReport(  # of each figure the worst over all outputs
        UNDER_A_MIXTURE,
        f"conjugate gradients {'converged' if converged else 'stopped early'} after {iterations} iterations",
        misfit=sum(reached),
        gradient=max(gradients),
        converged=converged,
        iterations=iterations,
        history=tuple(enumerate(map(sum, zip(*rows, strict=True)), 1)),
        details={"gain_left": gain_left, "kept": whitening.kept, "dropped": whitening.dropped},
    )
    return xp.concat(answers), report


def _solve_outputs(
    operator: GramOperator, b: Array, misfit: float, start: Array | None, solver: ConjugateGradients, rounding: float
) -> BlockSolution:
    """Solution of the normal equations for some outputs, b (o, m, m), with the given misfit of the zero polynomial."""
    with progress_bar("mixture fit", solver.max_iterations) as update:

        def iterate(
            operator: GramOperator, b: Array, misfit: float, start: Array | None, tolerance: float, stopped: bool
        ) -> BlockSolution:
            return block_cg(
                operator.apply,
                gram.standard_inverse(operator.size, b),
                b,
                misfit=misfit,
                tolerance=tolerance,
                max_iterations=0 if stopped else solver.max_iterations,
                start=start,
                rounding=max(rounding, rounding_error(operator.products)),
                report=lambda k, value: update(k, f"{operator.size - 1} directions, misfit {value:.4g}"),
            )

        # A start for large problems: solve in the directions in which the preactivations vary most, then in more and
        # more of them. Few directions carry most of the network's variance, so this does most of the work at a fraction
        # of the cost: on MNIST it replaces 40 of 60 iterations. The start is in the span of the leading directions, so
        # if several quadratics agree on the whole mixture, the answer may differ from the one of minimum norm. To a
        # start from the caller, the coarse problems compute a correction: their right-hand side is its residual.
        stopped = False
        if sizes := _coarse_sizes(operator.size):
            left, at_start = b, misfit
            if start is not None:
                image = operator.apply(start)
                left, at_start = b - image, misfit + scalar(namespace(b=b).sum(start * (image - 2 * b)))
            correction: Array | None = None
            for m in sizes:
                first = None if correction is None else gram.padded(correction, m)
                part = left[:, :m, :m] + 0
                solution = iterate(operator.leading(m), part, at_start, first, _COARSE_TOLERANCE, stopped)
                correction, stopped = _symmetric(solution.x), stopped or solution.interrupted
            correction = gram.padded(correction, operator.side)
            start = correction if start is None else start + correction
        solution = iterate(operator, b, misfit, start, solver.tolerance, stopped)
        stopped = stopped or solution.interrupted
        if solution.exhausted and rounding_error(operator.products) > rounding_error(b):
            # Rounding in float32 has ended all progress, so continue in full precision.
            exact = operator.in_full_precision()
            more = iterate(exact, b, misfit, _symmetric(solution.x), solver.tolerance, stopped)
            stopped = stopped or more.interrupted
            solution = replace(more, history=solution.history + more.history)
    return replace(solution, interrupted=stopped)


def _coarse_sizes(n: int) -> list[int]:
    """Sides of the smaller problems that are worth solving before one of side n, multiples of 8."""
    return [-(-m // 8) * 8 for m in (n * 10 // 55, n * 10 // 28, n * 10 // 16) if m >= _COARSEST]


def _symmetric(matrices: Array) -> Array:
    return 0.5 * (matrices + namespace(m=matrices).matrix_transpose(matrices))
