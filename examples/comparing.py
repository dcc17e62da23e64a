"""Networks compared, and inputs weighed, in closed form: four pictures on data that scikit-learn brings along.

    python examples/comparing.py docs/images

- checkpoints: how similar are the functions at all times of one training run?
- compressed: what do pruning and quantising cost, from the mean and covariance of the inputs alone?
- effects: which inputs does a network of correlated inputs use?
- distilled: a wide network into a narrow one by descending the exact distance, and by descending on samples.

All four take less than a minute on one core.
"""

import contextlib
import copy
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes, load_digits
from sklearn.neural_network import MLPRegressor
from torch import nn

import mlpoly as mp
from mlpoly.charts import style

SECONDS = 8.0  # of processor time, for every way to distil


@dataclass
class Digits:
    """Images of 8 x 8 pixels in float64, the first 1300 for training."""

    x: torch.Tensor
    y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor

    @staticmethod
    def load() -> "Digits":
        found = load_digits()
        x, y = torch.tensor(found.data / 16), torch.tensor(found.target)
        return Digits(x[:1300], y[:1300], x[1300:], y[1300:])

    def classifier(self, width: int, steps: int, seed: int = 0, save: Callable[[int, nn.Module], None] | None = None):
        """A classifier with one hidden layer, after so many steps of Adam on all training images."""
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)).double()
        optimiser = torch.optim.AdamW(module.parameters(), 3e-3, weight_decay=0.01)
        for step in range(steps + 1):
            if save is not None:
                save(step, module)
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(self.x), self.y).backward()
            optimiser.step()
        return module.requires_grad_(False)

    def accuracy(self, net: Callable[[torch.Tensor], torch.Tensor]) -> float:
        return float((net(self.test_x).argmax(1) == self.test_y).double().mean())


def checkpoints(digits: Digits) -> Figure:
    """Correlation of the logits of every two checkpoints, under the mean and covariance of the images."""
    steps = (0, 3, 6, 10, 15, 25, 40, 65, 100, 160, 250, 400)
    nets: list[mp.MLP] = []

    def save(step: int, module: nn.Module) -> None:
        if step in steps:
            nets.append(mp.from_torch(copy.deepcopy(module).requires_grad_(False)))

    digits.classifier(32, steps[-1], save=save)
    inputs = mp.Gaussian.from_samples(digits.x)
    grid = np.eye(len(nets))
    for i, f in enumerate(nets):
        for j, g in enumerate(nets[:i]):
            grid[i, j] = grid[j, i] = float(mp.similarity(f, g, inputs, centred=True).cosine)
    accuracies = [digits.accuracy(net) for net in nets]
    print("checkpoints: step, correlation with the one before and with the last, test accuracy")
    for i, step in enumerate(steps):
        print(f"{step:5d}  {grid[i, i - 1] if i else 0:.3f}  {grid[i, -1]:.3f}  {accuracies[i]:.3f}")
    figure = Figure(figsize=(style.WIDTH, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.1, 1])
    image = left.imshow(grid, vmin=0, vmax=1, cmap="viridis")
    left.set_xticks(range(len(steps)), steps, rotation=90)
    left.set_yticks(range(len(steps)), steps)
    style.tidy(left, "step", "step", "correlation of the logits of two checkpoints")
    figure.colorbar(image, ax=left, shrink=0.85)
    right.plot(steps, grid[:, -1], "o-", color=style.QUADRATIC, markersize=4, label="correlation with the last")
    right.plot(steps, accuracies, "s--", color=style.LINEAR, markersize=4, label="test accuracy")
    right.set_ylim(0, 1.03)
    right.set_xscale("symlog", linthresh=3)  # linear from 0 to 3
    right.set_xlim(-0.2, None)
    right.set_xticks([0, 3, 10, 25, 100, 400], [0, 3, 10, 25, 100, 400])
    right.legend(frameon=False, fontsize=style.SMALL, loc="lower right")
    style.tidy(right, "step")
    return figure


