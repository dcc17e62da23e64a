"""Language models: moments of the inputs of their blocks, polynomials in place of the blocks, and what they read."""

from typing import Any

from mlpoly.extras import explain_missing

with explain_missing("mlpoly.lm"):
    from mlpoly.lm.convert.conversion import Conversion
    from mlpoly.lm.convert.convert import convert
    from mlpoly.lm.convert.skip_connections import skip_initialiser
    from mlpoly.lm.evaluate.losses import Evaluation, evaluate
    from mlpoly.lm.model.graft import graft
    from mlpoly.lm.model.loading import load_model
    from mlpoly.lm.moments.block_moments import Moments
    from mlpoly.lm.moments.collect import collect
    from mlpoly.lm.moments.groups import NormOutliers, TokenClusters
    from mlpoly.lm.reading.attribution import attribute
    from mlpoly.lm.reading.block_spectra import block_spectra
    from mlpoly.lm.reading.token_features import block_features
    from mlpoly.lm.text.token_batches import split_text, token_batches

__all__ = [
    "Conversion",
    "Evaluation",
    "Moments",
    "NormOutliers",
    "TokenClusters",
    "attribute",
    "block_features",
    "block_spectra",
    "collect",
    "convert",
    "evaluate",
    "graft",
    "load_model",
    "skip_initialiser",
    "split_text",
    "study_lm",
    "token_batches",
]


def __getattr__(name: str) -> Any:
    if name != "study_lm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mlpoly.lm.study.run import study_lm  # on request: its report needs extras that the rest does without

    return study_lm
