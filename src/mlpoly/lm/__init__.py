"""Language models: moments of the inputs of their blocks, polynomials in place of the blocks, and what they read."""

from importlib import import_module
from typing import Any

from mlpoly.extras import explain_missing

with explain_missing("mlpoly.lm"):
    from mlpoly.lm.convert.conversion import Conversion
    from mlpoly.lm.convert.convert import convert
    from mlpoly.lm.convert.skip_connections import skip_initialiser
    from mlpoly.lm.evaluate.losses import Evaluation, evaluate
    from mlpoly.lm.example.language import example_text
    from mlpoly.lm.model.graft import graft
    from mlpoly.lm.model.loading import load_model
    from mlpoly.lm.moments.block_moments import Moments
    from mlpoly.lm.moments.collect import collect
    from mlpoly.lm.moments.groups import NormOutliers, TokenClusters
    from mlpoly.lm.reading.attribution import attribute
    from mlpoly.lm.reading.block_forms import block_forms
    from mlpoly.lm.reading.block_spectra import block_spectra
    from mlpoly.lm.reading.causality import check_features
    from mlpoly.lm.reading.contexts import describe, read_features, with_scores
    from mlpoly.lm.reading.feature_set import FeatureSet, block_features
    from mlpoly.lm.reading.readability import readability
    from mlpoly.lm.reading.steering import steer
    from mlpoly.lm.text.token_batches import split_text, token_batches

__all__ = [
    "Conversion",
    "Evaluation",
    "FeatureSet",
    "Moments",
    "NormOutliers",
    "TokenClusters",
    "attribute",
    "block_features",
    "block_forms",
    "block_spectra",
    "check_features",
    "collect",
    "convert",
    "describe",
    "evaluate",
    "example_text",
    "feature_page",
    "graft",
    "load_model",
    "read_features",
    "readability",
    "skip_initialiser",
    "split_text",
    "steer",
    "study_lm",
    "token_batches",
    "with_scores",
]


# On request: they write pages, which need extras that the rest does without.
_PAGES = {"feature_page": "mlpoly.lm.study.report.dashboard", "study_lm": "mlpoly.lm.study.run"}


def __getattr__(name: str) -> Any:
    if name not in _PAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PAGES[name]), name)
