"""Language models: moments of what goes into their blocks, their text, and several processes."""

from mlpoly.lm.accumulate import Component, Norms
from mlpoly.lm.collect import collect
from mlpoly.lm.components import NormOutliers
from mlpoly.lm.distributed import exchange, finish, gather_tensors, initialise, share, world
from mlpoly.lm.loading import load_model
from mlpoly.lm.moments import Moments
from mlpoly.lm.text import split_text, token_batches, vocabulary

__all__ = [
    "Component",
    "Moments",
    "NormOutliers",
    "Norms",
    "collect",
    "exchange",
    "finish",
    "gather_tensors",
    "initialise",
    "load_model",
    "share",
    "split_text",
    "token_batches",
    "vocabulary",
    "world",
]
