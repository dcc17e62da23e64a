"""Import an optional library, or say which extra to install."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LIBRARIES = {  # that each extra of pyproject.toml brings
    "torch": "torch schedulefree",
    "jax": "jax",
    "equinox": "equinox",
    "flax": "flax",
    "keras": "keras",
    "plots": "matplotlib plotly jinja2 markupsafe PIL",
    "transformers": "transformers accelerate gguf huggingface_hub",
    "sklearn": "sklearn",
    "onnx": "onnx",
    "formulas": "sympy pandas",
    "he": "tenseal",
    "cli": "tyro rich cattrs pooch",
}
EXTRAS = {name: extra for extra, names in _LIBRARIES.items() for name in names.split()}


@contextmanager
def explain_missing(purpose: str, package: str | None = None) -> Iterator[None]:
    """Make the import of a missing optional library inside the block say which extra to install.

    `purpose` is the subject of the message, "finetune" for example, and `package` the name of the library where it
    differs from that of the import. A library that is installed but broken explains itself.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        remedy = f"which is not installed: pip install 'mlpoly[{EXTRAS[missing]}]'"
        raise ImportError(f"{purpose} needs {package or missing}, {remedy}", name=missing) from error


def library(module: str, package: str, purpose: str) -> Any:
    """Import a module of an optional library, such as "sklearn.mixture"; the rest is for `explain_missing`."""
    with explain_missing(purpose, package):
        return importlib.import_module(module)
