"""Functions that measures are taken of: under each Gaussian of their inputs, and their outputs on data."""

from collections.abc import Callable
from typing import Any

from mlpoly.arrays import Array, as_float_array, check_shape, chunks, decidable, namespace, widen
from mlpoly.inputs import Gaussian, Independent, Samples, as_inputs, check_order, checked_inputs, require_gaussians
from mlpoly.moments import AnyExpansion, Expansion
from mlpoly.networks import check_layer, check_network
from mlpoly.networks.chain import import_hint
from mlpoly.polynomials import Polynomial
from mlpoly.records import map_arrays, replace

_ROWS = 8192  # samples evaluated at once, so that hidden units do not fill the memory


def gaussians(function: Any, inputs: Any, traced: bool = False) -> list[tuple[Array, Gaussian]]:
    """Weights and Gaussians of the inputs, in the array library of a function of them; one Gaussian has weight 1.

    Measures that go by values refuse arrays without them; the others take `traced` arrays.
    """
    inputs = require_gaussians(checked_inputs(function, inputs))
    if not traced and not decidable(function.prototype, inputs.mean):
        raise TypeError("this measure goes by values; call it outside jax.jit and torch.compile.")
    weights = widen(inputs.weights)
    weights = weights / namespace(weights=weights).sum(weights)
    return [(weights[c], g) for c, g in enumerate(inputs.components)]


def expansion(function: Any, inputs: Gaussian) -> AnyExpansion:
    """A checked layer or polynomial under one Gaussian."""
    return function.hermite(inputs) if isinstance(function, Polynomial) else Expansion.of(function, inputs)


def expansions(function: Any, inputs: Any) -> list[tuple[Array, AnyExpansion]]:
    """A network with one hidden layer, or a polynomial, under each Gaussian of the inputs, with their weights."""
    function = function if isinstance(function, Polynomial) else check_layer(function)
    return [(weight, expansion(function, g)) for weight, g in gaussians(function, inputs, traced=True)]


def measured(function: Any, inputs: Any) -> tuple[Any, Any]:
    """A network or polynomial with as few layers as it needs, or on data any callable, and its checked inputs."""
    if isinstance(inputs, Samples):
        return function, checked_data(inputs, 2, net=function)
    function = function if isinstance(function, Polynomial) else check_network(function)
    if not isinstance(inputs, Independent):
        gaussians(function, inputs)  # checks them
    return function, checked_inputs(function, inputs)


def widened(function: Any) -> Any:
    """A network or polynomial in the widest precision."""
    bare = replace(function, inputs=None, report=None) if isinstance(function, Polynomial) else function
    return map_arrays(bare, widen)


def outputs_of(name: str, model: Callable[[Array], Array], x: Array, columns: int | None = None) -> Array:
    """Outputs (n, o) of a model on checked data (n, d), chunk by chunk; o may be prescribed."""
    name = f"{name}(x)"
    parts = [as_float_array(name, model(x[rows, ...])) for rows in chunks(x.shape[0], _ROWS)]
    outputs = namespace(x=x).concat(parts)
    check_shape(name, outputs, (x.shape[0], columns), "one row per sample, as many columns as there are outputs")
    return outputs


def checked_data(inputs: Any, minimum: int = 1, **models: Any) -> Samples:
    """Check data (n, d), or `Samples`, for callables that take them; at least `minimum` rows."""
    for name, model in models.items():
        if not callable(model):
            wanted = "a network, a polynomial or any callable from (n, d) to (n, o)"
            raise TypeError(f"{name} must be {wanted}, got {type(model).__name__}.")
    sized = {name: model for name, model in models.items() if _has_sizes(model)}
    if len(sized) == 2:
        check_functions(*sized.values())
    data = as_inputs(inputs)
    if not isinstance(data, Samples):
        kind = type(data).__name__
        raise TypeError(f"inputs must be data of shape (n, d), or Samples, got {kind}; inputs.sample(n) draws some.")
    for name, model in sized.items():
        if data.dim != model.dim_in:
            raise ValueError(f"inputs have {data.dim} columns, but the network takes {model.dim_in} inputs.")
        check_order(data, model.names, name)
    if data.count < minimum:
        purpose = "a mean" if minimum == 1 else "a variance"
        raise ValueError(f"inputs have {data.count} rows; {purpose} needs at least {minimum}.")
    return data


def check_functions(net: Any, poly: Any, names: tuple[str, str] = ("net", "poly")) -> None:
    """Raise unless both are functions of this library with the same inputs and outputs."""
    for name, value in zip(names, (net, poly), strict=True):
        if not _has_sizes(value):
            hint = import_hint(value)
            if callable(value) and name in ("net", "poly"):
                hint += "; on data (n, d) as inputs any callable works"
            raise TypeError(
                f"{name} must be a network or polynomial of this library, got {type(value).__name__}{hint}."
            )
    if (net.dim_in, net.dim_out) != (poly.dim_in, poly.dim_out):
        remedy = "was the polynomial fitted to another network?"
        if names != ("net", "poly"):
            remedy = "only functions with the same numbers of inputs and outputs can be compared."
        one, two = (f"{name} maps {f.dim_in} -> {f.dim_out}" for name, f in zip(names, (net, poly), strict=True))
        raise ValueError(f"{one}, but {two}; {remedy}")


def _has_sizes(value: Any) -> bool:
    return all(hasattr(value, a) for a in ("dim_in", "dim_out", "names", "__call__"))
