"""What a polynomial of independent inputs owes to some of them, from its coefficients in orthogonal products (MATH 18).

The products of orthonormal polynomials, one of each input, have mean zero and variance one, and are uncorrelated. So a
mean given x_S is the part that has no other inputs, and its variance the sum of the squares of its coefficients.
"""

from collections.abc import Callable, Sequence

import numpy as np

from mlpoly.arrays import Array, constant, namespace, take_rows, to_numpy, widen
from mlpoly.inputs import Independent, checked_inputs
from mlpoly.moments.hermite_products import check_monomials, exchanged, ladder
from mlpoly.networks import Network
from mlpoly.polynomials import Polynomial


class Orthogonal:
    """A polynomial in orthonormal products p_a(x) = prod_i p_{a_i}(u_i): exponents a (t, d), coefficients (t, o).

    It is used like `Regression`, in whose place it stands under independent inputs; nothing is sampled.
    """

    sampled, factor, replicates = "", 0.0, 1

    def __init__(self, poly: Polynomial | Network, inputs: Independent) -> None:
        self.inputs = inputs = checked_inputs(poly, inputs)
        if inputs.copula is not None or not isinstance(poly, Polynomial) or not poly.closed_form or poly.piecewise:
            if inputs.copula is None and not isinstance(poly, Polynomial):
                remedy = "pass a polynomial of the network, mlpoly.fit(net, inputs, degree), whose report says how good"
            else:
                remedy = "pass data, mlpoly.Samples(inputs.sample(n)), under which the answers have standard errors"
            kind = type(poly).__name__
            raise TypeError(f"there is no closed form for a {kind} under {inputs!r}; {remedy}.")
        check_monomials(inputs.dim, poly.degree, "pass data, mlpoly.Samples(inputs.sample(n)), or truncate it")
        inputs.check_degree(poly.degree)
        own, scale = ladder(inputs.dim, poly.degree), widen(inputs.scale)
        in_hermite = poly.in_products(widen(inputs.center), constant(np.eye(inputs.dim), scale) * scale, own)
        # he_j = sum_k M[j, k] p_k, the inverse of the triangular matrix of the p_k
        matrices = [np.linalg.inv(law.in_hermite(poly.degree)) for law in inputs.marginals]
        self.exponents, self.values = own.exponents, exchanged(in_hermite, matrices, own)
        xp = namespace(values=self.values)
        self.level, self.variance = self.values[0, :], xp.sum(self.values[1:, :] ** 2, axis=0)
        self.bound = self.variance * 0
        self.remainder = self.bound + remainder(poly, inputs)

    def _inside(self, known: np.ndarray) -> np.ndarray:
        """Rows of the products that have no inputs but these."""
        others = np.setdiff1d(np.arange(self.exponents.shape[1]), known)
        return np.flatnonzero(~self.exponents[:, others].any(axis=1))

    def __call__(self, known: np.ndarray) -> Array:
        """Var E[p | x_S] / Var p, (1, o)."""
        rows = self._inside(known)[1:]  # without the constant, which comes first
        return namespace(values=self.values).sum(take_rows(self.values, rows) ** 2, axis=0)[None, :] / self.variance

    def effects(self, places: Sequence[np.ndarray]) -> Array:
        """Shapley effects (g, o) of groups: every product is shared equally by the groups that it has."""
        owners = np.stack([self.exponents[1:, place].any(axis=1) for place in places]).astype(float)
        fractions = constant(owners / owners.sum(axis=0), self.values)
        return fractions @ self.values[1:, :] ** 2 / self.variance

    def mean_given(self, known: np.ndarray) -> Callable[[Array], Array]:
        """E[p | x_S]: values (n, s) to means (n, 1, o)."""
        rows = self._inside(known)
        exponents, values = self.exponents[rows][:, known], take_rows(self.values, rows)
        laws, degree = [self.inputs.marginals[i] for i in known.tolist()], int(exponents.max(initial=0))
        center, scale = (to_numpy(widen(a))[known] for a in (self.inputs.center, self.inputs.scale))

        def mean(x: Array) -> Array:
            u = (to_numpy(x) - center) / scale
            products = np.ones((len(u), len(rows)))
            for i, law in enumerate(laws):
                products = products * law.values(u[:, i], degree)[:, exponents[:, i]]
            return (constant(products, values) @ values)[:, None, :]

        return mean


def remainder(poly: Polynomial, inputs: Independent) -> float:
    """Fraction of the variance of its network that a polynomial leaves under the inputs of its fit, if it is known."""
    fitted = poly.inputs is not None and poly.inputs.fingerprint == inputs.fingerprint
    left = poly.report.fvu if fitted and poly.report is not None else None
    return 0.0 if left is None else float(left)
