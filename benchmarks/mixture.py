"""The exact quadratic under a mixture of ten classes at MNIST size, against the paper's route: FVU against time.

The paper starts from the closed form under N(0, I) and goes on with schedule-free SGD on samples of the mixture.
``mp.finetune`` does that here, in float32 and with steps that it measures; every FVU is exact. The classes are made up,
with blobs for means and smooth noise around them. ``benchmarks.gpu_mixture`` has MNIST itself.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import mlpoly as mp
from benchmarks.common import peak_gib, save, versions
from benchmarks.mixture_rates import Products, Solver, iteration_share, timed_fit, whole_fit
from mlpoly.charts import style

STEPS = (10, 40, 160)  # of SGD; each is a run of its own, whose warm-up is made for its length
BATCH, SIDE, CLASSES = 1024, 28, 10


class SwiGLU(nn.Module):
    """A gated network of the same size."""

    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(d, hidden), nn.Linear(d, hidden), nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def trained(kind: str, x: torch.Tensor, y: torch.Tensor, hidden: int = 256, steps: int = 2000) -> mp.MLP | mp.GLU:
    """A trained network d-256-10 as a record in double precision."""
    import schedulefree

    torch.manual_seed(0)
    d = x.shape[1]
    net = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, 10)) if kind == "relu" else SwiGLU(d, hidden)
    net = net.to(x.device)
    single = x.float()
    optimizer = schedulefree.AdamWScheduleFree(net.parameters(), lr=1e-3, warmup_steps=1000, weight_decay=0.1)
    optimizer.train()
    for _ in range(steps):
        batch = torch.randint(len(x), (64,), device=x.device)
        loss = nn.functional.cross_entropy(net(single[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    optimizer.eval()
    w = {k: v.detach().double() for k, v in net.state_dict().items()}
    if kind == "relu":
        return mp.MLP(w["0.weight"], w["0.bias"], w["2.weight"], w["2.bias"], "relu")
    parts = [w[f"{name}.{what}"] for name in ("gate", "up", "down") for what in ("weight", "bias")]
    return mp.GLU(*parts, "silu")


# -- against the paper's route -----------------------------------------------------------------------------------------


def class_like(side: int = SIDE, components: int = CLASSES) -> mp.GaussianMixture:
    """Moments like those of classes of images: every class has its own strokes, and varies most where they are."""
    rng = np.random.default_rng(0)
    pixels = np.stack(np.meshgrid(*[np.arange(side)] * 2, indexing="ij"), -1).reshape(-1, 2)

    def near(points: np.ndarray, width: float) -> np.ndarray:
        return np.exp(-((pixels[:, None] - points) ** 2).sum(-1) / (2 * width**2))

    def strokes(width: float) -> np.ndarray:
        return near(side * (0.2 + 0.6 * rng.random((6, 2))), width).max(1)

    smooth, parts = near(pixels, 2.0), []
    for _ in range(components):
        mean, spread = 0.6 * strokes(2.5), 0.05 + 0.3 * strokes(3.0)
        cov = spread[:, None] * smooth * spread + 1e-3 * np.eye(side**2)
        parts.append(mp.Gaussian(torch.tensor(mean), torch.tensor(cov)))
    return mp.GaussianMixture.of(torch.full((components,), 1 / components, dtype=torch.float64), parts)


def classifier(mixture: mp.GaussianMixture, each: int = 1000) -> mp.MLP | mp.GLU:
    """A network trained to tell the classes apart."""
    x = torch.cat([part.sample(each, seed=i) for i, part in enumerate(mixture.components)])
    return trained("relu", x, torch.arange(len(mixture.components)).repeat_interleave(each), steps=1000)


def single(net: Any) -> Any:
    """The same network in float32, in which descent is fastest."""
    return mp.MLP(*(w.float() for w in (net.W1, net.b1, net.W2, net.b2)), net.activation)


def descend(net: Any, mixture: mp.GaussianMixture, steps: int) -> tuple[Any, float]:
    """The paper's route and its seconds, the closed form under N(0, I) among them."""
    began = time.perf_counter()
    d = net.dim_in
    c = mp.fit(net, mp.Gaussian.standard(d, like=net.W1), 2).coefficients()
    start = mp.DensePolynomial(torch.zeros(d), c.constant, c.linear, c.quadratic)
    options = {"batch_size": BATCH, "evaluate_every": steps, "show_progress": False}
    return mp.finetune(net, start, mixture, steps=steps, **options), time.perf_counter() - began


def in_double(poly: Any) -> mp.DensePolynomial:
    """The same coefficients for an exact judgement."""
    c = poly.coefficients()
    zero = torch.zeros(poly.dim_in, dtype=torch.float64)
    return mp.DensePolynomial(zero, *(a.double() for a in (c.constant, c.linear, c.quadratic)))


def paper_route(net: Any, mixture: mp.GaussianMixture, plan: tuple[int, ...]) -> dict[int, tuple[float, float]]:
    """Seconds and exact FVU after each number of steps."""
    lean = single(net)
    parts = [mp.Gaussian(g.mean.float(), g.cov.float()) for g in mixture.components]
    light = mp.GaussianMixture.of(mixture.weights.float(), parts)
    made = {}
    for steps in plan:
        poly, took = descend(lean, light, steps)
        made[steps] = took, float(mp.fvu(net, in_double(poly), mixture).total)
    return made


