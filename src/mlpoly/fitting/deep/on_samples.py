"""Deep networks on samples, layer by layer: each by itself, or so that it makes up for those before (MATH 9, 13).

By itself a layer is fitted on the values that the network computes. Together, it is fitted on the values that the
polynomials before it produce, and its readout brings them as close to the network's own values as it can. What does
better on samples that were held out is fitted to all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mlpoly.arrays import Array, chunks, differentiated, namespace, no_gradients, readable
from mlpoly.fitting.joint_features import features_of
from mlpoly.fitting.samples.joint import JointFit, Split
from mlpoly.fitting.samples.neuronwise import fit_samples_neuronwise
from mlpoly.inputs import Samples
from mlpoly.networks import Layer, Network, walk
from mlpoly.polynomials import ComposedPolynomial, Polynomial
from mlpoly.records import replace

_LEAST = 100  # samples; fewer do not tell which is better
_NUMBERS = 2**24  # values of a layer computed at once

WAYS = {"joint": "each layer makes up for those before", "neuronwise": "each layer by itself"}

Stages = tuple[Polynomial, ...]
State = tuple[Array, Array | None, Stages]  # the network's values, those of the polynomials if together, the stages


def fit_layers(net: Network, inputs: Samples, degrees: Sequence[int]) -> tuple[Stages, dict[str, Any], float | None]:
    """The polynomials of all layers, what was chosen, and the fraction of variance unexplained on held-out samples.

    Layers are fitted by themselves where samples are few, a composition overflows, or gradients are wanted.
    """
    alone = {"kind": "neuronwise"}
    both = (net.prototype, inputs.x)
    if inputs.count < _LEAST or not readable(*both) or any(map(differentiated, both)):
        return fitted(net, inputs, degrees, False), alone, None
    with no_gradients(net.prototype), np.errstate(over="ignore", invalid="ignore"):
        split = Split(net, inputs)
        try:
            one, two = (
                ComposedPolynomial(fitted(net, split.learning, degrees, together)) for together in (False, True)
            )
            before, after, better = split.compare(one, two)
            stages = fitted(net, inputs, degrees, better)
        except OverflowError:  # of a composition
            return fitted(net, inputs, degrees, False), alone, None
        return (stages, {"kind": "joint", "start": before}, after) if better else (stages, alone, before)


def fitted(net: Network, samples: Samples, degrees: Sequence[int], together: bool) -> Stages:
    """The polynomials of all layers."""
    start: State = (samples.x, samples.x if together else None, ())
    return walk(net, _Layers(samples.weights, iter(degrees)), start)[2]


class _Layers:
    """Fits every layer in turn."""

    def __init__(self, weights: Array | None, degrees: Iterator[int]) -> None:
        self.weights, self.degrees = weights, degrees

    def layer(self, layer: Layer, state: State) -> State:
        x, p, stages = state
        target, degree, together = _values(layer, x, layer), next(self.degrees), p is not None
        entering = x if p is None else p
        if together and not bool(namespace(p=p).all(namespace(p=p).isfinite(p))):
            raise OverflowError("the polynomials of the layers before overflow")
        samples = Samples(entering, self.weights)
        stage = fit_samples_neuronwise(layer, samples, degree)
        if together and degree and not is_affine(layer):
            fit = JointFit(layer, features_of(stage, "readout")[0], careful=True)
            fit = Split(layer, samples).fill(fit, target).choose()
            if fit.error < fit.before:
                stage = replace(fit.polynomial(fit.everything(), fit.shrinkage), activation=stage.activation)
        return target, _values(stage, entering, layer) if together else None, (*stages, stage)

    def enter(self, state: State) -> State:
        return state[0], state[1], ()

    def join(self, before: State, branch: State) -> State:
        p = None if before[1] is None else before[1] + branch[1]
        return before[0] + branch[0], p, (*before[2], ComposedPolynomial(branch[2], skip=True))


def is_affine(layer: Layer) -> bool:
    """Whether a layer has no activation and no gate, so that it is its own polynomial."""
    return layer.activation.name == "identity" and layer.forms.gate_directions is None


def _values(function: Callable[[Array], Array], x: Array, layer: Layer) -> Array:
    """A layer, or its polynomial, at all samples."""
    rows = chunks(x.shape[0], max(1, _NUMBERS // max(layer.dim_in, layer.dim_hidden)))
    return namespace(x=x).concat([function(x[part, ...]) for part in rows])
