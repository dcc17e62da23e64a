"""A gated feedforward block."""

from collections.abc import Callable, Sequence
from functools import cached_property

from mlpoly.activations import Activation, get
from mlpoly.arrays import Array
from mlpoly.networks.layer import Forms, Layer, check_bias, check_weight, layout_hint, set_weights
from mlpoly.records import record, replace, static


@record
class GLU(Layer):
    """f(x) = W_down [act(W_gate x + b_gate) * (W_up x + b_up)] + b_down, with weights in PyTorch's layout.

    scikit-learn, Keras and Flax store the transposes, (inputs, outputs): transpose theirs first.

    Parameters
    ----------
    W_gate, W_up, W_down : array (h, d), array (h, d), array (o, h) or None
        Without W_down the gated hidden units are the outputs.
    b_gate, b_up, b_down : array (h,), array (h,), array (o,), or None
    activation : str, Activation or callable
        See `mlpoly.activations.get`; "identity" makes a bilinear layer.
    names, output_names : sequence of str, optional
        Names of the inputs and outputs. Distributions and data that have an input at another place are refused; with
        their names outputs may be asked for, ``output="cat"``.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> block = mp.GLU(np.eye(2), None, np.eye(2), None, np.ones((1, 2)), None, "relu")  # sum of relu(x_i) x_i
    >>> block, block(np.array([[3.0, -2.0]])).tolist()
    (GLU(2 -> 2 -> 1, relu), [[9.0]])
    """

    W_gate: Array
    b_gate: Array | None
    W_up: Array
    b_up: Array | None
    W_down: Array | None
    b_down: Array | None
    activation: Activation = static()
    names: tuple[str, ...] | None = static(default=None)
    output_names: tuple[str, ...] | None = static(default=None)

    def __init__(
        self,
        W_gate: Array,
        b_gate: Array | None,
        W_up: Array,
        b_up: Array | None = None,
        W_down: Array | None = None,
        b_down: Array | None = None,
        activation: str | Activation | Callable[[Array], Array] = "silu",
        names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> None:
        W_gate = check_weight("W_gate", W_gate, (None, None), "hidden units in rows, inputs in columns")
        W_up = check_weight("W_up", W_up, tuple(W_gate.shape), "the same shape as W_gate")
        h, hint = W_gate.shape[0], layout_hint("W_gate", W_gate, b_gate, "W_down", W_down)
        if W_down is not None:
            meaning = "outputs in rows, as many columns as W_gate has rows" + hint
            W_down = check_weight("W_down", W_down, (None, h), meaning)
        b_gate, b_up = check_bias("b_gate", b_gate, h, hint), check_bias("b_up", b_up, h)
        b_down = check_bias("b_down", b_down, h if W_down is None else W_down.shape[0])
        weights = {"W_gate": W_gate, "b_gate": b_gate, "W_up": W_up, "b_up": b_up, "W_down": W_down, "b_down": b_down}
        set_weights(self, weights, names, output_names, activation=get(activation))

    @cached_property
    def _parts(self) -> tuple[Forms, Array | None, Array | None]:
        return Forms(self.W_gate, self.b_gate, self.W_up, self.b_up), self.W_down, self.b_down

    def with_parts(self, forms: Forms, readout: Array | None, bias: Array | None) -> "GLU":
        """A GLU of the same activation with other weights."""
        gate, up = (forms.directions, forms.bias), (forms.gate_directions, forms.gate_bias)
        return replace(self, W_gate=gate[0], b_gate=gate[1], W_up=up[0], b_up=up[1], W_down=readout, b_down=bias)
