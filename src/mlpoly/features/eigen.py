"""Eigenfeatures: the directions that the quadratic part of a polynomial reads (MATH 6)."""

import warnings
from typing import Any, Literal, get_args

import numpy as np

from mlpoly.arrays import Array, cast_like, constant, eye, namespace, to_numpy
from mlpoly.arrays.checks import as_float_array, as_integer, check_finite, check_output, check_shape
from mlpoly.features.quadratic_part import check_part, signs, times_root
from mlpoly.inputs import inputs_of
from mlpoly.linalg.lanczos import dense_eigenpairs, largest_eigenpairs
from mlpoly.polynomials import Polynomial
from mlpoly.records import record, static
from mlpoly.tables import Plottable, Table, Tabular, largest_entries

_DENSE = 1024  # up to this many inputs a d x d eigenproblem is faster than products
Metric = Literal["input", "whitened"]


@record
class EigenFeatures(Tabular, Plottable):
    """Eigenpairs of the quadratic form of one output direction, by descending magnitude.

    The quadratic part of the polynomial along that output direction is ``sum_j values_j (vectors_j . x)^2`` in the
    metric "input"; in "whitened", x is replaced by z with x = mean + S^(1/2) z.

    Attributes
    ----------
    values, vectors : array (k,), array (k, d)
        Orthonormal rows in the coordinates of the metric; the entry of largest magnitude is positive.
    directions : array (k, d)
        The same features as directions in input space: ``vectors``, or ``vectors S^(1/2)`` if whitened.
    residual : float
        Largest eigenpair residual relative to the largest eigenvalue (0 for the dense solver).
    """

    values: Array
    vectors: Array
    directions: Array
    metric: Metric = static(default="input")
    residual: float = static(default=0.0)
    names: tuple[str, ...] | None = static(default=None)

    def _table(self) -> Table:
        values, directions = to_numpy(self.values).tolist(), to_numpy(self.directions)
        rows = [
            (i, v, largest_entries(w.tolist(), self.names))
            for i, (v, w) in enumerate(zip(values, directions, strict=True))
        ]
        return Table(("feature", "eigenvalue", "largest entries of its direction"), tuple(rows), limit=20)


def eigenfeatures(
    poly: Polynomial, output: int | str | Array = 0, k: int = 5, metric: Metric = "input", inputs: Any = None
) -> EigenFeatures:
    """Top eigenpairs of the quadratic coefficients of one output, or of a direction in output space.

    The form is that of ``poly.coefficients().quadratic``, used through its factors: with more than 1024 inputs no
    d x d matrix is made. Of a degree above 2 it is that at x = 0; ``poly.truncate(2)`` is the best quadratic.

    Parameters
    ----------
    poly : polynomial
    output : int, str or array (o,)
        Index or name of the output, or a direction in output space, such as a difference of two logits.
    k : int
        Number of pairs; all of them if there are fewer inputs.
    metric : {"input", "whitened"}
        "whitened" ranks directions by their variance under the inputs: S^(1/2) Q S^(1/2). Of images it gives the clear
        pictures, as pixels that hardly vary count little.
    inputs : Gaussian, GaussianMixture or Samples, optional
        Inputs for "whitened"; by default those that the polynomial was fitted under.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.diag([1.0, 2.0]), None, np.ones((1, 2)), None, "square")
    >>> mp.eigenfeatures(mp.fit(net, mp.Gaussian.standard(2), 2), output=0, k=2).values.round(12).tolist()
    [4.0, 1.0]
    """
    check_part(poly, 2)
    if np.ndim(output) == 0:
        along = eye(poly.dim_out, poly.prototype)[check_output(output, poly.dim_out, poly.output_names), :]
    else:
        along = as_float_array("output", output)
        namespace(output=along, polynomial=poly.prototype)
        check_shape("output", along, (poly.dim_out,), "an index, or one weight per output")
        check_finite("output", along)
        along = cast_like(along, poly.prototype)
    k = min(as_integer("k", k, 1), poly.dim_in)
    if metric not in get_args(Metric):
        raise ValueError(f"metric must be one of {get_args(Metric)}, got {metric!r}.")
    quadratic = poly.quadratic_form(along)
    root: Array = None
    if metric == "whitened" or inputs is not None:
        inputs = inputs_of(poly, inputs)
    if metric == "whitened":
        namespace(inputs=inputs.prototype, polynomial=poly.prototype)
        root = cast_like(inputs.root, poly.prototype)

    def in_inputs(block: Array) -> Array:
        return block if root is None else times_root(block.T, root).T

    def form(block: Array) -> Array:
        return in_inputs(quadratic(in_inputs(block)))

    d, residual = poly.dim_in, 0.0
    dense = d <= _DENSE or 4 * k > d
    # random, but always the same, in every array library
    start = None if dense else constant(np.random.default_rng(0).standard_normal((d, k + 8)), along)
    seen = form(eye(d, along) if start is None else start[:, :1])
    check_finite("the quadratic part of poly", seen)
    if start is None:
        values, vectors = dense_eigenpairs(seen, k)
    else:
        values, vectors, residual = largest_eigenpairs(form, start, k)
    if residual > 1e-3:
        warnings.warn(
            f"eigenfeatures have not converged (relative residual {residual:.1e}); ask for fewer with k=.", stacklevel=2
        )
    vectors = vectors * signs(vectors.T).T
    under = poly.inputs if inputs is None else inputs
    names = None if under is None else under.names
    return EigenFeatures(values, vectors.T, in_inputs(vectors).T, metric, residual, names)
