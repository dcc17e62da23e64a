"""Two blocks of a language model compared on a GPU: 4096-14336 gated units, in float32 and float64.

Stands alone: ``PYTHONPATH=src python -m benchmarks.gpu_similarity`` needs NumPy, SciPy and PyTorch, and nothing else.
Without a CUDA device, ``--tiny`` tries the code in small.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

import mlpoly as mp
from benchmarks.common import Skip, save, seconds, synchronise

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def block(kind: str, d: int, h: int, dtype: torch.dtype, change: float) -> Any:
    """A feedforward block with random weights, changed by a fraction of others; without change the same every time."""
    one, other = (torch.Generator(DEVICE).manual_seed(seed) for seed in (1, 2))

    def weights(*shape: int) -> torch.Tensor:
        a, b = (torch.randn(*shape, generator=g, device=DEVICE, dtype=dtype) for g in (one, other))
        return (a + change * b) / shape[-1] ** 0.5

    if kind == "SwiGLU":
        return mp.GLU(weights(h, d), None, weights(h, d), None, weights(d, h), None, "silu")
    return mp.MLP(weights(h, d), None, weights(d, h), None, "relu")


def sampled(f: Any, g: Any, n: int, chunk: int) -> tuple[float, float]:
    """E|f - g|^2 on n samples of N(0, I), and its standard error."""
    values = []
    for start in range(0, n, chunk):
        x = torch.randn(min(chunk, n - start), f.dim_in, device=DEVICE, dtype=f.prototype.dtype)
        values.append((f(x) - g(x)).double().square().sum(1))
    found = torch.cat(values)
    return float(found.mean()), float(found.std()) / n**0.5


def measure(kind: str, d: int, h: int, dtype: torch.dtype) -> dict[str, Any]:
    """Time and memory of a similarity of a random block and a changed one, and its distance from samples."""
    torch.manual_seed(0)
    f, g = (block(kind, d, h, dtype, change) for change in (0.0, 0.1))
    inputs = mp.Gaussian.standard(d, like=f.prototype)
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    work = partial(mp.similarity, f, g, inputs)
    took = seconds(work, 2, partial(synchronise, DEVICE))
    found, name = work(), f"{kind} {d}-{h}-{d}, {str(dtype).removeprefix('torch.')}"
    value, error = sampled(f, g, 20_000, 2000)
    results = {
        f"{name}: similarity, s (goal 5)": took,
        f"{name}: cosine": float(found.cosine),
        f"{name}: E|f - g|^2 / E|f|^2": float(found.distance / found.first),
        f"{name}: distance from 20 000 samples, in standard errors": abs(float(found.distance) - value) / error,
        f"{name}: f against itself, E|f - f|^2 / E|f|^2": float(mp.similarity(f, f, inputs).distance / found.first),
    }
    if DEVICE == "cuda":
        results[f"{name}: memory, GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return results


def main(tiny: bool = False) -> None:
    """Both kinds of block in both precisions."""
    if DEVICE == "cpu" and not tiny:
        raise Skip("it needs a CUDA device (--tiny tries its code without one)")
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32
    d, h = (48, 16) if tiny else (4096, 14336)
    results: dict[str, Any] = {}
    for kind in ("SwiGLU", "ReLU MLP"):
        for dtype in (torch.float32, torch.float64):
            results |= measure(kind, d, h, dtype)
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
    save("gpu_similarity", results)


if __name__ == "__main__":
    main("--tiny" in sys.argv)