def compressed(digits: Digits) -> Figure:
    """Relative distance of pruned and quantised copies: closed form, and on test images."""
    net = mp.from_torch(digits.classifier(64, 300))
    gaussian = mp.Gaussian.from_samples(digits.x)
    mixture = mp.GaussianMixture.from_labels(digits.x, digits.y, shrinkage=0.1)
    closed = [(inputs, float(mp.second_moment(net, inputs).cov.trace())) for inputs in (gaussian, mixture)]
    outputs = net(digits.test_x)

    def changed(change: Callable[[torch.Tensor], torch.Tensor]) -> mp.MLP:
        return mp.MLP(change(net.W1), net.b1, change(net.W2), net.b2, net.activation)

    def pruned(fraction: float) -> mp.MLP:
        """Without the smallest weights of each matrix."""
        return changed(lambda w: torch.where(w.abs() > w.abs().flatten().quantile(fraction), w, 0.0))

    def quantised(bits: int) -> mp.MLP:
        """Every row of weights rounded to 2^bits - 1 levels."""

        def rounded(w: torch.Tensor) -> torch.Tensor:
            step = w.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
            return torch.round(w / step) * step

        return changed(rounded)

    figure = Figure(figsize=(style.WIDTH, 3.8), layout="constrained")
    print("compressed: distance / variance under one Gaussian, under one per class, on test images; test accuracy")
    levels: tuple[tuple[str, str, Any, list[Any]], ...] = (
        ("fraction of weights pruned", "{:.0%} pruned", pruned, [0.1, 0.2, 0.3, 0.4, 0.5, 0.7]),
        ("bits of every weight", "{} bits", quantised, [8, 6, 5, 4, 3]),
    )
    for ax, (label, title, make, values) in zip(figure.subplots(1, 2, sharey=True), levels, strict=True):
        rows = []
        for value in values:
            other = make(value)
            row = [float(mp.similarity(net, other, inputs).distance) / v for inputs, v in closed]
            row.append(float((other(digits.test_x) - outputs).square().sum(1).mean() / outputs.var(0).sum()))
            rows.append(row)
            print(f"{title.format(value):>12}  {'  '.join(f'{a:.2e}' for a in row)}  {digits.accuracy(other):.3f}")
        names = ("closed form, one Gaussian", "closed form, one Gaussian per class", "on test images")
        looks = (("-", style.QUADRATIC), (style.DASHED, style.COLOURS["violet"]), ("none", style.LINEAR))
        for column, name, (dashes, colour) in zip(zip(*rows, strict=True), names, looks, strict=True):
            mark = "o" if dashes == "none" else ""
            ax.plot(values, column, color=colour, linestyle=dashes, marker=mark, markersize=5, label=name)
        ax.set_yscale("log")
        style.tidy(ax, label)
    figure.axes[0].set_ylabel("E|f - g|² / variance of the logits", fontsize=style.NORMAL, color=style.INK)
    figure.axes[0].legend(frameon=False, fontsize=style.SMALL, loc="lower right")
    figure.axes[1].invert_xaxis()
    return figure


def effects() -> Figure:
    """Shapley effects of a network on the diabetes data, with their correlations and as if there were none."""
    warnings.filterwarnings("ignore", message="Stochastic Optimizer")
    table = load_diabetes(as_frame=True)
    x = (table.data - table.data.mean()) / table.data.std()
    options = {"learning_rate_init": 0.01, "alpha": 1.0, "max_iter": 400, "random_state": 0}
    net = mp.from_sklearn(MLPRegressor(hidden_layer_sizes=(32,), **options).fit(x, table.target))
    inputs = mp.Gaussian.from_samples(x)  # remembers the names of the columns
    apart = mp.Gaussian(inputs.mean, np.diag(np.diag(inputs.cov)), names=inputs.names)
    found, ignored = (mp.sensitivity(net, each) for each in (inputs, apart))
    print("effects: the inputs as they are, then as if they were independent")
    print(found)
    print(ignored)
    order = np.argsort(found.shapley[:, 0])
    figure = Figure(figsize=(style.WIDTH, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.3, 1])
    places = np.arange(len(order))
    left.barh(places + 0.2, found.shapley[order, 0], 0.38, color=style.QUADRATIC, label="Shapley effect")
    left.barh(places - 0.2, ignored.shapley[order, 0], 0.38, color=style.GUIDE, label="as if inputs were independent")
    left.plot(found.first[order, 0], places + 0.2, "|", color=style.INK, markersize=9, label="alone (first order)")
    left.plot(found.total[order, 0], places + 0.2, ".", color=style.INK, markersize=6, label="lost without it (total)")
    left.set_yticks(places, [inputs.names[i] for i in order])
    left.legend(frameon=False, fontsize=style.SMALL, loc="lower right")
    style.tidy(left, "fraction of the variance of the prediction")
    image = right.imshow(np.corrcoef(x.T), vmin=-1, vmax=1, cmap="RdBu_r")
    right.set_xticks(range(10), inputs.names, rotation=90)
    right.set_yticks(range(10), inputs.names)
    style.tidy(right, title="correlations of the inputs")
    figure.colorbar(image, ax=right, shrink=0.8)
    return figure


class TimeUpError(Exception):
    """Ends an optimiser that has its own loop."""


