"""How close is a fit under one Gaussian to the one matrix product it contains?"""

import subprocess
import sys

import numpy as np

import mlpoly as mp
from benchmarks.common import paired_seconds, peak_gib, save


def small_network() -> dict[str, float]:
    """A 784-256-10 ReLU net under a full covariance, against the product W1 S."""
    rng = np.random.default_rng(0)
    d, h, o = 784, 256, 10
    A = rng.standard_normal((d, d)) / np.sqrt(d)
    inputs = mp.Gaussian(rng.standard_normal(d), A @ A.T)
    net = mp.MLP(rng.standard_normal((h, d)) / 28, rng.standard_normal(h), rng.standard_normal((o, h)), None, "relu")
    times = paired_seconds(
        {
            "product": lambda: net.W1 @ inputs.cov,
            "degree 2": lambda: mp.fit(net, inputs, 2),
            "degree 8": lambda: mp.fit(net, inputs, 8),
        },
        repeats=31,
    )
    return {
        "784-256-10 product W1 S, ms": 1e3 * times["product"],
        "784-256-10 quadratic / product (goal 3)": times["degree 2"] / times["product"],
        "784-256-10 degree 8 / degree 2 (goal 1.5)": times["degree 8"] / times["degree 2"],
    }


LARGE = """
import time, numpy as np, mlpoly as mp
from benchmarks.common import peak_gib
rng = np.random.default_rng(0)
d, h = 4096, 14336
def weights(rows, columns):
    made = rng.standard_normal((rows, columns), dtype=np.float32)
    made /= np.float32(columns**0.5)
    return made
W, V, D = weights(h, d), weights(h, d), weights(d, h)
A = weights(d, d); S = A @ A.T; del A
inputs = mp.Gaussian(np.zeros(d, np.float32), S)
net = mp.GLU(W, None, V, None, D, None, "silu")
products, fits = [], []
for _ in range(3):
    began = time.perf_counter(); mp.fit(net, inputs, 3); fits.append(time.perf_counter() - began)
peak = peak_gib()
for _ in range(3):
    began = time.perf_counter(); W @ S; products.append(time.perf_counter() - began)
    began = time.perf_counter(); mp.fit(net, inputs, 3); fits.append(time.perf_counter() - began)
stored = 4 * (3 * h * d + d * d) / 2**30
print(sorted(fits)[2], sorted(products)[1], peak, stored, 4 * h * d / 2**30)
"""


def large_glu() -> dict[str, float]:
    """A GLU of a language model's size in float32, in a process of its own so that its memory can be told."""
    run = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    fit, product, peak, stored, buffer = map(float, run.stdout.split())
    return {
        "GLU 4096-14336 product W S, s": product,
        "GLU 4096-14336 cubic / product (goal 1.5)": fit / product,
        "GLU 4096-14336 peak memory, GiB": peak,
        "GLU 4096-14336 peak / (1.5 (weights + covariance) + one h x d buffer)": peak / (1.5 * stored + buffer),
    }


def main() -> None:
    """Run all parts."""
    results = {**small_network(), **large_glu()}
    save("gaussian_fit", {**results, "peak memory of the rest, GiB": peak_gib()})


if __name__ == "__main__":
    main()
