"""The exact quadratic of MNIST networks under ten class Gaussians, beside the paper's route and what is quicker.

The paper starts from the closed form under N(0, I) and goes on with schedule-free SGD on samples of the mixture, as
``mp.finetune`` does. Needs MNIST in a folder that MLPOLY_DATA names; runs on the GPU where there is one. With
``--tiny`` made-up classes take its place.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import mlpoly as mp
from benchmarks.common import Skip, save, synchronise, versions, write
from benchmarks.gpu import DEVICE
from mlpoly.datasets import load_images

KINDS = {"relu": "ReLU", "swiglu": "SwiGLU"}


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


def classes(tiny: bool) -> tuple[torch.Tensor, torch.Tensor, mp.GaussianMixture]:
    """Images, labels, and one Gaussian per class."""
    if tiny:
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(3), 50)
        mixing, means = rng.standard_normal((3, 36, 36)) / 6, rng.standard_normal((3, 36))
        x = means[labels] + np.einsum("nij,nj->ni", mixing[labels], rng.standard_normal((150, 36)))
    else:
        try:
            images = load_images("mnist")
        except FileNotFoundError as error:
            raise Skip(f"there is {error}") from error
        x, labels = images.train, images.train_labels
    inputs = torch.tensor(x, device=DEVICE)
    return inputs, torch.tensor(labels, device=DEVICE), mp.GaussianMixture.from_labels(inputs, labels)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result and seconds of a call."""
    synchronise(DEVICE)
    began = time.perf_counter()
    result = work()
    synchronise(DEVICE)
    return result, time.perf_counter() - began


def compared(net: Any, mixture: mp.GaussianMixture, plan: tuple[int, ...], size: int) -> dict[str, Any]:
    """Seconds of the exact fit and of descent; FVU of all ways on one large sample of the mixture."""

    def exact(**options: Any) -> Any:
        return mp.fit(net, mixture, 2, method=mp.methods.Exact(**options))

    exact()  # to warm up
    best, took = timed(exact)
    paper = mp.fit(net, mp.Gaussian.standard(net.dim_in), 2)
    candidates = {
        "exact quadratic": best,
        "exact quadratic, converged": exact(tolerance=1e-6, max_iterations=2000),
        "linear": mp.fit(net, mixture, 1),
        "neuronwise quadratic": mp.fit(net, mixture, 2, method="neuronwise"),
        "quadratic under N(mean, cov)": mp.fit(net, mp.Gaussian(mixture.mean, mixture.covariance), 2),
        "quadratic under N(0, I)": paper,
    }
    c = paper.coefficients()
    dense = mp.polynomials.DensePolynomial(mixture.mean * 0, c.constant, c.linear, c.quadratic)
    results: dict[str, Any] = {"exact quadratic, s (goal 0.5)": took, "iterations": best.report.iterations}
    for steps in plan:
        name = f"{steps} steps of SGD"
        candidates[f"paper: N(0, I) + {name}"], descent = timed(
            lambda steps=steps: mp.finetune(net, dense, mixture, steps=steps)
        )
        results[f"{name} / exact quadratic, time"] = descent / took
    samples = torch.cat([mixture.sample(size, seed=seed) for seed in range(1, 5)])
    fvu = {name: float(mp.fvu(net, p, samples).total) for name, p in candidates.items()}
    last = f"paper: N(0, I) + {plan[-1]} steps of SGD"
    ratio = {f"{plan[-1]} steps of SGD / exact quadratic, FVU": fvu[last] / fvu["exact quadratic"]}
    return results | ratio | {f"FVU, {name}": value for name, value in fvu.items()}


def main(tiny: bool = False) -> None:
    """Both kinds of network."""
    x, y, mixture = classes(tiny)
    results: dict[str, Any] = {}
    for kind, name in KINDS.items():
        net = trained(kind, x, y, steps=50 if tiny else 2000)
        part = compared(net, mixture, (5, 20) if tiny else (200, 2000), 100 if tiny else 50_000)
        results |= {f"{name}: {key}": value for key, value in part.items()}
        write("mixture", results)  # what was measured stays, even if a limit of time ends the run
    save("mixture", results | {"versions": versions("schedulefree")})


if __name__ == "__main__":
    main()