def distilled(digits: Digits, seconds: float = SECONDS) -> Figure:
    """64 hidden units into 16: distance under the Gaussian of the images against time."""
    teacher = digits.classifier(64, 300)
    wide, inputs, tested = mp.from_torch(teacher), mp.Gaussian.from_samples(digits.x), teacher(digits.test_x)
    variance = float(mp.second_moment(wide, inputs).cov.trace())
    strong = torch.argsort(wide.W2.norm(dim=0) * wide.W1.norm(dim=1))[-16:]  # where every way starts

    def narrow() -> nn.Sequential:
        module = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).double()
        with torch.no_grad():
            for at, weight in zip(module.parameters(), (wide.W1, wide.b1, wide.W2[:, strong], wide.b2), strict=True):
                at.copy_(weight[strong] if weight.shape[0] == 64 else weight)
        return module

    def exact(module: nn.Sequential) -> torch.Tensor:
        first, _, last = module
        net = mp.MLP(first.weight, first.bias, last.weight, last.bias, "relu")
        return mp.similarity(wide, net, inputs, degree=1).distance / variance

    def on(x: torch.Tensor) -> Callable[[nn.Sequential], torch.Tensor]:
        target = teacher(x)
        return lambda module: (module(x) - target).square().sum(1).mean() / variance

    def bfgs(loss: Callable[[nn.Sequential], torch.Tensor]) -> tuple[nn.Sequential, list[Any]]:
        module, began, passed = narrow(), time.process_time(), []
        options = {"history_size": 50, "line_search_fn": "strong_wolfe", "tolerance_grad": 0, "tolerance_change": 0}
        optimiser = torch.optim.LBFGS(module.parameters(), max_iter=10**6, **options)

        def closure() -> torch.Tensor:
            if time.process_time() - began > seconds:
                raise TimeUpError
            optimiser.zero_grad()
            value = loss(module)
            value.backward()
            passed.append((time.process_time() - began, [p.detach().clone() for p in module.parameters()]))
            return value

        with contextlib.suppress(TimeUpError):
            optimiser.step(closure)
        return module, passed

    def adam(rate: float) -> tuple[nn.Sequential, list[Any]]:
        """On fresh draws of the Gaussian, with a rate that falls to zero."""
        module, began, passed = narrow(), time.process_time(), []
        optimiser = torch.optim.Adam(module.parameters(), rate)
        root = torch.linalg.cholesky(inputs.cov + 1e-9 * torch.eye(64, dtype=torch.float64))
        while (spent := time.process_time() - began) < seconds:
            optimiser.param_groups[0]["lr"] = rate * (1 - spent / seconds)
            optimiser.zero_grad()
            on(torch.randn(256, 64, dtype=torch.float64) @ root.T + inputs.mean)(module).backward()
            optimiser.step()
            passed.append((spent, [p.detach().clone() for p in module.parameters()]))
        return module, passed

    ways: dict[str, tuple[Callable[[], Any], str]] = {
        "L-BFGS on the exact distance": (lambda: bfgs(exact), style.QUADRATIC),
        "L-BFGS on the 1300 images": (lambda: bfgs(on(digits.x)), style.LINEAR),
        "Adam on fresh draws": (lambda: adam(3e-3), style.FAINT),
    }
    figure = Figure(figsize=(style.WIDTH, 3.8), layout="constrained")
    ax = figure.subplots()
    print(f"distilled: distance / variance after {seconds:.0f} s, the same on test images, evaluations, test accuracy")
    for name, (way, colour) in ways.items():
        module, passed = way()
        shown = [passed[i] for i in np.unique(np.geomspace(1, len(passed), 20).astype(int)) - 1]
        curve = []
        with torch.no_grad():
            for _, weights in shown:
                for at, weight in zip(module.parameters(), weights, strict=True):
                    at.copy_(weight)
                curve.append(float(exact(module)))
            apart = float((module(digits.test_x) - tested).square().sum(1).mean() / tested.var(0).sum())
        print(f"{name:30s} {curve[-1]:.4f}  {apart:.4f}  {len(passed):6d}  {digits.accuracy(module):.3f}")
        ax.plot([at for at, _ in shown], curve, "o-", color=colour, markersize=3, label=name)
    ax.set(xscale="log", yscale="log")
    style.tidy(ax, "seconds of processor time", "E|f - g|² / variance of the logits", "16 hidden units for 64")
    ax.legend(frameon=False, fontsize=style.SMALL)
    return figure


def main(folder: Path) -> None:
    """Draw all four."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    digits = Digits.load()
    works = {
        "checkpoints": lambda: checkpoints(digits),
        "compressed": lambda: compressed(digits),
        "effects": effects,
        "distilled": lambda: distilled(digits),
    }
    for name, work in works.items():
        began, path = time.process_time(), folder / f"compare-{name}.png"
        work().savefig(path, dpi=100, metadata={"Software": None})
        print(f"{path}, {time.process_time() - began:.1f} s\n", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "plots"))
