"""All measures on data at once, from a single evaluation of network and polynomial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from mlpoly.arrays import Array, check_shape, namespace, widen
from mlpoly.measures.fvu import FVU, checked_samples, fvu_of_outputs, outputs_of
from mlpoly.measures.kl import Estimate, checked_labels, chosen, divergence, mean_of
from mlpoly.records import record

__all__ = ["Comparison", "compare"]


@record
class Comparison:
    """A polynomial beside a network on data.

    Attributes
    ----------
    fvu : FVU
    kl : Estimate
        Mean KL(softmax f || softmax p), in nats.
    agreement : Estimate
        Share of samples on which both have their largest output at the same place.
    accuracy, network_accuracy : Estimate or None
        Share of samples whose largest output is that of their label, if labels were given.
    """

    fvu: FVU
    kl: Estimate
    agreement: Estimate
    accuracy: Estimate | None = None
    network_accuracy: Estimate | None = None

    def __repr__(self) -> str:
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return f"Comparison({', '.join(f'{name}={value}' for name, value in found.items() if value is not None)})"


def compare(
    net: Callable[[Array], Array],
    poly: Callable[[Array], Array],
    samples: Array,
    labels: Any = None,
    outputs: Array | None = None,
) -> Comparison:
    """What `fvu`, `kl`, `agreement` and `accuracy` say, at the price of one of them.

    Parameters
    ----------
    net : MLP, GLU, or any callable from (n, d) to (n, o)
    poly : Polynomial, or any callable
    samples : array (n, d)
    labels : integers (n,), optional
    outputs : array (n, o), optional
        ``net(samples)``, if it is known already, as when several polynomials are compared.
    """
    samples = checked_samples(net, poly, samples)
    if outputs is not None:
        shape = (samples.shape[0], getattr(net, "dim_out", None))
        check_shape("outputs", outputs, shape, "what the network makes of the samples")
    f, p = outputs_of(net, poly, samples, outputs)
    xp, kind = namespace(f=f, p=p), widen(samples).dtype
    theirs, ours = chosen(f), chosen(p)
    targets = None if labels is None else checked_labels(labels, samples)

    def share(right: Array) -> Estimate:
        return mean_of(xp.astype(right, kind), samples)

    return Comparison(
        fvu_of_outputs(f, p),
        mean_of(xp.astype(divergence(f, p), kind), samples),
        share(theirs == ours),
        None if targets is None else share(ours == targets),
        None if targets is None else share(theirs == targets),
    )
