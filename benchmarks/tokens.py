"""Closed form against regression on the same tokens: from how many tokens on does least squares catch up?

Blocks of stories260K (a trained Llama, d = 64) on its own text. The closed form gets mean and covariance of the tokens;
regression gets the block's outputs on them as well, with the ridge penalty that is best on the held-out tokens (which
favours it). Both are evaluated on other, real tokens. Needs MLPOLY_DATA/stories260K.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import mlpoly as mp
from benchmarks.common import Skip, save
from mlpoly.charts import style
from mlpoly.importers import find_blocks

SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
PENALTIES = (0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
HELD_OUT = 4096


def model_folder() -> Path:
    """Return the folder of the model and its tokens."""
    folder = Path(os.environ.get("MLPOLY_DATA", "")) / "stories260K"
    if "MLPOLY_DATA" not in os.environ or not (folder / "tokens.npy").exists():
        raise Skip("it needs the model stories260K and its tokens: set MLPOLY_DATA to a folder that has stories260K")
    return folder


def activations() -> tuple[list[Any], list[torch.Tensor]]:
    """Blocks as records, and what goes into each, (tokens, d), first tokens left out."""
    from transformers import LlamaForCausalLM

    folder = model_folder()
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
    if white.shape[0] < white.shape[1]:  # fewer tokens than monomials: the same solution from the smaller Gram matrix
        values, vectors = torch.linalg.eigh(white @ white.T)
        moved, seen = vectors.T @ net(x), (other @ white.T) @ vectors
    else:
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


def main(tiny: bool = False) -> None:
    """Both degrees; higher ones, for which regression has too many monomials, in closed form alone."""
    model_folder()
    results: dict[str, Any] = {"curves": {}, "notes": []}
    for degree in (1, 2):
        rows = curves(degree, SIZES[1] if tiny else SIZES[-1])
        for name, values in rows.items():
            results["curves"][f"degree {degree}, {name}"] = {"x": SIZES[: len(values)], "y": values}
        results[f"degree {degree}: tokens at which regression catches up"] = catches_up(rows)
        results[f"degree {degree}, most tokens: FVU of closed form / regression"] = (
            rows["closed form"][-1] / rows["regression"][-1]
        )
        results["notes"].append(said(degree, rows))
    nets, inputs = activations()
    for degree in () if tiny else (3, 4, 5):
        values = [closed_form(net, x[:1024], x[-HELD_OUT:], degree) for net, x in zip(nets, inputs, strict=True)]
        results[f"degree {degree}, closed form, 1024 tokens: FVU"] = float(np.median(values))
    save("tokens", results)


def said(degree: int, rows: dict[str, list[float]]) -> str:
    """Say which is better, and from how many tokens on."""
    n, most = catches_up(rows), SIZES[len(rows["closed form"]) - 1]
    if n is None:
        return f"Degree {degree}: regression does not catch up with the closed form up to {most} tokens."
    ratio = rows["closed form"][-1] / rows["regression"][-1]
    return (
        f"Degree {degree}: regression wins from {n} tokens on, because tokens are not Gaussian; with {most} the closed "
        f"form leaves {ratio:.2f} times its error."
    )


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Both curves for every degree."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    ax = figure.subplots()
    for name, curve in results["curves"].items():
        colour = style.LINEAR if name.startswith("degree 1") else style.QUADRATIC
        dashes = style.DASHED if name.endswith("regression") else "-"
        ax.plot(curve["x"], curve["y"], linestyle=dashes, color=colour, marker="o", ms=3.5, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(curve["x"], [str(x) for x in curve["x"]])
    ax.xaxis.minorticks_off()
    ax.set_ylim(None, 3)  # regression on too few tokens leaves the picture
    style.tidy(
        ax, "tokens", "FVU on held-out tokens, median over blocks", "Closed form and regression on the same tokens"
    )
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=style.SMALL)
    return {"tokens": figure}


if __name__ == "__main__":
    main()
