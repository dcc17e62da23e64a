"""Principal forms: the output directions that carry most variance at one polynomial degree (MATH 12)."""

from mlpoly.arrays import Array, as_integer, cast_result, namespace, to_numpy
from mlpoly.arrays.host import by_value
from mlpoly.features.eigen import EigenFeatures, eigenfeatures
from mlpoly.features.quadratic_part import signs
from mlpoly.inputs import Gaussian, inputs_of
from mlpoly.moments import inner
from mlpoly.polynomials import BoundedPolynomial, Polynomial, RidgePolynomial
from mlpoly.records import map_arrays, record, replace, static
from mlpoly.tables import Plottable, Table, Tabular, largest_entries


@record
class PrincipalForms(Tabular, Plottable):
    """Output directions by the variance that a polynomial has along them at one degree k, largest first.

    Along u_j the part of that degree is a scalar form u_j . p_k(x). The forms are uncorrelated under the inputs, and
    no choice of j directions carries more of the variance of degree k than the first j.

    Attributes
    ----------
    values, total : array (m,), array ()
        Variances of the forms, and that of all outputs at this degree.
    outputs : array (m, o)
        The directions u_j, orthonormal rows; the entry of largest magnitude is positive.
    polynomial : Polynomial
        The polynomial that the forms belong to, without degrees above k.
    """

    values: Array
    outputs: Array
    total: Array
    polynomial: Polynomial
    inputs: Gaussian
    degree: int = static(default=2)

    @property
    def fractions(self) -> Array:
        """Fraction (m,) of the variance at this degree that each form carries."""
        return self.values / self.total

    def features(self, form: int, k: int = 5) -> EigenFeatures:
        """Eigenfeatures of one quadratic form, in the metric of the inputs; for degree 2."""
        if self.degree != 2:
            raise ValueError(f"a form of degree {self.degree} has no eigenvectors; use principal_forms with degree=2.")
        index = as_integer("form", form, 0)
        if index >= self.values.shape[0]:
            raise ValueError(f"form is {index}, but there are {self.values.shape[0]}.")
        u = self.outputs[index, :]
        return eigenfeatures(self.polynomial, u, k=k, metric="whitened", inputs=self.inputs)

    def _table(self) -> Table:
        values, fractions, outputs = (to_numpy(a).tolist() for a in (self.values, self.fractions, self.outputs))
        places = self.polynomial.output_names or [f"output {j}" for j in range(self.outputs.shape[1])]
        rows = [
            (i, v, f, sum(fractions[: i + 1]), largest_entries(u, places))
            for i, (v, f, u) in enumerate(zip(values, fractions, outputs, strict=True))
        ]
        columns = ("form", "variance", "fraction", "together", "largest outputs")
        return Table(columns, tuple(rows), f"Principal forms of degree {self.degree}", limit=20)


@by_value
def principal_forms(poly: Polynomial, degree: int = 2, k: int = 10, inputs: Gaussian | None = None) -> PrincipalForms:
    """Output directions that carry most variance of a polynomial at degree exactly `degree`; no output is chosen.

    The covariance of that part is a sum over pairs of hidden units, exact and without samples. Arrays have size o x o
    and the network's own; there is no d x d matrix for each output.

    Parameters
    ----------
    poly : RidgePolynomial or BoundedPolynomial
        Of a degree not below `degree`; of a bounded one, without its bounds.
    degree, k : int
        Degree in the Hermite basis of the inputs, at least 1, and number of directions.
    inputs : Gaussian, optional
        By default those of the fit.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.diag([3.0, 1.0]), None, "square")
    >>> mp.principal_forms(mp.fit(net, mp.Gaussian.standard(2), 2)).fractions.round(6).tolist()
    [0.9, 0.1]
    """
    ridge = poly.polynomial if isinstance(poly, BoundedPolynomial) else poly
    if not isinstance(ridge, RidgePolynomial):
        raise TypeError(
            f"poly must be the polynomial of one hidden layer, fitted under a Gaussian, got {type(poly).__name__}."
        )
    n, k = as_integer("degree", degree, 1), as_integer("k", k, 1)
    if n > ridge.degree:
        raise ValueError(f"poly has degree {ridge.degree} and no part of degree {n}; fit it with degree={n} or more.")
    under = inputs_of(ridge, inputs)
    if not isinstance(under, Gaussian):
        remedy = "pass inputs=Gaussian(...), of data inputs=Gaussian.from_samples(x)"
        raise TypeError(f"inputs must be a Gaussian, got {type(under).__name__}; {remedy}.")
    p = ridge.rebase(under)
    part = p.hermite(under, p.units).part(n)
    covariance = inner(part, part, full=True).tail
    xp = namespace(covariance=covariance)
    values, vectors = xp.linalg.eigh(covariance)
    values, outputs = xp.flip(values)[:k], xp.flip(vectors, axis=1).T[:k, ...]
    outputs = outputs * signs(outputs)
    whole = xp.sum(xp.linalg.diagonal(covariance))
    variances, outputs, whole = (cast_result(a, ridge.prototype) for a in (xp.clip(values, 0, None), outputs, whole))
    # In the basis of these inputs, since another one has another part of degree n.
    parts = map_arrays(replace(p.truncate(n), inputs=under), lambda a: cast_result(a, ridge.prototype))
    return PrincipalForms(variances, outputs, whole, parts, under, n)
