"""First and second moments of a function's outputs under its inputs, without sampling (MATH 5)."""

from mlpoly.arrays import Array, cast_result, check_finite, to_numpy
from mlpoly.arrays.host import by_value
from mlpoly.inputs import Independent, InputsLike, Samples, as_inputs, checked_inputs
from mlpoly.measures.functions import expansions, outputs_of
from mlpoly.measures.orthogonal import Orthogonal
from mlpoly.moments import inner
from mlpoly.networks import Network, check_network
from mlpoly.polynomials import Polynomial
from mlpoly.records import record
from mlpoly.tables import Plottable, Table, Tabular


@record
class SecondMoment(Tabular, Plottable):
    """First and second moments of outputs f(x).

    Attributes
    ----------
    mean, raw, cov : array (o,), array (o, o), array (o, o)
        E[f], E[f f'] and Cov[f].
    bound : array (o, o)
        Bound on the error of `cov` and `raw` from truncated series, rounding aside; zero for exact kernels.
    """

    mean: Array
    raw: Array
    cov: Array
    bound: Array

    def _table(self) -> Table:
        variance = to_numpy(self.cov).diagonal().clip(min=0)
        rows = zip(range(len(variance)), to_numpy(self.mean).tolist(), (variance**0.5).tolist(), strict=True)
        return Table(("output", "mean", "standard deviation"), tuple(rows), limit=20)


@by_value
def second_moment(net: Network | Polynomial, inputs: InputsLike) -> SecondMoment:
    """Mean, E[f f'] and covariance of the outputs of a network with one hidden layer, or a polynomial.

    Exact for ReLU and every piecewise-linear activation. Other activations, and gated units, are summed as a series in
    the degree, with a bound on the truncation error; strongly correlated or identical units are integrated exactly.
    `mlpoly.propagate` has the moments of deep networks. Under independent inputs, exact for polynomials.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "relu")
    >>> round(float(second_moment(net, mp.Gaussian.standard(2)).cov[0, 0]), 6)  # 1 - 1/pi
    0.68169
    """
    inputs = as_inputs(inputs)
    if isinstance(inputs, Independent) and isinstance(net, Polynomial):
        whole = Orthogonal(net, inputs)
        rest = whole.values[1:, :]
        mean, cov, bound = whole.level, rest.T @ rest, rest.T @ rest * 0
    elif isinstance(inputs, Samples):
        checked_inputs(net if isinstance(net, Polynomial) else check_network(net), inputs)
        values = outputs_of("net", net, inputs.x)
        check_finite("net(x)", values)
        outputs = Samples(values, inputs.weights)
        mean, cov, bound = outputs.mean, outputs.covariance, outputs.covariance * 0
    else:
        parts = [(w, f.mean, inner(f, f, full=True)) for w, f in expansions(net, inputs)]
        mean = sum(w * m for w, m, _ in parts)
        cov = sum(w * (c.tail + (m - mean)[:, None] * (m - mean)) for w, m, c in parts)
        bound = sum(w * c.bound for w, _, c in parts)
    raw = cov + mean[:, None] * mean
    return SecondMoment(*[cast_result(a, net.prototype) for a in (mean, raw, cov, bound)])
