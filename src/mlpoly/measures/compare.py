"""All measures on data at once, from a single evaluation of network and polynomial."""

from __future__ import annotations

from typing import Any

from mlpoly.arrays import Array, as_float_array, check_finite, check_shape, namespace, record, widen
from mlpoly.layers import GLU, MLP
from mlpoly.measures.components import check_functions
from mlpoly.measures.fvu import FVU, fvu_of_outputs, in_blocks
from mlpoly.measures.kl import Estimate, checked_labels, chosen, divergence, mean_of
from mlpoly.polynomials import Polynomial

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


def compare(
    net: MLP | GLU, poly: Polynomial, samples: Array, labels: Any = None, outputs: Array | None = None
) -> Comparison:
    """What `fvu`, `kl`, `agreement` and `accuracy` say, at the price of one of them.

    Parameters
    ----------
    net : MLP or GLU
    poly : Polynomial
    samples : array (n, d)
    labels : integers (n,), optional
    outputs : array (n, o), optional
        ``net(samples)``, if it is known already, as when several polynomials are compared.
    """
    check_functions(net, poly)
    samples = as_float_array("samples", samples)
    check_shape("samples", samples, (None, net.dim_in), "n samples in rows, as many columns as the network has inputs")
    if samples.shape[0] < 2:
        raise ValueError(f"samples holds {samples.shape[0]} rows; a variance needs at least 2.")
    check_finite("samples", samples)
    if outputs is not None:
        check_shape("outputs", outputs, (samples.shape[0], net.dim_out), "what the network makes of the samples")
    f, p = in_blocks(net, samples) if outputs is None else outputs, in_blocks(poly, samples)
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
