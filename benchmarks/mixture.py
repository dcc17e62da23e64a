"""The exact quadratic under ten class Gaussians at MNIST size: cost, quality, and how it grows.

Needs the MNIST files (MLPOLY_DATA/mnist). The same code runs on the CPU and, through ``benchmarks.gpu``, on a GPU.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn

import mlpoly as mp
from benchmarks.common import peak_gib, save
from mlpoly.fitting.gram import gram_operator
from mlpoly.fitting.whitening import whiten
from mlpoly.studies.data import load_mnist


class SwiGLU(nn.Module):
    """A gated network of the same size."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(784, hidden), nn.Linear(784, hidden), nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def trained(kind: str, x: torch.Tensor, y: torch.Tensor, hidden: int = 256, steps: int = 2000) -> mp.MLP | mp.GLU:
    """A trained 784-256-10 network as a record in double precision."""
    import schedulefree

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10)) if kind == "relu" else SwiGLU(hidden)
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


def synchronise(device: str) -> None:
    """Wait until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()


def product_rate(device: str, dtype: torch.dtype, n: int) -> float:
    """Rate of a large square matrix product, in FLOP/s."""
    a = torch.randn(n, n, dtype=dtype, device=device)
    a @ a
    synchronise(device)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        a @ a
        synchronise(device)
        times.append(time.perf_counter() - began)
    return 2 * n**3 / sorted(times)[2]


def timed_fit(net: Any, mixture: mp.GaussianMixture, device: str, **options: Any) -> tuple[mp.DensePolynomial, float]:
    """A degree-2 fit and the seconds it took."""
    synchronise(device)
    began = time.perf_counter()
    poly = mp.fit(net, mixture, 2, show_progress=False, **options)
    synchronise(device)
    return poly, time.perf_counter() - began


def operator_share(poly: mp.DensePolynomial, seconds: float, components: int, rate: float) -> float:
    """Share of the product rate that the iterations achieve, counting their two large products alone."""
    n = poly.report.kept + 1
    flops = poly.report.iterations * components * poly.dim_out * 2 * 2 * n**3
    return flops / seconds / rate


def operator_alone(mixture: mp.GaussianMixture, device: str, rate: float, outputs: int = 10) -> dict[str, float]:
    """Milliseconds of one application of the Gram operator, and its share of the product rate."""
    whitening = whiten(mixture)
    operator = gram_operator(mixture, whitening, single=device == "cpu")
    n, c = whitening.kept + 1, mixture.weights.shape[0]
    block = torch.randn(outputs, n, n, dtype=torch.float64, device=device)
    times = []
    for _ in range(6):
        synchronise(device)
        began = time.perf_counter()
        operator.apply(block)
        synchronise(device)
        times.append(time.perf_counter() - began)
    apply = sorted(times)[2]
    return {
        "Gram operator, ms": 1e3 * apply,
        "Gram operator, share of the product rate (goal 0.6)": c * outputs * 4 * n**3 / apply / rate,
    }


def growth(device: str, sizes: dict[str, list[int]]) -> dict[str, float]:
    """Time per iteration against inputs, components and outputs: measured exponent of each."""
    base = {"d": sizes["d"][0], "components": 8, "outputs": 8}
    slopes = {}
    for axis, values in sizes.items():
        times = []
        for value in values:
            shape = {**base, axis: value}
            net, mixture = synthetic(device, **shape)
            # The difference of two runs leaves the iterations alone.
            short = min(timed_fit(net, mixture, device, max_iterations=2, tolerance=1e-3)[1] for _ in range(2))
            long = min(timed_fit(net, mixture, device, max_iterations=8, tolerance=1e-3)[1] for _ in range(2))
            times.append(max(long - short, 1e-9) / 6)
        slopes[f"exponent of time per iteration in {axis}"] = float(np.polyfit(np.log(values), np.log(times), 1)[0])
    return slopes


def synthetic(device: str, d: int, components: int, outputs: int) -> tuple[mp.MLP, mp.GaussianMixture]:
    """A random network and mixture of given size."""
    rng = np.random.default_rng(0)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.tensor(rng.standard_normal(shape), device=device)

    net = mp.MLP(tensor(64, d) / d**0.5, tensor(64), tensor(outputs, 64), None, "relu")
    parts = []
    for _ in range(components):
        a = tensor(d, d) / d**0.5
        parts.append(mp.Gaussian(tensor(d), a @ a.T))
    weights = torch.full((components,), 1 / components, dtype=torch.float64, device=device)
    return net, mp.GaussianMixture.of(weights, parts)


def run(device: str) -> dict[str, Any]:
    """Cost of the fit for both networks on one device."""
    images = load_mnist()
    x, y = torch.tensor(images.train, device=device), torch.tensor(images.train_labels, device=device)
    mixture = mp.GaussianMixture.from_labels(x, images.train_labels)
    dtype = torch.float32 if device == "cpu" else torch.float64
    results: dict[str, Any] = {}
    for kind in ("relu", "swiglu"):
        net = trained(kind, x, y)
        poly, took = timed_fit(net, mixture, device)
        rate = product_rate(device, dtype, 2048 if device == "cpu" else 8192)
        results |= {
            f"{kind}: seconds for ten outputs": took,
            f"{kind}: iterations": poly.report.iterations,
            f"{kind}: gradient (certificate)": poly.report.gradient,
            f"{kind}: gain left": poly.report.gain_left,
            f"{kind}: misfit": poly.report.misfit,
            f"{kind}: directions kept": poly.report.kept,
            f"{kind}: product rate of the machine, GFLOP/s": rate / 1e9,
            f"{kind}: share of it, all overhead and no coarse work counted": operator_share(poly, took, 10, rate),
        }
    return results | operator_alone(mixture, device, rate)


def main() -> None:
    """Cost on the CPU."""
    results = run("cpu")
    results["peak memory, GiB (goal 4)"] = peak_gib()
    results |= growth("cpu", {"d": [128, 256, 512], "components": [4, 8, 16], "outputs": [4, 8, 16]})
    save("mixture", results)


if __name__ == "__main__":
    main()
