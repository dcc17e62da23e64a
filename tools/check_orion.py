"""Runs exports in Orion itself, encrypted, and compares them with the polynomial.

Orion pins an old SciPy, so it gets an environment of its own, with this library in it:

    pip install orion-fhe torch . && python tools/check_orion.py 16 32 32 4

Parameters are at 128-bit security: N = 2^14 with at most 438 bits in all moduli.
"""

import contextlib
import io
import multiprocessing
import sys
import time
from itertools import pairwise
from typing import Literal

import numpy as np
import orion
import orion.nn as on
import torch

import mlpoly as mp
from mlpoly.he import ActivationNetwork, to_orion

POINTS = 3


def orion_network(exported: ActivationNetwork) -> on.Module:
    """The record as a module of Orion."""

    class Network(on.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(*layers)

        def forward(self, x):
            return self.layers(x)

    layers = []
    for i, (weight, bias) in enumerate(zip(exported.weights, exported.biases, strict=True)):
        linear = on.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data, linear.bias.data = (torch.tensor(a, dtype=torch.float32) for a in (weight, bias))
        layers.append(linear)
        if i < len(exported.coefficients):
            c = list(exported.coefficients[i])
            squarings = {(1, 0, 0): 1, (1, 0, 0, 0, 0): 2}.get(tuple(c))
            layers += [on.Quad() for _ in range(squarings)] if squarings else [on.Activation(c)]
    return Network()


def check(name: str, poly: mp.Polynomial, exported: ActivationNetwork, x: np.ndarray) -> None:
    """Compile, encrypt, evaluate, decrypt, and print a line."""
    scale = 40
    moduli = {"LogN": 14, "LogQ": [58, *[scale] * exported.levels], "LogP": [60], "LogScale": scale, "H": 8192}
    options = {"margin": 2, "embedding_method": "hybrid", "backend": "lattigo", "fuse_modules": True, "debug": False}
    assert sum(moduli["LogQ"]) + sum(moduli["LogP"]) <= 438, "more than 128-bit security allows"
    rows = torch.tensor(x, dtype=torch.float32)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        orion.init_scheme({"ckks_params": moduli | {"RingType": "standard"}, "orion": options | {"io_mode": "none"}})
        net = orion_network(exported)
        net.eval()
        orion.fit(net, rows[:1])  # as many rows as an encryption shall hold
        level = orion.compile(net)
        net.he()
        found, start = [], time.perf_counter()
        for row in rows:
            encrypted = orion.encrypt(orion.encode(row[None, :], level))
            found.append(net(encrypted).decrypt().decode().numpy().ravel()[: exported.biases[-1].size])
    seconds = (time.perf_counter() - start) / len(rows)
    assert level == exported.levels, (level, exported.levels)
    print(
        f"{name:22s} {level} levels  from the export {np.abs(found - exported(x)).max():.1e}  "
        f"from the polynomial {np.abs(found - poly(x)).max():.1e}  {seconds:.1f} s each",
        flush=True,
    )


def main(sizes: list[int], degree: int, form: Literal["neurons", "shared"]) -> None:
    rng = np.random.default_rng(0)
    layers = [
        mp.MLP(rng.standard_normal((h, d)) * np.sqrt(2 / d), 0.3 * rng.standard_normal(h), activation="relu")
        for d, h in pairwise(sizes[:-1])
    ]
    net = mp.Chain([*layers, mp.Affine(rng.standard_normal((sizes[-1], sizes[-2])) / np.sqrt(sizes[-2]))])
    inputs = mp.Gaussian.standard(sizes[0])
    poly = mp.fit(net, inputs, degree, method="composed")
    check(f"degree {degree}, {form}", poly, to_orion(poly, form), inputs.sample(POINTS, seed=1))


if __name__ == "__main__":
    sizes = [int(size) for size in sys.argv[1:]] or [16, 32, 32, 4]
    for case in [(2, "neurons"), (3, "neurons"), (4, "neurons"), (3, "shared")]:
        # Orion has one scheme for each process.
        process = multiprocessing.get_context("spawn").Process(target=main, args=(sizes, *case))
        process.start()
        process.join()
