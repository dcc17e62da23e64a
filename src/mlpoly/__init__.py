"""mlpoly: closed-form least-squares polynomials of MLPs and gated linear units, of any degree.

The public names follow the pipeline: inputs, networks, fits, polynomials, measures, features, pages. Activations are in
`mlpoly.activations`, ways to fit in `mlpoly.methods`, forms of polynomials in `mlpoly.polynomials`, encrypted inference
is in `mlpoly.he` and language models are in `mlpoly.lm`.
"""

from typing import TYPE_CHECKING, Any

from mlpoly import activations, polynomials
from mlpoly._version import __version__
from mlpoly.certificates import certify, same_class
from mlpoly.errors import DataWarning, FileFormatError, QuadratureWarning, TooLargeError
from mlpoly.features import ablate, decompose, eigenfeatures, explain, principal_forms, singular_directions
from mlpoly.fitting import finetune, fit, methods
from mlpoly.inputs import Gaussian, GaussianMixture, Independent, MomentAccumulator, Samples
from mlpoly.measures import (
    additive,
    check,
    compare,
    conditional,
    conditional_mean,
    degree_spectrum,
    fvu,
    kl,
    second_moment,
    sensitivity,
    shapley,
    similarity,
)
from mlpoly.networks import GLU, MLP, Affine, Chain, Residual
from mlpoly.pages.network import report
from mlpoly.polynomials import Polynomial, load
from mlpoly.progress_bars import progress
from mlpoly.propagation import propagate

if TYPE_CHECKING:
    from mlpoly import he
    from mlpoly.importers import find_blocks, from_equinox, from_flax, from_keras, from_onnx, from_sklearn, from_torch

__all__ = [  # noqa: RUF022, in the order of the pipeline
    "Gaussian", "GaussianMixture", "Independent", "Samples", "MomentAccumulator", "activations",
    "MLP", "GLU", "Affine", "Residual", "Chain", "from_torch", "from_sklearn", "from_equinox", "from_flax",
    "from_keras", "from_onnx", "find_blocks",
    "fit", "methods", "finetune", "propagate", "Polynomial", "polynomials", "load",
    "fvu", "check", "kl", "compare", "second_moment", "degree_spectrum", "similarity",
    "additive", "conditional", "conditional_mean", "sensitivity", "shapley", "certify", "same_class", "explain",
    "eigenfeatures", "principal_forms", "decompose", "singular_directions", "ablate",
    "report", "he", "progress", "FileFormatError", "TooLargeError", "DataWarning", "QuadratureWarning", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What nothing else needs is imported when it is first used, and so are the libraries that it needs."""
    import importlib

    if name == "he":
        return importlib.import_module("mlpoly.he")
    if name == "find_blocks" or name.startswith("from_"):
        return getattr(importlib.import_module("mlpoly.importers"), name)
    raise AttributeError(f"module 'mlpoly' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
