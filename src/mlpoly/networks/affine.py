"""A single affine map."""

from functools import cached_property

from mlpoly.activations import Activation, get
from mlpoly.arrays import Array
from mlpoly.networks.layer import Forms, Layer, check_bias, check_weight, set_weights
from mlpoly.records import record, replace, static


@record
class Affine(Layer):
    """f(x) = W x + b, with weights in PyTorch's layout.

    Parameters
    ----------
    W : array (o, d)
    b : array (o,) or None
    names, output_names : sequence of str, optional
        Names of the inputs and outputs. Distributions and data that have an input at another place are refused; with
        their names outputs may be asked for, ``output="cat"``.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> mp.fit(mp.Affine(np.array([[1.0, 2.0]])), mp.Gaussian.standard(2), 1).coefficients().linear.tolist()
    [[1.0, 2.0]]
    """

    W: Array
    b: Array | None = None
    names: tuple[str, ...] | None = static(default=None)
    output_names: tuple[str, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        W = check_weight("W", self.W, (None, None), "outputs in rows, inputs in columns")
        weights = {"W": W, "b": check_bias("b", self.b, W.shape[0])}
        set_weights(self, weights, self.names, self.output_names)

    @property
    def activation(self) -> Activation:  # type: ignore[override]
        """The identity."""
        return get("identity")

    @cached_property
    def _parts(self) -> tuple[Forms, None, Array | None]:
        return Forms(self.W), None, self.b

    def with_parts(self, forms: Forms, readout: Array | None, bias: Array | None) -> "Affine":
        """An affine map with other weights."""
        W, b = forms.directions, forms.bias
        if readout is not None:
            W, b = readout @ W, None if b is None else readout @ b
        return replace(self, W=W, b=b if bias is None else bias if b is None else b + bias)

    def __repr__(self) -> str:
        return f"Affine({self.dim_in} -> {self.dim_out})"
