"""How near the mixture solver comes to the rate of a large matrix product, and how its cost grows."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import mlpoly as mp
from benchmarks.common import paired_seconds, slope
from mlpoly.fitting.blockcg import block_cg
from mlpoly.fitting.gram import gram_operator, padded, standard_inverse
from mlpoly.fitting.mixture import normal_equations
from mlpoly.fitting.whitening import whiten


def synchronise(device: str) -> None:
    """Wait until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed_fit(net: Any, mixture: mp.GaussianMixture, device: str, **options: Any) -> tuple[mp.DensePolynomial, float]:
    """A degree-2 fit and the seconds it took."""
    made = []

    def fit() -> None:
        made.append(mp.fit(net, mixture, 2, show_progress=False, **options))

    took = paired_seconds({"fit": fit}, 1, partial(synchronise, device), warm=False)["fit"]
    return made[0], took


class Products:
    """Large square products one after the other, which tell the rate that is possible."""

    def __init__(self, device: str, count: int = 8) -> None:
        self.n, self.count = (8192, count) if device == "cuda" else (2048, count)
        dtype = torch.float64 if device == "cuda" else torch.float32  # those of the solver
        self.matrix = torch.randn(self.n, self.n, dtype=dtype, device=device)

    def __call__(self) -> None:
        for _ in range(self.count):
            self.matrix @ self.matrix

    @property
    def flops(self) -> int:
        """Of one call."""
        return 2 * self.n**3 * self.count


class Shares(NamedTuple):
    """Seconds of one iteration and of one application of the operator, and the product rate in FLOP/s."""

    iteration: float
    operator: float
    rate: float


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

    def run(self, iterations: int) -> None:
        """So many iterations, without a cascade before them."""
        solver = self.operator.apply, standard_inverse(self.operator.unknowns, self.b), self.b, None, self.misfit, 0.0
        made = len(block_cg(*solver, iterations, lambda k, value: None).history)
        if made != iterations:
            raise RuntimeError(f"the solver ended after {made} of {iterations} iterations")

    def measure(self, few: int, many: int, repeats: int = 7) -> Shares:
        """The best of runs made in turn with products that take about as long: both heat the device.

        The difference of a long and a short run leaves out what comes before and after the iterations.
        """
        products = Products(self.device)
        works = {
            "few": partial(self.run, few),
            "many": partial(self.run, many),
            "operator": partial(self.operator.apply, self.b),
            "products": products,
        }
        best = paired_seconds(works, repeats, partial(synchronise, self.device), of=min)
        iteration = max(best["many"] - best["few"], 1e-9) / (many - few)
        return Shares(iteration, best["operator"], products.flops / best["products"])


def iteration_share(solver: Solver, name: str, few: int, many: int, repeats: int = 7) -> dict[str, float]:
    """Shares of the product rate that iterations and their operator achieve, counting two large products each."""
    found = solver.measure(few, many, repeats)
    return {
        f"{name}: ms per iteration": 1e3 * found.iteration,
        f"{name}: Gram operator, share of the product rate (goal 0.6)": solver.flops / found.operator / found.rate,
        f"{name}: whole iteration, share of the product rate (goal 0.6)": solver.flops / found.iteration / found.rate,
    }


def whole_fit(net: Any, mixture: mp.GaussianMixture, device: str, repeats: int = 3) -> float:
    """Share of the product rate that a whole fit achieves, counting all of its matrix products as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        timed_fit(net, mixture, device)
    products = Products(device)
    works = {"fit": lambda: timed_fit(net, mixture, device), "products": products}
    best = paired_seconds(works, repeats, partial(synchronise, device), of=min, warm=False)
    return float(counter.get_total_flops() / best["fit"] / (products.flops / best["products"]))


def growth(device: str, sizes: dict[str, list[int]]) -> dict[str, float]:
    """Time per iteration against inputs, components and outputs: measured exponent of each."""
    base = {"d": sizes["d"][0], "components": 8, "outputs": 8}
    slopes = {}
    for axis, values in sizes.items():
        times = [Solver(*synthetic(device, **{**base, axis: v}), device).measure(2, 8, 3).iteration for v in values]
        slopes[f"exponent of time per iteration in {axis}"] = slope(values, times)
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
