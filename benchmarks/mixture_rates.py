"""How near the mixture solver comes to the rate of a large matrix product, and how its cost grows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import mlpoly as mp
from benchmarks.common import paired_seconds, slope, synchronise
from mlpoly.fitting.mixture.gram import gram_operator
from mlpoly.fitting.mixture.matrices import padded
from mlpoly.fitting.mixture.preconditioner import standard_inverse
from mlpoly.fitting.mixture.quadratic import normal_equations
from mlpoly.inputs.coordinates import Coordinates
from mlpoly.linalg.block_cg import block_cg


def timed_fit(net: Any, mixture: mp.GaussianMixture, device: str, **options: Any) -> tuple[mp.DensePolynomial, float]:
    """A degree-2 fit and the seconds it took."""
    made = []

    def fit() -> None:
        made.append(mp.fit(net, mixture, 2, show_progress=False, **options))

    took = paired_seconds({"fit": fit}, 1, partial(synchronise, device), warm=False)["fit"]
    return made[0], took


class Products:
    """Large square products one after the other, which tell the rate that is possible on a device."""

    def __init__(self, device: str, tiny: bool = False) -> None:
        side, count = (8192, 8) if device == "cuda" else (4096, 2)
        self.device, self.side, self.count = device, 64 if tiny else side, count
        dtype = torch.float64 if device == "cuda" else torch.float32  # those of the solver
        self.matrix = torch.randn(self.side, self.side, dtype=dtype, device=device)

    def __call__(self) -> None:
        for _ in range(self.count):
            self.matrix @ self.matrix

    def beside(
        self, works: dict[str, Callable[[], Any]], repeats: int, warm: bool = True
    ) -> tuple[dict[str, float], float]:
        """The best seconds of other work made in turn with the products, which heat the device as well; their rate."""
        works = {**works, "products": self}
        best = paired_seconds(works, repeats, partial(synchronise, self.device), of=min, warm=warm)
        return best, 2 * self.side**3 * self.count / best["products"]


class Shares(NamedTuple):
    """Seconds of one iteration and of one application of the operator, and the product rate in FLOP/s."""

    iteration: float
    operator: float
    rate: float


class Solver:
    """The linear system of a degree-2 fit, ready for iterations at full size and nothing else."""

    def __init__(self, net: Any, mixture: mp.GaussianMixture, device: str) -> None:
        whitening = Coordinates.of(mixture)
        self.device = device
        self.operator = gram_operator(mixture, whitening, single=device == "cpu")
        b, misfits = normal_equations(net, mixture, whitening, self.operator)
        self.b = padded(b, self.operator.side)
        self.misfit = float(misfits.sum())

    @property
    def flops(self) -> int:
        """Of the two large products of one iteration."""
        return int(self.operator.weights.shape[0] * self.b.shape[0] * 4 * self.operator.size**3)

    def run(self, iterations: int) -> None:
        """So many iterations, without a cascade before them."""
        system = self.operator.apply, standard_inverse(self.operator.size, self.b), self.b
        made = len(block_cg(*system, misfit=self.misfit, tolerance=0.0, max_iterations=iterations).history)
        if made != iterations:
            raise RuntimeError(f"the solver ended after {made} of {iterations} iterations")

    def measure(self, products: Products, few: int, many: int, repeats: int = 7) -> Shares:
        """The difference of a long and a short run leaves out what comes before and after the iterations."""
        works: dict[str, Callable[[], Any]] = {
            "few": partial(self.run, few),
            "many": partial(self.run, many),
            "operator": partial(self.operator.apply, self.b),
        }
        best, rate = products.beside(works, repeats)
        return Shares(max(best["many"] - best["few"], 1e-9) / (many - few), best["operator"], rate)


def iteration_share(
    solver: Solver, products: Products, name: str, few: int, many: int, repeats: int = 7
) -> dict[str, float]:
    """Shares of the product rate that iterations and their operator achieve, counting two large products each."""
    found = solver.measure(products, few, many, repeats)
    return {
        f"{name}: ms per iteration": 1e3 * found.iteration,
        f"{name}: Gram operator, share of the product rate (goal 0.6)": solver.flops / found.operator / found.rate,
        f"{name}: whole iteration, share of the product rate (goal 0.6)": solver.flops / found.iteration / found.rate,
    }


def whole_fit(net: Any, mixture: mp.GaussianMixture, products: Products, repeats: int = 3) -> float:
    """Share of the product rate that a whole fit achieves, counting its matrix products as torch counts them.

    (Those that are added to something in place torch does not count, but they are small.)
    """

    def fit() -> None:
        mp.fit(net, mixture, 2, show_progress=False)

    with FlopCounterMode(display=False) as counter:
        fit()
    _, before = products.beside({}, 3)
    best, between = products.beside({"fit": fit}, repeats, warm=False)
    return float(counter.get_total_flops() / best["fit"] / max(before, between))


def growth(products: Products, sizes: dict[str, list[int]]) -> dict[str, float]:
    """Time per iteration against inputs, components and outputs: measured exponent of each."""
    device, base = products.device, {"d": sizes["d"][0], "components": 8, "outputs": 8}
    slopes = {}
    for axis, values in sizes.items():
        solvers = (Solver(*synthetic(device, **{**base, axis: value}), device) for value in values)
        times = [solver.measure(products, 2, 8, repeats=3).iteration for solver in solvers]
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
