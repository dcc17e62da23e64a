"""Networks of dense layers from the weights of a model and what it computes, for Equinox, Flax and Keras.

Which activations stand between the layers, and in which order a class of its own applies them, shows at test inputs.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mlpoly.activations import get, names
from mlpoly.arrays import is_low_precision, on, to_numpy
from mlpoly.networks import Affine, Network
from mlpoly.networks.assemble import ActivationLike, Piece, assemble

_SIZES = (1.0, 10.0, 100.0, 1e4)  # of test inputs; those far out show limits on large values
_TOLERANCE = 2e-5  # float32 leaves 1e-6; gelu and its approximation by tanh differ by 1e-4 and more
_MOST = 5  # layers whose order is searched

Rows = Callable[[np.ndarray], Any]


def found_network(
    source: str, model: Rows, layers: Sequence[Affine], activation: ActivationLike | Sequence[Any] | None
) -> Network:
    """The chain of these layers, in some order and with one activation between them, that computes what a model does.

    An `activation` that is given, one for all or a list with one for each hidden layer, is the only one that is tried.
    """
    count = len(layers) - 1
    if activation is None:
        tried: list[list[Any]] = [[name] * count for name in names()] if count > 0 else [[]]
    else:
        several = isinstance(activation, Sequence) and not isinstance(activation, str)
        tried = [list(activation) if several else [activation] * count]  # type: ignore[arg-type]
    cases = [(ordered, tried) for ordered in _orders(layers)]
    if activation is None:  # then with one at the end as well
        cases += [(ordered, [[*between, last] for between in tried for last in names()]) for ordered, _ in cases[:1]]
    best: tuple[float, Network | None] = (np.inf, None)
    refusal = TypeError(f"{source} takes chains of dense layers, and found none in this model.")
    for ordered, choices in cases:
        x = test_inputs(ordered[0])
        try:
            wanted = outputs_of(source, model, x)
        except TypeError as error:  # another order may have another number of inputs
            refusal = error
            continue
        for between in choices:
            pieces: list[Piece] = []
            for layer, act in itertools.zip_longest(ordered, between):
                pieces += [layer] if act is None else [layer, get(act)]
            net = assemble(pieces)
            best = min(best, (difference(net, x, wanted), net), key=lambda pair: pair[0])
        if best[0] <= _TOLERANCE:
            break
    gap, found = best
    if found is None:
        raise refusal
    if not gap <= _TOLERANCE:
        size = ", ".join(f"{layer.dim_in} -> {layer.dim_out}" for layer in layers)
        asked = "any known activation" if activation is None else f"activation={activation!r}"
        raise TypeError(
            f"{source} takes chains of dense layers, and those of this model ({size}) with {asked} between them do not "
            f"compute what it does: on test inputs the outputs differ by {gap:.2g} of their size at least. Pass "
            f"activation=, one name for all hidden layers or a list, or write the network down with mlpoly.MLP, GLU, "
            f"Residual and Chain."
        )
    return found


def check_same(source: str, model: Rows, net: Network, ending: Callable[[Any], Any] | None = None) -> None:
    """Raise unless a network, and what the model does to its outputs, computes what the model does on test inputs."""
    x = test_inputs(net)
    error = difference(net, x, outputs_of(source, model, x), ending)
    if not error <= _TOLERANCE:
        raise TypeError(
            f"{source} cannot take this model: its layers one after the other differ from what it computes by "
            f"{error:.2g} of its size on test inputs. Write the network down with mlpoly.MLP, GLU, Residual and Chain."
        )


def dense(source: str, place: str, weight: Any, bias: Any) -> Affine:
    """The affine map of a dense layer, whose weight is (outputs, inputs)."""
    if len(weight.shape) != 2:
        raise TypeError(f"{source} takes dense layers, and the weight of {place} has shape {tuple(weight.shape)}.")
    if is_low_precision(weight.dtype):
        raise TypeError(f"{place} has {weight.dtype} weights, too coarse to compare with the model; use float32.")
    return Affine(weight, bias)


def test_inputs(net: Network) -> np.ndarray:
    """Rows (n, d) for a network, of several sizes, in the dtype of its weights."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([size * rng.standard_normal((8, net.dim_in)) for size in _SIZES])
    return rows.astype(to_numpy(net.prototype).dtype)


def outputs_of(source: str, model: Rows, x: np.ndarray) -> np.ndarray:
    """Outputs (n, o) of a model; a TypeError says that it does not take rows."""
    try:
        return np.asarray(model(x), np.float64).reshape(len(x), -1)
    except Exception as error:  # the model's own code may raise anything
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise TypeError(f"{source} takes models of vectors; {x.shape[1]} inputs gave an error ({said}).") from error


def difference(net: Network, x: np.ndarray, wanted: np.ndarray, ending: Callable[[Any], Any] | None = None) -> float:
    """How much the outputs of a network differ from those of a model, relative to how much they vary; the largest."""
    own = any(getattr(getattr(part, "activation", None), "own", None) for part in getattr(net, "layers", (net,)))
    with np.errstate(all="ignore"):
        if not own:  # a function of the user's may need its own arrays
            net, x = net.to(np.zeros(1)), x.astype(np.float64)
        got = to_numpy(net(on(x, net.prototype))).astype(np.float64)
        got = got if ending is None else ending(got)
        if got.shape != wanted.shape:
            return np.inf
        gaps = []
        for a, b in zip(np.split(got, len(_SIZES)), np.split(wanted, len(_SIZES)), strict=True):
            seen = np.isfinite(a) & np.isfinite(b)  # powers overflow in float32
            size = float(np.linalg.norm((b - b.mean(axis=0))[seen])) + 1e-3 * float(np.linalg.norm(b[seen]))
            gap = float(np.linalg.norm((a - b)[seen]))
            gaps.append(gap / size if size else gap)
    return max(gaps) if np.isfinite(wanted[:8]).all() and np.isfinite(got[:8]).all() else np.inf


def _orders(layers: Sequence[Affine]) -> Iterator[Sequence[Affine]]:
    """The layers in the order that their library gives, and in the others in which their sizes fit."""
    several = itertools.permutations(layers) if 0 < len(layers) <= _MOST else [tuple(layers)] if layers else []
    for ordered in several:
        if all(a.dim_out == b.dim_in for a, b in itertools.pairwise(ordered)):
            yield ordered
