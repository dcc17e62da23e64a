"""A feedforward block with one hidden layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from mlpoly.activations import Activation, get
from mlpoly.arrays import Array
from mlpoly.networks.layer import Forms, Layer, Network, check_bias, check_weight, layout_hint, set_weights
from mlpoly.records import record, replace, static

if TYPE_CHECKING:
    from mlpoly.networks.assemble import ActivationLike, Layout


@record
class MLP(Layer):
    """f(x) = W2 act(W1 x + b1) + b2, with weights in PyTorch's layout.

    scikit-learn, Keras and Flax store the transposes, (inputs, outputs): transpose theirs first, or use
    `MLP.from_layers`. With square matrices the mistake cannot be detected.

    Parameters
    ----------
    W1, W2 : array (h, d), array (o, h) or None
        Without W2 the hidden units are the outputs.
    b1, b2 : array (h,), array (o,), or None
    activation : str, Activation or callable
        See `mlpoly.activations.get`.
    names, output_names : sequence of str, optional
        Names of the inputs and outputs. Distributions and data that have an input at another place are refused; with
        their names outputs may be asked for, ``output="cat"``.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> mp.MLP(np.eye(2), None, np.ones((1, 2)), None, "relu")(np.array([[1.0, -1.0]])).tolist()
    [[1.0]]
    """

    W1: Array
    b1: Array | None
    W2: Array | None
    b2: Array | None
    activation: Activation = static()
    names: tuple[str, ...] | None = static(default=None)
    output_names: tuple[str, ...] | None = static(default=None)

    def __init__(
        self,
        W1: Array,
        b1: Array | None = None,
        W2: Array | None = None,
        b2: Array | None = None,
        activation: str | Activation | Callable[[Array], Array] = "relu",
        names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> None:
        W1 = check_weight("W1", W1, (None, None), "hidden units in rows, inputs in columns")
        h = W1.shape[0]
        hint = layout_hint("W1", W1, b1, "W2", W2)
        if W2 is not None:
            W2 = check_weight("W2", W2, (None, h), "outputs in rows, as many columns as W1 has rows" + hint)
        b1, b2 = check_bias("b1", b1, h, hint), check_bias("b2", b2, h if W2 is None else W2.shape[0])
        weights = {"W1": W1, "b1": b1, "W2": W2, "b2": b2}
        set_weights(self, weights, names, output_names, activation=get(activation))

    @staticmethod
    def from_layers(
        layers: Sequence[tuple[Array, Array | None]],
        activation: ActivationLike | Sequence[ActivationLike | None] = "relu",
        layout: Layout = "out_in",
    ) -> Network:
        """Return a network of any depth, an Affine, MLP or Chain, from the weights and biases of its layers.

        Parameters
        ----------
        layers : sequence of pairs
            Weight and bias of each layer, in order; a bias may be None.
        activation : str, Activation or callable, or a sequence of them
            Activation of all hidden layers, or one for each, where None is no activation: two linear maps in a row.
        layout : {"out_in", "in_out"}
            Layout of the weights: (outputs, inputs) in PyTorch and Equinox, (inputs, outputs) in scikit-learn, Keras
            and Flax. Square weights fit both.

        Examples
        --------
        Flax, whose parameters are kernels and biases by layer; Keras lists both in turn, ``zip(w[::2], w[1::2])``:

        >>> import numpy as np, mlpoly as mp
        >>> params = {
        ...     "Dense_0": {"kernel": np.ones((3, 8)), "bias": np.ones(8)},
        ...     "Dense_1": {"kernel": np.ones((8, 2)), "bias": np.ones(2)},
        ... }
        >>> mp.MLP.from_layers([(p["kernel"], p["bias"]) for p in params.values()], "gelu", layout="in_out")
        MLP(3 -> 8 -> 2, gelu)
        """
        from mlpoly.networks.assemble import from_layers  # imports this module

        return from_layers(layers, activation, layout)

    @cached_property
    def _parts(self) -> tuple[Forms, Array | None, Array | None]:
        return Forms(self.W1, self.b1), self.W2, self.b2

    def with_parts(self, forms: Forms, readout: Array | None, bias: Array | None) -> MLP:
        """An MLP of the same activation with other weights."""
        return replace(self, W1=forms.directions, b1=forms.bias, W2=readout, b2=bias)
