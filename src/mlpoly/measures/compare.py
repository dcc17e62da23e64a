"""Measures on data: the divergence of two classifiers, and all at once from a single evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from mlpoly.arrays import Array, scalar
from mlpoly.measures.outputs import outputs_of
from mlpoly.plottable import Plottable
from mlpoly.records import record
from mlpoly.scores import FVU, Estimate, accuracy_of_outputs, agreement_of_outputs, fvu_of_outputs, kl_of_outputs
from mlpoly.tables import Table, Tabular


@record
class Comparison(Tabular, Plottable):
    """A polynomial compared with a network on data.

    Attributes
    ----------
    fvu : FVU
    kl : Estimate
        Mean KL(softmax f || softmax p), in nats.
    agreement : Estimate
        Fraction of samples on which the largest output of both is the same one.
    accuracy, network_accuracy : Estimate or None
        Fraction of samples whose largest output is that of their label, if labels were given.

    The outputs are logits. A single one is that of class 1 against class 0, with the sigmoid in place of the softmax.
    """

    fvu: FVU
    kl: Estimate
    agreement: Estimate
    accuracy: Estimate | None = None
    network_accuracy: Estimate | None = None

    def measures(self) -> dict[str, FVU | Estimate]:
        """Return the measures that were taken, by their names."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def _table(self) -> Table:
        rows = []
        for name, value in self.measures().items():
            error = value.standard_error
            rows.append((name, float(value), None if error is None else scalar(error)))
        return Table(("measure", "value", "standard error"), tuple(rows))

    def __repr__(self) -> str:
        return f"Comparison({', '.join(f'{name}={value}' for name, value in self.measures().items())})"


def compare(
    net: Callable[[Array], Array],
    poly: Callable[[Array], Array],
    samples: Array,
    labels: Any = None,
    outputs: Array | None = None,
) -> Comparison:
    """Return `fvu`, `kl`, `agreement` and `accuracy` together, at the cost of one of them.

    Parameters
    ----------
    net : MLP, GLU, or any callable from (n, d) to (n, o)
    poly : Polynomial, or any callable
    samples : array (n, d)
    labels : integers (n,), optional
        0 and 1 for a network with one output.
    outputs : array (n, o), optional
        ``net(samples)``, if already known, for example when several polynomials are compared.

    Returns
    -------
    Comparison
        Prints as a table; ``.plot()``.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.diag([2.0, 0.5]), None, np.array([[1.0, -1.0], [-1.0, 1.0]]), None, "tanh")
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=3)
    >>> x = mp.Gaussian.standard(2).sample(500, seed=0)
    >>> found = mp.compare(net, poly, x, labels=(x[:, 1] > 3 * x[:, 0]).astype(int))
    >>> {name: round(float(value), 2) for name, value in found.measures().items()}
    {'fvu': 0.07, 'kl': 0.02, 'agreement': 0.95, 'accuracy': 0.97, 'network_accuracy': 0.98}
    """
    f, p = outputs_of(net, poly, samples, minimum=2, known=outputs)
    return Comparison(
        fvu_of_outputs(f, p),
        kl_of_outputs(f, p),
        agreement_of_outputs(f, p),
        None if labels is None else accuracy_of_outputs(p, labels),
        None if labels is None else accuracy_of_outputs(f, labels),
    )


def kl(net: Callable[[Array], Array], poly: Callable[[Array], Array], samples: Array) -> Estimate:
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
    """
    return kl_of_outputs(*outputs_of(net, poly, samples))
