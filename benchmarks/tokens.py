"""Closed form against regression on the same tokens: from how many tokens on does least squares catch up?

Blocks of stories260K (a trained Llama, d = 64) on its own text. The closed form gets mean and covariance of the tokens;
regression gets the block's outputs on them as well, with the ridge penalty that is best on the held-out tokens (which
flatters it). Both are judged on other, real tokens. Needs MLPOLY_DATA/stories260K.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import mlpoly as mp
from benchmarks.common import FOLDER, save
from mlpoly.integrations import find_blocks

SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
PENALTIES = (0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
HELD_OUT = 8192


def activations() -> tuple[list[Any], list[torch.Tensor]]:
    """Blocks as records, and what goes into each, (tokens, d), first tokens left out."""
    from transformers import LlamaForCausalLM

    folder = Path(os.environ["MLPOLY_DATA"]) / "stories260K"
    model = LlamaForCausalLM.from_pretrained(folder, use_safetensors=True).double().eval()
    ids = torch.tensor(np.load(folder / "tokens.npy", allow_pickle=False).astype(np.int64))[:170]
    found, seen = find_blocks(model), {}
    hooks = [
        b.entry.register_forward_pre_hook(lambda m, a, name=b.name: seen.setdefault(name, []).append(a[0][:, 1:]))
        for b in found
    ]
    with torch.no_grad():
        for part in ids.split(34):
            model(part)
    for hook in hooks:
        hook.remove()
    return [b.net() for b in found], [torch.cat([p.flatten(0, 1) for p in seen[b.name]]) for b in found]


def monomials(z: torch.Tensor, degree: int) -> torch.Tensor:
    """All monomials up to the degree 1 or 2 of whitened inputs, in the Hermite basis, (n, t)."""
    parts = [torch.ones_like(z[:, :1]), z]
    if degree == 2:
        i, j = torch.triu_indices(z.shape[1], z.shape[1])
        parts.append(torch.where(i == j, (z[:, i] ** 2 - 1) / 2**0.5, z[:, i] * z[:, j]))
    return torch.cat(parts, 1)


def regression(net: Any, x: torch.Tensor, test: torch.Tensor, degree: int) -> float:
    """Held-out FVU of ridge regression, the best over the penalties."""
    mean, cov = x.mean(0), torch.cov(x.T)
    # A little shrinkage: with fewer tokens than inputs the covariance is singular.
    root = torch.linalg.cholesky(cov + 0.01 * torch.diagonal(cov).mean() * torch.eye(x.shape[1], dtype=x.dtype))
    white, other = (
        monomials(torch.linalg.solve_triangular(root, (a - mean).T, upper=False).T, degree) for a in (x, test)
    )
    target = net(test)
    values, vectors = torch.linalg.eigh(white.T @ white)
    moved, seen = vectors.T @ (white.T @ net(x)), other @ vectors
    spread = (target - target.mean(0)).square().sum()
    floor = 1e-10 * values[-1]
    scores = []
    for penalty in PENALTIES:
        shrunk = torch.where(values > floor, 1 / (values.clamp_min(floor) + penalty * values[-1]), 0.0)
        scores.append(float((target - seen @ (shrunk[:, None] * moved)).square().sum() / spread))
    return min(scores)


def closed_form(net: Any, x: torch.Tensor, test: torch.Tensor, degree: int) -> float:
    """Held-out FVU of the fit under N(mean, cov) of the tokens."""
    return float(mp.fvu(net, mp.fit(net, mp.Gaussian.from_samples(x), degree), samples=test).total)


def curves(degree: int, largest: int) -> dict[str, list[float]]:
    """Median over the blocks of both, for every number of tokens."""
    nets, inputs = activations()
    rows: dict[str, list[float]] = {"closed form": [], "regression": []}
    for n in [s for s in SIZES if s <= largest]:
        for name, method in (("closed form", closed_form), ("regression", regression)):
            values = [method(net, x[:n], x[-HELD_OUT:], degree) for net, x in zip(nets, inputs, strict=True)]
            rows[name].append(float(np.median(values)))
        ours, theirs = rows["closed form"][-1], rows["regression"][-1]
        print(f"degree {degree}, {n:6d} tokens: closed form {ours:.4f}, regression {theirs:.4f}", flush=True)
    return rows


def catches_up(rows: dict[str, list[float]]) -> int | None:
    """The smallest number of tokens at which regression is at least as good."""
    pairs = zip(SIZES, rows["closed form"], rows["regression"], strict=False)
    return next((n for n, ours, theirs in pairs if theirs <= ours), None)


def draw(found: dict[int, dict[str, list[float]]], path: Path) -> None:
    """Both curves for every degree, and the number of monomials."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    ax = figure.subplots()
    for degree, colour in zip(found, ("#d95f02", "#1f77b4", "#7570b3"), strict=False):
        for name, style in (("closed form", "-"), ("regression", "--")):
            values = found[degree][name]
            ax.plot(
                SIZES[: len(values)], values, style, color=colour, marker="o", ms=3, label=f"degree {degree}, {name}"
            )
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="tokens",
        ylabel="FVU on held-out tokens (median over blocks)",
        ylim=(None, 3),
    )
    ax.legend(frameon=False, fontsize=9, loc="upper right")
    ax.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Both degrees, and the plot."""
    found = {1: curves(1, SIZES[-1]), 2: curves(2, SIZES[-1])}
    draw(found, FOLDER / "tokens.png")
    results: dict[str, Any] = {"tokens": list(SIZES)}
    for degree, rows in found.items():
        results |= {f"degree {degree}, {name}": values for name, values in rows.items()}
        results[f"degree {degree}: tokens at which regression catches up"] = catches_up(rows)
    for degree in (3, 4, 5):
        nets, inputs = activations()
        values = [closed_form(net, x[:1024], x[-HELD_OUT:], degree) for net, x in zip(nets, inputs, strict=True)]
        results[f"degree {degree}, closed form, 1024 tokens"] = float(np.median(values))
    save("tokens", results)


if __name__ == "__main__":
    main()
