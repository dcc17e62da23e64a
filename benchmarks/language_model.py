"""Every feedforward block of a model shaped like Llama-3-8B on one GPU: degree-3 polynomials, and their moments.

Random weights in bf16: 32 blocks, d = 4096, h = 14336. The moments are made first; what is timed is what comes after.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

import mlpoly as mp
from benchmarks.common import Skip, save, synchronise
from benchmarks.gpu import DEVICE, clock
from mlpoly.charts import style
from mlpoly.lm.moments.row_sums import RowSums


class Shape(NamedTuple):
    """Sizes of a language model."""

    blocks: int = 32
    d: int = 4096
    h: int = 14336


class Block(torch.nn.Module):
    """The parts of a Llama block, recognised by their names."""

    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        options = {"bias": False, "device": DEVICE, "dtype": torch.bfloat16}
        self.gate_proj, self.up_proj = (torch.nn.Linear(d, h, **options) for _ in range(2))
        self.down_proj = torch.nn.Linear(h, d, **options)
        self.act_fn = torch.nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def single(net: mp.GLU) -> mp.GLU:
    """The same block in float32, in which polynomials of 16-bit blocks are computed."""
    return mp.GLU(net.W_gate.float(), None, net.W_up.float(), None, net.W_down.float(), None, net.activation)


def all_fits(modules: list[Block], inputs: list[mp.Gaussian]) -> tuple[list[mp.RidgePolynomial], float]:
    """Polynomials of all blocks and the seconds they took, reading the blocks included."""
    synchronise(DEVICE)
    began = time.perf_counter()
    made = [mp.fit(single(mp.from_torch(m)), inputs[i % 4], 3) for i, m in enumerate(modules)]
    synchronise(DEVICE)
    return made, time.perf_counter() - began


def blocks(shape: Shape) -> dict[str, float]:
    """Seconds for all blocks, peak memory, and the product S W' alone."""
    torch.manual_seed(0)
    count, d, h = shape
    modules = [Block(d, h).requires_grad_(False) for _ in range(count)]
    roots = [torch.randn(d, d, device=DEVICE) / d**0.5 for _ in range(4)]
    inputs = [mp.Gaussian(torch.randn(d, device=DEVICE) / 10, A @ A.T) for A in roots]
    mp.fit(single(mp.from_torch(modules[0])), inputs[0], 3)
    synchronise(DEVICE)
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    made, took = all_fits(modules, inputs)
    peak = torch.cuda.max_memory_allocated()
    x = torch.randn(2048, d, device=DEVICE) @ roots[0].T + inputs[0].mean
    weight = modules[0].gate_proj.weight.float()
    product = clock(lambda: weight @ inputs[0].cov)
    error = mp.fvu(single(mp.from_torch(modules[0])), made[0], samples=x).total
    made.clear()
    _, again = all_fits(modules, inputs)  # in memory that the process holds by now
    return {
        f"all {count} blocks at degree 3, s (goal 3)": took,
        "product S W' in float32, ms": 1e3 * product,
        "all blocks: share of the rate of that product": count * product / took,
        "all blocks again, without asking for memory: share of the rate of that product": count * product / again,
        "peak memory with all polynomials kept, GiB": peak / 2**30,
        "of which weights, moments and the like, GiB": before / 2**30,
        "FVU of the first block on 2048 samples": float(error),
    }


def moments(shape: Shape, rows: int) -> dict[str, float]:
    """Fraction of the float32 product rate at which second moments of bf16 rows are summed."""
    x = torch.randn(rows, shape.d, device=DEVICE, dtype=torch.bfloat16)
    wide = x[:4096].float()
    product = clock(lambda: wide.T @ wide) * rows / 4096
    results: dict[str, float] = {}
    for batch in (512, 4096, rows):
        sums = RowSums()
        parts = x.split(batch)
        took = clock(lambda s=sums, p=parts: [s.add(part) for part in p])
        results[f"moments, batches of {batch} rows: share of the product rate (goal 0.6)"] = product / took
    return results


def main(tiny: bool = False) -> None:
    """Run on the GPU."""
    if DEVICE == "cpu" and not tiny:
        raise Skip("it needs a CUDA device (--tiny tries its code without one)")
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32
    shape = Shape(2, 32, 64) if tiny else Shape()
    save("language_model", {**blocks(shape), **moments(shape, 4096 if tiny else 16384)})


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Draw the fraction of the product rate of the moments, by rows in a batch."""
    shares = {k: v for k, v in results.items() if k.startswith("moments, batches of")}
    rows = [key.split(" rows")[0].split()[-1] for key in shares]
    figure = Figure(figsize=(5.5, 3.2), layout="constrained")
    ax = figure.subplots()
    ax.bar(rows, list(shares.values()), 0.6, color=style.QUADRATIC)
    for place, value in enumerate(shares.values()):
        style.note(ax, f"{value:.2f}", (place, value), (0, 3), ha="center")
    ax.axhline(0.6, color=style.INK, linewidth=0.8, linestyle=style.DASHED)
    style.tidy(
        ax, "bf16 rows in a batch", "fraction of the float32 product rate", "Moments, and the goal of 0.6 (dashed)"
    )
    ax.set_ylim(0, max(1.05, 1.1 * max(shares.values())))
    return {"language-model": figure}


if __name__ == "__main__":
    main()
