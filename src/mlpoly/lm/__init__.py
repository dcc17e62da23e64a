"""Language models: moments of the inputs of their blocks, polynomials in place of the blocks, and what they read."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlpoly.extras import explain_missing

if TYPE_CHECKING:
    from mlpoly.lm.conversion.conversion import Conversion as Conversion
    from mlpoly.lm.conversion.convert import convert as convert
    from mlpoly.lm.evaluation.losses import Evaluation as Evaluation
    from mlpoly.lm.evaluation.losses import evaluate as evaluate
    from mlpoly.lm.example.language import example_text as example_text
    from mlpoly.lm.model.graft import graft as graft
    from mlpoly.lm.model.loading import load_model as load_model
    from mlpoly.lm.moments.block_moments import Moments as Moments
    from mlpoly.lm.moments.collect import collect as collect
    from mlpoly.lm.moments.groups import NormOutliers as NormOutliers
    from mlpoly.lm.moments.groups import TokenClusters as TokenClusters
    from mlpoly.lm.reading.attribution import attribute as attribute
    from mlpoly.lm.reading.block_features import block_features as block_features
    from mlpoly.lm.reading.block_spectra import block_spectra as block_spectra
    from mlpoly.lm.reading.causality import check_features as check_features
    from mlpoly.lm.reading.contexts import read_features as read_features
    from mlpoly.lm.reading.feature_reading import with_scores as with_scores
    from mlpoly.lm.reading.feature_set import FeatureSet as FeatureSet
    from mlpoly.lm.reading.steering import steer as steer
    from mlpoly.lm.text.token_batches import split_text as split_text
    from mlpoly.lm.text.token_batches import token_batches as token_batches
    from mlpoly.pages.language_model.dashboard import feature_page as feature_page
    from mlpoly.studies.language_model.run import study_lm as study_lm

# Where the public names are, in the order of the data; each is imported, with PyTorch, when it is first used.
_MODULES = {
    "load_model": "mlpoly.lm.model.loading",
    "example_text": "mlpoly.lm.example.language",
    "token_batches": "mlpoly.lm.text.token_batches",
    "split_text": "mlpoly.lm.text.token_batches",
    "collect": "mlpoly.lm.moments.collect",
    "Moments": "mlpoly.lm.moments.block_moments",
    "NormOutliers": "mlpoly.lm.moments.groups",
    "TokenClusters": "mlpoly.lm.moments.groups",
    "convert": "mlpoly.lm.conversion.convert",
    "Conversion": "mlpoly.lm.conversion.conversion",
    "graft": "mlpoly.lm.model.graft",
    "evaluate": "mlpoly.lm.evaluation.losses",
    "Evaluation": "mlpoly.lm.evaluation.losses",
    "block_spectra": "mlpoly.lm.reading.block_spectra",
    "block_features": "mlpoly.lm.reading.block_features",
    "FeatureSet": "mlpoly.lm.reading.feature_set",
    "read_features": "mlpoly.lm.reading.contexts",
    "check_features": "mlpoly.lm.reading.causality",
    "with_scores": "mlpoly.lm.reading.feature_reading",
    "steer": "mlpoly.lm.reading.steering",
    "attribute": "mlpoly.lm.reading.attribution",
    "feature_page": "mlpoly.pages.language_model.dashboard",
    "study_lm": "mlpoly.studies.language_model.run",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with explain_missing("mlpoly.lm"):
        return getattr(import_module(_MODULES[name]), name)
