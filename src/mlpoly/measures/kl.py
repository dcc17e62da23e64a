"""How alike two classifiers are on data: Kullback-Leibler divergence, accuracy, agreement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlpoly.arrays import Array
from mlpoly.measures.arguments import checked_samples
from mlpoly.measures.outputs import evaluated, outputs_of
from mlpoly.scores import Estimate, accuracy_of_outputs, agreement_of_outputs, kl_of_outputs


def kl(net: Callable[[Array], Array], poly: Callable[[Array], Array], *, samples: Array) -> Estimate:
    """Mean KL(softmax f || softmax p) over samples, in nats, with its standard error.

    Parameters
    ----------
    net : MLP, GLU, or any callable from (n, d) to (n, o)
        Its outputs f are logits. A single one is that of class 1 against class 0, whose probability is its sigmoid.
    poly : Polynomial, or any callable
    samples : array (n, d)

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
    >>> [round(float(mp.kl(net, poly, samples=x)), 3) for poly in polys]
    [0.03, 0.017, 0.006]
    >>> [round(float(mp.accuracy(poly, x, labels=net(x).argmax(1))), 2) for poly in polys]
    [0.91, 0.95, 0.96]
    """
    return kl_of_outputs(*outputs_of(net, poly, samples))


def accuracy(model: Callable[[Array], Array], samples: Array, labels: Any) -> Estimate:
    """Fraction of samples whose largest output is that of their label.

    Parameters
    ----------
    model : MLP, GLU, Polynomial, or any callable from (n, d) to (n, o)
    samples : array (n, d)
    labels : integers (n,)
        For a model with one output, the logit of class 1, they are 0 and 1: class 1 is where the output is above 0.

    Returns
    -------
    Estimate
        As a number it is the fraction; ``.standard_error``.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), activation="relu")
    >>> x = np.array([[2.0, 1.0], [1.0, 3.0], [0.0, 1.0], [4.0, 2.0]])
    >>> float(mp.accuracy(net, x, labels=[0, 1, 1, 1]))
    0.75
    """
    samples = checked_samples(samples, model=model)
    return accuracy_of_outputs(evaluated("model", model, samples), labels)


def agreement(net: Callable[[Array], Array], poly: Callable[[Array], Array], samples: Array) -> Estimate:
    """Fraction of samples on which the largest outputs of two models are the same one.

    A single output is the logit of class 1: the classes are the same where both are above 0, or neither is.

    Parameters
    ----------
    net : MLP, GLU, or any callable from (n, d) to (n, o)
    poly : Polynomial, or any callable
    samples : array (n, d)

    Returns
    -------
    Estimate
        As a number it is the fraction; ``.standard_error``.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(2), None, np.eye(2), np.array([0.0, 0.25]), "relu")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=1)  # of half the slope, so that the bias counts for more
    >>> x = np.array([[2.0, 1.0], [0.0, 1.0], [1.0, 0.6], [0.5, 1.0]])
    >>> float(mp.agreement(net, poly, x))
    0.75
    """
    return agreement_of_outputs(*outputs_of(net, poly, samples))
