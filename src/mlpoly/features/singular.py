"""Singular directions of the linear part, and inputs without them (MATH 7)."""

from mlpoly.arrays import Array, cast_like, namespace, promote, to_numpy
from mlpoly.arrays.checks import as_float_array, as_integer, check_finite, check_shape
from mlpoly.features.quadratic_part import check_part
from mlpoly.polynomials import Polynomial
from mlpoly.records import record, static
from mlpoly.tables import Plottable, Table, Tabular, largest_entries


@record
class SingularDirections(Tabular, Plottable):
    """Singular value decomposition of the linear coefficients: linear = outputs' diag(values) vectors.

    Attributes
    ----------
    values : array (r,), descending
    vectors, outputs : array (r, d), array (r, o)
        Orthonormal directions in input space, and the output directions that they write to.
    """

    values: Array
    vectors: Array
    outputs: Array
    names: tuple[str, ...] | None = static(default=None)
    output_names: tuple[str, ...] | None = static(default=None)

    def _table(self) -> Table:
        values, reads, writes = (to_numpy(a).tolist() for a in (self.values, self.vectors, self.outputs))
        places = self.output_names or [f"output {j}" for j in range(self.outputs.shape[1])]
        rows = [
            (i, v, largest_entries(read, self.names), largest_entries(write, places))
            for i, (v, read, write) in enumerate(zip(values, reads, writes, strict=True))
        ]
        columns = ("direction", "singular value", "largest inputs", "largest outputs")
        return Table(columns, tuple(rows), limit=20)


def singular_directions(poly: Polynomial, k: int | None = None) -> SingularDirections:
    """The k strongest singular directions of ``poly.coefficients().linear``, by default all.

    For a polynomial of degree above 1 these are the coefficients at x = 0; ``poly.truncate(1)`` gives the best linear
    map, as in the paper's attack.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.array([[3.0, 0.0], [0.0, 1.0]]), activation="relu")
    >>> directions = mp.singular_directions(mp.fit(net, mp.Gaussian.standard(2), degree=1))
    >>> directions.values.round(6).tolist()
    [1.5, 0.5]
    """
    check_part(poly, 1)
    linear = poly.coefficients().linear
    check_finite("the linear part of poly", linear)
    left, values, right = namespace(linear=linear).linalg.svd(linear, full_matrices=False)
    k = int(values.shape[0]) if k is None else as_integer("k", k, 1)
    names = None if poly.inputs is None else poly.inputs.names
    return SingularDirections(values[:k], right[:k, :], left.T[:k, :], names, poly.output_names)


def ablate(x: Array, directions: Array) -> Array:
    """Remove the span of `directions` (k, d), not necessarily orthonormal, from inputs x (..., d).

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> mp.ablate(np.array([[3.0, 1.0]]), directions=np.array([[1.0, 1.0]])).round(6).tolist()
    [[1.0, -1.0]]
    """
    x = as_float_array("x", x, integers=True)
    directions = as_float_array("directions", directions, integers=True)
    if len(x.shape) == 0:
        raise ValueError("x is a single number, expected (..., d): the last axis holds the inputs.")
    xp = namespace(x=x, directions=directions)
    check_shape("directions", directions, (None, x.shape[-1]), "directions in rows, over the inputs of x")
    check_finite("x", x)
    check_finite("directions", directions)  # the decomposition below may never finish on an infinity
    x, directions = promote(x, directions)
    if directions.shape[0] == 0:
        return x + 0
    _, values, right = xp.linalg.svd(directions, full_matrices=False)
    keep = values > values[0] * max(directions.shape) * float(xp.finfo(x.dtype).eps)  # the rest are dependent
    basis = right * cast_like(keep, right)[:, None]
    return x - (x @ basis.T) @ basis
