"""What users pass as `inputs`: a distribution, or plain data, which mean the distribution of these samples."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from mlpoly.arrays import Array, as_float_array, check_shape, column_names, constant, namespace
from mlpoly.inputs.gaussian import Gaussian
from mlpoly.inputs.interface import Gaussians, Inputs
from mlpoly.inputs.samples import Samples
from mlpoly.records import trusted

InputsLike: TypeAlias = Inputs | Array  # what functions take as `inputs`: a distribution, an array or a data frame


def as_inputs(inputs: InputsLike, name: str = "inputs") -> Inputs:
    """Return a distribution unchanged, and an array (n, d) or data frame as `Samples`."""
    if isinstance(inputs, Inputs):
        return inputs
    names = column_names(inputs)
    try:
        x = as_float_array(name, inputs, integers=True)
    except TypeError as error:
        raise TypeError(
            f"{name} must be a Gaussian, a GaussianMixture, Independent, Samples, or data (n, d), got "
            f"{type(inputs).__name__}: {error} N(0, I) is mlpoly.Gaussian.standard(d)."
        ) from None
    check_shape(name, x, (None, None), "data with n samples in rows, inputs in columns; a distribution works too")
    return Samples(x, names=names)


def checked_inputs(function: Any, inputs: InputsLike) -> Any:
    """Check the inputs of a network or polynomial, and return them in its array library."""
    inputs = _of_dim(as_inputs(inputs), function.dim_in, "network")
    check_order(inputs, function.names)
    inputs = in_library(inputs, function.prototype)
    namespace(net=function.prototype, inputs=inputs.prototype)
    return inputs


def require_gaussians(inputs: Inputs) -> Gaussians:
    """Return a Gaussian or a mixture, and raise for other inputs: for what is closed form only under these."""
    if not isinstance(inputs, Gaussians):
        raise TypeError(
            f"inputs must be a Gaussian or a GaussianMixture, got {type(inputs).__name__}; "
            f"mlpoly.Gaussian.from_samples(x) and mlpoly.GaussianMixture.from_labels(x, labels) make them of data, "
            f"such as inputs.sample(n), and most measures take the data themselves, mlpoly.Samples(x)."
        )
    return inputs


def inputs_of(poly: Any, inputs: Any) -> Any:
    """The inputs, checked, or those that a polynomial was fitted under if they are None; of any array library."""
    inputs = poly.inputs if inputs is None else inputs
    if inputs is None:
        raise ValueError(
            "inputs are needed, because this polynomial does not know what it was fitted under; pass "
            "inputs=Gaussian(...), for a block of a language model inputs=moments.gaussian(name)."
        )
    return in_library(_of_dim(as_inputs(inputs), poly.dim_in, "polynomial"), poly.prototype)


def in_library(inputs: Inputs, like: Array) -> Inputs:
    """Return inputs that belong to no array library, as `Gaussian.standard(d)`, in that of an array."""
    if not inputs.neutral:
        return inputs
    if not isinstance(inputs, Gaussian):
        return inputs.to(like)
    return trusted(Gaussian, mean=constant(np.zeros(inputs.dim), like), names=inputs.names)


def _of_dim(inputs: Inputs, dim: int, function: str) -> Inputs:
    if inputs.dim != dim:
        raise ValueError(f"inputs have dimension {inputs.dim}, but the {function} takes {dim} inputs.")
    return inputs


def check_order(inputs: Any, names: Sequence[str] | None, function: str = "net") -> None:
    """Raise if inputs have a name at another place than the `names` that a function has for its inputs."""
    places = {name: i for i, name in enumerate(names or ())}
    for i, name in enumerate(getattr(inputs, "names", None) or ()):
        if places.get(name, i) != i:
            raise ValueError(
                f"inputs have {name!r} at place {i}, but that is input {places[name]} of {function}; make them from "
                f"the columns in its order, x[list({function}.names)], or from x.to_numpy() if the order is right."
            )
