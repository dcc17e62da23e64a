"""mlpoly: closed-form least-squares polynomials of MLPs and gated linear units, of any degree.

The public names follow the pipeline: inputs, networks, polynomials, fits, measures, features.
"""

from mlpoly import activations
from mlpoly._version import __version__
from mlpoly.activations import Activation, hermite_coefficients, register_activation
from mlpoly.errors import FileFormatError, QuadratureWarning, TooLargeError, UnknownActivationError
from mlpoly.features import ablate, decompose, eigenfeatures, explain, principal_forms, singular_directions
from mlpoly.fitting import finetune, fit, methods
from mlpoly.he import plan
from mlpoly.importers import find_blocks, from_onnx, from_sklearn, from_torch
from mlpoly.inputs import Gaussian, GaussianMixture, MomentAccumulator, Samples
from mlpoly.measures import (
    accuracy,
    agreement,
    compare,
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
from mlpoly.polynomials import (
    BoundedPolynomial,
    ChaosPolynomial,
    ComposedPolynomial,
    DensePolynomial,
    Polynomial,
    RidgePolynomial,
    load,
)
from mlpoly.progress_bars import progress
from mlpoly.propagation import propagate

__all__ = [
    "GLU",
    "MLP",
    "Activation",
    "Affine",
    "BoundedPolynomial",
    "Chain",
    "ChaosPolynomial",
    "ComposedPolynomial",
    "DensePolynomial",
    "FileFormatError",
    "Gaussian",
    "GaussianMixture",
    "MomentAccumulator",
    "Polynomial",
    "QuadratureWarning",
    "Residual",
    "RidgePolynomial",
    "Samples",
    "TooLargeError",
    "UnknownActivationError",
    "__version__",
    "ablate",
    "accuracy",
    "activations",
    "agreement",
    "compare",
    "conditional_mean",
    "decompose",
    "degree_spectrum",
    "eigenfeatures",
    "explain",
    "find_blocks",
    "finetune",
    "fit",
    "from_onnx",
    "from_sklearn",
    "from_torch",
    "fvu",
    "hermite_coefficients",
    "kl",
    "load",
    "methods",
    "plan",
    "principal_forms",
    "progress",
    "propagate",
    "register_activation",
    "report",
    "second_moment",
    "sensitivity",
    "shapley",
    "similarity",
    "singular_directions",
]
