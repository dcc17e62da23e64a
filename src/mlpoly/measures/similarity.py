"""Two networks, or polynomials, compared: E[f.g], E|f - g|^2 and their cosine, without sampling (MATH 11)."""

from collections.abc import Sequence
from typing import Any

from mlpoly.arrays import Array, as_integer, cast_result, namespace, scalar, to_numpy, widen
from mlpoly.arrays.host import by_value
from mlpoly.inputs import InputsLike, Samples, as_inputs, check_order
from mlpoly.measures.functions import check_functions, expansion, gaussians
from mlpoly.moments import inner
from mlpoly.networks import Network, check_layer
from mlpoly.polynomials import Polynomial
from mlpoly.records import arrays_of, record, trusted
from mlpoly.tables import Cell, Plottable, Table, Tabular


@record
class Overlap:
    """Inner products of two functions f and g: numbers, or one for each output or degree."""

    inner: Array  # E[f g]
    first: Array  # E[f^2]
    second: Array  # E[g^2]
    distance: Array  # E[(f - g)^2], as the difference of the others: one far smaller than both has their rounding
    cosine: Array  # E[f g] / sqrt(E[f^2] E[g^2]); zero where one of the two is zero

    def rows(self, names: Sequence[str]) -> list[tuple[Cell, ...]]:
        """Rows of a table: name, inner product, distance and cosine of each output or degree."""
        numbers = [to_numpy(a).tolist() for a in (self.inner, self.distance, self.cosine)]
        return list(zip(names, *numbers, strict=True))


@record
class Similarity(Overlap, Tabular, Plottable):
    """Two networks or polynomials compared; numbers are sums over the outputs.

    Attributes
    ----------
    inner, first, second, distance, cosine : array ()
        E[f.g], E|f|^2, E|g|^2, E|f - g|^2, and the cosine of f and g.
    per_output, by_degree : Overlap, Overlap or None
        The same for each output, (o,), and at degree 0, 1, ..., n and above n, (n + 2,); for a mixture within its
        components, None on samples.
    bound : array ()
        Bound on the errors of `inner`, `first` and `second` from truncated series, rounding aside.
    """

    per_output: Overlap = None  # type: ignore[assignment]
    by_degree: Overlap | None = None
    bound: Array = None

    def _table(self) -> Table:
        rows: list[tuple[Cell, ...]] = [("all", *(scalar(a) for a in (self.inner, self.distance, self.cosine)))]
        if self.by_degree is not None:
            last = self.by_degree.inner.shape[0] - 2
            names = [*(f"degree {k}" for k in range(last + 1)), f"above {last}"]
            rows += self.by_degree.rows(names)
        rows += self.per_output.rows([f"output {i}" for i in range(self.per_output.inner.shape[0])])
        return Table(("", "E[f.g]", "E|f - g|^2", "cosine"), tuple(rows), title="Two functions compared", limit=30)


@by_value
def similarity(
    f: Network | Polynomial, g: Network | Polynomial, inputs: InputsLike, centred: bool = False, degree: int = 4
) -> Similarity:
    """Inner product, distance and cosine of two networks or polynomials under the same inputs.

    Nothing is sampled under a Gaussian or a mixture: E[f.g] is a sum over pairs of hidden units, exact for two
    piecewise-linear activations, otherwise a series with a bound. It can be differentiated with respect to all weights,
    so that ``similarity(f, g, inputs).distance`` is a loss without data.

    Parameters
    ----------
    f, g : network with one hidden layer, or Polynomial
        Of the same numbers of inputs and outputs; any activations, gated or not.
    inputs : Gaussian, GaussianMixture, Samples or data (n, d)
    centred : bool
        Compare f - E[f] with g - E[g]; the cosine is then a correlation.
    degree : int
        Highest degree that is listed separately.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> relu, line = (mp.MLP(np.eye(1), None, None, None, name) for name in ("relu", "identity"))
    >>> round(float(mp.similarity(relu, line, mp.Gaussian.standard(1)).inner), 6)  # E[x relu(x)]
    0.5
    """
    n = as_integer("degree", degree, 0)
    check_functions(f, g, ("f", "g"))
    inputs = as_inputs(inputs)
    check_order(inputs, f.names, "f")
    check_order(inputs, g.names, "g")
    if isinstance(inputs, Samples):
        return _on_samples(f, g, inputs, centred)
    one, two = (h if isinstance(h, Polynomial) else check_layer(h) for h in (f, g))
    xp = namespace(f=one.prototype, g=two.prototype)
    products: list[Array] = [0.0, 0.0, 0.0]  # E[f g], E[f^2] and E[g^2] by degree and output, (n + 2, o)
    first, second, bounds = 0.0, 0.0, 0.0
    for weight, gaussian in gaussians(one, inputs, traced=True):
        left, right = expansion(one, gaussian), expansion(two, gaussian)
        pairs = ((left, right), (left, left), (right, right))
        found = [inner(a, b, degree=n) for a, b in pairs]
        for i, ((a, b), p) in enumerate(zip(pairs, found, strict=True)):
            products[i] = products[i] + weight * xp.concat([(a.mean * b.mean)[None, :], p.head, p.tail[None, :]])
        first, second = first + weight * left.mean, second + weight * right.mean
        bounds = bounds + weight * xp.max(xp.stack([p.bound for p in found]), axis=0)
    xp = namespace(products=products[0])
    if centred:
        levels = (first * second, first * first, second * second)
        products = [xp.concat([p[:1, :] - a, p[1:, :]]) for p, a in zip(products, levels, strict=True)]
    bound = cast_result(xp.sum(bounds), one.prototype)
    degrees = _compared([xp.sum(p, axis=1) for p in products], one.prototype)
    return _summed(products, one.prototype, by_degree=degrees, bound=bound)


def _summed(products: list[Array], like: Array, **more: Any) -> Similarity:
    """The comparison by E[f g], E[f^2] and E[g^2] of parts and outputs (parts, o)."""
    xp = namespace(products=products[0])
    total, outputs = (_compared([xp.sum(p, axis=axis) for p in products], like) for axis in (None, 0))
    return trusted(Similarity, **arrays_of(total), per_output=outputs, **more)


def _compared(products: list[Array], like: Array) -> Overlap:
    """The comparison by E[f g], E[f^2] and E[g^2]; of single precision, squares may leave the range, cosines do not."""
    shared, first, second = products
    xp = namespace(shared=shared)
    some = (first > 0) & (second > 0)
    # The product of both leaves the range of floats long before they do.
    one, two = (xp.sqrt(xp.where(some, a, 1.0)) for a in (first, second))
    cosine = xp.where(some, shared / one / two, 0.0)
    distance = xp.clip(first + second - 2 * shared, 0, None)
    return Overlap(*(cast_result(a, like) for a in (*products, distance, cosine)))


def _on_samples(f: Any, g: Any, inputs: Samples, centred: bool) -> Similarity:
    """Averages over samples, which have no degrees."""
    xp = namespace(x=inputs.x)
    chunks = [(widen(f(x)), widen(g(x)), w) for x, w in inputs.chunks(2**14)]
    first, second, w = (xp.concat(parts) for parts in zip(*chunks, strict=True))
    if centred:
        first, second = first - xp.sum(w * first, axis=0), second - xp.sum(w * second, axis=0)
    pairs = ((first, second), (first, first), (second, second))
    outputs = [xp.sum(w * a * b, axis=0) for a, b in pairs]
    return _summed([a[None, :] for a in outputs], f.prototype, bound=cast_result(0 * xp.sum(outputs[0]), f.prototype))
