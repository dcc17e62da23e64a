"""Measures on data: the divergence of two classifiers, and all at once from a single evaluation."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, overload

from mlpoly.arrays import Array, scalar
from mlpoly.inputs import InputsLike
from mlpoly.measures.functions import checked_data, outputs_of
from mlpoly.records import record
from mlpoly.scores import FVU, Estimate, accuracy_of_outputs, agreement_of_outputs, fvu_of_outputs, kl_of_outputs
from mlpoly.tables import Cell, Plottable, Table, Tabular


@record
class Comparison(Tabular, Plottable):
    """A polynomial compared with a network on data; the outputs are logits, a single one of class 1 against class 0.

    Attributes
    ----------
    fvu, kl : FVU, Estimate
        Of the outputs, and the mean KL(softmax f || softmax p) in nats; of the sigmoids for a single output.
    agreement : Estimate
        Fraction of samples on which the largest output of both is the same one.
    accuracy, network_accuracy : Estimate or None
        Fraction of samples whose largest output is that of their label, if labels were given.
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
        errors = {name: value.standard_error for name, value in self.measures().items()}
        rows = [(k, float(v), None if errors[k] is None else scalar(errors[k])) for k, v in self.measures().items()]
        return Table(("measure", "value", "standard error"), tuple(rows))


class Comparisons(Tabular, dict[str, Comparison]):
    """Several polynomials compared with one network: a mapping from their names; prints as a table."""

    def _table(self) -> Table:
        rows: list[tuple[Cell, ...]] = [(name, *map(float, c.measures().values())) for name, c in self.items()]
        return Table(("polynomial", *next(iter(self.values())).measures()), tuple(rows))


@overload
def compare(
    net: Callable[[Array], Array], poly: Callable[[Array], Array], inputs: InputsLike, labels: Any = None
) -> Comparison: ...
@overload
def compare(
    net: Callable[[Array], Array], poly: Mapping[str, Callable[[Array], Array]], inputs: InputsLike, labels: Any = None
) -> Comparisons: ...
def compare(net: Callable[[Array], Array], poly: Any, inputs: InputsLike, labels: Any = None) -> Any:
    """Return `fvu`, `kl`, agreement and accuracy on data together, with one evaluation of the network.

    Parameters
    ----------
    net : MLP, GLU, or any callable from (n, d) to (n, o)
    poly : Polynomial, or any callable; or a mapping from names to several of them, which gives one to their comparisons
    inputs : data (n, d), or Samples
    labels : integers (n,), optional
        0 and 1 for a network with one output.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.diag([2.0, 0.5]), None, np.array([[1.0, -1.0], [-1.0, 1.0]]), None, "tanh")
    >>> polys = {f"degree {k}": mp.fit(net, mp.Gaussian.standard(2), k) for k in (1, 3)}
    >>> x = mp.Gaussian.standard(2).sample(500, seed=0)
    >>> comparisons = mp.compare(net, polys, x, labels=(x[:, 1] > 3 * x[:, 0]).astype(int))
    >>> {name: round(float(value), 2) for name, value in comparisons["degree 3"].measures().items()}
    {'fvu': 0.07, 'kl': 0.02, 'agreement': 0.95, 'accuracy': 0.97, 'network_accuracy': 0.98}
    """
    several = isinstance(poly, Mapping)
    models = dict(poly) if several else {"poly": poly}
    if not models:
        raise ValueError("poly is an empty mapping; give at least one polynomial.")
    for model in models.values():
        data = checked_data(inputs, 2, net=net, poly=model)
    f, weights = outputs_of("net", net, data.x), data.weights
    network = None if labels is None else accuracy_of_outputs(f, labels, weights)

    def compared(name: str, model: Callable[[Array], Array]) -> Comparison:
        p = outputs_of(name, model, data.x, f.shape[1])
        accuracy = None if labels is None else accuracy_of_outputs(p, labels, weights)
        measures = fvu_of_outputs(f, p, weights), kl_of_outputs(f, p, weights), agreement_of_outputs(f, p, weights)
        return Comparison(*measures, accuracy, network)

    comparisons = Comparisons({str(name): compared(str(name), model) for name, model in models.items()})
    return comparisons if several else comparisons["poly"]


def kl(net: Callable[[Array], Array], poly: Callable[[Array], Array], inputs: InputsLike) -> Estimate:
    """Mean KL(softmax f || softmax p) over samples, in nats, with its standard error.

    Arguments as in `compare`; a single output is the logit of class 1 against class 0, as of a sigmoid.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.diag([2.0, 0.5]), None, np.array([[1.0, -1.0], [-1.0, 1.0]]), None, "tanh")
    >>> x = mp.Gaussian.standard(2).sample(500, seed=0)
    >>> [round(float(mp.kl(net, mp.fit(net, mp.Gaussian.standard(2), degree), x)), 3) for degree in (1, 3, 5)]
    [0.03, 0.017, 0.006]
    """
    data = checked_data(inputs, net=net, poly=poly)
    f = outputs_of("net", net, data.x)
    return kl_of_outputs(f, outputs_of("poly", poly, data.x, f.shape[1]), data.weights)
