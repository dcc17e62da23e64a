"""On a CUDA device: the exact quadratic of MNIST networks under ten class Gaussians, its cost and its quality.

It needs MNIST in a folder that MLPOLY_DATA names. With ``--tiny`` made-up classes take its place, on the CPU where
there is no GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

import mlpoly as mp
from benchmarks.common import Skip, save, write
from benchmarks.gpu import DEVICE, draw_bars
from benchmarks.mixture import class_like, trained
from benchmarks.mixture_rates import Products, Solver, growth, iteration_share, synthetic, timed_fit, whole_fit
from mlpoly.datasets import load_images
from mlpoly.plots import style

KINDS = {"relu": "ReLU", "swiglu": "SwiGLU"}


def classes(tiny: bool) -> tuple[torch.Tensor, torch.Tensor, mp.GaussianMixture]:
    """Images, labels, and one Gaussian per class."""
    if tiny:
        made = class_like(6, 3)
        x = torch.cat([part.sample(50, seed=i) for i, part in enumerate(made.components)]).to(DEVICE)
        labels = torch.arange(3, device=DEVICE).repeat_interleave(50)
        return x, labels, mp.GaussianMixture.from_labels(x, labels)
    try:
        images = load_images(
            "mnist",
        )
    except FileNotFoundError as error:
        raise Skip(f"there is {error}") from error
    x, y = torch.tensor(images.train, device=DEVICE), torch.tensor(images.train_labels, device=DEVICE)
    return x, y, mp.GaussianMixture.from_labels(x, images.train_labels)


def cost(
    net: Any, mixture: mp.GaussianMixture, products: Products, name: str, many: int
) -> tuple[dict[str, Any], Any, Any]:
    """Seconds, and shares of the product rate; the polynomial, and that of a solver that went on to the end."""
    timed_fit(net, mixture, DEVICE)
    poly, took = timed_fit(net, mixture, DEVICE)
    best, _ = timed_fit(net, mixture, DEVICE, tolerance=1e-6, max_iterations=2000)
    results = {
        f"{name}: seconds for all outputs (goal 0.5)": took,
        f"{name}: iterations at full size": poly.report.iterations,
        f"{name}: gradient (certificate)": poly.report.gradient,
        f"{name}: misfit / converged misfit": poly.report.misfit / best.report.misfit,
        f"{name}: converged after": best.report.iterations,
        f"{name}: directions kept, dropped": f"{poly.report.kept}, {poly.report.dropped}",
        **iteration_share(Solver(net, mixture, DEVICE), products, name, min(5, many - 2), many),
        f"{name}: whole fit, share of the product rate": whole_fit(net, mixture, products),
    }
    return results, poly, best


def quality(
    net: Any, mixture: mp.GaussianMixture, found: dict[str, Any], plan: tuple[int, ...], size: int
) -> dict[str, float]:
    """FVU under the mixture of the exact fit and of the paper's route, on one large sample."""
    samples = torch.cat([mixture.sample(size, seed=s) for s in range(1, 5)])
    paper = mp.fit(net, mp.Gaussian.standard(net.dim_in), 2)
    candidates = {
        **found,
        "linear": mp.fit(net, mixture, 1),
        "neuronwise quadratic": mp.fit(net, mixture, 2, method="neuronwise"),
        "quadratic under N(mean, cov)": mp.fit(net, mp.Gaussian(mixture.mean, mixture.covariance), 2),
        "quadratic under N(0, I)": paper,
    }
    c = paper.coefficients()
    dense = mp.DensePolynomial(mixture.mean * 0, c.constant, c.linear, c.quadratic)
    for steps in plan:
        route = mp.finetune(net, dense, mixture, steps=steps, show_progress=False)
        candidates[f"paper: N(0, I) + {steps} steps of SGD"] = route
    return {name: float(mp.fvu(net, p, samples=samples).total) for name, p in candidates.items()}


def large(products: Products, tiny: bool) -> dict[str, float]:
    """The same shares for a mixture that fills a GPU."""
    d, components, outputs = (16, 3, 2) if tiny else (1536, 16, 16)
    name, case = f"{d} inputs, {components} components, {outputs} outputs", synthetic(DEVICE, d, components, outputs)
    found = iteration_share(Solver(*case, DEVICE), products, name, 1 if tiny else 3, 3 if tiny else 13, repeats=3)
    return {**found, f"{name}: whole fit, share of the product rate (goal 0.6)": whole_fit(*case, products, repeats=1)}


def main(tiny: bool = False) -> None:
    """Run on the GPU."""
    if DEVICE == "cpu" and not tiny:
        raise Skip("it needs a CUDA device (--tiny tries its code without one)")
    x, y, mixture = classes(tiny)
    products = Products(DEVICE, tiny)
    results: dict[str, Any] = {}
    for kind, name in KINDS.items():
        net = trained(kind, x, y, steps=50 if tiny else 2000)
        costs, poly, best = cost(net, mixture, products, name, 4 if tiny else 45)
        found = {"exact quadratic": poly, "exact quadratic, converged": best}
        plan, size = ((5, 20), 100) if tiny else ((200, 2000), 50_000)
        judged = quality(net, mixture, found, plan, size)
        results |= {**costs, **{f"{name}: FVU, {what}": value for what, value in judged.items()}}
        write("gpu_mixture", results)  # what was measured stays, even if a limit of time ends the run
    results |= large(products, tiny)
    sizes = [16, 24, 32] if tiny else [512, 1024, 1536]
    results |= growth(products, {"d": sizes, "components": [4, 8, 16], "outputs": [4, 8, 16]})
    save("gpu_mixture", results)


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Shares of the product rate."""
    shares = {k: v for k, v in results.items() if "share of the product rate" in k}
    figure = Figure(figsize=(style.WIDTH, 1.2 + 0.3 * len(shares)), layout="constrained")
    ax = figure.subplots()
    draw_bars(ax, {key.replace(", share of the product rate", ""): value for key, value in shares.items()}, (1.0, 0.6))
    style.tidy(ax, "share of the float64 product rate (dashed: goal)")
    return {"gpu_mixture": figure}


if __name__ == "__main__":
    main()
