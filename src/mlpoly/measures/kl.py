"""How alike two classifiers are on data: Kullback-Leibler divergence, accuracy, agreement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlpoly.arrays import Array
from mlpoly.measures.arguments import check_models, checked_samples
from mlpoly.measures.number import Estimate
from mlpoly.measures.outputs import (
    accuracy_of_outputs,
    agreement_of_outputs,
    evaluated,
    kl_of_outputs,
    outputs_of,
)

__all__ = ["accuracy", "agreement", "kl"]


def kl(net: Callable[[Array], Array], poly: Callable[[Array], Array], *, samples: Array) -> Estimate:
    """Mean KL(softmax f || softmax p) over samples, in nats, with its standard error.

    Parameters
    ----------
    net : MLP, GLU, or any callable from (n, d) to (n, o)
        Its outputs f are logits.
    poly : Polynomial, or any callable
    samples : array (n, d)
    """
    return kl_of_outputs(*outputs_of(net, poly, samples))


def accuracy(model: Callable[[Array], Array], samples: Array, labels: Any) -> Estimate:
    """Fraction of samples whose largest output is that of their label.

    Parameters
    ----------
    model : MLP, GLU, Polynomial, or any callable from (n, d) to (n, o)
    samples : array (n, d)
    labels : integers (n,)
    """
    samples = checked_samples(samples, check_models(model=model))
    return accuracy_of_outputs(evaluated("model", model, samples), labels)


def agreement(net: Callable[[Array], Array], poly: Callable[[Array], Array], samples: Array) -> Estimate:
    """Fraction of samples on which the largest outputs of two models are the same one."""
    return agreement_of_outputs(*outputs_of(net, poly, samples))
