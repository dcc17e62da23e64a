"""Every feedforward block of a model shaped like Llama-3-8B on one GPU: degree-3 polynomials, and their moments.

Random weights in bf16: 32 blocks, d = 4096, h = 14336. The moments are made first; what is timed is what comes after.
"""

from __future__ import annotations

import time

import torch

import mlpoly as mp
from benchmarks.common import save
from benchmarks.gpu import clock
from mlpoly.lm.accumulate import RowSums

DEVICE, LAYERS, D, H = "cuda", 32, 4096, 14336


class Block(torch.nn.Module):
    """The parts of a Llama block, recognised by their names."""

    def __init__(self) -> None:
        super().__init__()
        options = {"bias": False, "device": DEVICE, "dtype": torch.bfloat16}
        self.gate_proj, self.up_proj = (torch.nn.Linear(D, H, **options) for _ in range(2))
        self.down_proj = torch.nn.Linear(H, D, **options)
        self.act_fn = torch.nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def single(net: mp.GLU) -> mp.GLU:
    """The same block in float32, in which polynomials of 16-bit blocks are computed."""
    return mp.GLU(net.W_gate.float(), None, net.W_up.float(), None, net.W_down.float(), None, net.activation)


def blocks() -> dict[str, float]:
    """Seconds for all blocks, peak memory, and the product S W' alone."""
    torch.manual_seed(0)
    modules = [Block().requires_grad_(False) for _ in range(LAYERS)]
    roots = [torch.randn(D, D, device=DEVICE) / D**0.5 for _ in range(4)]
    inputs = [mp.Gaussian(torch.randn(D, device=DEVICE) / 10, A @ A.T) for A in roots]
    mp.fit(single(mp.from_torch(modules[0])), inputs[0], 3)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    began = time.perf_counter()
    made = [mp.fit(single(mp.from_torch(m)), inputs[i % 4], 3) for i, m in enumerate(modules)]
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated()
    x = torch.randn(2048, D, device=DEVICE) @ roots[0].T + inputs[0].mean
    weight = modules[0].gate_proj.weight.float()
    return {
        "all 32 blocks at degree 3, s (goal 3)": took,
        "product S W' in float32, ms": 1e3 * clock(lambda: weight @ inputs[0].cov),
        "peak memory with all polynomials kept, GiB": peak / 2**30,
        "of which weights, moments and the like, GiB": before / 2**30,
        "FVU of the first block on 2048 samples": float(
            mp.fvu(single(mp.from_torch(modules[0])), made[0], samples=x).total
        ),
    }


def moments(rows: int = 16384) -> dict[str, float]:
    """Share of the float32 product rate at which second moments of bf16 rows are summed."""
    x = torch.randn(rows, D, device=DEVICE, dtype=torch.bfloat16)
    wide = x[:4096].float()
    product = clock(lambda: wide.T @ wide) * rows / 4096
    results = {}
    for batch in (512, 4096, rows):
        sums = RowSums()
        parts = x.split(batch)
        took = clock(lambda s=sums, p=parts: [s.add(part) for part in p])
        results[f"moments, batches of {batch} rows: share of the product rate (goal 0.6)"] = product / took
    return results


def main() -> None:
    """Run on the GPU."""
    torch.backends.cuda.matmul.allow_tf32 = False
    save(
        "language_model", {**blocks(), **moments(), "device": torch.cuda.get_device_name(), "torch": torch.__version__}
    )


if __name__ == "__main__":
    main()
