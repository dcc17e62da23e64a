"""How near the limits of a GPU the work runs: its matrix-product rate and its copy bandwidth, both measured here."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import mlpoly as mp
from benchmarks.common import paired_seconds, synchronise
from benchmarks.evaluation import Gated, compiles
from mlpoly.lm.moments.row_sums import RowSums
from mlpoly.special import clenshaw

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Sizes:
    """Of one block of a language model, and of what it is measured with."""

    d: int = 4096
    h: int = 14336
    rows: int = 8192
    square: int = 8192  # side of the product that tells the rate
    copied: int = 2**28  # numbers in the copy that tells the bandwidth


TINY = Sizes(32, 64, 128, 64, 2**12)


class Machine:
    """A device, and its limits as measured."""

    def __init__(self, device: str, sizes: Sizes) -> None:
        self.device, self.sizes = device, sizes
        self.rates = {t: 2 * sizes.square**3 / self.clock(self._product(t)) for t in ("float32", "bf16", "float64")}
        source = torch.randn(sizes.copied, device=device)
        target = torch.empty_like(source)
        self.bandwidth = 8 * sizes.copied / self.clock(lambda: target.copy_(source))

    def _product(self, dtype: str) -> Callable[[], Any]:
        a = self.random(self.sizes.square, self.sizes.square).to({**DTYPES, "float64": torch.float64}[dtype])
        return lambda: a @ a

    def random(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers on the device, scaled so that products with them keep their size."""
        return (torch.randn(*shape, device=self.device) / shape[-1] ** 0.5).to(dtype)

    def clock(self, work: Callable[[], Any], repeats: int = 5) -> float:
        """Median seconds of one call."""
        return self.clocks({"work": work}, repeats)["work"]

    def clocks(self, works: dict[str, Callable[[], Any]], repeats: int = 5) -> dict[str, float]:
        """Median seconds of calls made in turn."""
        return paired_seconds(works, repeats, partial(synchronise, self.device))

    def peak(self, work: Callable[[], Any]) -> float:
        """GiB that a call needs beyond what is there already; 0 where there is no such count."""
        if self.device != "cuda":
            return 0.0
        synchronise(self.device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        synchronise(self.device)
        return (torch.cuda.max_memory_allocated() - before) / 2**30

    def limits(self) -> dict[str, float]:
        """What was measured of the device itself."""
        rates = {f"matrix-product rate in {t}, TFLOP/s": rate / 1e12 for t, rate in self.rates.items()}
        return {**rates, "copy bandwidth, GB/s": self.bandwidth / 1e9}

    def gaussian(self) -> mp.Gaussian:
        """Inputs of the block with a full covariance."""
        A = self.random(self.sizes.d, self.sizes.d)
        return mp.Gaussian(self.random(self.sizes.d), A @ A.T)

    def weights(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Gate, up and down projection."""
        d, h = self.sizes.d, self.sizes.h
        W, V, D = (self.random(*shape, dtype=dtype) for shape in ((h, d), (h, d), (d, h)))
        return W, V, D


def fitting(machine: Machine) -> dict[str, float]:
    """A cubic of a gated unit: its one product W S, at the rate of float32, also for weights in bf16."""
    d, h = machine.sizes.d, machine.sizes.h
    inputs = machine.gaussian()
    results = {}
    for name, dtype in DTYPES.items():
        W, V, D = machine.weights(dtype)
        net = mp.GLU(W, None, V, None, D, None, "silu")
        took = machine.clock(lambda n=net: mp.fit(n, inputs, 3))
        share = 2 * h * d * d / took / machine.rates["float32"]
        results |= {
            f"fit, SwiGLU, degree 3, {name} weights, ms": 1e3 * took,
            f"fit, {name} weights: share of the float32 product rate (goal 0.6)": share,
            f"fit, {name} weights: memory beyond the weights, GiB": machine.peak(lambda n=net: mp.fit(n, inputs, 3)),
        }
    return results


def moments(machine: Machine) -> dict[str, float]:
    """Mean and covariance of rows, as for language models (products in float32) and in full float64."""
    d, rows = machine.sizes.d, machine.sizes.rows
    results = {}
    for name, dtype in DTYPES.items():
        x = machine.random(rows, d, dtype=dtype)
        sums = RowSums("single")
        works = {"streamed": lambda s=sums, x=x: s.add(x), "exact": lambda x=x: mp.MomentAccumulator(d).update(x)}
        times = machine.clocks(works)
        flops = 2 * rows * d * d
        for label, key, rate in (("streamed", "streamed", "float32"), ("MomentAccumulator", "exact", "float64")):
            share = flops / times[key] / machine.rates[rate]
            results[f"moments, {label}, {name} rows: share of the {rate} product rate (goal 0.6)"] = share
        results[f"moments, streamed, {name} rows: memory, GiB"] = machine.peak(works["streamed"])
    return results


def exact_error(machine: Machine) -> dict[str, float]:
    """Exact FVU of a ReLU layer, in float64: share of the product rate that its products alone account for."""
    d, h = machine.sizes.d, machine.sizes.h
    W, _, D = machine.weights(torch.float32)
    net = mp.MLP(W, None, D, None, "relu")
    inputs = machine.gaussian()
    poly = mp.fit(net, inputs, 2)
    took = machine.clock(lambda: mp.fvu(net, poly), repeats=2)
    # W S twice (spreads, and correlations), then per pair above the diagonal the inner product and two readouts.
    flops = 2 * 2 * h * d * d + h * h * (d + 2 * d)
    return {
        "exact FVU, ReLU, s (goal 5)": took,
        "exact FVU: share of the float64 product rate, its products alone": flops / took / machine.rates["float64"],
        "exact FVU: memory, GiB": machine.peak(lambda: mp.fvu(net, poly)),
    }


def evaluation(machine: Machine) -> dict[str, float]:
    """Cubics beside the gated unit that they replace, compiled and not; inputs in float32 and bf16."""
    sizes, results = machine.sizes, {}
    for name, dtype in DTYPES.items():
        module = Gated(sizes.d, sizes.h, sizes.d).to(machine.device, dtype).requires_grad_(False)
        poly = mp.fit(mp.from_torch(module.float()), mp.Gaussian.standard(sizes.d), 3).to_torch()
        module, x = module.to(dtype), machine.random(sizes.rows, sizes.d, dtype=dtype)
        works = {"network": module, "polynomial": poly}
        torch.compiler.reset()
        compiled = {}
        if compiles(machine.device):
            compiled = {f"compiled {k}": torch.compile(f, dynamic=False) for k, f in works.items()}
        with torch.no_grad():
            times = machine.clocks({k: lambda f=f, x=x: f(x) for k, f in {**works, **compiled}.items()})
            results[f"evaluation, degree 3, {name} inputs: memory, GiB"] = machine.peak(lambda p=poly, x=x: p(x))
        said = f"evaluation, degree 3 / network, {name} inputs"
        results[f"{said} (goal 1.3)"] = times["polynomial"] / times["network"]
        if compiled:
            ratio = times["compiled polynomial"] / times["compiled network"]
            results[f"{said}, both compiled (goal 1.15)"] = ratio
    return results


def recurrence(machine: Machine) -> dict[str, float]:
    """Clenshaw's recurrence by itself: bytes that must move, one read and one write, against the copy bandwidth."""
    sizes = machine.sizes
    t, series = torch.randn(sizes.rows, sizes.h, device=machine.device), machine.random(4, sizes.h)
    works: dict[str, Callable[[], Any]] = {"": lambda: clenshaw(series, t)}
    if compiles(machine.device):
        torch.compiler.reset()
        fused = torch.compile(clenshaw, dynamic=False)
        works[", compiled"] = lambda: fused(series, t)
    times = machine.clocks(works)
    moved = 8 * t.numel()
    return {
        f"recurrence of degree 3{how}: share of the copy bandwidth": moved / took / machine.bandwidth
        for how, took in times.items()
    }


PARTS = (fitting, moments, exact_error, evaluation, recurrence)
