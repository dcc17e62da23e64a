"""A feedforward block with one hidden layer."""

from __future__ import annotations

from collections.abc import Callable

from mlpoly.activations import Activation, get
from mlpoly.arrays import Array
from mlpoly.networks.layer import Forms, Layer
from mlpoly.networks.weight_checks import check_bias, check_weight, layout_hint, set_weights
from mlpoly.records import record, replace, static

__all__ = ["MLP"]


@record
class MLP(Layer):
    """f(x) = W2 act(W1 x + b1) + b2, with weights in PyTorch's layout.

    scikit-learn, Keras and Flax store the transposes, (inputs, outputs): transpose theirs first. With square matrices
    the mistake cannot be detected.

    Parameters
    ----------
    W1 : array (h, d)
    b1 : array (h,) or None
    W2 : array (o, h) or None
        None leaves the hidden units as outputs.
    b2 : array (o,) or None
    activation : str, Activation or callable
        See `mlpoly.activations.get`.

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

    def __init__(
        self,
        W1: Array,
        b1: Array | None = None,
        W2: Array | None = None,
        b2: Array | None = None,
        activation: str | Activation | Callable[[Array], Array] = "relu",
    ) -> None:
        W1 = check_weight("W1", W1, (None, None), "hidden units in rows, inputs in columns")
        h = W1.shape[0]
        hint = layout_hint("W1", W1, b1, "W2", W2)
        if W2 is not None:
            W2 = check_weight("W2", W2, (None, h), "outputs in rows, as many columns as W1 has rows" + hint)
        b1, b2 = check_bias("b1", b1, h, hint), check_bias("b2", b2, h if W2 is None else W2.shape[0])
        set_weights(self, {"W1": W1, "b1": b1, "W2": W2, "b2": b2}, activation=get(activation))

    @property
    def forms(self) -> Forms:
        """Linear forms that enter the hidden units."""
        return Forms(self.W1, self.b1)

    @property
    def readout(self) -> Array | None:
        """W2."""
        return self.W2

    @property
    def bias(self) -> Array | None:
        """b2."""
        return self.b2

    def _formula(self) -> str:
        units = f"{self.activation.name}(W_1 x{'' if self.b1 is None else ' + b_1'})"
        return f"{'' if self.W2 is None else 'W_2 '}{units}{'' if self.b2 is None else ' + b_2'}"

    def with_parts(self, forms: Forms, readout: Array | None, bias: Array | None) -> MLP:
        """An MLP of the same activation with other weights."""
        return replace(self, W1=forms.directions, b1=forms.bias, W2=readout, b2=bias)
