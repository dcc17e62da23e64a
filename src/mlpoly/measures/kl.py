"""How alike two classifiers are on data: the Kullback-Leibler divergence of their predictions."""

from __future__ import annotations

from collections.abc import Callable

from mlpoly.arrays import Array
from mlpoly.inputs import InputsLike
from mlpoly.measures.arguments import checked_data
from mlpoly.measures.outputs import outputs_of
from mlpoly.scores import Estimate, kl_of_outputs


def kl(net: Callable[[Array], Array], poly: Callable[[Array], Array], inputs: InputsLike) -> Estimate:
    """Mean KL(softmax f || softmax p) over samples, in nats, with its standard error.

    Parameters
    ----------
    net : MLP, GLU, or any callable from (n, d) to (n, o)
        Its outputs f are logits. A single one is that of class 1 against class 0, whose probability is its sigmoid.
    poly : Polynomial, or any callable
    inputs : data (n, d), or Samples

    Returns
    -------
    Estimate
        As a number it is the mean; ``.standard_error``.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.diag([2.0, 0.5]), None, np.array([[1.0, -1.0], [-1.0, 1.0]]), None, "tanh")
    >>> x = mp.Gaussian.standard(2).sample(500, seed=0)
    >>> polys = [mp.fit(net, mp.Gaussian.standard(2), degree) for degree in (1, 3, 5)]
    >>> [round(float(mp.kl(net, poly, x)), 3) for poly in polys]
    [0.03, 0.017, 0.006]
    """
    data = checked_data(inputs, net=net, poly=poly)
    f = outputs_of("net", net, data.x)
    return kl_of_outputs(f, outputs_of("poly", poly, data.x, f.shape[1]), data.weights)
