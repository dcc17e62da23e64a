"""Exact FVU against Monte Carlo: error against time, at two sizes, with one thread for both.

Monte Carlo draws samples, evaluates network and polynomial on them and takes the ratio of two means; its error is the
root mean square over repeats of its distance from the exact value, relative to it. What the closed form loses to
rounding is measured too: in rotated coordinates the problem is the same, and the answer differs by rounding alone.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import mlpoly as mp
from benchmarks.common import paired_seconds, save, seconds, versions
from mlpoly.charts import style

SIZES = {  # inputs, hidden, outputs, components, activation; then samples: repeats
    "32-128-4 GELU, one Gaussian": ((32, 128, 4, 1, "gelu"), {1000: 40, 10_000: 20, 100_000: 12, 1_000_000: 3}),
    "784-256-10 ReLU, ten Gaussians": ((784, 256, 10, 10, "relu"), {1000: 16, 10_000: 8, 100_000: 2}),
}


TINY = {"6-12-2 ReLU, two Gaussians": ((6, 12, 2, 2, "relu"), {200: 10, 2000: 5})}


class Problem(NamedTuple):
    """A network, and inputs with full covariances."""

    net: mp.MLP
    inputs: mp.GaussianMixture

    def polynomial(self) -> mp.RidgePolynomial:
        return mp.fit(self.net, self.inputs, 2, method="neuronwise")

    def rotated(self, seed: int) -> Problem:
        """The same function of the same inputs in other coordinates."""
        d = self.net.dim_in
        q = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]
        parts = [mp.Gaussian(q @ g.mean, q @ g.cov @ q.T) for g in self.inputs.components]
        turned = mp.MLP(self.net.W1 @ q.T, self.net.b1, self.net.W2, None, self.net.activation)
        return Problem(turned, mp.GaussianMixture.of(self.inputs.weights, parts))


def problem(d: int, h: int, o: int, components: int, activation: str) -> Problem:
    """Weights and moments at random."""
    rng = np.random.default_rng(0)
    first, bias, last = rng.standard_normal((h, d)) / d**0.5, rng.standard_normal(h), rng.standard_normal((o, h))
    parts = []
    for _ in range(components):
        A = rng.standard_normal((d, d)) / d**0.5
        parts.append(mp.Gaussian(rng.standard_normal(d) / 3, A @ A.T))
    net = mp.MLP(first, bias, last / h**0.5, None, activation)
    return Problem(net, mp.GaussianMixture.of(np.full(components, 1 / components), parts))


class Sampled(NamedTuple):
    """Monte Carlo at one number of samples."""

    samples: int
    seconds: float
    error: float  # relative, root mean square over the repeats
    repeats: int


def monte_carlo(at: Problem, poly: Any, exact: float, plan: dict[int, int]) -> list[Sampled]:
    """All numbers of samples, each with its repeats."""
    made = []
    for n, repeats in plan.items():
        times, apart = [], []
        for seed in range(repeats):
            began = time.perf_counter()
            value = float(mp.fvu(at.net, poly, samples=at.inputs.sample(n, seed=seed)).total)
            times.append(time.perf_counter() - began)
            apart.append(value / exact - 1)
        made.append(Sampled(n, float(np.median(times)), float(np.sqrt(np.mean(np.square(apart)))), repeats))
    return made


def samples_for(runs: list[Sampled], error: float) -> float:
    """Samples at which the error falls to a goal, by its law sigma / sqrt(n), with sigma from all repeats."""
    sigma2 = sum(r.repeats * r.samples * r.error**2 for r in runs) / sum(r.repeats for r in runs)
    return sigma2 / error**2


def rounding(at: Problem, value: float) -> float:
    """Largest relative difference in three other coordinate systems; no answer is better than its last bit."""
    others = [at.rotated(seed) for seed in (1, 2, 3)]
    again = [float(mp.fvu(turned.net, turned.polynomial(), turned.inputs).total) for turned in others]
    return max(*(abs(a / value - 1) for a in again), float(np.finfo(float).eps))


def measure(name: str, at: Problem, plan: dict[int, int]) -> tuple[dict[str, float], dict[str, Any]]:
    """Numbers and curves at one size."""
    poly = at.polynomial()
    exact = mp.fvu(at.net, poly, at.inputs)
    value = float(exact.total)
    error = max(rounding(at, value), float(exact.bound) / value)
    before = seconds(lambda: mp.fvu(at.net, poly, at.inputs), repeats=3)
    runs = monte_carlo(at, poly, value, plan)
    closed = (before + seconds(lambda: mp.fvu(at.net, poly, at.inputs), repeats=3)) / 2
    per_sample = runs[-1].seconds / runs[-1].samples
    numbers = {
        f"{name}: exact FVU": value,
        f"{name}: relative error of the exact FVU (rounding and bound)": error,
        f"{name}: closed form, s": closed,
        f"{name}: exponent of Monte Carlo's error in n (law: -0.5)": slope_of(runs),
        f"{name}: samples at which Monte Carlo is right to 1 %": samples_for(runs, 1e-2),
    }
    for label, goal in (("1 %", 1e-2), ("0.1 %", 1e-3), ("0.01 %", 1e-4)):
        needed = samples_for(runs, goal)
        mark = " (extrapolated)" if needed > runs[-1].samples else ""
        numbers[f"{name}: Monte Carlo to {label} / closed form{mark}"] = needed * per_sample / closed
    needed = samples_for(runs, error)
    numbers[f"{name}: samples at which Monte Carlo has the error of the closed form (extrapolated)"] = needed
    numbers[f"{name}: Monte Carlo to the error of the closed form, hours (extrapolated)"] = needed * per_sample / 3600
    far = [runs[0].samples, 1e10 * runs[-1].samples]
    sigma = math.sqrt(samples_for(runs, 1.0))
    curves = {
        f"{name}: Monte Carlo": {"x": [r.seconds for r in runs], "y": [r.error for r in runs]},
        f"{name}: law": {"x": [n * per_sample for n in far], "y": [sigma / math.sqrt(n) for n in far]},
        f"{name}: closed form": {"x": [closed], "y": [error]},
    }
    return numbers, curves


def slope_of(runs: list[Sampled]) -> float:
    """Exponent of the error in the number of samples; a run counts by its repeats."""
    weights = [math.sqrt(r.repeats) for r in runs]
    return float(np.polyfit([math.log(r.samples) for r in runs], [math.log(r.error) for r in runs], 1, w=weights)[0])


def other_measures(at: Problem) -> dict[str, float]:
    """What else is exact at the large size: the FVU of a dense polynomial, and the degree spectrum."""
    dense = mp.fit(at.net, at.inputs, 1)
    times = paired_seconds(
        {
            "FVU of a dense polynomial": lambda: mp.fvu(at.net, dense, at.inputs),
            "degree spectrum to degree 8": lambda: mp.degree_spectrum(at.net, at.inputs),
        },
        repeats=3,
    )
    return {f"784-256-10, ten Gaussians: {name}, s": took for name, took in times.items()}


def notes(results: dict[str, Any]) -> list[str]:
    """Where sampling wins."""
    ratios = {k: v for k, v in results.items() if "Monte Carlo to" in k and "/ closed form" in k and v < 1}
    return [
        f"Sampling wins for {k.split(':')[0]}: to {k.split(' to ')[1].split(' /')[0]} it takes {v:.2f} of the time."
        for k, v in ratios.items()
    ]


def main(tiny: bool = False) -> None:
    """Both sizes."""
    results: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    with threadpool_limits(1):
        for name, (shape, plan) in (TINY if tiny else SIZES).items():
            numbers, drawn = measure(name, problem(*shape), plan)
            results |= numbers
            curves |= drawn
        if not tiny:
            results |= other_measures(problem(*SIZES["784-256-10 ReLU, ten Gaussians"][0]))
    save("measures", {**results, "notes": notes(results), "curves": curves, "versions": versions("numpy", "scipy")})


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Relative error against seconds: Monte Carlo, its law beyond what was run, and the closed form."""
    figure = Figure(figsize=(style.WIDTH, 3.9), layout="constrained")
    names = list(dict.fromkeys(key.rsplit(": ", 1)[0] for key in results["curves"]))
    for ax, name in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True):
        sampled, law, closed = (results["curves"][f"{name}: {kind}"] for kind in ("Monte Carlo", "law", "closed form"))
        ax.plot(law["x"], law["y"], color=style.LINEAR, linestyle=style.DOTTED, linewidth=1.2)
        ax.plot(sampled["x"], sampled["y"], "o", color=style.LINEAR, markersize=5)
        ax.plot(closed["x"], closed["y"], "*", color=style.INK, markersize=13)
        ax.set(xscale="log", yscale="log", ylim=(1e-17, 3))
        style.tidy(ax, "seconds", "", name)
    figure.axes[0].set_ylabel("relative error of the FVU", fontsize=style.NORMAL, color=style.INK)
    marks = [
        style.key("closed form", marker="*", markersize=11, linestyle=""),
        style.key("Monte Carlo, 10³, 10⁴, ... samples", color=style.LINEAR, marker="o", markersize=5, linestyle=""),
        style.key("its law σ / √n", color=style.LINEAR, linestyle=style.DOTTED),
    ]
    style.legend_below(figure, marks, 3)
    return {"measures": figure}


if __name__ == "__main__":
    main()
