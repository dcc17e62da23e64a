"""The quadratic part of all outputs as one short sum of squares of linear forms (MATH 12)."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlpoly.arrays import Array, add_at, namespace, no_gradients
from mlpoly.arrays.checks import as_integer, check_finite
from mlpoly.arrays.placement import cast_like, constant, eye, rounding_error, scalar, take_rows, to_numpy, widen
from mlpoly.features.quadratic_part import QuadraticPart, check_part, gram, quadratic_part, signs, times_root
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
        places, _ = _matching_pursuit(a, targets, energy, k)
        best = _ordered(part, take_rows(a, places), energy)
        if 1 - best[2][-1] > 100 * rounding_error(a):  # the neurons' own directions are not the whole part
            with progress_bar("Terms of the quadratic part", _STEPS) as update:
                done = itertools.count(1)
                moved = _descend(part, best[0], energy, lambda: update(next(done), ""))
            best = max(best, _ordered(part, moved, energy), key=lambda terms: terms[2][-1])
    vectors, writes, explained = best
    fractions = constant(np.minimum(explained, 1.0), vectors)
    residual = max(0.0, 1 - float(explained[-1]))
    return QuadraticDecomposition(writes, vectors * signs(vectors), fractions, gaussian, residual)


def _ordered(part: QuadraticPart, a: Array, energy: float) -> tuple[Array, Array, np.ndarray]:
    """Terms in the order of what they explain, (r, d), with their optimal writes (r, o), and what they explain (r,)."""
    targets, _ = part.along(a)
    order, explained = _matching_pursuit(a, targets, energy, int(a.shape[0]))
    a, targets = take_rows(a, order), widen(take_rows(targets, order))
    inner = widen(gram(a))
    return a, cast_like(namespace(inner=inner).linalg.solve(inner, targets), a), explained


def _size(poly: Polynomial, inputs: Gaussian) -> float:
    """Root mean square of the linear map that touches a polynomial at the mean: the size of its rounding errors."""
    mean = cast_like(inputs.mean, poly.prototype)
    value, slopes = widen(poly(mean)), times_root(widen(poly.gradient(mean)), widen(inputs.root))
    return math.sqrt(float((value**2).sum() + (slopes**2).sum()))


def _matching_pursuit(a: Array, targets: Array, energy: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose terms one after another, each the one that explains most together with those before.

    Candidates are a_i a_i' for rows (m, d), with inner products `targets` (m, o) with the part, whose squared norm is
    `energy`. Returned are the chosen ones (r,), and the fractions (r,) that the first 1, ..., r explain. Orthogonal
    matching pursuit, by a Cholesky factorisation of the Gram matrix that computes only the columns of chosen terms; it
    ends early when what is left is rounding, or when all others depend on the chosen ones.
    """
    xp, eps = namespace(a=a), rounding_error(a)
    left = widen(xp.vecdot(a, a) ** 2)  # of each candidate's own norm
    floor, rest = eps**0.5 * left, widen(targets)
    count = min(count, int(a.shape[0]))
    factor = constant(np.zeros((count, a.shape[0])), rest)
    chosen: list[int] = []
    gains: list[float] = []
    for step in range(count):
        usable = left > floor
        gain = xp.where(usable, xp.vecdot(rest, rest) / xp.where(usable, left, 1.0), -1.0)
        here = np.asarray([int(xp.argmax(gain))])
        best = scalar(take_rows(gain, here)[0]) / energy
        if best <= eps**1.5 and chosen:  # rounding, over a norm that may be as small as its root
            break
        chosen.append(int(here[0]))
        gains.append(best)
        column = widen((a @ take_rows(a, here)[0, :]) ** 2)
        column = column - take_rows(factor.T, here)[0, :] @ factor
        column = column * take_rows(left, here)[0] ** -0.5
        factor = add_at(factor, (step, ...), column)
        rest = rest - column[:, None] * (take_rows(rest, here) * take_rows(left, here)[0] ** -0.5)
        left = left - column * column
    return np.asarray(chosen, dtype=np.int64), np.cumsum(gains)


def _descend(part: QuadraticPart, a: Array, energy: float, step: Callable[[], None]) -> Array:
    """Move unit directions a (r, d) to explain more, by L-BFGS on the energy that the best writes explain.

    With Gram matrix K of the terms a_i a_i' and inner products B with the part, that is tr B'(K + penalty)^-1 B. `step`
    is called after each iteration.
    """
    from scipy.optimize import minimize  # takes a moment to import

    ridge = max(_PENALTY, 10 * rounding_error(a)) * eye(int(a.shape[0]), widen(a))  # two terms may meet

    def directions(flat: np.ndarray) -> tuple[Array, np.ndarray]:
        rows = flat.reshape(tuple(a.shape))
        sizes = np.linalg.norm(rows, axis=1, keepdims=True)
        return constant(rows / sizes, a), sizes

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        a, sizes = directions(flat)
        xp = namespace(a=a)
        inner, seen = part.along(a)
        writes = xp.linalg.solve(widen(gram(a)) + ridge, widen(inner))
        explained = float((widen(inner) * writes).sum())
        weights = cast_like(writes, a)
        slopes = 4 * (part.slopes(weights, seen) - ((weights @ weights.T) * (a @ a.T)) @ a)
        rows, gradient = flat.reshape(sizes.shape[0], -1) / sizes, to_numpy(slopes).astype(np.float64)
        gradient = (gradient - rows * np.sum(gradient * rows, axis=1, keepdims=True)) / sizes  # along the sphere
        return -explained / energy, -gradient.ravel() / energy

    start = to_numpy(a).astype(np.float64).ravel()
    options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 10 * rounding_error(a), "gtol": 1e-9}
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", callback=lambda _: step(), options=options)
    return directions(optimum.x)[0]
