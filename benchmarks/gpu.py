"""On a CUDA device: the same results as on the CPU, and how near the machine's limit the work runs.

With ``--tiny`` everything runs in small sizes, on the CPU where there is no GPU.
"""

import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import mlpoly as mp
from benchmarks.common import Skip, save, seconds, synchronise, write
from benchmarks.gpu_rates import PARTS, TINY, Machine, Sizes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def clock(work: Callable[[], Any], repeats: int = 5) -> float:
    """Median seconds of one call."""
    return seconds(work, repeats, partial(synchronise, DEVICE))


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
            assert all(p.series.plain.device.type == device for p in found)
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


def large_features(sizes: Sizes) -> dict[str, float]:
    """Eigenfeatures of one block of an 8-billion-parameter language model, in float32."""
    torch.manual_seed(0)
    d, h = sizes.d, sizes.h
    W, V, D = (torch.randn(*s, device=DEVICE) / s[1] ** 0.5 for s in ((h, d), (h, d), (d, h)))
    poly = mp.fit(mp.GLU(W, None, V, None, D, None, "silu"), mp.Gaussian.standard(d, like=W), 3)
    return {"eigenfeatures (k = 5), ms": 1e3 * clock(lambda: mp.eigenfeatures(poly, output=0, k=5), repeats=3)}


def large_measures(sizes: Sizes) -> dict[str, float]:
    """Exact FVU of blocks of that size under one Gaussian, beside a sample."""
    torch.manual_seed(0)
    d, h = sizes.d, sizes.h
    W, V, D = (torch.randn(*s, device=DEVICE) / s[1] ** 0.5 for s in ((h, d), (h, d), (d, h)))
    inputs = mp.Gaussian.standard(d, like=W)
    x = torch.randn(20_000, d, device=DEVICE)
    results: dict[str, float] = {}
    for name, net in (("ReLU MLP", mp.MLP(W, None, D, None, "relu")), ("SwiGLU", mp.GLU(W, None, V, None, D, None))):
        poly = mp.fit(net, inputs, 2)
        exact, sampled = mp.fvu(net, poly), mp.fvu(net, poly, x)
        gap = (exact.total - sampled.total).abs() / sampled.standard_error
        results |= {
            f"exact FVU of a {name} {d}-{h}-{d}, s (goal 5)": clock(lambda n=net, p=poly: mp.fvu(n, p), repeats=2),
            f"{name}: distance from 20 000 samples, in standard errors": float(gap),
        }
    return results


def parts(tiny: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    """Everything that is measured, by name."""
    sizes = TINY if tiny else Sizes()
    machine = Machine(DEVICE, sizes)
    work: dict[str, Callable[[], dict[str, Any]]] = {"limits": machine.limits}
    work |= {part.__name__: partial(part, machine) for part in PARTS}
    work |= {"same_as_cpu": same_as_cpu, "gradients_flow": gradients_flow}
    work |= {part.__name__: partial(part, sizes) for part in (large_features, large_measures)}
    return work


def main(tiny: bool = False) -> None:
    """Run everything once; a part that fails costs only its own results."""
    if DEVICE == "cpu" and not tiny:
        raise Skip("it needs a CUDA device (--tiny tries its code without one)")
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32
    results: dict[str, Any] = {}
    failed = []
    for name, part in parts(tiny).items():
        began = time.perf_counter()
        try:
            results |= part()
        except Exception:
            traceback.print_exc()
            failed.append(name)
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
        print(f"  {name}: {time.perf_counter() - began:.1f} s", flush=True)
        write("gpu", results)  # what was measured stays, even if a limit of time ends the run
    save("gpu", results)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
