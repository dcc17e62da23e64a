"""The interface of all networks, and of those with one hidden layer."""

import math
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from mlpoly.activations import Activation
from mlpoly.arrays import Array, as_float_array, is_low_precision, namespace, on, promote
from mlpoly.arrays.checks import check_finite, check_names, check_points, check_shape
from mlpoly.records import arrays_of, map_arrays, record, replace
from mlpoly.tables import Table, Tabular

N = TypeVar("N", bound="Network")


class Network(Tabular, ABC):
    """A map from d inputs to o outputs."""

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return int(self.prototype.shape[-1])

    @property
    @abstractmethod
    def dim_out(self) -> int:
        """Number of outputs o."""

    @property
    @abstractmethod
    def prototype(self) -> Array:
        """The first weights (h, d), which have the library, dtype and device of the network."""

    @property
    @abstractmethod
    def entry(self) -> Array | None:
        """Linear forms (h, d) through which the outputs depend on the inputs; None for the inputs themselves."""

    @property
    @abstractmethod
    def activations(self) -> tuple[str, ...]:
        """Names of the activations, in order, each once."""

    @property
    def activation_names(self) -> str:
        """Names of the activations as one text."""
        return ", ".join(self.activations)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the inputs, if the model that the network comes from has some; distributions are checked by them."""
        return None

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """Names of the outputs, such as the classes of a classifier, if the model that it comes from has some."""
        return None

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """Outputs (..., o) of inputs x (..., d)."""

    def _table(self) -> Table:
        arrays = arrays_of(self)
        rows = [(name, " x ".join(map(str, a.shape)), math.prod(a.shape)) for name, a in arrays.items()]
        return Table(("weights", "shape", "numbers"), tuple(rows), repr(self), limit=30)

    def __str__(self) -> str:
        return repr(self)

    def to(self: N, like: Array) -> N:
        """The same network in the array library, dtype and device of `like`."""
        return map_arrays(self, lambda a: on(a, like))

    def at_least_single(self: N) -> N:
        """The same network with 16-bit weights in float32, for computing; any other unchanged."""
        return map_arrays(self, lambda a: promote(a)[0]) if is_low_precision(self.prototype.dtype) else self


@record
class Forms:
    """Linear forms of x that enter hidden units: y_i = w_i.x + b_i and, for gated units, z_i = v_i.x + c_i."""

    directions: Array  # the w_i, (h, d)
    bias: Array | None = None  # the b_i, (h,)
    gate_directions: Array | None = None  # the v_i, (h, d); None for units without a second factor
    gate_bias: Array | None = None  # the c_i, (h,)

    @property
    def stacked(self) -> Array:
        """All directions, (h, d), or (2 h, d) for gated units."""
        if self.gate_directions is None:
            return self.directions
        return namespace(w=self.directions, v=self.gate_directions).concat([self.directions, self.gate_directions])


class Layer(Network):
    """f(x) = readout h(x) + bias with one layer of hidden units h_i = act(y_i), or act(y_i) z_i if they are gated."""

    activation: Activation
    names: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None

    @property
    @abstractmethod
    def _parts(self) -> tuple[Forms, Array | None, Array | None]:
        """Linear forms, readout and bias, of which `with_parts` makes a layer."""

    @abstractmethod
    def with_parts(self, forms: Forms, readout: Array | None, bias: Array | None) -> "Layer":
        """A layer of the same kind and activation with other linear forms, readout and bias."""

    @property
    def forms(self) -> Forms:
        """Linear forms that enter the hidden units."""
        return self._parts[0]

    @property
    def readout(self) -> Array | None:
        """Weights (o, h) from hidden units to outputs; None where the hidden units are the outputs."""
        return self._parts[1]

    @property
    def bias(self) -> Array | None:
        """Bias (o,) of the outputs."""
        return self._parts[2]

    @property
    def prototype(self) -> Array:
        """The first weight matrix."""
        return self.forms.directions

    @property
    def entry(self) -> Array:
        """Linear forms of the inputs that enter the hidden units: (h, d), or (2 h, d) for gated units."""
        return self.forms.stacked

    @property
    def activations(self) -> tuple[str, ...]:
        """Name of the activation."""
        return (self.activation.name,)

    @property
    def dim_hidden(self) -> int:
        """Number of hidden units h."""
        return int(self.forms.directions.shape[0])

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return self.dim_hidden if self.readout is None else int(self.readout.shape[0])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dim_in} -> {self.dim_hidden} -> {self.dim_out}, {self.activation.name})"

    def preceded_by(self, first: "Layer") -> "Layer":
        """The layer x -> self(first(x)), for an affine map `first`."""
        A, shift, own = first.forms.directions, first.bias, self.forms
        W, V = own.directions, own.gate_directions
        forms = Forms(W @ A, _image(W, shift, own.bias))
        if V is not None:
            forms = Forms(forms.directions, forms.bias, V @ A, _image(V, shift, own.gate_bias))
        return replace(self.with_parts(forms, self.readout, self.bias), names=first.names)

    def followed_by(self, last: "Layer") -> "Layer":
        """The layer x -> last(self(x)), for an affine map `last`."""
        A = last.forms.directions
        readout = A if self.readout is None else A @ self.readout
        whole = self.with_parts(self.forms, readout, _image(A, self.bias, last.bias))
        return replace(whole, output_names=last.output_names)

    def hidden(self, x: Array) -> Array:
        """Values (..., h) of the hidden units at inputs x (..., d)."""
        x = check_points(x, self.dim_in, weights=self.prototype)
        forms = self.forms
        units = self.activation(affine(x, forms.directions, forms.bias))
        if forms.gate_directions is None:
            return units
        return units * affine(x, forms.gate_directions, forms.gate_bias)

    def __call__(self, x: Array) -> Array:
        """Outputs (..., o) of inputs x (..., d)."""
        return affine(self.hidden(x), self.readout, self.bias)


def affine(x: Array, weight: Array | None, bias: Array | None) -> Array:
    """`x @ weight.T + bias`, where weight and bias may be None."""
    if weight is not None:
        x, weight = promote(x, weight)
        x = x @ weight.T
    return x if bias is None else x + bias


def _image(weight: Array, shift: Array | None, bias: Array | None) -> Array | None:
    """`weight @ shift + bias`, where shift and bias may be None for zero."""
    if shift is None:
        return bias
    return weight @ shift if bias is None else weight @ shift + bias


def check_weight(name: str, value: Any, shape: tuple[int | None, ...], meaning: str) -> Array:
    """Return a weight, or raise unless it is a finite floating array of the given shape."""
    weight = as_float_array(name, value)
    check_shape(name, weight, shape, meaning)
    check_finite(name, weight)
    return weight


def check_bias(name: str, value: Any, length: int, hint: str = "") -> Array | None:
    """Return an optional bias vector, checked like a weight."""
    if value is None:
        return None
    return check_weight(name, value, (length,), "one entry per row of its weight matrix" + hint)


def layout_hint(first: str, weight: Array, bias: Any, last: str, readout: Any) -> str:
    """Hint for an error about shapes, if the weights would fit together once transposed, else the empty string.

    Right are a `weight` (h, d) of the name `first`, a `bias` (h,) or None, and a `readout` (o, h) or None, the `last`.
    """
    rows, columns = weight.shape
    length, shape = tuple(getattr(bias, "shape", ())), tuple(getattr(readout, "shape", ()))
    transposed = []
    if len(shape) == 2 and shape[1] != rows:
        if shape[0] == columns and length in ((), (columns,)):
            transposed = [first, last]
        elif shape[0] == rows:
            transposed = [last]
    elif length == (columns,):
        transposed = [first]
    if not transposed:
        return ""
    remedy = " and ".join(f"{name}.T" for name in transposed)
    return f"; these look transposed: {first} is (h, d) and {last} (o, h) as in PyTorch; use {remedy}"


def set_weights(layer: Any, weights: dict[str, Array | None], names: Any, output_names: Any, **static: Any) -> None:
    """Fill the fields of a layer with weights of one array library, device and dtype; it needs inputs and outputs."""
    namespace(**weights)
    dtypes = {name: w.dtype for name, w in weights.items() if w is not None}
    if len(set(dtypes.values())) > 1:
        kinds = ", ".join(f"{name} is {dtype}" for name, dtype in dtypes.items())
        raise TypeError(f"weights have different dtypes ({kinds}); convert them to one.")
    for name, value in {**weights, **static}.items():
        object.__setattr__(layer, name, value)
    if layer.dim_in == 0 or layer.dim_out == 0:  # without hidden units it is a constant
        missing = "inputs" if layer.dim_in == 0 else "outputs"
        raise ValueError(f"{layer!r} has no {missing}; a network needs at least one.")
    object.__setattr__(layer, "names", check_names(names, layer.dim_in))
    object.__setattr__(layer, "output_names", check_names(output_names, layer.dim_out, "output"))
