"""Time and peak memory of closed-form errors of one feedforward block: ``python -m benchmarks.blocks``.

Each case runs in a process of its own, under inputs with a power law of eigenvalues, so that units are correlated.
"""

import subprocess
import sys
import time

import numpy as np

import mlpoly as mp
from benchmarks.common import peak_gib

BLOCKS = {"MLP gelu_tanh": (512, 2048), "GLU silu": (576, 1536), "MLP gelu": (768, 3072)}
MEASURES = ("fvu", "degree_spectrum")


def block(name: str) -> tuple[mp.MLP | mp.GLU, mp.Gaussian]:
    """Weights and moments at random."""
    (d, h), (kind, activation) = BLOCKS[name], name.split()
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    spectrum = 1 / (1.0 + np.arange(d))
    spectrum[:3] *= 4
    inputs = mp.Gaussian(0.5 * rng.standard_normal(d), (Q * (spectrum * d / spectrum.sum())) @ Q.T)
    W, b = rng.standard_normal((h, d)) / d**0.5 * rng.uniform(1, 3, (h, 1)), rng.uniform(-1, -0.5, h)
    readout = rng.standard_normal((d, h)) / h**0.5
    if kind == "MLP":
        return mp.MLP(W, b, readout, None, activation), inputs
    V = rng.standard_normal((h, d)) / d**0.5
    return mp.GLU(W, None, V, None, readout, None, activation), inputs


def run(name: str, measure: str) -> None:
    """Measure one case in this process."""
    net, inputs = block(name)
    poly = mp.fit(net, inputs, 2)
    wall, cpu = time.perf_counter(), time.process_time()
    if measure == "fvu":
        mp.fvu(net, poly, inputs)
    else:
        mp.degree_spectrum(net, inputs)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name:14s} {measure:16s} {wall:6.2f} s, {cpu:6.2f} s of the processors, {peak_gib():.2f} GiB", flush=True)


def main() -> None:
    """Run all cases."""
    for case in BLOCKS:
        for measure in MEASURES:
            subprocess.run([sys.executable, "-m", "benchmarks.blocks", case, measure], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(*sys.argv[1:])
    else:
        main()
