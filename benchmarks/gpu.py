"""On a CUDA device: the same results as on the CPU, and how near the machine's limit the work runs.

Set MLPOLY_DATA to a folder with ``mnist`` for the mixture part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import mlpoly as mp
from benchmarks.common import save
from benchmarks.mixture import growth, operator_alone, operator_share, product_rate, timed_fit, trained
from mlpoly.studies.data import load_mnist

DEVICE = "cuda"


def clock(work: Callable[[], Any], repeats: int = 5) -> float:
    """Median seconds of one call, with the device idle before and after."""
    work()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times)[repeats // 2]


def same_as_cpu() -> dict[str, float]:
    """Largest difference between CUDA and CPU results in float64, relative to the result, over many kinds of fit."""
    rng = np.random.default_rng(0)
    d, h, o = 12, 40, 5
    A = rng.standard_normal((d, d))
    parts = [rng.standard_normal((h, d)), rng.standard_normal(h), rng.standard_normal((h, d)), rng.standard_normal(h)]
    down, mean, cov, x = rng.standard_normal((o, h)), rng.standard_normal(d), A @ A.T, rng.standard_normal((50, d))
    worst: dict[str, float] = {}
    for name in mp.activations.names():
        values = []
        for device in ("cpu", DEVICE):
            t = [torch.tensor(p, device=device) for p in parts]
            w, m, s = (torch.tensor(a, device=device) for a in (down, mean, cov))
            points, inputs = torch.tensor(x, device=device), mp.Gaussian(m, s)
            nets = (mp.MLP(t[0], t[1], w, None, name), mp.GLU(*t, w, None, name))
            found = [mp.fit(net, inputs, 3) for net in nets]
            assert all(p.series.device.type == device for p in found)
            values.append([p(points).cpu() for p in found])
        gap = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*values, strict=True))
        worst[name] = gap
    name = max(worst, key=lambda n: worst[n])
    return {f"CUDA against CPU, {len(worst)} activations, MLP and GLU, worst ({name})": worst[name]}


def gradients_flow() -> dict[str, float]:
    """Gradient of a fit with respect to a weight, against a finite difference, on the device."""
    torch.manual_seed(0)
    d, h = 6, 8
    W = torch.randn(h, d, dtype=torch.float64, device=DEVICE, requires_grad=True)
    V, D = (torch.randn(*s, dtype=torch.float64, device=DEVICE) for s in ((h, d), (3, h)))
    S = torch.eye(d, dtype=torch.float64, device=DEVICE) + 0.2
    x = torch.randn(10, d, dtype=torch.float64, device=DEVICE)

    def loss(w: torch.Tensor) -> torch.Tensor:
        net = mp.GLU(w, None, V, None, D, None, "silu")
        return mp.fit(net, mp.Gaussian(x[0], S), 3)(x).square().sum()

    loss(W).backward()
    step = torch.zeros_like(W)
    step[2, 3] = 1e-6
    with torch.no_grad():
        slope = (loss(W + step) - loss(W - step)) / 2e-6
    return {"gradient through fit against finite difference": float((W.grad[2, 3] - slope).abs() / slope.abs())}


def large_glu() -> dict[str, float]:
    """One block of an 8-billion-parameter language model, degree 3, float32."""
    torch.manual_seed(0)
    d, h = 4096, 14336
    W, V, D = (torch.randn(*s, device=DEVICE) / s[1] ** 0.5 for s in ((h, d), (h, d), (d, h)))
    A = torch.randn(d, d, device=DEVICE) / d**0.5
    S = A @ A.T
    inputs = mp.Gaussian(torch.zeros(d, device=DEVICE), S)
    net = mp.GLU(W, None, V, None, D, None, "silu")
    torch.cuda.reset_peak_memory_stats()
    fit = clock(lambda: mp.fit(net, inputs, 3))
    peak = torch.cuda.max_memory_allocated() / 2**30
    product = clock(lambda: W @ S)
    poly = mp.fit(net, inputs, 3)
    x = torch.randn(8192, d, device=DEVICE)
    return {
        "GLU 4096-14336 cubic, ms": 1e3 * fit,
        "GLU 4096-14336 cubic / product W S": fit / product,
        "GLU 4096-14336 peak memory, GiB": peak,
        "GLU 4096-14336 evaluation / network": clock(lambda: poly(x)) / clock(lambda: net(x)),
        "eigenfeatures of it (k = 5), ms": 1e3 * clock(lambda: mp.eigenfeatures(poly, output=0, k=5), repeats=3),
    }


def large_measures() -> dict[str, float]:
    """Exact FVU of blocks of that size under one Gaussian, beside a sample."""
    torch.manual_seed(0)
    d, h, o = 4096, 14336, 4096
    W, V, D = (torch.randn(*s, device=DEVICE) / s[1] ** 0.5 for s in ((h, d), (h, d), (o, h)))
    inputs = mp.Gaussian.standard(d, like=W)
    x = torch.randn(20_000, d, device=DEVICE)
    results: dict[str, float] = {}
    for name, net in (("ReLU MLP", mp.MLP(W, None, D, None, "relu")), ("SwiGLU", mp.GLU(W, None, V, None, D, None))):
        poly = mp.fit(net, inputs, 2)
        exact, sampled = mp.fvu(net, poly), mp.fvu(net, poly, samples=x)
        gap = (exact.total - sampled.total).abs() / sampled.standard_error
        results |= {
            f"exact FVU of a {name} 4096-14336-4096, s (goal 5)": clock(lambda n=net, p=poly: mp.fvu(n, p), repeats=3),
            f"{name}: distance from 20 000 samples, in standard errors": float(gap),
        }
    return results


def mixtures() -> dict[str, Any]:
    """The exact quadratic at MNIST size: seconds, share of the product rate, and quality beside the paper's route."""
    images = load_mnist()
    x, y = torch.tensor(images.train, device=DEVICE), torch.tensor(images.train_labels, device=DEVICE)
    mixture = mp.GaussianMixture.from_labels(x, images.train_labels)
    rate = product_rate(DEVICE, torch.float64, 8192)
    results: dict[str, Any] = {"float64 product rate, TFLOP/s": rate / 1e12}
    for kind in ("relu", "swiglu"):
        net = trained(kind, x, y)
        timed_fit(net, mixture, DEVICE)
        poly, took = timed_fit(net, mixture, DEVICE)
        best, _ = timed_fit(net, mixture, DEVICE, tolerance=1e-6, max_iterations=2000)
        results |= {
            f"{kind}: seconds for ten outputs (goal 0.5)": took,
            f"{kind}: iterations at full size": poly.report.iterations,
            f"{kind}: gradient (certificate)": poly.report.gradient,
            f"{kind}: misfit / converged misfit": poly.report.misfit / best.report.misfit,
            f"{kind}: converged after": best.report.iterations,
            f"{kind}: directions kept, dropped": f"{poly.report.kept}, {poly.report.dropped}",
        }
        results |= iteration_share(net, mixture, rate, kind)
        results |= quality(net, mixture, poly, best, kind)
    results |= operator_alone(mixture, DEVICE, rate)
    return results | growth(DEVICE, {"d": [512, 1024, 1536], "components": [4, 8, 16], "outputs": [4, 8, 16]})


