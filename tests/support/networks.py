"""Random networks and the inputs that go into them."""

from __future__ import annotations

import math

import mlpoly as mp

D, H, OUT = 4, 9, 3


def gaussian(rng, d=D, scale=1.0):
    root = rng.standard_normal((d, d)) * scale
    return mp.Gaussian(rng.standard_normal(d), root @ root.T / d)


def mlp(rng, activation="relu", d=D, h=H, o=OUT):
    return mp.MLP(
        rng.standard_normal((h, d)) / math.sqrt(d),
        rng.standard_normal(h),
        rng.standard_normal((o, h)),
        rng.standard_normal(o),
        activation,
    )


def glu(rng, activation="silu", d=D, h=H, o=OUT):
    gate = mlp(rng, activation, d, h, o)
    return mp.GLU(gate.W1, gate.b1, rng.standard_normal((h, d)), rng.standard_normal(h), gate.W2, gate.b2, activation)
