"""Equinox and Flax: chains of dense layers."""

from collections.abc import Iterator
from typing import Any

import jax

from mlpoly.extras import library
from mlpoly.importers.dense_layers import dense, found_network
from mlpoly.networks import Network
from mlpoly.networks.assemble import ActivationLike


def from_equinox(module: Any, activation: ActivationLike | list[Any] | None = None) -> Network:
    """Return an Equinox module of dense layers as a network over its arrays.

    Parameters
    ----------
    module : equinox.Module
        `eqx.nn.MLP`, `eqx.nn.Sequential` or a class of your own that applies `eqx.nn.Linear` layers one after the
        other, from vectors to vectors. Dropout is left out.
    activation : str, Activation, callable or list, optional
        As for `MLP.from_layers`. By default it is found: the module is run on test inputs, where gelu differs from its
        approximation by tanh, the default of `jax.nn.gelu`. What is given is checked in the same way.

    Returns
    -------
    Affine, MLP or Chain
    """
    eqx = library("equinox", "Equinox", "from_equinox")
    if not isinstance(module, eqx.Module):
        raise TypeError(f"from_equinox takes an equinox.Module, got {type(module).__name__}.")
    layers = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(module, is_leaf=lambda part: isinstance(part, eqx.nn.Linear)):
        place = jax.tree_util.keystr(path).lstrip(".")
        if isinstance(leaf, eqx.nn.Linear):
            layers.append(dense("from_equinox", place, leaf.weight, leaf.bias))
        elif eqx.is_array(leaf):
            raise TypeError(f"from_equinox takes chains of eqx.nn.Linear, and {place} is an array of another layer.")
    return found_network("from_equinox", _exact(jax.vmap(eqx.nn.inference_mode(module))), layers, activation)


def from_flax(
    module: Any, variables: Any = None, activation: ActivationLike | list[Any] | None = None, **options: Any
) -> Network:
    """Return a Flax module of dense layers as a network over its arrays.

    Parameters
    ----------
    module : flax.linen.Module or flax.nnx.Module
        One that applies `Dense` (or `nnx.Linear`) layers one after the other, from vectors to vectors.
    variables : mapping, optional
        Of a linen module, what ``module.init`` or training returned; an nnx module has its own.
    activation : str, Activation, callable or list, optional
        As for `from_equinox`: `flax.linen.gelu` is the approximation by tanh.
    options
        Further arguments of the module's call, such as ``train=False``.

    Returns
    -------
    Affine, MLP or Chain
    """
    linen = library("flax.linen", "Flax", "from_flax")
    if isinstance(module, linen.Module):
        if variables is None:
            raise ValueError("a flax.linen module has no weights of its own: from_flax(module, variables).")
        whole = variables if "params" in variables else {"params": variables}
        params = whole["params"]

        def model(x: Any) -> Any:
            return module.apply(whole, x, **options)
    else:
        nnx = library("flax.nnx", "Flax", "from_flax")
        if not isinstance(module, nnx.Module):
            raise TypeError(f"from_flax takes a flax.linen or flax.nnx module, got {type(module).__name__}.")
        params = nnx.to_pure_dict(nnx.state(module, nnx.Param))

        def model(x: Any) -> Any:
            return module(x, **options)

    layers = [
        dense("from_flax", place, values["kernel"].T, values.get("bias")) for place, values in _kernels(params, "")
    ]
    return found_network("from_flax", _exact(model), layers, activation)


def _kernels(params: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Parameters of the layers of a nested mapping, with their places."""
    if "kernel" in params and set(params) <= {"kernel", "bias"}:
        yield place, params
        return
    for name, part in params.items():
        here = f"{place}.{name}" if place else str(name)
        if not hasattr(part, "items"):
            raise TypeError(f"from_flax takes chains of Dense layers, and {here} is a parameter of another layer.")
        yield from _kernels(part, here)


def _exact(model: Any) -> Any:
    """The model with products in full precision, which accelerators do not use by default."""

    def run(x: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return model(x)

    return run
