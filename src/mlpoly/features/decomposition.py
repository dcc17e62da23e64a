"""The quadratic part of all outputs as one short sum of squares of linear forms (MATH 12)."""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from mlpoly.arrays import Array, namespace, no_gradients
from mlpoly.arrays.checks import as_integer, check_finite
from mlpoly.arrays.placement import cast_like, constant, rounding_error, take_rows, to_numpy, widen
from mlpoly.features.quadratic_part import QuadraticPart, check_part, gram, quadratic_part, signs, times_root
from mlpoly.features.term_search import descend, matching_pursuit
from mlpoly.inputs import Gaussian, inputs_of
from mlpoly.polynomials import Polynomial, RidgePolynomial
from mlpoly.progress_bars import progress_bar
from mlpoly.records import record, static, trusted
from mlpoly.tables import Plottable, Table, Tabular, largest_entries
from mlpoly.units import Series, Units

_STEPS = 200  # largest number of iterations
# Cost of large writes while directions are sought: without one, pairs of nearly equal directions with huge opposite
# writes may gain a little.
_PENALTY = 0.01
_ROUNDING = 100  # rounding errors of the coefficients of a sum over neurons, in those of its values


@record
class QuadraticDecomposition(Tabular, Plottable):
    """Terms of the part of degree exactly 2, shared by all outputs, in the order of the variance they explain.

    p_2(x) is about ``sum_r writes_r ((a_r.z)^2 - 1)``, with x = mean + S^(1/2) z. The writes are the least-squares
    optimum for these directions, in closed form.

    Attributes
    ----------
    writes : array (r, o)
        Vectors that the terms write to the outputs.
    vectors : array (r, d)
        Whitened read directions a_r of length one; the entry of largest magnitude is positive.
    explained : array (r,)
        Fraction of the variance of the part explained by the first 1, ..., r terms, with the writes refitted to these
        terms alone. Each term is the one among the rest that adds most.
    inputs, residual : Gaussian, float
        Inputs under which the variance is measured, and the fraction of it that all terms together leave.
    """

    writes: Array
    vectors: Array
    explained: Array
    inputs: Gaussian
    residual: float = static(default=0.0)

    @property
    def directions(self) -> Array:
        """The read directions in input space, (r, d), as those of `EigenFeatures`: ``vectors S^(1/2)``."""
        return times_root(self.vectors, self.inputs.root)

    @property
    def reads(self) -> Array:
        """Weights (r, d) with ``reads.(x - mean)`` equal to a_r.z: what measures a term on an input."""
        return times_root(self.vectors, self.inputs.inverse_root)

    def polynomial(self) -> RidgePolynomial:
        """The sum of the terms as a polynomial with one hidden unit per term.

        ``poly.truncate(1) + decompose(poly, k).polynomial()`` is the best linear part with the terms.
        """
        reads, xp = self.reads, namespace(vectors=self.vectors)
        mean, one = cast_like(self.inputs.mean, reads), reads[:, 0] * 0 + 1
        zero, square = one * 0, math.sqrt(2) * one  # (t^2 - 1) in orthonormal Hermite polynomials
        series = Series(xp.stack([zero, zero, square]), None)
        return RidgePolynomial(Units(reads, reads @ mean, one), series, self.writes.T + 0, inputs=self.inputs)

    def _table(self) -> Table:
        names = self.inputs.names
        explained, directions = to_numpy(self.explained).tolist(), to_numpy(self.directions)
        sizes = np.linalg.norm(to_numpy(self.writes), axis=1).tolist()
        entries = [largest_entries(row.tolist(), names) for row in directions]
        columns = ("term", "variance explained so far", "length of its write", "largest entries of its direction")
        rows = tuple(zip(range(len(sizes)), explained, sizes, entries, strict=True))
        return Table(columns, rows, note=f"variance left by all terms: {self.residual:.3g}", limit=20)


def decompose(poly: Polynomial, k: int, inputs: Any = None) -> QuadraticDecomposition:
    """Write the part of degree exactly 2 of all outputs as a sum of a few squares that they share.

    The tensor of the part, sum_i (W2_i) x (c_i w_i w_i'), is a sum over all neurons already; here is a shorter one (a
    symmetric CP decomposition). It begins with the neurons' own directions that explain most, one after another, and
    then moves all directions at once (L-BFGS), with the writes always at their optimum. No array of size d^2 o is made:
    a step costs h k (d + o), the choice of the first directions h^2 (d + o). Gradients do not flow through it.

    Parameters
    ----------
    poly : polynomial
        Degree 2 or more.
    k : int
        Number of terms; fewer if these are exact. The first terms of a long sum are not the best short one.
    inputs : Gaussian, GaussianMixture or Samples, optional
        Inputs whose mean and covariance define degree and variance; by default those of the fit.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.diag([1.0, 2.0, 0.1]), None, np.eye(3), None, "square")
    >>> mp.decompose(mp.fit(net, mp.Gaussian.standard(3), 2), 2).explained.round(3).tolist()
    [0.941, 1.0]
    """
    check_part(poly, 2)
    k = as_integer("k", k, 1)
    gaussian = inputs_of(poly, inputs)
    namespace(inputs=gaussian.prototype, polynomial=poly.prototype)
    if not isinstance(gaussian, Gaussian):
        gaussian = trusted(Gaussian, mean=gaussian.mean, cov=gaussian.covariance, names=gaussian.names)
    with no_gradients(poly.prototype):
        part = quadratic_part(poly, gaussian)
        check_finite("the quadratic part of poly", part.writes)
        energy = part.energy()
        if not energy > (_ROUNDING * rounding_error(poly.prototype) * _size(poly, gaussian)) ** 2:
            raise ValueError("the part of degree 2 of poly is zero, up to rounding, so there is nothing to decompose.")
        a, targets = part.squares()
        places, _ = matching_pursuit(a, targets, energy, k)
        best = _ordered(part, take_rows(a, places), energy)
        if 1 - best.explained[-1] > 100 * rounding_error(a):  # the neurons' own directions are not the whole part
            with progress_bar("Terms of the quadratic part", _STEPS) as update:
                done = itertools.count(1)
                moved = descend(part, best.a, energy, _STEPS, _PENALTY, lambda: update(next(done), ""))
            best = max(best, _ordered(part, moved, energy), key=lambda terms: terms.explained[-1])
    return QuadraticDecomposition(
        writes=best.writes,
        vectors=best.a * signs(best.a),
        explained=constant(np.minimum(best.explained, 1.0), best.a),
        inputs=gaussian,
        residual=max(0.0, 1 - float(best.explained[-1])),
    )


class _OrderedTerms(NamedTuple):
    """Terms in the order of what they explain, with their optimal writes."""

    a: Array
    writes: Array
    explained: np.ndarray


def _ordered(part: QuadraticPart, a: Array, energy: float) -> _OrderedTerms:
    targets, _ = part.along(a)
    order, explained = matching_pursuit(a, targets, energy, int(a.shape[0]))
    a, targets = take_rows(a, order), widen(take_rows(targets, order))
    inner = widen(gram(a))
    return _OrderedTerms(a, cast_like(namespace(inner=inner).linalg.solve(inner, targets), a), explained)


def _size(poly: Polynomial, inputs: Gaussian) -> float:
    """Root mean square of the linear map that touches a polynomial at the mean: the size of its rounding errors."""
    mean = cast_like(inputs.mean, poly.prototype)
    value, slopes = widen(poly(mean)), times_root(widen(poly.gradient(mean)), widen(inputs.root))
    return math.sqrt(float((value**2).sum() + (slopes**2).sum()))
