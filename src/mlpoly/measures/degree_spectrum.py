"""The degree spectrum of a network: how much of its variance belongs to each polynomial degree (MATH 5)."""

from typing import Any

import numpy as np

from mlpoly.arrays import Array, as_integer, namespace, no_gradients, readable, safe_inverse
from mlpoly.arrays.host import by_value
from mlpoly.arrays.placement import cast_result, scalar, to_numpy
from mlpoly.errors import TooLargeError
from mlpoly.fitting.samples.exact import regression
from mlpoly.inputs import InputsLike, Samples, as_inputs, checked_inputs
from mlpoly.measures.functions import expansions
from mlpoly.moments import inner
from mlpoly.moments.hermite_products import MOST_MONOMIALS, multi_indices
from mlpoly.networks import Network, check_network
from mlpoly.polynomials import Polynomial
from mlpoly.records import record
from mlpoly.tables import Plottable, Table, Tabular


@record
class DegreeSpectrum(Tabular, Plottable):
    """Variance of a network by polynomial degree; ``sum(variance) + remainder + between = total``.

    Attributes
    ----------
    variance : array (n, o)
        Variance of each output at degree exactly 1, ..., n: the part that the best polynomial of degree k explains
        and the best one of degree k - 1 does not.
    total, remainder, between : array (o,)
        Variance of each output, above degree n, and of the component means of a mixture.
    bound : array (o,)
        Bound on the error of `remainder` and `total` from truncated series; zero for exact kernels.
    """

    variance: Array
    total: Array
    remainder: Array
    between: Array
    bound: Array

    @property
    def degree(self) -> int:
        """Highest degree n that is listed separately."""
        return int(self.variance.shape[0])

    @property
    def overall(self) -> Array:
        """Fraction of the variance of all outputs together at each degree 1, ..., n, (n,)."""
        return namespace(variance=self.variance).sum(self.variance, axis=1) / self._all()

    @property
    def unexplained(self) -> Array:
        """Fraction of variance above degree k = 1, ..., n, (n,): the FVU of the best polynomials, not for mixtures."""
        xp = namespace(variance=self.variance)
        rest = xp.concat([xp.sum(self.variance, axis=1)[1:], xp.sum(self.remainder)[None]])
        return xp.flip(xp.cumulative_sum(xp.flip(rest))) / self._all()

    def _all(self) -> Array:
        """Variance of all outputs together."""
        total = namespace(total=self.total).sum(self.total)
        if readable(total) and not bool(total > 0):
            raise ValueError("the outputs have no variance, so fractions are undefined; use inputs on which they vary.")
        return total

    def _table(self) -> Table:
        head, rest, between, total = (
            to_numpy(a).astype(float).sum(-1) for a in (self.variance, self.remainder, self.between, self.total)
        )
        places = [*map(str, range(1, self.degree + 1)), f"above {self.degree}"]
        amounts = [*head.tolist(), float(rest)]
        if between > 0:
            places, amounts = [*places, "between components"], [*amounts, float(between)]
        rows = [(place, v, v / float(total) if total > 0 else None) for place, v in zip(places, amounts, strict=True)]
        return Table(("degree", "variance of all outputs", "fraction"), tuple(rows), "Degree spectrum")


@by_value
def degree_spectrum(net: Network | Polynomial, inputs: InputsLike, degree: int = 8) -> DegreeSpectrum:
    """Variance of a network at polynomial degree 1, 2, ..., `degree`, and above.

    Parameters
    ----------
    net : network with one hidden layer, or Polynomial
    inputs : Gaussian, GaussianMixture, Samples or data (n, d)
        On samples, degree k gets the variance that least squares of degree k explains beyond that of degree k - 1, for
        up to 10^4 monomials. Under a distribution nothing is sampled.
    degree : int
        At least 1.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(1), None, None, None, "relu")
    >>> [round(float(s), 4) for s in degree_spectrum(net, mp.Gaussian.standard(1), degree=2).overall]
    [0.7335, 0.2335]
    """
    n = as_integer("degree", degree, 1)
    if isinstance(inputs := as_inputs(inputs), Samples):
        return _on_samples(net, inputs, n)
    parts = [(w, f.mean, inner(f, f, degree=n)) for w, f in expansions(net, inputs)]
    mean = sum(w * m for w, m, _ in parts)
    between = sum(w * (m - mean) ** 2 for w, m, _ in parts)
    head = sum(w * v.head for w, _, v in parts)
    tail = sum(w * v.tail for w, _, v in parts)
    total = namespace(head=head).sum(head, axis=0) + tail + between
    bound = sum(w * v.bound for w, _, v in parts)
    return DegreeSpectrum(*[cast_result(a, net.prototype) for a in (head, total, tail, between, bound)])


def _on_samples(net: Any, inputs: Samples, degree: int) -> DegreeSpectrum:
    """The variance that least squares of degree k explains beyond that of degree k - 1, from one decomposition."""
    checked_inputs(net if isinstance(net, Polynomial) else check_network(net), inputs)
    with no_gradients(net.prototype):
        rows = regression(net, inputs, degree)
        if rows is None:
            remedy = "lower degree, or use inputs=mlpoly.Gaussian.from_samples(x)"
            raise TooLargeError(f"degree {degree} on these samples has more than {MOST_MONOMIALS} monomials; {remedy}.")
        problem, forward = rows
        sizes = np.bincount(multi_indices(int(forward.shape[0]), degree).sum(axis=1), minlength=degree + 1)
        terms, factor = int(sizes.sum()), problem.factor
        xp = namespace(factor=factor)
        basis, rest = factor[:, :terms], factor[:, terms:]
        basis = basis * safe_inverse(xp.sqrt(xp.sum(basis * basis, axis=0)))
        floor = 10 * terms * float(xp.finfo(basis.dtype).eps)  # as in the solution for the coefficients
        explained = []
        for size in sizes.tolist():
            new, triangle = xp.linalg.qr(basis[:, :size])
            if size and scalar(xp.min(xp.abs(xp.linalg.diagonal(triangle)))) < 1e-4:  # some columns may be dependent
                left, values, _ = xp.linalg.svd(basis[:, :size], full_matrices=False)
                new = left * xp.astype(values > floor, left.dtype)
            along = new.T @ rest
            explained.append(xp.sum(along * along, axis=0))
            rest = rest - new @ along
            basis = basis[:, size:] - new @ (new.T @ basis[:, size:])
        head = xp.stack(explained[1:])
        remainder = xp.sum(rest * rest, axis=0)
        parts = (head, xp.sum(head, axis=0) + remainder, remainder, remainder * 0, remainder * 0)
    return DegreeSpectrum(*[cast_result(a, net.prototype) for a in parts])
