"""Import an optional library, or say which extra to install."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["EXTRAS", "explain_missing", "library"]

# The extra of pyproject.toml that brings each optional library.
EXTRAS = {
    "torch": "torch",
    "schedulefree": "torch",
    "jax": "jax",
    "matplotlib": "plots",
    "plotly": "plots",
    "transformers": "transformers",
    "accelerate": "transformers",
    "gguf": "transformers",
    "tyro": "cli",
    "rich": "cli",
    "sklearn": "cli",
    "cattrs": "cli",
    "pooch": "cli",
}


@contextmanager
def explain_missing(purpose: str, package: str | None = None) -> Iterator[None]:
    """Inside, the import of an optional library that is missing says which extra has it.

    Parameters
    ----------
    purpose : str
        What needs the library, as the message begins: "finetune", "mlpoly.lm".
    package : str, optional
        What the message calls the library, if not as it is imported: "scikit-learn".

    Raises
    ------
    ImportError
        In place of the ModuleNotFoundError of a library that one of the extras would bring. Any other error is left
        as it is: a library that is there but broken says itself what is wrong with it.
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
    """Import an optional library, or say which extra to install.

    Parameters
    ----------
    module : str
        What to import: "sklearn.mixture".
    package : str
        What the message calls it: "scikit-learn".
    purpose : str
        What needs it, as the message begins.
    """
    with explain_missing(purpose, package):
        return importlib.import_module(module)
