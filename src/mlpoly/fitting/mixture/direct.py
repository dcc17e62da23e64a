"""Dense least squares at any degree in few inputs, in products of Hermite polynomials (MATH 4).

A component's matrix B re-expands the products of Hermite polynomials of the mixture's coordinates in the component's
own, by recurrence: no moment is ever enumerated.
"""

from mlpoly.arrays import Array, astype, namespace, rounding_error, widen
from mlpoly.fitting.gaussian import Optimum, fit_gaussian
from mlpoly.fitting.report import UNDER_A_MIXTURE, FitReport
from mlpoly.inputs import Coordinates, GaussianMixture
from mlpoly.linalg.least_squares import LeastSquares
from mlpoly.moments import Expansion
from mlpoly.moments.hermite_products import change_of_basis, check_monomials, ladder, multi_indices
from mlpoly.networks import Network
from mlpoly.polynomials import ChaosPolynomial, RidgePolynomial, Source
from mlpoly.records import map_arrays, replace


def fit_mixture_direct(net: Network, inputs: GaussianMixture, degree: int) -> ChaosPolynomial:
    """Optimal polynomial of any degree under a mixture, while it has at most about 10^4 monomials."""
    whitening = Coordinates.of(inputs)
    values, report = solve_directly(net, inputs, degree, whitening)
    arrays = (whitening.center, whitening.forward, values.T)
    center, forward, values = (astype(a, net.prototype.dtype) for a in arrays)
    exponents, source = multi_indices(whitening.kept, degree), Source(net.activation_names, UNDER_A_MIXTURE)
    return ChaosPolynomial(center, forward, exponents, values, inputs=inputs, report=report, source=source)


def solve_directly(
    net: Network, inputs: GaussianMixture, degree: int, whitening: Coordinates, best_under: Optimum = fit_gaussian
) -> tuple[Array, FitReport]:
    """Coefficients (t, o) of the optimum in the Hermite products of whitened inputs, and how that went."""
    remedy = "use method='neuronwise' (any degree and size), degree=2, or one Gaussian instead of the mixture"
    check_monomials(whitening.kept, degree, remedy)
    xp = namespace(means=inputs.means)
    weights = widen(inputs.weights)
    basis = ladder(whitening.kept, degree)
    problem = LeastSquares()
    for c, g in enumerate(inputs.components):
        # The component is z = place + factor w with w standard normal, in as many dimensions as the component has.
        place = whitening.forward @ (widen(g.mean) - whitening.center)
        factor = whitening.forward @ Coordinates.of(g).back
        own = basis if factor.shape[1] == whitening.kept else ladder(int(factor.shape[1]), degree)
        B = change_of_basis(place, factor, basis, own)
        best, back = best_under(net, g, degree), whitening.back @ factor
        if isinstance(best, RidgePolynomial):  # already in the Hermite basis of the component
            wide = map_arrays(replace(best, inputs=None), widen)
            known = Expansion(wide.units, g, wide.readout, wide.bias, series=wide.series)
            problem.add(weights[c], B, known.in_products(back, own))
        else:
            problem.add(weights[c], B, best.in_products(widen(g.mean), back, own))
    if not bool(xp.all(xp.isfinite(problem.factor))):
        raise OverflowError(
            f"degree {degree} overflows {problem.factor.dtype} on a component this far from the others; lower the "
            f"degree, use method='neuronwise', or compute in float64."
        )
    values = problem.solve(rounding_error(net.prototype))
    misfit, gradient = problem.certificate(values)
    details = {"gain_left": 0.0, "kept": whitening.kept, "dropped": whitening.dropped}
    summary = "solved directly, by orthogonal transformations"
    return values, FitReport(UNDER_A_MIXTURE, summary, misfit, gradient=gradient, details=details)