def closed_forms(net: Any, mixture: mp.GaussianMixture) -> dict[str, tuple[float, float]]:
    """Seconds and exact FVU of what takes no samples and no iterations."""
    whole = mp.Gaussian(mixture.mean, mixture.covariance)
    ways = {
        "quadratic under N(0, I)": lambda: mp.fit(net, mp.Gaussian.standard(net.dim_in, like=net.W1), 2),
        "quadratic under N(mean, cov)": lambda: mp.fit(net, whole, 2),
        "linear, exact": lambda: mp.fit(net, mixture, 1),
        "neuronwise quadratic": lambda: mp.fit(net, mixture, 2, method="neuronwise"),
    }
    made = {}
    for name, way in ways.items():
        began = time.perf_counter()
        poly = way()
        took = time.perf_counter() - began
        made[name] = took, float(mp.fvu(net, poly, mixture).total)
    return made


def at_time(route: dict[int, tuple[float, float]], seconds: float) -> float:
    """FVU of the route at a time, between its runs on a line of logarithms; before and after them as at the ends."""
    times, values = zip(*sorted(route.values()), strict=True)
    return float(np.exp(np.interp(np.log(seconds), np.log(times), np.log(values))))


def against_the_paper(net: Any, mixture: mp.GaussianMixture, plan: tuple[int, ...] = STEPS) -> dict[str, Any]:
    """The exact quadratic, closed forms and SGD, all under the mixture."""
    poly, took = timed_fit(net, mixture, "cpu")
    best = float(mp.fvu(net, poly, mixture).total)
    points = {**closed_forms(net, mixture), "exact quadratic": (took, best)}
    route = {0: points["quadratic under N(0, I)"], **paper_route(net, mixture, plan)}
    last, (longest, reached) = max(route.items())
    results: dict[str, Any] = {f"FVU, {name}": value for name, (_, value) in points.items()}
    results |= {f"FVU, {steps} steps of SGD from N(0, I)": value for steps, (_, value) in route.items() if steps}
    results |= {
        "exact quadratic, s": took,
        "exact quadratic, iterations": poly.report.iterations,
        "exact quadratic, gradient (certificate)": poly.report.gradient,
        f"{last} steps of SGD / exact quadratic, time": longest / took,
        f"{last} steps of SGD / exact quadratic, FVU": reached / best,
        "SGD / exact quadratic, FVU after as long as the exact fit takes": at_time(route, took) / best,
        "neuronwise quadratic / exact quadratic, FVU": points["neuronwise quadratic"][1] / best,
    }
    drawn = {name: {"x": [x], "y": [y]} for name, (x, y) in points.items()}
    times, values = zip(*route.values(), strict=True)
    drawn["SGD from N(0, I)"] = {"x": list(times), "y": list(values)}
    return {**results, "curves": drawn}


def shares(net: Any, mixture: mp.GaussianMixture, products: Products) -> dict[str, float]:
    """How near the solver comes to the product rate: its operator, an iteration, and the fit as a whole."""
    return {
        **iteration_share(Solver(net, mixture, "cpu"), products, "solver", 1, 4, repeats=3),
        "solver: whole fit, share of the product rate": whole_fit(net, mixture, products, repeats=1),
    }


def notes(results: dict[str, Any]) -> list[str]:
    """When SGD is ahead: it has something to show long before the exact solver ends."""
    curves = results["curves"]
    end, bar = curves["exact quadratic"]["x"][0], curves["neuronwise quadratic"]["y"][0]
    ahead = [t for t, v in zip(*curves["SGD from N(0, I)"].values(), strict=True) if t < end and v < bar]
    if not ahead:
        return ["At no time was SGD better than everything that was there by then."]
    return [f"Between {min(ahead):.0f} s and {end:.0f} s, when the exact fit ends, SGD is the best there is."]


def main(tiny: bool = False) -> None:
    """Cost and quality on the CPU."""
    mixture = class_like(6, 3) if tiny else class_like()
    net = classifier(mixture)
    results = against_the_paper(net, mixture, (5, 20) if tiny else STEPS)
    results |= shares(net, mixture, Products("cpu", tiny))
    results["peak memory, GiB (goal 4)"] = peak_gib()
    save("mixture", {**results, "notes": notes(results), "versions": versions("torch", "schedulefree")})


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Exact FVU against seconds: SGD as a curve, what is closed form or solved exactly as points."""
    figure = Figure(figsize=(style.WIDTH, 4.6), layout="constrained")
    ax = figure.subplots()
    curves = dict(results["curves"])
    sgd = curves.pop("SGD from N(0, I)")
    # Nothing was judged between the start and the first run.
    ax.plot(sgd["x"][:2], sgd["y"][:2], color=style.LINEAR, linestyle=style.DOTTED, linewidth=1.2)
    ax.plot(sgd["x"][1:], sgd["y"][1:], color=style.LINEAR, marker="o", markersize=4, linewidth=1.8)
    label = "the paper's route:\nSGD from N(0, I)"
    style.note(ax, label, (sgd["x"][1], sgd["y"][1]), (8, 6), color=style.LINEAR)
    best = curves["exact quadratic"]["y"][0]
    ax.axhline(best, color=style.GUIDE, linewidth=0.8, zorder=0)
    for name, point in curves.items():
        exact = name == "exact quadratic"
        ax.plot(point["x"], point["y"], "*" if exact else "D", color=style.INK, markersize=13 if exact else 5)
        style.note(
            ax, name, (point["x"][0], point["y"][0]), (0, -14) if exact else (8, -3), ha="center" if exact else "left"
        )
    ax.set(xscale="log", yscale="log", ylim=(best / 1.5, None), xlim=(None, 4 * sgd["x"][-1]))
    style.tidy(ax, "seconds", "exact FVU under the mixture")
    return {"mixture": figure}


if __name__ == "__main__":
    main()
