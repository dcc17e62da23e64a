"""Language models: moments of what goes into their blocks, polynomials in the blocks' place, what it costs and says."""

from mlpoly.extras import explain_missing

with explain_missing("mlpoly.lm"):
    from mlpoly.lm.convert.conversion import Conversion, load_conversion
    from mlpoly.lm.convert.convert import convert
    from mlpoly.lm.convert.skip_connections import skip_initialiser
    from mlpoly.lm.distributed import exchange, finish, gather_tensors, initialise, share, world
    from mlpoly.lm.evaluate.losses import Evaluation, evaluate
    from mlpoly.lm.model.graft import graft
    from mlpoly.lm.model.loading import load_model
    from mlpoly.lm.moments.block_moments import Moments
    from mlpoly.lm.moments.collect import collect
    from mlpoly.lm.moments.groups import NormOutliers
    from mlpoly.lm.moments.row_sums import Component, Norms
    from mlpoly.lm.reading.attribution import attribute, degree_parts
    from mlpoly.lm.reading.block_spectra import block_spectra
    from mlpoly.lm.reading.token_features import block_features
    from mlpoly.lm.text.token_batches import split_text, token_batches, vocabulary

__all__ = [
    "Component",
    "Conversion",
    "Evaluation",
    "Moments",
    "NormOutliers",
    "Norms",
    "attribute",
    "block_features",
    "block_spectra",
    "collect",
    "convert",
    "degree_parts",
    "evaluate",
    "exchange",
    "finish",
    "gather_tensors",
    "graft",
    "initialise",
    "load_conversion",
    "load_model",
    "share",
    "skip_initialiser",
    "split_text",
    "token_batches",
    "vocabulary",
    "world",
]
