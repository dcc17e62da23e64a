"""Language models: moments of what goes into their blocks, polynomials in the blocks' place, what it costs and says."""

from mlpoly.extras import explain_missing

with explain_missing("mlpoly.lm"):
    from mlpoly.lm.accumulate import Component, Norms
    from mlpoly.lm.attribution import attribute, degree_parts
    from mlpoly.lm.collect import collect
    from mlpoly.lm.components import NormOutliers
    from mlpoly.lm.conversion import Conversion, load_conversion
    from mlpoly.lm.convert import convert
    from mlpoly.lm.distributed import exchange, finish, gather_tensors, initialise, share, world
    from mlpoly.lm.evaluate import Evaluation, evaluate
    from mlpoly.lm.graft import graft
    from mlpoly.lm.loading import load_model
    from mlpoly.lm.moments import Moments
    from mlpoly.lm.reading import block_features, layer_spectra
    from mlpoly.lm.sparsify import skip_initialiser
    from mlpoly.lm.text import split_text, token_batches, vocabulary

__all__ = [
    "Component",
    "Conversion",
    "Evaluation",
    "Moments",
    "NormOutliers",
    "Norms",
    "attribute",
    "block_features",
    "collect",
    "convert",
    "degree_parts",
    "evaluate",
    "exchange",
    "finish",
    "gather_tensors",
    "graft",
    "initialise",
    "layer_spectra",
    "load_conversion",
    "load_model",
    "share",
    "skip_initialiser",
    "split_text",
    "token_batches",
    "vocabulary",
    "world",
]
