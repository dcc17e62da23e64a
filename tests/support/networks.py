"""Random networks."""

import itertools
import math

import numpy as np

import mlpoly as mp


def network(kind="MLP", activation="relu", d=4, h=6, o=3, *, seed=0, scale=1.0, bias=1.0, up=1.0):
    """An MLP or GLU with normal weights; `seed` may be a generator. Without outputs (`o` is None), its hidden units.

    Weights have standard deviation `scale` / sqrt(d), those of the linear branch of a GLU `up` / sqrt(d), and the
    biases inside the activation `bias`.
    """
    rng = np.random.default_rng(seed)
    w = rng.standard_normal
    parts = [scale / math.sqrt(d) * w((h, d)), bias * w(h)]
    if kind == "GLU":
        parts += [up / math.sqrt(d) * w((h, d)), w(h)]
    parts += [None, None] if o is None else [w((o, h)), w(o)]
    return getattr(mp, kind)(*parts, activation=activation)


def mlp(rng, activation="relu", d=4, h=9, o=3):
    return network("MLP", activation, d, h, o, seed=rng)


def glu(rng, activation="silu", d=4, h=9, o=3):
    return network("GLU", activation, d, h, o, seed=rng)


def chain(activation="relu", sizes=(4, 6, 5, 3), *, seed=0, bias=0.3, gain=2.0):
    """A chain of hidden layers with the given widths, the first number being the inputs, the last the outputs."""
    rng = np.random.default_rng(seed)
    layers = [
        mp.MLP(rng.standard_normal((h, d)) * math.sqrt(gain / d), bias * rng.standard_normal(h), activation=activation)
        for d, h in itertools.pairwise(sizes[:-1])
    ]
    return mp.Chain([*layers, mp.Affine(rng.standard_normal((sizes[-1], sizes[-2])) / math.sqrt(sizes[-2]))])