def iteration_share(net: Any, mixture: mp.GaussianMixture, rate: float, kind: str) -> dict[str, float]:
    """Share of the product rate that iterations at full size achieve; the difference of two runs leaves these alone."""
    start = mp.fit(net, mixture, 1)
    options = {"start": start, "tolerance": 0.0}
    short = min(timed_fit(net, mixture, DEVICE, max_iterations=5, **options)[1] for _ in range(3))
    runs = [timed_fit(net, mixture, DEVICE, max_iterations=45, **options) for _ in range(3)]
    poly, long = min(runs, key=lambda run: run[1])
    share = operator_share(poly, long - short, 10, rate) * 40 / 45
    return {
        f"{kind}: ms per iteration": 1e3 * (long - short) / 40,
        f"{kind}: share of that rate, whole iteration": share,
    }


def quality(net: Any, mixture: mp.GaussianMixture, poly: Any, best: Any, kind: str) -> dict[str, float]:
    """FVU under the mixture of the exact fit and of the paper's route, on one large sample."""
    samples = torch.cat([mixture.sample(50_000, seed=s) for s in range(1, 5)])
    paper = mp.fit(net, mp.Gaussian.standard(784), 2)
    whole = mp.fit(net, mp.Gaussian(mixture.mean, mixture.covariance), 2)
    candidates = {
        "exact quadratic": poly,
        "exact quadratic, converged": best,
        "linear": mp.fit(net, mixture, 1),
        "neuronwise quadratic": mp.fit(net, mixture, 2, method="neuronwise"),
        "quadratic under N(mean, cov)": whole,
        "quadratic under N(0, I)": paper,
    }
    dense = mp.DensePolynomial(mixture.mean * 0, *paper_coefficients(paper))
    for steps in (200, 2000):
        candidates[f"paper: N(0, I) + {steps} steps of SGD"] = mp.finetune(dense, net, mixture, steps=steps)
    return {f"{kind}: FVU, {name}": float(mp.fvu(net, p, samples=samples).total) for name, p in candidates.items()}


def paper_coefficients(poly: Any) -> tuple[Any, Any, Any]:
    """Dense coefficients of the N(0, I) fit, where the paper's SGD starts."""
    c = poly.coefficients()
    return c.constant, c.linear, c.quadratic


def main() -> None:
    """Run everything once."""
    results: dict[str, Any] = {}
    for part in (same_as_cpu, gradients_flow, large_glu, large_measures, mixtures):
        print(part.__name__, flush=True)
        results |= part()
    results["device"] = torch.cuda.get_device_name()
    results["torch"] = torch.__version__
    save("gpu", results)


if __name__ == "__main__":
    main()
