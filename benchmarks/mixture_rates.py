"""How near the mixture solver comes to the rate of a large matrix product, and how its cost grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import mlpoly as mp
from mlpoly.fitting.blockcg import block_cg
from mlpoly.fitting.gram import gram_operator, padded, standard_inverse
from mlpoly.fitting.mixture import normal_equations
from mlpoly.fitting.whitening import whiten


def seconds(work: Callable[[], Any], device: str) -> float:
    """Of one call, with the device idle before and after."""
    synchronise(device)
    began = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - began


def synchronise(device: str) -> None:
    """Wait until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()


def product_rate(device: str, dtype: torch.dtype, n: int) -> float:
    """Rate of a large square matrix product, in FLOP/s."""
    a = torch.randn(n, n, dtype=dtype, device=device)
    return 2 * n**3 / sorted(seconds(lambda: a @ a, device) for _ in range(6))[2]


def timed_fit(net: Any, mixture: mp.GaussianMixture, device: str, **options: Any) -> tuple[mp.DensePolynomial, float]:
    """A degree-2 fit and the seconds it took."""
    made = []
    took = seconds(lambda: made.append(mp.fit(net, mixture, 2, show_progress=False, **options)), device)
    return made[0], took


class Solver:
    """The linear system of a degree-2 fit, ready for iterations at full size and nothing else."""

    def __init__(self, net: Any, mixture: mp.GaussianMixture, device: str) -> None:
        whitening = whiten(mixture)
        self.device = device
        self.operator = gram_operator(mixture, whitening, single=device == "cpu")
        b, misfits = normal_equations(net, mixture, whitening, self.operator)
        self.b = padded(b, self.operator.side)
        self.misfit = float(misfits.sum())

    @property
    def flops(self) -> int:
        """Of the two large products of one iteration."""
        return int(self.operator.weights.shape[0] * self.b.shape[0] * 4 * self.operator.unknowns**3)

    def run(self, iterations: int) -> int:
        """Iterations made, without a cascade before them."""
        solver = (
            self.operator.apply,
            standard_inverse(self.operator.unknowns, self.b),
            self.b,
            None,
            self.misfit,
            0.0,
            iterations,
        )
        return len(block_cg(*solver, lambda k, value: None).history)

    def iteration(self, few: int, many: int, repeats: int = 3) -> float:
        """Seconds of one iteration: the difference of two runs leaves out what comes before and after them."""
        assert self.run(many) == many, "the solver ended early"
        short, long = (min(seconds(lambda k=k: self.run(k), self.device) for _ in range(repeats)) for k in (few, many))
        return max(long - short, 1e-9) / (many - few)


def operator_share(solver: Solver, rate: float) -> dict[str, float]:
    """Milliseconds of one application of the Gram operator, and its share of the product rate."""
    block = torch.randn_like(solver.b)
    took = sorted(seconds(lambda: solver.operator.apply(block), solver.device) for _ in range(6))[2]
    return {
        "Gram operator, ms": 1e3 * took,
        "Gram operator, share of the product rate (goal 0.6)": solver.flops / took / rate,
    }


def whole_fit(net: Any, mixture: mp.GaussianMixture, device: str, rate: float) -> float:
    """Share of the product rate that a whole fit achieves, counting all of its matrix products as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        timed_fit(net, mixture, device)
    return counter.get_total_flops() / timed_fit(net, mixture, device)[1] / rate


def growth(device: str, sizes: dict[str, list[int]]) -> dict[str, float]:
    """Time per iteration against inputs, components and outputs: measured exponent of each."""
    base = {"d": sizes["d"][0], "components": 8, "outputs": 8}
    slopes = {}
    for axis, values in sizes.items():
        times = [Solver(*synthetic(device, **{**base, axis: v}), device).iteration(2, 8, repeats=2) for v in values]
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
