"""Networks from other libraries, which are imported only when they are needed, and polynomials as torch modules."""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlpoly.extras import explain_missing

if TYPE_CHECKING:
    from mlpoly.importers.blocks import find_blocks as find_blocks
    from mlpoly.importers.jax_models import from_equinox as from_equinox
    from mlpoly.importers.jax_models import from_flax as from_flax
    from mlpoly.importers.keras import from_keras as from_keras
    from mlpoly.importers.onnx import from_onnx as from_onnx
    from mlpoly.importers.sklearn import from_sklearn as from_sklearn
    from mlpoly.importers.sklearn_columns import encoding as encoding
    from mlpoly.importers.torch import from_torch as from_torch

# Where the public names are, and the library that each needs; it is imported when the name is first used.
_MODULES = {
    "encoding": ("sklearn_columns", "scikit-learn"),
    "find_blocks": ("blocks", "PyTorch"),
    "from_equinox": ("jax_models", "JAX"),
    "from_flax": ("jax_models", "JAX"),
    "from_keras": ("keras", "Keras"),
    "from_onnx": ("onnx", "ONNX"),
    "from_sklearn": ("sklearn", "scikit-learn"),
    "from_torch": ("torch", "PyTorch"),
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, package = _MODULES[name]
    try:
        with explain_missing(name, package):
            return getattr(import_module(f"{__name__}.{module}"), name)
    except ImportError as error:  # raised when the function is called, so that `from mlpoly import *` works
        return partial(_unavailable, error)


def _unavailable(error: ImportError, *_: Any, **__: Any) -> Any:
    raise error
